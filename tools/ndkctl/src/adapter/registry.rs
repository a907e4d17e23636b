//! The registry keys of an adapter.

use windows_registry::{Key as WindowsKey, LOCAL_MACHINE};
use windows_sys::Win32::System::Registry::{HKEY, KEY_READ, KEY_SET_VALUE};

/// To read values.
pub const READ: u32 = KEY_READ;
/// To read and write values.
pub const WRITE: u32 = KEY_READ | KEY_SET_VALUE;

/// Where Windows keeps the names of network connections.
const CONNECTIONS: &str = r"SYSTEM\CurrentControlSet\Control\Network\{4D36E972-E325-11CE-BFC1-08002BE10318}";

/// The driver key of an adapter: `HKR` of the INF.
#[derive(Debug)]
pub struct Key(pub WindowsKey);

impl Key {
    /// Takes over a key.
    ///
    /// # Safety
    ///
    /// It is open, and the caller does not close it.
    pub unsafe fn of(key: HKEY) -> Self {
        // SAFETY: the caller's contract.
        Self(unsafe { WindowsKey::from_raw(key) })
    }
}

/// The name of the adapter's network connection.
pub fn alias(key: &Key) -> Option<String> {
    let id = key.0.get_string("NetCfgInstanceId").ok()?;
    LOCAL_MACHINE.open(format!(r"{CONNECTIONS}\{id}\Connection")).ok()?.get_string("Name").ok()
}
