//! The two sides of a measurement: the client proposes and works, the server answers.

use super::connection::{self, Listening, Route};
use super::end::{End, EndWay, check, posted};
use super::memory::Pattern;
use super::proposal::{Proposal, RemoteMemory, Work};
use super::stop::{Cut, Stop};
use super::system::System;
use super::tcp;
use crate::failure::{Failure, Kind};
use crate::transport::Machine;
use serde::Serialize;
use softnd_interfaces::constants::request_type;
use softnd_interfaces::v2::RequestResult;
use softndk_ioctl::{Histogram, Operation};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Patterns of the two directions differ.
const OF_CLIENT: u64 = 0x10_0000_0000;
const OF_SERVER: u64 = 0x20_0000_0000;

/// Bytes of the message by which the server of a stream of Sends says that it has taken them all. Across a connection of TCP the success
/// of a Send is no arrival, and a disconnect would end those that wait for a receive.
const ALL_TAKEN: u32 = 0;

/// What a client has measured over one connection.
#[derive(Clone, Debug)]
pub struct Measured {
    pub elapsed: Duration,
    /// Of each request, from its post to its result; of PingPong the round trips.
    pub latency: Box<Histogram>,
    /// Bytes compared with what they should be.
    pub compared: u64,
    pub control_requests: Option<u64>,
}

/// What a server has seen over one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Served {
    pub messages: u64,
    pub compared: u64,
    #[serde(rename = "ioctls")]
    pub control_requests: Option<u64>,
}

/// Requests to drivers that a piece of work sends.
fn counted<T>(system: &System<'_>, work: impl FnOnce() -> Result<T, Cut>) -> Result<(T, Option<u64>), Cut> {
    let before = system.control_requests();
    let done = work()?;
    let sent = system.control_requests().zip(before).map(|(now, before)| now - before);
    Ok((done, sent))
}

fn compare(end: &End<'_>, slot: u32, size: u32, pattern: Pattern, reader: &str) -> Result<u64, Failure> {
    match end.region.pages().differs(slot as usize * size as usize, size as usize, pattern) {
        None => Ok(u64::from(size)),
        Some(place) => Err(Failure::new(
            Kind::Corrupt,
            format!("the bytes that the {reader} got are not those that were sent"),
            format!("the first difference is at byte {place} of {size}"),
            "this is a fault of the provider; please report it",
        )),
    }
}

/// Listens and serves connections until a client says that none follows, one after the other; what each proposed and what came of it.
pub fn serve(
    machine: &Machine,
    system: &System<'_>,
    listening: Listening<'_>,
    takes: fn(Work) -> bool,
) -> Result<Vec<(Proposal, Served)>, Cut> {
    let mut all = Vec::new();
    connection::listen(system, listening, takes, |end, proposal| {
        let served = match proposal.work {
            Work::Tcp(operation) => serve_tcp(machine, end, proposal, operation, &listening)?,
            _ => serve_one(system, end, proposal, listening.way.stop)?,
        };
        all.push((*proposal, served));
        Ok(())
    })?;
    Ok(all)
}

/// The connection only carries the port of the system's TCP, and ends when its bytes have been moved.
fn serve_tcp(
    machine: &Machine,
    end: &mut End<'_>,
    proposal: &Proposal,
    operation: Operation,
    listening: &Listening<'_>,
) -> Result<Served, Cut> {
    let stop = listening.way.stop;
    let server = tcp::Server::listen(machine, listening.at.ip())?;
    let port = RemoteMemory { address: server.port()?.into(), token: 0 };
    end.expect_done()?;
    end.connector.accept(&end.pair, &port.encode(), stop)?;
    server.serve(machine, proposal, operation, stop)?;
    end.wait_for_done(stop)?;
    Ok(Served { messages: 0, compared: 0, control_requests: None })
}

fn serve_one(system: &System<'_>, end: &mut End<'_>, proposal: &Proposal, stop: &Stop) -> Result<Served, Cut> {
    let (slots, size) = (proposal.slots(), proposal.size);
    let receives = match proposal.work {
        Work::PingPong => 1,
        Work::Stream(Operation::SEND) => u64::from(proposal.depth.min(proposal.count)),
        Work::Stream(_) | Work::Tcp(_) | Work::Pull => 0,
    };
    for number in 0..receives {
        receive(end, number, slots, size)?;
    }
    if receives == 0 {
        end.expect_done()?;
    }
    if proposal.work == Work::Stream(Operation::READ) {
        for slot in 0..slots {
            end.region.pages().fill(slot as usize * size as usize, size as usize, Pattern(OF_SERVER + u64::from(slot)));
        }
    }
    let address = end.region.pages().address() as u64;
    let memory = RemoteMemory { address, token: end.region.remote_token() };
    end.connector.accept(&end.pair, &memory.encode(), stop)?;
    let ((messages, mut compared), control_requests) = counted(system, || match proposal.work {
        Work::PingPong => answer(end, proposal, stop),
        Work::Stream(Operation::SEND) => {
            let taken = take_messages(end, proposal, slots, receives, stop)?;
            end.expect_done()?;
            posted("Send", end.pair.send(end.region.sge(0, ALL_TAKEN)))?;
            Ok((taken, 0))
        }
        Work::Stream(_) | Work::Tcp(_) | Work::Pull => Ok((0, 0)),
    })?;
    end.wait_for_done(stop)?;
    if let Work::Stream(Operation::WRITE | Operation::SEND) = proposal.work {
        for slot in 0..slots.min(proposal.count) {
            compared += compare(end, slot, size, Pattern(OF_CLIENT + u64::from(slot)), "server")?;
        }
    }
    Ok(Served { messages, compared, control_requests })
}

fn receive(end: &End<'_>, number: u64, slots: u32, size: u32) -> Result<(), Cut> {
    let slot = (number % u64::from(slots)) as usize;
    posted("Receive", end.pair.receive(end.region.sge(slot * size as usize, size)))
}

/// PingPong's server: what comes is compared, and answered. How many messages, and how many bytes were compared.
fn answer(end: &mut End<'_>, proposal: &Proposal, stop: &Stop) -> Result<(u64, u64), Cut> {
    let (size, count) = (proposal.size, u64::from(proposal.count));
    let (mut results, mut compared) = (Messages::default(), 0);
    for number in 0..count {
        results.wait(end, Messages { sent: number, received: number + 1 }, size, stop)?;
        compared += compare(end, 0, size, Pattern(OF_CLIENT + number), "server")?;
        if number + 1 < count {
            receive(end, 0, 1, size)?;
        } else {
            end.expect_done()?;
        }
        end.region.pages().fill(size as usize, size as usize, Pattern(OF_SERVER + number));
        posted("Send", end.pair.send(end.region.sge(size as usize, size)))?;
    }
    Ok((count, compared))
}

/// Results of a PingPong: a message may be there before the answer to the one before has its own.
#[derive(Clone, Copy, Debug, Default)]
struct Messages {
    sent: u64,
    received: u64,
}

impl Messages {
    /// Waits until there were so many.
    fn wait(&mut self, end: &mut End<'_>, until: Self, size: u32, stop: &Stop) -> Result<(), Cut> {
        while self.sent < until.sent || self.received < until.received {
            for result in end.results(stop)? {
                check(result)?;
                received_all(result, size)?;
                match result.request_type {
                    request_type::RECEIVE => self.received += 1,
                    _ => self.sent += 1,
                }
            }
        }
        Ok(())
    }
}

fn received_all(result: &RequestResult, size: u32) -> Result<(), Failure> {
    if result.request_type != request_type::RECEIVE || result.bytes_transferred == size {
        return Ok(());
    }
    let cause = format!("{} bytes of {size}", result.bytes_transferred);
    let next = "this is a fault of the provider; please report it";
    Err(Failure::new(Kind::Corrupt, "a message has another length than it was sent with", cause, next))
}

/// The server of a stream of Sends: takes them all and gives receives for those that follow.
fn take_messages(end: &mut End<'_>, proposal: &Proposal, slots: u32, given: u64, stop: &Stop) -> Result<u64, Cut> {
    let (mut taken, mut given) = (0, given);
    let count = u64::from(proposal.count);
    while taken < count {
        let results = end.results(stop)?;
        let came = results.len() as u64;
        for result in results {
            check(result)?;
            received_all(result, proposal.size)?;
        }
        taken += came;
        let more = came.min(count - given);
        for number in given..given + more {
            receive(end, number, slots, proposal.size)?;
        }
        given += more;
    }
    Ok(taken)
}

/// Connects, does what it proposes, says that it has, and disconnects.
pub fn work(
    machine: &Machine,
    system: &System<'_>,
    route: Route,
    proposal: &Proposal,
    way: EndWay<'_>,
) -> Result<Measured, Cut> {
    let prepare = |end: &End<'_>| match proposal.work {
        Work::PingPong => receive_answer(end, proposal.size),
        Work::Stream(Operation::SEND) => posted("Receive", end.pair.receive(end.region.sge(0, ALL_TAKEN))),
        Work::Stream(_) | Work::Tcp(_) | Work::Pull => Ok(()),
    };
    connection::connect(system, route, (&proposal.encode(), proposal.shape()), way, prepare, |end, answer| {
        let memory = RemoteMemory::decode(answer);
        let (measured, control_requests) = counted(system, || match proposal.work {
            Work::Stream(operation) => stream(end, proposal, operation, memory, way.stop),
            Work::Tcp(operation) => {
                let port = u16::try_from(memory.address).unwrap_or_default();
                tcp::work(machine, SocketAddr::new(route.to.ip(), port), proposal, operation)
            }
            _ => ping(end, proposal, way.stop),
        })?;
        end.say_done(way.stop)?;
        Ok(Measured { control_requests, ..measured })
    })
}

/// Where PingPong's client has its answers: behind what it sends.
fn receive_answer(end: &End<'_>, size: u32) -> Result<(), Cut> {
    posted("Receive", end.pair.receive(end.region.sge(size as usize, size)))
}

fn ping(end: &mut End<'_>, proposal: &Proposal, stop: &Stop) -> Result<Measured, Cut> {
    let (size, count) = (proposal.size, u64::from(proposal.count));
    let mut latency = Box::new(Histogram::EMPTY);
    let (mut results, mut compared) = (Messages::default(), 0);
    let begun = Instant::now();
    for number in 0..count {
        end.region.pages().fill(0, size as usize, Pattern(OF_CLIENT + number));
        let sent = Instant::now();
        posted("Send", end.pair.send(end.region.sge(0, size)))?;
        results.wait(end, Messages { sent: number + 1, received: number + 1 }, size, stop)?;
        latency.record(nanoseconds(sent.elapsed()));
        compared += compare(end, 1, size, Pattern(OF_SERVER + number), "client")?;
        if number + 1 < count {
            receive_answer(end, size)?;
        }
    }
    Ok(Measured { elapsed: begun.elapsed(), latency, compared, control_requests: None })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Requests of one kind with the queue kept full.
fn stream(
    end: &mut End<'_>,
    proposal: &Proposal,
    operation: Operation,
    memory: RemoteMemory,
    stop: &Stop,
) -> Result<Measured, Cut> {
    let (size, count) = (proposal.size, u64::from(proposal.count));
    let slots = proposal.slots();
    if operation != Operation::READ {
        for slot in 0..slots {
            let pattern = Pattern(OF_CLIENT + u64::from(slot));
            end.region.pages().fill(slot as usize * size as usize, size as usize, pattern);
        }
    }
    let mut latency = Box::new(Histogram::EMPTY);
    let mut under_way = VecDeque::with_capacity(proposal.depth as usize);
    let (mut sent, mut done, mut all_taken) = (0, 0, false);
    let begun = Instant::now();
    while done < count {
        while sent < count && under_way.len() < proposal.depth as usize {
            let offset = (sent % u64::from(slots)) as usize * size as usize;
            let (sge, place) = (end.region.sge(offset, size), memory.address + offset as u64);
            under_way.push_back(Instant::now());
            let status = match operation {
                Operation::READ => end.pair.read(sge, place, memory.token),
                Operation::WRITE => end.pair.write(sge, place, memory.token),
                _ => end.pair.send(sge),
            };
            posted("request", status)?;
            sent += 1;
        }
        for result in end.results(stop)? {
            check(result)?;
            if result.request_type == request_type::RECEIVE {
                all_taken = true;
                continue;
            }
            done += 1;
            latency.record(under_way.pop_front().map_or(0, |at| nanoseconds(at.elapsed())));
        }
    }
    let elapsed = begun.elapsed();
    while operation == Operation::SEND && !all_taken {
        for result in end.results(stop)? {
            check(result)?;
            all_taken |= result.request_type == request_type::RECEIVE;
        }
    }
    let mut compared = 0;
    if operation == Operation::READ {
        for slot in 0..slots.min(proposal.count) {
            compared += compare(end, slot, size, Pattern(OF_SERVER + u64::from(slot)), "client")?;
        }
    }
    Ok(Measured { elapsed, latency, compared, control_requests: None })
}
