//! One end of a connection: an adapter, its queues, and registered memory.

use super::memory::Pages;
use super::provider::{AdapterFile, CompletionQueue, Connector, OpenAdapter, QueuePair, Region, refused_by_other};
use super::request::Request;
use super::stop::{Cut, Stop};
use super::system::System;
use crate::failure::{Failure, Kind};
use softnd_interfaces::v2::{AdapterInfo, RequestResult};
use softnd_interfaces::{Status, constants::request_type};
use std::ptr;
use std::time::{Duration, Instant};

/// Bytes of the client's last message.
const DONE: u32 = 0;

/// How long receives may take to be flushed after the end of their connection.
const FLUSHED: Duration = Duration::from_secs(5);

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
        shape: EndShape,
        way: EndWay<'_>,
    ) -> Result<Self, Cut> {
        shape.fits(&adapter.info()?)?;
        let EndShape { depth, memory, .. } = shape;
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

/// The last message, by which a server knows a client that is done from one that was ended.
impl End<'_> {
    /// The server: posts its receive, behind all others.
    pub fn expect_done(&self) -> Result<(), Cut> {
        posted("Receive", self.pair.receive(self.region.sge(0, DONE)))
    }

    /// The client, whose other requests have results: sends it.
    pub fn say_done(&mut self, stop: &Stop) -> Result<(), Cut> {
        posted("Send", self.pair.send(self.region.sge(0, DONE)))?;
        self.results(stop)?.iter().try_for_each(check)
    }

    /// The server: waits until the client ends the connection. Fails where it has not said before that it was done.
    pub fn wait_for_done(&mut self, stop: &Stop) -> Result<(), Cut> {
        self.connector.wait_for_end(stop)?;
        if self.last_receives(1) == 1 { Ok(()) } else { Err(ended_before_done()) }
    }

    /// How many messages came before the end of the connection, which has come, and have no result yet; at most so many. The receives of
    /// others are flushed.
    pub fn last_receives(&mut self, most: u64) -> u64 {
        let (begun, mut count) = (Instant::now(), 0);
        // A message may still be on its way through the completion queue.
        while count < most && begun.elapsed() < FLUSHED {
            let results = self.queue.results(&mut self.results);
            for result in results.iter().filter(|result| result.request_type == request_type::RECEIVE) {
                if result.status != Status::SUCCESS {
                    return count;
                }
                count += 1;
            }
            self.system.yield_now();
        }
        count
    }
}

/// A connection that the client ended without its last message.
pub fn ended_before_done() -> Cut {
    Cut::Gone(broke_off("its connection ended before it said that it was done"))
}

/// A client that goes before it is done.
pub fn broke_off(how: &str) -> Failure {
    Failure::new(
        Kind::Refused,
        "cannot serve the client to its end",
        format!("the client broke off: {how}"),
        "look at the client's message, and start both again",
    )
}

/// What an end has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndShape {
    /// Requests, and receives, that its queue pair takes.
    pub depth: u32,
    /// Bytes of its longest request.
    pub request: u32,
    /// Bytes of registered memory.
    pub memory: usize,
}

impl EndShape {
    /// Compared before the memory is allocated.
    fn fits(self, limits: &AdapterInfo) -> Result<(), Failure> {
        let next = "choose a smaller size; \"ndkctl nd info\" shows the limits of each adapter";
        let too_much =
            |what, most| Err(Failure::new(Kind::Refused, what, format!("the adapter takes at most {most}"), next));
        if self.request > limits.max_transfer_length {
            let what = format!("cannot move {} bytes by one request", self.request);
            return too_much(what, u64::from(limits.max_transfer_length));
        }
        if self.memory > limits.max_registration_size {
            return too_much(format!("cannot register {} bytes", self.memory), limits.max_registration_size as u64);
        }
        Ok(())
    }
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
    Err(refused_by_other(what, result.status))
}

/// Fails when a post was refused.
pub fn posted(what: &str, status: Status) -> Result<(), Cut> {
    if status == Status::SUCCESS { Ok(()) } else { Err(refused_by_other(format!("cannot post a {what}"), status)) }
}

#[cfg(test)]
mod tests {
    use super::{AdapterInfo, EndShape};

    #[test]
    fn shape_is_compared_with_the_limits_of_the_adapter() {
        let limits = AdapterInfo { max_transfer_length: 100, max_registration_size: 1000, ..AdapterInfo::default() };
        let fits = |request, memory| EndShape { depth: 1, request, memory }.fits(&limits);
        assert_eq!(fits(100, 1000), Ok(()));
        assert!(
            fits(101, 1000).is_err_and(|failure| failure.what.contains("move 101") && failure.cause.contains("100"))
        );
        assert!(fits(100, 1001).is_err_and(|failure| failure.what.contains("register 1001")));
    }
}
