//! The registry, as far as drivers keep their parameters in it: keys by path, values by name, both without regard to case.
//! Tests write a service's parameters before they load it and read what it left.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ledger;
use crate::object_table;

/// A value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// `REG_*`.
    pub kind: u32,
    pub data: Vec<u8>,
}

pub const REG_SZ: u32 = 1;
pub const REG_BINARY: u32 = 3;
pub const REG_DWORD: u32 = 4;

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self { kind: REG_DWORD, data: number.to_le_bytes().to_vec() }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self { kind: REG_SZ, data: text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect() }
    }
}

#[derive(Default)]
struct Registry {
    keys: BTreeMap<String, BTreeMap<String, Value>>,
    handles: HashMap<usize, String>,
    opened: usize,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

fn with<T>(body: impl FnOnce(&mut Registry) -> T) -> T {
    let mut registry: MutexGuard<'_, Option<Registry>> = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    body(registry.get_or_insert_default())
}

/// The path of a service's key, which its driver is given.
#[must_use]
pub fn service_path(service: &str) -> String {
    format!("\\REGISTRY\\MACHINE\\SYSTEM\\ControlSet001\\Services\\{service}")
}

/// The path of the parameters of a service.
#[must_use]
pub fn parameters_path(service: &str) -> String {
    format!("{}\\Parameters", service_path(service))
}

/// Makes a key that may exist.
pub fn create(path: &str) {
    with(|registry| {
        registry.keys.entry(path.to_lowercase()).or_default();
    });
}

/// Writes a value; makes the key where it is missing.
pub fn set(path: &str, name: &str, value: impl Into<Value>) {
    let value = value.into();
    with(|registry| registry.keys.entry(path.to_lowercase()).or_default().insert(name.to_lowercase(), value));
}

/// Reads a value.
#[must_use]
pub fn get(path: &str, name: &str) -> Option<Value> {
    with(|registry| registry.keys.get(&path.to_lowercase())?.get(&name.to_lowercase()).cloned())
}

/// Registry handles differ from those of objects by this bit.
const HANDLE: usize = 0xFFFF_FFFF_9000_0000;

/// Opens a key that exists.
pub(crate) fn open(path: &str) -> Option<usize> {
    let handle = with(|registry| {
        let path = path.to_lowercase();
        registry.keys.contains_key(&path).then(|| {
            registry.opened += 4;
            let handle = HANDLE + registry.opened;
            registry.handles.insert(handle, path);
            handle
        })
    })?;
    ledger::record(object_table::LEDGER_KIND, handle, "to a registry key");
    Some(handle)
}

/// The path of an open key.
pub(crate) fn path_of(handle: usize) -> Option<String> {
    with(|registry| registry.handles.get(&handle).cloned())
}

/// Closes a handle; false when it is none of a key.
pub(crate) fn close(handle: usize) -> bool {
    let closed = with(|registry| registry.handles.remove(&handle)).is_some();
    if closed {
        ledger::release(object_table::LEDGER_KIND, handle);
    }
    closed
}
