//! The provider's own file of `\\.\SoftNd`, for requests that are not a client's overlapped ones.
//!
//! Two kinds go through it: requests that are waited for here ([`Device::call`]), and those that pend as long as memory is lent to
//! the driver ([`Device::lend`]). The file is opened overlapped, so that neither blocks the other, and is bound to a completion
//! port of its own: requests then belong to the file and not to the thread that made them, and neither a client's `CancelIo` nor
//! the end of its thread ends them. When lent memory is back, the status of its request says.
//!
//! The port's packets say it once more, and hold a count of the loan. A thread that takes one is a thread of this port from then on, and no
//! more of the client's port whose packets it handles: that lets one more of its threads run. So packets are taken seldom: when there
//! may be many of them, or much memory hangs on them.

use core::{
    ffi::c_void,
    mem::size_of,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use softnd_interfaces::Status;
use softndk_ioctl::nd::{
    VERSION,
    control::{Handle, PROVIDER_BIND_FILE, PROVIDER_INIT},
    private::{DOORBELL, ProviderToken},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{
    file,
    handle::OwnedHandle,
    heap::Pages,
    imports::{
        CancelIoEx, CreateIoCompletionPort, GetQueuedCompletionStatus, INFINITE, IoStatusBlock, NtDeviceIoControlFile,
        RawHandle, WaitForSingleObject,
    },
    shared::Shared,
};

/// Events that are kept for the next call.
const EVENTS: usize = 16;

/// How long the end of lent memory is waited for when the file has been closed: milliseconds, and how often.
const LAST_WAIT: u32 = 500;
const LAST_WAITS: u32 = 4;

/// Loans, and bytes of the provider's own memory in them, after which packets are taken.
const LOANS: u32 = 64;
const LOANED_BYTES: usize = 4 << 20;

pub struct Device {
    /// Null once it is closed.
    file: AtomicPtr<c_void>,
    port: OwnedHandle,
    events: [AtomicPtr<c_void>; EVENTS],
    /// By which other files are bound to this one's handles.
    token: u64,
    /// Loans of which the packet has not been taken yet.
    outstanding: AtomicU32,
    /// Loans and bytes since packets were taken last.
    loans: AtomicU32,
    loaned: AtomicUsize,
}

/// Memory that the driver has, for as long as the request pends that has brought it.
pub struct Loan {
    status: core::cell::UnsafeCell<IoStatusBlock>,
    /// The provider's own memory; none where it is the client's.
    pages: Option<Pages>,
    /// What the driver answers to the registration of a client's memory: local and remote token.
    reply: [AtomicU32; 2],
    returned: AtomicU32,
    recalled: AtomicU32,
}

// SAFETY: the status block is the driver's, and of the rest only atomics change.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Loan {
    pub fn new(pages: Option<Pages>) -> Result<Shared<Self>, Status> {
        let status = IoStatusBlock { status: Status::PENDING.0 as u32 as usize, information: 0 };
        Shared::new(Self {
            status: status.into(),
            pages,
            reply: [AtomicU32::new(0), AtomicU32::new(0)],
            returned: AtomicU32::new(0),
            recalled: AtomicU32::new(0),
        })
    }

    /// The memory, where it is the provider's own.
    pub fn pages(&self) -> Option<&Pages> {
        self.pages.as_ref()
    }

    /// Where the driver writes the two tokens of a registration.
    pub fn reply(&self) -> &[AtomicU32; 2] {
        &self.reply
    }

    /// Whether [`Device::recall`] has asked for the memory.
    pub fn is_recalled(&self) -> bool {
        self.recalled.load(Ordering::Acquire) != 0
    }

    /// Whether the driver has given the memory back.
    pub fn is_returned(&self) -> bool {
        // SAFETY: the block is the loan's; the system writes its first four bytes last.
        let status = unsafe { AtomicU32::from_ptr(self.status.get().cast()) };
        status.load(Ordering::Acquire) != Status::PENDING.0 as u32 || self.returned.load(Ordering::Acquire) != 0
    }
}

impl Device {
    /// Opens the driver's device. DEVICE_NOT_READY where there is none, ACCESS_DENIED, NO_MEMORY, INSUFFICIENT_RESOURCES.
    pub fn open() -> Result<Shared<Self>, Status> {
        let file = file::open()?;
        let event = OwnedHandle::event()?;
        let mut answer = [0; size_of::<ProviderToken>()];
        let input = Handle { version: VERSION, reserved: 0, handle: 0 };
        let returned = call(file.raw(), &event, PROVIDER_INIT, input.as_bytes(), &mut answer)?;
        if returned < answer.len() {
            return Err(Status::INTERNAL_ERROR);
        }
        // SAFETY: a file of this function, and no port yet.
        let port = unsafe { CreateIoCompletionPort(file.raw(), ptr::null_mut(), 0, 0) };
        let port = OwnedHandle::new(port).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        let device = Self {
            file: AtomicPtr::new(file.into_raw()),
            port,
            events: [const { AtomicPtr::new(ptr::null_mut()) }; EVENTS],
            token: u64::from_le_bytes(answer),
            outstanding: AtomicU32::new(0),
            loans: AtomicU32::new(0),
            loaned: AtomicUsize::new(0),
        };
        device.keep_event(event);
        Shared::new(device)
    }

    /// Makes the handles of this file good on another one of the process.
    pub fn bind(&self, file: &OwnedHandle) -> Result<(), Status> {
        let event = self.take_event()?;
        let input = Handle { version: VERSION, reserved: 0, handle: self.token };
        let bound = call(file.raw(), &event, PROVIDER_BIND_FILE, input.as_bytes(), &mut []);
        self.keep_event(event);
        bound.map(drop)
    }

    fn file(&self) -> RawHandle {
        self.file.load(Ordering::Relaxed)
    }

    /// Sends a request and waits for its end; the answer is as many bytes as `Reply` has.
    pub fn ask<Reply: FromBytes + IntoBytes>(
        &self,
        code: u32,
        input: &(impl IntoBytes + Immutable),
    ) -> Result<Reply, Status> {
        let mut reply = Reply::new_zeroed();
        let returned = self.call(code, input.as_bytes(), reply.as_mut_bytes())?;
        if returned < size_of::<Reply>() { Err(Status::INTERNAL_ERROR) } else { Ok(reply) }
    }

    /// Sends a request without an answer and waits for its end.
    pub fn tell(&self, code: u32, input: &(impl IntoBytes + Immutable)) -> Result<(), Status> {
        self.call(code, input.as_bytes(), &mut []).map(drop)
    }

    /// Sends a request about one object and waits for its end.
    pub fn on_handle(&self, code: u32, handle: u64) -> Result<(), Status> {
        self.tell(code, &Handle { version: VERSION, reserved: 0, handle })
    }

    /// Has the driver look at a queue. What comes of it is in the queue's memory.
    pub fn ring(&self, handle: u64) {
        // A failure means that the object or the adapter is gone, which completions tell.
        let _ = self.on_handle(DOORBELL, handle);
    }

    /// Sends a request and waits for its end. Returns how many bytes the answer has.
    pub fn call(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, Status> {
        let event = self.take_event()?;
        let returned = call(self.file(), &event, code, input, output);
        self.keep_event(event);
        returned
    }

    /// Brings memory to the driver by a request that pends as long as the driver has it. `memory` is the client's, or null for the
    /// loan's own pages.
    ///
    /// The driver, by the I/O manager, finds out whether the client's memory is there.
    pub fn lend(
        &self,
        code: u32,
        input: &(impl IntoBytes + Immutable),
        memory: (*mut c_void, u32),
        loan: &Shared<Loan>,
    ) -> Result<(), Status> {
        self.collect();
        let (memory, length) =
            loan.pages().map_or(memory, |pages| (pages.start().as_ptr().cast(), pages.length() as u32));
        let input = input.as_bytes();
        let context = loan.clone().into_raw();
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        self.loans.fetch_add(1, Ordering::Relaxed);
        self.loaned.fetch_add(loan.pages().map_or(0, Pages::length), Ordering::Relaxed);
        // SAFETY: status block and own pages live as long as the loan, of which the packet holds a count; the input is copied
        // during the call.
        let status = unsafe {
            NtDeviceIoControlFile(
                self.file(),
                ptr::null_mut(),
                ptr::null_mut(),
                context,
                loan.status.get(),
                code,
                input.as_ptr().cast(),
                input.len() as u32,
                memory,
                length,
            )
        };
        let status = Status(status);
        if status.is_error() {
            // SAFETY: such a request leaves no packet, so the count that the packet would have brought is taken back here.
            unsafe { self.take_back(context) };
        }
        // The memory is the driver's only while the request pends.
        match status {
            Status::PENDING => Ok(()),
            other if other.is_success() => Err(Status::INTERNAL_ERROR),
            failure => Err(failure),
        }
    }

    /// Waits, not for long, for the memory of a loan that was recalled; whether it is back.
    pub fn wait_for(&self, loan: &Shared<Loan>) -> bool {
        for _ in 0..LAST_WAITS {
            while !loan.is_returned() && self.take_packet(LAST_WAIT) {}
        }
        loan.is_returned()
    }

    /// Ends a loan that came to nothing. Its packet comes later.
    pub fn recall(&self, loan: &Shared<Loan>) {
        loan.recalled.store(1, Ordering::Release);
        // SAFETY: the block names the request; where there is none any more, nothing happens.
        unsafe { CancelIoEx(self.file(), loan.status.get().cast()) };
    }

    /// Takes the packets of loans that have ended, where there may be many.
    pub fn collect(&self) {
        let many = self.loans.load(Ordering::Relaxed) >= LOANS || self.loaned.load(Ordering::Relaxed) >= LOANED_BYTES;
        if many {
            self.loans.store(0, Ordering::Relaxed);
            self.loaned.store(0, Ordering::Relaxed);
            while self.outstanding.load(Ordering::Relaxed) > 0 && self.take_packet(0) {}
        }
    }

    /// Whether a packet came.
    fn take_packet(&self, milliseconds: u32) -> bool {
        let (mut bytes, mut key, mut context) = (0_u32, 0_usize, ptr::null_mut());
        let port = self.port.raw();
        // SAFETY: the places are locals.
        unsafe { GetQueuedCompletionStatus(port, &raw mut bytes, &raw mut key, &raw mut context, milliseconds) };
        if context.is_null() {
            return false;
        }
        // SAFETY: every packet of this port is a loan's, and comes once.
        unsafe { self.take_back(context) };
        true
    }

    /// # Safety
    /// `context` is a loan's count that was given to the driver, and the driver has given it up.
    unsafe fn take_back(&self, context: *mut c_void) {
        if let Some(context) = NonNull::new(context) {
            // SAFETY: the caller's promise.
            let loan = unsafe { Shared::<Loan>::from_raw(context) };
            loan.returned.store(1, Ordering::Release);
            self.outstanding.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn take_event(&self) -> Result<OwnedHandle, Status> {
        let taken = self.events.iter().find_map(|place| {
            let kept = !place.load(Ordering::Relaxed).is_null();
            OwnedHandle::new(if kept { place.swap(ptr::null_mut(), Ordering::Acquire) } else { ptr::null_mut() })
        });
        taken.map_or_else(OwnedHandle::event, Ok)
    }

    fn keep_event(&self, event: OwnedHandle) {
        let raw = event.into_raw();
        let kept = self
            .events
            .iter()
            .any(|place| place.compare_exchange(ptr::null_mut(), raw, Ordering::Release, Ordering::Relaxed).is_ok());
        if !kept {
            drop(OwnedHandle::from_raw(raw));
        }
    }

    /// Closes the file; the driver then ends what still pends.
    fn close(&self) {
        drop(OwnedHandle::new(self.file.swap(ptr::null_mut(), Ordering::Relaxed)));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.close();
        for _ in 0..LAST_WAITS {
            while self.outstanding.load(Ordering::Relaxed) > 0 && self.take_packet(LAST_WAIT) {}
        }
        // A loan of which the packet has not come stays allocated: the driver may still write its status.
        for place in &self.events {
            drop(OwnedHandle::new(place.swap(ptr::null_mut(), Ordering::Relaxed)));
        }
    }
}

/// Sends a request to a file and waits for its end. Returns how many bytes the answer has.
fn call(file: RawHandle, event: &OwnedHandle, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, Status> {
    let mut block = IoStatusBlock { status: Status::PENDING.0 as u32 as usize, information: 0 };
    let block = &raw mut block;
    let answer = if output.is_empty() { ptr::null_mut() } else { output.as_mut_ptr().cast() };
    // SAFETY: the buffers and the status block are there until the request has ended, which is waited for below. Without a
    // context no packet is queued.
    let status = unsafe {
        NtDeviceIoControlFile(
            file,
            event.raw(),
            ptr::null_mut(),
            ptr::null_mut(),
            block,
            code,
            input.as_ptr().cast(),
            input.len() as u32,
            answer,
            output.len() as u32,
        )
    };
    let mut status = Status(status);
    if status == Status::PENDING {
        // SAFETY: the block is the local one, whose status is four bytes.
        let word = unsafe { AtomicU32::from_ptr(block.cast()) };
        while word.load(Ordering::Acquire) == Status::PENDING.0 as u32 {
            // SAFETY: an event of this crate.
            unsafe { WaitForSingleObject(event.raw(), INFINITE) };
        }
        status = Status(word.load(Ordering::Acquire) as i32);
    }
    if !status.is_success() {
        return Err(status);
    }
    // SAFETY: the request has ended with success: the block is written and the driver's no more.
    Ok(unsafe { (*block).information }.min(output.len()))
}
