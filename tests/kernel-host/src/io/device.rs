//! Device objects: what `NdisRegisterDeviceEx` and `IoCreateDevice` make, and what opening a path finds.
//!
//! A device that its driver has deleted keeps its open files and its dispatch table until the last of them is closed, as with
//! `IoDeleteDevice`; it can only no longer be found. Its symbolic links are `links.rs`'s.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use super::links;
use super::object::{DEVICE_OBJECT, IO_TYPE_DEVICE};
use super::security::SecurityDescriptor;
use super::token::Caller;
use crate::bugcheck::{BugCheck, bugcheck};
use crate::host_lock::HostLock;
use crate::ndis::loan::{Loan, LoanedBytes};
use crate::nt::DRIVER_OBJECT;
use crate::status::{self, NtStatus};

/// Number of major functions (`IRP_MJ_MAXIMUM_FUNCTION` + 1).
pub const MAJOR_FUNCTIONS: usize = 28;

/// Where NDIS's own extension would lie: touching `DeviceObject->DeviceExtension` of such a device faults.
const FOREIGN_EXTENSION: usize = 0x00ED_1500_E000_0000;

/// `DEVICE_OBJECT.Flags` (wdm.h).
pub const DO_BUFFERED_IO: u32 = 0x4;
pub const DO_EXCLUSIVE: u32 = 0x8;
pub const DO_DIRECT_IO: u32 = 0x10;
pub const DO_DEVICE_HAS_NAME: u32 = 0x40;
pub const DO_DEVICE_INITIALIZING: u32 = 0x80;

const BOTH_METHODS: u32 = DO_BUFFERED_IO | DO_DIRECT_IO;

/// The dispatch routines that serve a device.
pub enum Dispatch {
    /// Those that the driver gave NDIS; the device's extension is reached by asking NDIS.
    OfNdis(Box<[usize; MAJOR_FUNCTIONS]>),
    /// Those that are in the driver object when a packet comes.
    OfDriver,
}

/// What a device is made of.
pub struct DeviceDescription {
    /// Empty for a device without a name.
    pub name: String,
    /// A link that comes and goes with the device.
    pub symbolic_link: Option<String>,
    pub driver_object: usize,
    pub dispatch: Dispatch,
    pub extension_size: usize,
    /// Until it is given another one.
    pub security: SecurityDescriptor,
    /// `DeviceType`, `Flags` and `Characteristics`.
    pub kind: u32,
    pub flags: u32,
    pub characteristics: u32,
}

/// A device object.
pub struct Device {
    pub description: DeviceDescription,
    /// Who may open it.
    security: HostLock<SecurityDescriptor>,
    object: Loan<DEVICE_OBJECT>,
    extension: LoanedBytes,
    deleted: AtomicBool,
    /// The driver gets no more packets: those of its files are completed for it.
    cut_off: AtomicBool,
    open_files: AtomicUsize,
}

// SAFETY: the device object is memory shared with the image by design; the host only passes its address around.
unsafe impl Sync for Device {}

/// Whether NDIS keeps the packets of a control device that its driver has deregistered, see [`keep_packets_of_gone_devices`].
static KEEPS_PACKETS: AtomicBool = AtomicBool::new(false);

/// What NDIS does with the packets of files that are open when NdisDeregisterDeviceEx is called, cleanup and close: it passes
/// them to the driver (the default), or completes them itself. Its documents promise neither.
pub fn keep_packets_of_gone_devices(keeps: bool) {
    KEEPS_PACKETS.store(keeps, Ordering::SeqCst);
}

pub(crate) fn ndis_keeps_packets() -> bool {
    KEEPS_PACKETS.load(Ordering::SeqCst)
}

static DEVICES: HostLock<Vec<Arc<Device>>> = HostLock::new(Vec::new());

fn devices() -> MutexGuard<'static, Vec<Arc<Device>>> {
    DEVICES.lock()
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
        let extension = LoanedBytes::filled(description.extension_size, 0);
        let visible = match description.dispatch {
            Dispatch::OfNdis(_) => FOREIGN_EXTENSION as *mut c_void,
            Dispatch::OfDriver => extension.as_pointer().cast(),
        };
        let object = DEVICE_OBJECT {
            Type: IO_TYPE_DEVICE,
            Size: size_of::<DEVICE_OBJECT>() as u16,
            ReferenceCount: 0,
            DriverObject: description.driver_object as *mut c_void,
            NextDevice: std::ptr::null_mut(),
            AttachedDevice: std::ptr::null_mut(),
            CurrentIrp: std::ptr::null_mut(),
            Timer: std::ptr::null_mut(),
            Flags: description.flags,
            Characteristics: description.characteristics,
            Vpb: std::ptr::null_mut(),
            DeviceExtension: visible,
            DeviceType: description.kind,
            StackSize: 1,
            Queue: [0; 9],
            AlignmentRequirement: 0,
            Rest: [0; 22],
        };
        let mut all = devices();
        if !description.name.is_empty() && all.iter().any(|device| device.is_called(&description.name)) {
            return Err(CreateError::NameTaken);
        }
        if description.symbolic_link.as_deref().is_some_and(|link| links::add(link, &description.name).is_none()) {
            return Err(CreateError::LinkTaken);
        }
        let device = Arc::new(Self {
            extension,
            security: HostLock::new(description.security.clone()),
            object: Loan::new(object),
            description,
            deleted: AtomicBool::new(false),
            cut_off: AtomicBool::new(false),
            open_files: AtomicUsize::new(0),
        });
        all.push(Arc::clone(&device));
        Ok(device)
    }

    /// Takes the device out of the name space; it goes with its last open file.
    pub fn delete(self: &Arc<Self>) {
        if let Some(link) = &self.description.symbolic_link {
            links::remove(link);
        }
        let mut all = devices();
        self.deleted.store(true, Ordering::SeqCst);
        self.forget_when_unused(&mut all);
    }

    /// From now on packets of the device are completed without its driver, cleanup and close among them.
    pub fn cut_off(&self) {
        self.cut_off.store(true, Ordering::SeqCst);
    }

    fn is_called(&self, name: &str) -> bool {
        !self.is_deleted() && self.description.name.eq_ignore_ascii_case(name)
    }

    /// The routine for a major function; 0 when the driver has none.
    #[must_use]
    pub fn routine(&self, major: usize) -> usize {
        if self.cut_off.load(Ordering::SeqCst) {
            return 0;
        }
        match &self.description.dispatch {
            Dispatch::OfNdis(table) => table.get(major).copied().unwrap_or(0),
            Dispatch::OfDriver => {
                let driver = self.description.driver_object as *const DRIVER_OBJECT;
                // SAFETY: the driver object outlives its devices; the driver may write its table at any time.
                let table = unsafe { (&raw const (*driver).MajorFunction).read_volatile() };
                table.get(major).map_or(0, |routine| *routine as usize)
            }
        }
    }

    /// `DEVICE_OBJECT.Flags`, which the driver may change.
    #[must_use]
    pub fn flags(&self) -> u32 {
        // SAFETY: the object is the device's own memory.
        unsafe { (&raw const (*self.object()).Flags).read_volatile() }
    }

    /// Whether a caller may open it with these rights.
    #[must_use]
    pub fn grants(&self, caller: Caller, access: u32) -> bool {
        self.security.lock().grants(caller, access)
    }

    pub(crate) fn set_security(&self, security: SecurityDescriptor) {
        *self.security.lock() = security;
    }

    /// A device has one way in which the I/O manager passes it buffers, or none.
    pub(super) fn check_flags(&self) {
        if self.flags() & BOTH_METHODS == BOTH_METHODS {
            let parameters = [0, self.object() as u64, u64::from(self.flags()), 0];
            let rule = "DO_BUFFERED_IO and DO_DIRECT_IO are both set in the flags of a device";
            bugcheck(BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION, parameters, rule);
        }
    }

    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    #[must_use]
    pub fn object(&self) -> *mut DEVICE_OBJECT {
        self.object.as_pointer()
    }

    /// The driver's own bytes behind the device; NULL without any.
    #[must_use]
    pub fn extension(&self) -> *mut u8 {
        self.extension.as_pointer()
    }

    /// Counts a file that is being opened, unless the device is exclusive and open already, or has been deleted since it was found.
    pub(super) fn file_opened(&self) -> Result<(), NtStatus> {
        // Held, so that the device is not deleted, and the driver not unloaded, between the look and the count.
        let _all = devices();
        if self.is_deleted() {
            return Err(status::STATUS_NO_SUCH_DEVICE);
        }
        if self.flags() & DO_EXCLUSIVE != 0 && self.open_files.load(Ordering::SeqCst) != 0 {
            return Err(status::STATUS_ACCESS_DENIED);
        }
        self.open_files.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    pub(super) fn file_closed(self: &Arc<Self>) {
        let mut all = devices();
        self.open_files.fetch_sub(1, Ordering::SeqCst);
        self.forget_when_unused(&mut all);
    }

    fn forget_when_unused(self: &Arc<Self>, all: &mut Vec<Arc<Self>>) {
        if self.is_deleted() && self.open_files.load(Ordering::SeqCst) == 0 {
            all.retain(|device| !Arc::ptr_eq(device, self));
        }
    }
}

/// The device that a Win32 path names, and what of the path is left for it.
#[must_use]
pub fn find(path: &str) -> Option<(Arc<Device>, String)> {
    let rest = path.strip_prefix(r"\\.\").or_else(|| path.strip_prefix(r"\\?\"))?;
    let (name, remaining) = rest.find('\\').map_or((rest, ""), |position| rest.split_at(position));
    let target = links::target(name)?;
    let device = devices().iter().find(|device| device.is_called(&target)).cloned()?;
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
