//! What `ndkctl adapter` needs of the system's devices.

use crate::failure::{Failure, Kind};
use serde::Serialize;
use std::path::Path;

/// The hardware id of `inf/softndk.inx`.
pub const HARDWARE_ID: &str = r"root\softndk";

/// A device with that hardware id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdapterDevice {
    /// Its instance id.
    pub instance: String,
    /// The name of its network connection, where it has one.
    pub alias: Option<String>,
    /// A driver is installed for it.
    pub has_driver: bool,
    /// Its driver runs.
    pub started: bool,
    /// The problem code of Device Manager; null where there is none.
    pub problem: Option<u32>,
}

/// The system's devices with our hardware id.
pub trait Devices {
    /// All of them.
    fn list(&self) -> Result<Vec<AdapterDevice>, Failure>;
    /// Makes one, without a driver; its instance id.
    fn register(&self) -> Result<String, Failure>;
    /// Installs the driver for a device, from this INF or from the driver store. Whether Windows must be restarted.
    fn install(&self, instance: &str, inf: Option<&Path>) -> Result<bool, Failure>;
    /// Removes one. Whether Windows must be restarted.
    fn remove(&self, instance: &str) -> Result<bool, Failure>;
}

/// A call of SetupAPI that failed, by its error.
#[cfg_attr(not(any(windows, test)), expect(dead_code, reason = "only Windows has devices"))]
pub fn failed(what: &str, error: u32) -> Failure {
    const FILE_NOT_FOUND: u32 = 2;
    const ACCESS_DENIED: u32 = 5;
    const NO_SUCH_DEVINST: u32 = 0xE000_020B;
    const NO_CATALOG_FOR_OEM_INF: u32 = 0xE000_022F;
    const IN_WOW64: u32 = 0xE000_0235;
    const TRUST_NOT_ESTABLISHED: u32 = 0xE000_0242;
    const PUBLISHER_NOT_TRUSTED: u32 = 0xE000_0243;
    const NO_DRIVER_SELECTED: u32 = 0xE000_0203;
    let (cause, next) = match error {
        FILE_NOT_FOUND => ("the INF or a file that it names is not there", "name the INF of the package with --inf"),
        ACCESS_DENIED => ("this user may not change devices", "run it as administrator"),
        NO_SUCH_DEVINST => ("there is no such device", "look at \"ndkctl adapter list\""),
        NO_CATALOG_FOR_OEM_INF | TRUST_NOT_ESTABLISHED | PUBLISHER_NOT_TRUSTED => (
            "the driver package is not signed by a certificate that this computer trusts",
            "install it with setup.ps1 -Install, which makes the certificate and the catalogue",
        ),
        IN_WOW64 => ("a 32-bit program cannot install drivers", "use the ndkctl.exe for this computer's architecture"),
        NO_DRIVER_SELECTED => (
            "the driver store has no package for root\\softndk",
            "add it with \"pnputil /add-driver softndk.inf\", or name its INF with --inf",
        ),
        _ => ("Windows refuses", r"look at the end of %SystemRoot%\INF\setupapi.dev.log"),
    };
    Failure::new(Kind::Unreachable, what, format!("{cause} (error 0x{error:X})"), next)
}

#[cfg(test)]
mod tests {
    use super::{HARDWARE_ID, failed};

    #[test]
    fn errors_name_cause_and_next_step() {
        for (error, cause, next) in [
            (2, "not there", "--inf"),
            (5, "this user", "administrator"),
            (0xE000_020B, "no such device", "adapter list"),
            (0xE000_022F, "not signed", "setup.ps1"),
            (0xE000_0242, "not signed", "setup.ps1"),
            (0xE000_0243, "not signed", "setup.ps1"),
            (0xE000_0235, "32-bit", "architecture"),
            (0xE000_0203, "driver store", "pnputil"),
            (0x1234, "refuses (error 0x1234)", "setupapi.dev.log"),
        ] {
            let failure = failed("cannot", error);
            assert!(failure.cause.contains(cause) && failure.next_step.contains(next), "{failure}");
        }
    }

    #[test]
    fn the_hardware_id_is_that_of_the_inf() {
        let inx = include_str!("../../../../inf/softndk.inx");
        assert!(inx.lines().any(|line| line.ends_with(&format!("= softndk.ndi,{HARDWARE_ID}"))));
    }
}
