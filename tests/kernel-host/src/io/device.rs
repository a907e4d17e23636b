//! Named devices and their symbolic links: what `NdisRegisterDeviceEx` makes and what opening a path finds.
//!
//! A device that its driver has deleted keeps its open files and its dispatch table until the last of them is closed, as with
//! `IoDeleteDevice`; it can only no longer be found.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::object::{DEVICE_OBJECT, IO_TYPE_DEVICE};
use super::security::SecurityDescriptor;
use crate::ndis::loan::{Loan, LoanedBytes};

/// Number of major functions (`IRP_MJ_MAXIMUM_FUNCTION` + 1).
pub const MAJOR_FUNCTIONS: usize = 28;

/// Where NDIS's own extension would lie: touching `DeviceObject->DeviceExtension` of such a device faults.
const FOREIGN_EXTENSION: usize = 0x00ED_1500_E000_0000;

/// What a device is made of.
pub struct DeviceDescription {
    pub name: String,
    pub symbolic_link: Option<String>,
    pub driver_object: usize,
    pub dispatch: [usize; MAJOR_FUNCTIONS],
    pub extension_size: usize,
    pub security: SecurityDescriptor,
}

/// A device object.
pub struct Device {
    pub description: DeviceDescription,
    object: Loan<DEVICE_OBJECT>,
    extension: LoanedBytes,
    deleted: AtomicBool,
    open_files: AtomicUsize,
}

// SAFETY: the device object is memory shared with the image by design; the host only passes its address around.
unsafe impl Sync for Device {}

static DEVICES: Mutex<Vec<Arc<Device>>> = Mutex::new(Vec::new());

fn devices() -> std::sync::MutexGuard<'static, Vec<Arc<Device>>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a device cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateError {
    NameTaken,
    LinkTaken,
}

impl Device {
    /// Makes a device that can be opened from now on.
    pub fn create(description: DeviceDescription) -> Result<Arc<Self>, CreateError> {
        const FILE_DEVICE_NETWORK: u32 = 0x12;
        const DO_BUFFERED_IO: u32 = 0x4;
        const FILE_DEVICE_SECURE_OPEN: u32 = 0x100;
        let object = DEVICE_OBJECT {
            Type: IO_TYPE_DEVICE,
            Size: size_of::<DEVICE_OBJECT>() as u16,
            ReferenceCount: 0,
            DriverObject: description.driver_object as *mut c_void,
            NextDevice: std::ptr::null_mut(),
            AttachedDevice: std::ptr::null_mut(),
            CurrentIrp: std::ptr::null_mut(),
            Timer: std::ptr::null_mut(),
            Flags: DO_BUFFERED_IO,
            Characteristics: FILE_DEVICE_SECURE_OPEN,
            Vpb: std::ptr::null_mut(),
            DeviceExtension: FOREIGN_EXTENSION as *mut c_void,
            DeviceType: FILE_DEVICE_NETWORK,
            StackSize: 1,
            Queue: [0; 9],
            AlignmentRequirement: 0,
            Rest: [0; 22],
        };
        let mut all = devices();
        let live = |device: &&Arc<Self>| !device.is_deleted();
        if all.iter().filter(live).any(|device| device.description.name.eq_ignore_ascii_case(&description.name)) {
            return Err(CreateError::NameTaken);
        }
        let link = description.symbolic_link.as_deref().map(link_name);
        if all.iter().filter(live).any(|device| link.is_some() && device.link() == link) {
            return Err(CreateError::LinkTaken);
        }
        let device = Arc::new(Self {
            extension: LoanedBytes::filled(description.extension_size, 0),
            object: Loan::new(object),
            description,
            deleted: AtomicBool::new(false),
            open_files: AtomicUsize::new(0),
        });
        all.push(Arc::clone(&device));
        Ok(device)
    }

    /// Takes the device out of the name space; it goes with its last open file.
    pub fn delete(self: &Arc<Self>) {
        self.deleted.store(true, Ordering::SeqCst);
        self.forget_when_unused();
    }

    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    #[must_use]
    pub fn object(&self) -> *mut DEVICE_OBJECT {
        self.object.as_pointer()
    }

    /// The driver's own bytes behind the device; NULL when it asked for none.
    #[must_use]
    pub fn extension(&self) -> *mut u8 {
        self.extension.as_pointer()
    }

    pub(super) fn file_opened(&self) {
        self.open_files.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn file_closed(self: &Arc<Self>) {
        self.open_files.fetch_sub(1, Ordering::SeqCst);
        self.forget_when_unused();
    }

    fn forget_when_unused(self: &Arc<Self>) {
        if self.is_deleted() && self.open_files.load(Ordering::SeqCst) == 0 {
            devices().retain(|device| !Arc::ptr_eq(device, self));
        }
    }

    fn link(&self) -> Option<String> {
        self.description.symbolic_link.as_deref().map(link_name)
    }
}

/// The link's name below the directory of DOS devices, in lower case.
fn link_name(path: &str) -> String {
    let lower = path.to_lowercase();
    let prefixes = [r"\dosdevices\global\", r"\dosdevices\", r"\global??\", r"\??\"];
    prefixes.iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower).to_owned()
}

/// The device that a Win32 path names, and what of the path is left for it.
#[must_use]
pub fn find(path: &str) -> Option<(Arc<Device>, String)> {
    let rest = path.strip_prefix(r"\\.\").or_else(|| path.strip_prefix(r"\\?\"))?;
    let (name, remaining) = rest.find('\\').map_or((rest, ""), |position| rest.split_at(position));
    let name = name.to_lowercase();
    let device =
        devices().iter().find(|device| !device.is_deleted() && device.link().as_ref() == Some(&name)).cloned()?;
    Some((device, remaining.to_owned()))
}

/// The device of an object that an image names.
#[must_use]
pub fn of_object(object: *mut c_void) -> Option<Arc<Device>> {
    devices().iter().find(|device| device.object().cast() == object).cloned()
}

/// Files that are still open on devices of a driver: it cannot be unloaded before they are closed.
#[must_use]
pub fn open_files_of(driver_object: usize) -> usize {
    let all = devices();
    let own = all.iter().filter(|device| device.description.driver_object == driver_object);
    own.map(|device| device.open_files.load(Ordering::SeqCst)).sum()
}
