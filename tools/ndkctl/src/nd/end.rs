//! One end of a connection: an adapter, its queues, and registered memory.

use super::memory::Pages;
use super::provider::{AdapterFile, CompletionQueue, Connector, OpenAdapter, QueuePair, Region, refused};
use super::request::Request;
use super::stop::{Cut, Stop};
use super::system::System;
use softnd_interfaces::v2::RequestResult;
use softnd_interfaces::{Status, constants::request_type};
use std::ptr;

/// Results taken at a time.
const BATCH: usize = 32;

const NO_RESULT: RequestResult = RequestResult {
    status: Status::SUCCESS,
    bytes_transferred: 0,
    queue_pair_context: ptr::null_mut(),
    request_context: ptr::null_mut(),
    request_type: 0,
};

/// Fields are released in their order: what uses memory goes before the memory.
pub struct End<'s> {
    pub pair: QueuePair<'s>,
    pub connector: Connector<'s>,
    queue: CompletionQueue<'s>,
    pub region: Region<'s>,
    notification: Request<'s>,
    system: &'s System<'s>,
    /// Waits by Notify instead of polling.
    notify: bool,
    results: [RequestResult; BATCH],
}

impl<'s> End<'s> {
    /// An end of this shape; `connector` may have a connection request already.
    pub fn new(
        system: &'s System<'s>,
        adapter: &OpenAdapter<'s>,
        file: &AdapterFile<'s>,
        connector: Connector<'s>,
        EndShape { depth, memory }: EndShape,
        way: EndWay<'_>,
    ) -> Result<Self, Cut> {
        let queue = adapter.completion_queue(file, depth.saturating_mul(2))?;
        let pair = adapter.queue_pair(&queue, depth, depth)?;
        let pages = Pages::allocate(system, memory.max(1))?;
        let region = adapter.region(file, pages, way.stop)?;
        let notification = Request::new(system)?;
        Ok(Self {
            pair,
            connector,
            queue,
            region,
            notification,
            system,
            notify: way.notify,
            results: [NO_RESULT; BATCH],
        })
    }

    /// Waits for results; there is at least one.
    pub fn results(&mut self, stop: &Stop) -> Result<&[RequestResult], Cut> {
        loop {
            let count = self.queue.results(&mut self.results).len();
            if count != 0 {
                return Ok(&self.results[..count]);
            }
            if stop.is_raised() {
                return Err(Cut::Stopped);
            }
            if self.notify {
                self.queue.wait(&self.notification, stop)?;
            } else {
                self.system.yield_now();
            }
        }
    }
}

/// What an end has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndShape {
    /// Requests, and receives, that its queue pair takes.
    pub depth: u32,
    /// Bytes of registered memory.
    pub memory: usize,
}

/// How an end works.
#[derive(Clone, Copy, Debug)]
pub struct EndWay<'a> {
    pub notify: bool,
    pub stop: &'a Stop,
}

/// Fails with the first result that is no success.
pub fn check(result: &RequestResult) -> Result<(), Cut> {
    if result.status == Status::SUCCESS {
        return Ok(());
    }
    let what = match result.request_type {
        request_type::RECEIVE => "a Receive failed",
        request_type::SEND => "a Send failed",
        request_type::READ => "a Read failed",
        request_type::WRITE => "a Write failed",
        _ => "a request failed",
    };
    Err(refused(what, result.status).into())
}

/// Fails when a post was refused.
pub fn posted(what: &str, status: Status) -> Result<(), Cut> {
    if status == Status::SUCCESS { Ok(()) } else { Err(refused(format!("cannot post a {what}"), status).into()) }
}
