//! A control request that pends: the IRP, the file it came through, and what it asks for.
//!
//! Who ends a request early (its owner cancels it, its file is closed, its pair goes) first makes the reason visible
//! and then calls the thread that works on it (`worker.rs`). A thread that waits on behalf of a request waits for that call, too,
//! and asks its [`RequestWait`] before it waits again.

use core::ptr::NonNull;

use softndk_ioctl::{BufferLayout, MeasureRequest, MemcpyRequest, Outcome, PairCreateRequest, Status, TransferRequest};
use softndk_kernel::{event::Event, irp::Request};

use super::{
    measure, memcpy,
    pair::Pair,
    replay,
    table::{self, ClaimedPair},
    transfer,
};
use crate::{control::file::ControlFile, driver::Driver};

/// What a pended request asks for.
pub enum Work {
    PairCreate(PairCreateRequest),
    /// With the pair it was granted when it came.
    Transfer(TransferRequest, BufferLayout, ClaimedPair),
    Memcpy(MemcpyRequest),
    Measure(MeasureRequest, BufferLayout),
    Replay(replay::Script),
}

/// A request from being marked pending to its completion. Its file cannot be closed while it lives.
pub struct PendingRequest {
    request: Request,
    file: NonNull<ControlFile>,
    work: Work,
}

// SAFETY: IRP and file belong to the request until it is complete, on whatever thread that happens.
unsafe impl Send for PendingRequest {}

impl PendingRequest {
    /// Takes a reference on the file; nothing when the file is being closed.
    pub fn new(request: Request, file: &ControlFile, work: Work) -> Result<Self, Request> {
        if file.begin_request() { Ok(Self { request, file: NonNull::from(file), work }) } else { Err(request) }
    }

    pub fn irp(&self) -> &Request {
        &self.request
    }

    fn file(&self) -> &ControlFile {
        // SAFETY: the reference taken by `new` keeps the file alive.
        unsafe { self.file.as_ref() }
    }

    /// Why a request that is not begun should end, if it should. `IRQL <= DISPATCH_LEVEL`.
    pub fn ended(&self) -> Option<Status> {
        let pair = match &self.work {
            Work::Transfer(_, _, pair) => pair.ended(),
            _ => None,
        };
        pair.or_else(|| ended(&self.request, self.file()))
    }

    /// Does it, on a thread that is called with `call`. PASSIVE_LEVEL. The functions are not part of this one: their frames
    /// would all be there, whichever of them runs.
    pub fn act(&self, driver: &'static Driver, call: &Event) -> Outcome {
        let (file, request) = (self.file(), &self.request);
        let request_wait = RequestWait { driver, file, request, call, pair: None, deadline: u64::MAX };
        match &self.work {
            Work::PairCreate(asked) => table::create(driver, request, asked, &request_wait).into(),
            Work::Transfer(asked, layout, pair) => {
                transfer::run(driver, request, (asked, layout), pair, &request_wait).into()
            }
            Work::Replay(script) => replay::run(driver, request, script, &request_wait).into(),
            Work::Measure(asked, layout) => measure::run(driver, request, (asked, layout), &request_wait).into(),
            Work::Memcpy(asked) => memcpy::run(driver, request, asked, &request_wait).into(),
        }
    }

    /// Completes it. It is in no list, and its cancel routine is out. `IRQL <= DISPATCH_LEVEL`, without a lock.
    pub fn finish(self, outcome: Outcome) {
        // SAFETY: the reference taken by `new` keeps the file alive until it is given back below.
        let file = unsafe { self.file.as_ref() };
        // Before the answer: the program that gets it may ask for the next transfer at once.
        drop(self.work);
        self.request.complete(outcome.status.0, outcome.information);
        // The file may go from here on, and then the driver.
        file.end_request();
    }
}

/// Why a request should end, whatever it asks for.
fn ended(request: &Request, file: &ControlFile) -> Option<Status> {
    (request.is_cancelled() || file.is_closing()).then_some(Status::CANCELLED)
}

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    Event,
    /// A call: the request may have to end.
    Call,
    Time,
}

/// How long a thread waits on behalf of a request.
#[derive(Clone, Copy)]
pub struct RequestWait<'a> {
    driver: &'static Driver,
    file: &'a ControlFile,
    request: &'a Request,
    /// Set after something has happened for which requests end.
    call: &'a Event,
    pair: Option<&'a Pair>,
    /// When it is over, in the platform's time.
    deadline: u64,
}

impl<'a> RequestWait<'a> {
    /// Over when the pair ends, too.
    pub fn with(self, pair: &'a Pair) -> Self {
        Self { pair: Some(pair), ..self }
    }

    /// Over in so many nanoseconds, too.
    pub fn within(self, limit: u64) -> Self {
        let deadline = self.now().saturating_add(limit).min(self.deadline);
        Self { deadline, ..self }
    }

    /// The identity of the file, for pairs.
    pub fn file_id(&self) -> usize {
        self.file.id()
    }

    fn now(&self) -> u64 {
        self.driver.clock.now()
    }

    /// Whether the request should end now, and why.
    pub fn check(&self) -> Result<(), Status> {
        let pair = self.pair.and_then(Pair::ended);
        if let Some(status) = pair.or_else(|| ended(self.request, self.file)) {
            return Err(status);
        }
        let late = self.deadline != u64::MAX && self.now() > self.deadline;
        if late { Err(Status::IO_TIMEOUT) } else { Ok(()) }
    }

    /// Whether the pair's connection has ended.
    pub fn is_disconnected(&self) -> bool {
        self.pair.is_some_and(Pair::is_disconnected)
    }

    /// Waits for one of the events (two at most), unless the request should end; true when one has come. PASSIVE_LEVEL.
    pub fn wait(&self, events: &[&Event]) -> Result<bool, Status> {
        self.check()?;
        let left = (self.deadline != u64::MAX).then(|| self.deadline.saturating_sub(self.now()));
        Ok(self.pause(events, left) == Wake::Event)
    }

    /// Waits for one of the events (two at most), a call, or so many nanoseconds. The caller asks whether to go on.
    /// PASSIVE_LEVEL.
    pub fn pause(&self, events: &[&Event], limit: Option<u64>) -> Wake {
        match self.call.wait_with(events, limit) {
            None => Wake::Time,
            Some(0) => Wake::Call,
            Some(_) => Wake::Event,
        }
    }
}
