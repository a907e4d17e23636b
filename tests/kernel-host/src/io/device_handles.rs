//! Handles that drivers have of device objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::device::Device;
use crate::host_lock::HostLock;
use crate::{ledger, object_table};

struct Handles {
    open: BTreeMap<usize, (Arc<Device>, u32)>,
    opened: usize,
}

static HANDLES: HostLock<Handles> = HostLock::new(Handles { open: BTreeMap::new(), opened: 0 });

/// Handles of devices differ from those of other objects by this bit.
const HANDLE: usize = 0xFFFF_FFFF_A000_0000;

/// Opens a handle with these rights.
pub(crate) fn open(device: Arc<Device>, access: u32) -> usize {
    let handle = {
        let mut handles = HANDLES.lock();
        handles.opened += 4;
        let handle = HANDLE + handles.opened;
        handles.open.insert(handle, (device, access));
        handle
    };
    ledger::record(object_table::LEDGER_KIND, handle, "to a device");
    handle
}

/// The device of an open handle, and the rights that the handle has.
pub(crate) fn find(handle: usize) -> Option<(Arc<Device>, u32)> {
    HANDLES.lock().open.get(&handle).cloned()
}

/// Closes a handle; false when it is none of a device.
pub(crate) fn close(handle: usize) -> bool {
    let closed = HANDLES.lock().open.remove(&handle).is_some();
    if closed {
        ledger::release(object_table::LEDGER_KIND, handle);
    }
    closed
}
