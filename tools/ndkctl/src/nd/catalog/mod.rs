//! The entries of the Winsock catalogue by which programs find a provider of NetworkDirect.
//!
//! What an entry is and what has to be done is plain data here, the same on every system; only `winsock` calls the system, and only
//! Windows has it.

pub mod entry;
pub mod install;
pub mod list;
#[cfg(windows)]
pub mod winsock;

use crate::failure::{Failure, Kind};
use entry::ProtocolInfo;

/// A provider in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    pub info: ProtocolInfo,
    /// Of its DLL, as the catalogue has it: with variables in percent signs.
    pub path: String,
}

/// Why nothing of this can be done elsewhere.
#[cfg(not(windows))]
fn needs_windows(what: &str) -> Failure {
    let next = "run ndkctl.exe on Windows; \"ndkctl nd install --dry-run\" shows the entries here";
    Failure::new(Kind::Unreachable, what, "the Winsock catalogue is a part of Windows", next)
}

/// A call of Winsock that failed, by its error.
#[cfg(any(windows, test))]
fn failed(what: &str, error: i32) -> Failure {
    const ACCESS_DENIED: i32 = 5;
    const WSAEACCES: i32 = 10_013;
    const WSAEINVAL: i32 = 10_022;
    const WSANO_RECOVERY: i32 = 11_003;
    const NOT_ADMINISTRATOR: (&str, &str) =
        ("the catalogue may not be changed by this user", "run it as administrator");
    let (cause, next) = match error {
        ACCESS_DENIED | WSAEACCES | WSANO_RECOVERY => NOT_ADMINISTRATOR,
        WSAEINVAL => ("Winsock does not take the entry", "look at the entries with \"ndkctl nd list\""),
        _ => ("Winsock refuses", "look up the error number; \"netsh winsock show catalog\" shows the catalogue"),
    };
    Failure::new(Kind::Unreachable, what, format!("{cause} (error {error})"), next)
}

#[cfg(test)]
mod tests {
    use super::failed;

    #[test]
    fn a_user_without_rights_is_told_so() {
        for error in [5, 10_013, 11_003] {
            let failure = failed("cannot install", error);
            assert!(failure.next_step.contains("administrator"), "{failure}");
            assert!(failure.cause.contains(&error.to_string()), "{failure}");
        }
        assert!(failed("cannot install", 10_022).cause.contains("does not take"));
        assert!(failed("cannot install", 10_107).next_step.contains("netsh"));
    }
}
