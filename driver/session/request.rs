//! A control request that pends: the IRP, the file it came through, and what it asks for.
//!
//! Whoever waits on behalf of a request asks it now and then whether it should end: cancelled by its owner, its file being
//! closed. The IRP's cancel flag is looked at instead of a cancel routine, because the request is always being worked on by a
//! thread of ours and never lies in a queue for long.

use core::ptr::NonNull;

use softndk_ioctl::{MemcpyRequest, PairCreateRequest, Status, TransferRequest};
use wdk_sys::IRP;

use super::{
    memcpy, replay,
    table::{self, ClaimedPair},
    transfer,
};
use crate::{
    control::{file::ControlFile, irp::Request, request::Outcome},
    driver::Driver,
    kernel::rundown::RundownGuard,
};

/// What a pended request asks for.
pub enum Work {
    PairCreate(PairCreateRequest),
    /// With the pair it was granted when it came.
    Transfer(TransferRequest, ClaimedPair),
    Memcpy(MemcpyRequest),
    Replay(replay::Script),
}

/// A request on its way to a thread. Its file cannot be closed while it lives.
pub struct PendingRequest {
    request: Request,
    file: NonNull<ControlFile>,
    work: Work,
    /// Keeps the device registered.
    passage: Passage,
}

/// A request's place behind the driver's gate for requests.
pub type Passage = RundownGuard<'static>;

// SAFETY: IRP and file belong to the request until it is complete, on whatever thread that happens.
unsafe impl Send for PendingRequest {}

/// What a worker asks while it waits.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    file: &'a ControlFile,
    irp: NonNull<IRP>,
}

impl Patience<'_> {
    /// Why the request should end now, if it should.
    pub fn ended(&self) -> Option<Status> {
        // SAFETY: the IRP lives until it is completed; only the address of the flag is computed.
        let flag = unsafe { &raw const (*self.irp.as_ptr()).Cancel };
        // SAFETY: the I/O manager sets the flag at any time; a volatile read sees it sooner or later.
        let cancelled = unsafe { flag.read_volatile() } != 0;
        (cancelled || self.file.is_closing()).then_some(Status::CANCELLED)
    }

    /// The identity of the file, for pairs.
    pub fn file_id(&self) -> usize {
        self.file.id()
    }
}

impl PendingRequest {
    /// Takes a reference on the file; nothing when the file is being closed.
    pub fn new(request: Request, file: &ControlFile, work: Work, passage: Passage) -> Result<Self, Request> {
        if file.enter() { Ok(Self { request, file: NonNull::from(file), work, passage }) } else { Err(request) }
    }

    /// Does it and completes it. PASSIVE_LEVEL.
    pub fn run(self) {
        // SAFETY: the reference taken by `new` keeps the file alive.
        let file = unsafe { self.file.as_ref() };
        let patience = Patience { file, irp: self.request.as_ptr() };
        let outcome = match Driver::get() {
            Some(driver) => self.act(driver, patience),
            None => Err(Status::DEVICE_REMOVED).into(),
        };
        // Before the answer: whoever gets it may ask for the next transfer at once.
        drop(self.work);
        self.request.complete(outcome.status.0, outcome.information);
        // The file may go from here on, and then the device.
        file.leave();
        drop(self.passage);
    }

    /// The functions are not part of this one: their frames would all be there, whichever of them runs.
    fn act(&self, driver: &'static Driver, patience: Patience<'_>) -> Outcome {
        match &self.work {
            Work::PairCreate(asked) => table::create(driver, &self.request, asked, patience).into(),
            Work::Transfer(asked, pair) => transfer::run(driver, &self.request, asked, pair, patience).into(),
            Work::Replay(script) => replay::run(driver, &self.request, script, patience).into(),
            Work::Memcpy(asked) => memcpy::run(driver, &self.request, asked, patience).into(),
        }
    }
}
