//! Open files of the device: made at create, bound to a context by PROVIDER_INIT or PROVIDER_BIND_FILE, emptied at cleanup, forgotten at
//! close.
//!
//! A file object names its file by a number and never by an address: whether NDIS passes on the end of a file whose device was taken
//! back is up to NDIS, so the files end with the device. The number holds that of the registration of the device.

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};

use ndkpi_sys::{
    ndis::{NDIS_STATUS, NDIS_STATUS_RESOURCES},
    nt::{
        DEVICE_OBJECT, IRP, NTSTATUS, STATUS_DEVICE_REMOVED, STATUS_INSUFFICIENT_RESOURCES,
        STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER,
        STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS,
    },
};
use softndk_cells::{Dispose, Shared};
use softndk_kernel::{event::CriticalRegion, irp::Request, spin_lock::SpinLock};
use wdk_sys::FILE_OBJECT;

use super::{
    account::{Account, Amounts, Charge, Member},
    context::ProcessContext,
    handles::{HandleTable, Taken},
    object,
};
use crate::tags;

pub struct File {
    pub number: u64,
    /// Of the process that opened it.
    member: Member,
    /// For the file itself.
    _charge: Charge,
    state: SpinLock<FileState>,
}

impl Dispose for File {}

enum FileState {
    Fresh,
    Bound(Shared<ProcessContext>),
    Closed,
}

/// The files of the device, while it is registered.
static FILES: SpinLock<Option<HandleTable<Shared<File>>>> = SpinLock::new(None);
/// The contexts that have files, by their handles.
static CONTEXTS: SpinLock<Option<HandleTable<Shared<ProcessContext>>>> = SpinLock::new(None);
/// The number of the registration.
static REGISTRATION: AtomicU32 = AtomicU32::new(0);

/// The device is about to be registered. PASSIVE_LEVEL.
pub fn prepare() -> Result<(), NDIS_STATUS> {
    let files = HandleTable::try_new(tags::ND_FILE).map_err(|_| NDIS_STATUS_RESOURCES)?;
    let contexts = HandleTable::try_new(tags::ND_FILE).map_err(|_| NDIS_STATUS_RESOURCES)?;
    REGISTRATION.fetch_add(1, Ordering::Relaxed);
    let before = FILES.lock().replace(files);
    drop(before);
    let before = CONTEXTS.lock().replace(contexts);
    drop(before);
    Ok(())
}

/// The device is gone, and its files with it. PASSIVE_LEVEL, beside which no request runs.
pub fn forget_all() {
    let Some(mut files) = FILES.lock().take() else { return };
    let mut from = 0;
    loop {
        match files.take(&mut from, |_| true) {
            Taken::Object(file) => file.clean_up(),
            Taken::NotYet => {}
            Taken::None => break,
        }
    }
    // Each has gone with its last file.
    let none = CONTEXTS.lock().take();
    drop(none);
}

/// Calls `act` for every context that has files. PASSIVE_LEVEL, no lock held meanwhile.
pub fn each_context(act: &mut dyn FnMut(&Shared<ProcessContext>)) {
    let mut place = 0;
    loop {
        let context = {
            let contexts = CONTEXTS.lock();
            let Some(contexts) = contexts.as_ref().filter(|contexts| place < contexts.length()) else { return };
            contexts.at(place).cloned()
        };
        if let Some(context) = context {
            act(&context);
        }
        place = place.saturating_add(1);
    }
}

/// A file is bound to the context no more. PASSIVE_LEVEL.
fn leave(context: &Shared<ProcessContext>, file: u64) {
    if context.file_closed(file) {
        let gone = CONTEXTS.lock().as_mut().and_then(|contexts| contexts.clear(context.handle));
        drop(gone);
    }
}

fn number(place: u64) -> u64 {
    u64::from(REGISTRATION.load(Ordering::Relaxed)) << 32 | place
}

/// The token of a context's handle, and the handle of a token: a token of an earlier registration names no context.
fn of_registration(word: u64) -> u64 {
    word ^ u64::from(REGISTRATION.load(Ordering::Relaxed)) << 48
}

/// The file of a request.
pub fn of(request: &Request) -> Option<Shared<File>> {
    let word = context_word(request.file()?) as u64;
    let place = (word as u32).checked_sub(1)?;
    FILES.lock().as_ref()?.at(place).filter(|file| file.number == word).cloned()
}

impl File {
    /// What its requests are charged to.
    pub fn account(&self) -> &Shared<Account> {
        self.member.account()
    }

    /// The context that the file is bound to.
    pub fn context(&self) -> Result<Shared<ProcessContext>, NTSTATUS> {
        match &*self.state.lock() {
            FileState::Bound(context) => Ok(context.clone()),
            FileState::Fresh | FileState::Closed => Err(STATUS_INVALID_DEVICE_STATE),
        }
    }

    /// PROVIDER_INIT: a context of its own. Its token.
    pub fn init(&self, process: u32) -> Result<u64, NTSTATUS> {
        let charge = Account::charge(self.account(), Amounts::OBJECT)?;
        let context = {
            let mut contexts = CONTEXTS.lock();
            let contexts = contexts.as_mut().ok_or(STATUS_DEVICE_REMOVED)?;
            let handle = contexts.reserve(&[]).map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
            match ProcessContext::try_new(handle, process, charge) {
                Ok(context) => {
                    contexts.fill(handle, context.clone());
                    context
                }
                Err(error) => {
                    let none = contexts.clear(handle);
                    debug_assert!(none.is_none());
                    return Err(object::no_memory(error));
                }
            }
        };
        self.bind(&context)?;
        Ok(of_registration(context.handle))
    }

    /// PROVIDER_BIND_FILE: the context that this process knows by its token. A file that is bound to it stays so.
    pub fn bind_to(&self, token: u64, process: u32) -> Result<(), NTSTATUS> {
        if self.context().is_ok_and(|context| context.handle == of_registration(token) && context.process == process) {
            return Ok(());
        }
        let known = CONTEXTS.lock().as_ref().and_then(|contexts| contexts.get(of_registration(token))).cloned();
        let of_process = known.filter(|context| context.process == process);
        let context = of_process.filter(|context| context.bind_file()).ok_or(STATUS_INVALID_PARAMETER)?;
        self.bind(&context)
    }

    /// Binds the file, which the context counts already.
    fn bind(&self, context: &Shared<ProcessContext>) -> Result<(), NTSTATUS> {
        let mut state = self.state.lock();
        if let FileState::Fresh = *state {
            *state = FileState::Bound(context.clone());
            return Ok(());
        }
        drop(state);
        leave(context, 0);
        Err(STATUS_INVALID_DEVICE_STATE)
    }

    /// Ends everything of the file. PASSIVE_LEVEL.
    fn clean_up(&self) {
        let state = core::mem::replace(&mut *self.state.lock(), FileState::Closed);
        if let FileState::Bound(context) = state {
            leave(&context, self.number);
        }
    }
}

/// IRP_MJ_CREATE. PASSIVE_LEVEL.
///
/// # Safety
/// The I/O manager passes the driver's device and an IRP of this kind.
pub unsafe extern "C" fn create(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let _not_suspended = CriticalRegion::enter();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp.cast()) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    let status = match request.file() {
        Some(file) => open(file, request.process()).err().unwrap_or(STATUS_SUCCESS),
        None => STATUS_INVALID_DEVICE_REQUEST,
    };
    request.complete(status, 0);
    status
}

fn open(file: NonNull<FILE_OBJECT>, process: u32) -> Result<(), NTSTATUS> {
    // SAFETY: the file object lives as long as the request; only the address of the field is computed.
    let name_length = unsafe { &raw const (*file.as_ptr()).FileName.Length };
    // There is nothing behind the device; a name there would slip past the device's own security descriptor.
    // SAFETY: a field of a live file object.
    if unsafe { name_length.read() } != 0 {
        return Err(STATUS_OBJECT_NAME_NOT_FOUND);
    }
    let member = Account::enter(process).map_err(object::no_memory)?;
    let charge = Account::charge(member.account(), Amounts::OBJECT)?;
    let mut files = FILES.lock();
    let files = files.as_mut().ok_or(STATUS_DEVICE_REMOVED)?;
    let handle = files.reserve(&[]).map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
    let number = number(u64::from(handle as u32));
    match Shared::try_new(File { number, member, _charge: charge, state: SpinLock::new(FileState::Fresh) }) {
        Ok(state) => {
            files.fill(handle, state);
            set_context_word(file, number);
            Ok(())
        }
        Err(error) => {
            let none = files.clear(handle);
            debug_assert!(none.is_none());
            Err(object::no_memory(error))
        }
    }
}

/// IRP_MJ_CLEANUP: the last handle is closed. PASSIVE_LEVEL.
///
/// # Safety
/// As [`create`].
pub unsafe extern "C" fn cleanup(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let _not_suspended = CriticalRegion::enter();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp.cast()) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    if let Some(file) = of(&request) {
        file.clean_up();
    }
    request.complete(STATUS_SUCCESS, 0);
    STATUS_SUCCESS
}

/// IRP_MJ_CLOSE: nothing refers to the file any more. PASSIVE_LEVEL.
///
/// # Safety
/// As [`create`].
pub unsafe extern "C" fn close(_device: *mut DEVICE_OBJECT, irp: *mut IRP) -> NTSTATUS {
    let _not_suspended = CriticalRegion::enter();
    // SAFETY: the IRP was dispatched to us.
    let Some(request) = (unsafe { Request::from_raw(irp.cast()) }) else { return STATUS_INVALID_DEVICE_REQUEST };
    if let Some(file) = of(&request) {
        let mut from = (file.number as u32).saturating_sub(1);
        let gone = FILES.lock().as_mut().map(|files| files.take(&mut from, |other| other.is(&file)));
        drop(gone);
    }
    request.complete(STATUS_SUCCESS, 0);
    STATUS_SUCCESS
}

// The I/O manager writes other fields of a file object at any time, so no reference is made to one.

/// What `open` left in the file object of a request that is not complete.
fn context_word(file: NonNull<FILE_OBJECT>) -> usize {
    // SAFETY: the file object lives as long as the request; only the address of the field is computed.
    let place = unsafe { &raw const (*file.as_ptr()).FsContext };
    // SAFETY: a field of a live file object that is this driver's own.
    unsafe { place.read() }.addr()
}

/// PASSIVE_LEVEL, in create, beside which no request of the file runs.
fn set_context_word(file: NonNull<FILE_OBJECT>, number: u64) {
    // SAFETY: the file object lives as long as the request; only the address of the field is computed.
    let place = unsafe { &raw mut (*file.as_ptr()).FsContext };
    // SAFETY: a field of a live file object that is this driver's own.
    unsafe { place.write(ptr::without_provenance_mut(number as usize)) };
}
