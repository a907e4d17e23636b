//! The requests, typed: builds inputs, checks replies, turns statuses into failures.
//!
//! A reply is checked like any input from the other side of a border: versions, counts and lengths in it may be wrong.

use crate::failure::{Failure, Kind};
use crate::limits;
use crate::transport::{Answer, Device, DirectBuffer};
use softndk_ioctl::{
    ABI_VERSION, AdapterEntry, AdapterLimits, AdapterListReply, AdapterListRequest, BufferLayout, EventEntry,
    EventListReply, EventListRequest, MeasureRequest, MeasureResult, MemcpyRequest, ObjectEntry, ObjectListReply,
    ObjectListRequest, ObjectPosition, ObjectSummaryReply, ObjectSummaryRequest, PairCloseRequest, PairCreateReply,
    PairCreateRequest, PairModerationRequest, RefusalEntry, RefusalListReply, RefusalListRequest, Request,
    RequestHeader, ScriptReply, ScriptRequest, Status, TransferRequest, TransferResult, UplinkEntry, UplinkListReply,
    UplinkListRequest, VersionReply, VersionRequest,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Attempts to read a list that grows while it is read.
const LIST_ATTEMPTS: usize = 8;

/// A device and the requests it takes.
pub struct Client<D> {
    device: D,
    /// What the connected pairs were made with, to say why one of their requests is refused.
    pairs: Mutex<BTreeMap<u32, PairCreateRequest>>,
}

/// A request for numbered records from a number on.
trait RecordList: Request<Reply: FromBytes + KnownLayout + Immutable> {
    type Entry: FromBytes + IntoBytes + KnownLayout + Immutable;

    fn from(first: u64) -> Self;

    /// Entries of a part, their size, and where the next part begins.
    fn part(reply: &Self::Reply) -> (u32, u32, u64);
}

macro_rules! record_list {
    ($Request:ident, $Reply:ident, $Entry:ident) => {
        impl RecordList for $Request {
            type Entry = $Entry;

            fn from(first: u64) -> Self {
                Self { header: RequestHeader::of::<Self>(), first }
            }

            fn part(reply: &$Reply) -> (u32, u32, u64) {
                (reply.returned_count, reply.entry_size, reply.next)
            }
        }
    };
}

record_list!(RefusalListRequest, RefusalListReply, RefusalEntry);
record_list!(EventListRequest, EventListReply, EventEntry);
record_list!(UplinkListRequest, UplinkListReply, UplinkEntry);

impl<D: Device> Client<D> {
    /// Opens a client of a device whose driver has our ABI version.
    pub fn connect(device: D) -> Result<(Self, VersionReply), Failure> {
        let client = Self { device, pairs: Mutex::default() };
        let version = client.version()?;
        if version.header.version != ABI_VERSION {
            let cause = format!("its ABI version is {}, this tool's is {ABI_VERSION}", version.header.version);
            let next = "use the ndkctl that was built with this driver";
            let failure = Failure::new(Kind::Unreachable, "cannot use the driver", cause, next);
            return Err(Failure { status: Some(Status::REVISION_MISMATCH.0.cast_unsigned()), ..failure });
        }
        Ok((client, version))
    }

    fn version(&self) -> Result<VersionReply, Failure> {
        let request = VersionRequest { header: RequestHeader::of::<VersionRequest>() };
        // An older driver's reply is shorter; what it does not say stays zero.
        self.ask_for("cannot ask the driver for its version", &request, VersionReply::FIRST_LENGTH)
    }

    /// All adapters.
    pub fn adapters(&self) -> Result<Vec<AdapterEntry>, Failure> {
        const WHAT: &str = "cannot list the adapters";
        let request = AdapterListRequest { header: RequestHeader::of::<AdapterListRequest>() };
        let mut output = vec![0_u8; size_of::<AdapterListReply>()];
        for _ in 0..LIST_ATTEMPTS {
            let answer = self.device.buffered(AdapterListRequest::CODE, request.as_bytes(), &mut output);
            let reply = valid_part(WHAT, answer, &output, &[Status::SUCCESS, Status::BUFFER_OVERFLOW])?;
            let (fixed, entries) = AdapterListReply::read_from_prefix(reply).map_err(|_| malformed(WHAT))?;
            if answer.status == Status::SUCCESS {
                let (count, size) = (fixed.returned_count, fixed.entry_size);
                return read_entries(count, size, entries).ok_or_else(|| malformed(WHAT));
            }
            // The buffer is larger than needed now: adapters may come between two calls.
            let wanted = fixed.required_length.saturating_add(fixed.entry_size.saturating_mul(2)) as usize;
            if wanted > MAX_LIST_LENGTH {
                return Err(malformed(WHAT));
            }
            output.resize(wanted, 0);
        }
        Err(Failure::refused(WHAT, Status::BUFFER_OVERFLOW))
    }

    /// Live objects of the driver.
    pub fn objects(&self) -> Result<ObjectSummaryReply, Failure> {
        let request = ObjectSummaryRequest { header: RequestHeader::of::<ObjectSummaryRequest>() };
        self.ask("cannot count the driver's objects", &request)
    }

    /// Every live object, read part by part.
    pub fn object_list(&self) -> Result<Vec<ObjectEntry>, Failure> {
        const WHAT: &str = "cannot list the driver's objects";
        let mut request =
            ObjectListRequest { header: RequestHeader::of::<ObjectListRequest>(), position: ObjectPosition::default() };
        let mut output = vec![0_u8; OBJECT_PART];
        let mut objects = Vec::new();
        for _ in 0..OBJECT_PARTS {
            let answer = self.device.buffered(ObjectListRequest::CODE, request.as_bytes(), &mut output);
            let reply = valid_part(WHAT, answer, &output, &[Status::SUCCESS])?;
            let (fixed, entries) = ObjectListReply::read_from_prefix(reply).map_err(|_| malformed(WHAT))?;
            let (count, size) = (fixed.returned_count, fixed.entry_size);
            objects.extend(read_entries::<ObjectEntry>(count, size, entries).ok_or_else(|| malformed(WHAT))?);
            if fixed.more & ObjectListReply::MORE == 0 {
                return Ok(objects);
            }
            request.position = fixed.next;
        }
        Err(malformed(WHAT))
    }

    /// The refusals that the driver keeps, oldest first.
    pub fn refusals(&self) -> Result<Vec<RefusalEntry>, Failure> {
        self.records::<RefusalListRequest>("cannot list the driver's refusals", &mut 0)
    }

    /// The events that the driver keeps from a number on, oldest first; the number becomes that of the next one.
    pub fn events(&self, next: &mut u64) -> Result<Vec<EventEntry>, Failure> {
        self.records::<EventListRequest>("cannot list the driver's events", next)
    }

    /// The uplinks of all adapters.
    pub fn uplinks(&self) -> Result<Vec<UplinkEntry>, Failure> {
        self.records::<UplinkListRequest>("cannot list the adapters' uplinks", &mut 0)
    }

    fn records<R: RecordList>(&self, what: &str, next: &mut u64) -> Result<Vec<R::Entry>, Failure> {
        let mut output = vec![0_u8; OBJECT_PART];
        let mut records = Vec::new();
        // More come while they are read: each part but the last is full.
        for _ in 0..LIST_ATTEMPTS {
            let answer = self.device.buffered(R::CODE, R::from(*next).as_bytes(), &mut output);
            let reply = valid_part(what, answer, &output, &[Status::SUCCESS])?;
            let (fixed, entries) = R::Reply::read_from_prefix(reply).map_err(|_| malformed(what))?;
            let (count, size, after) = R::part(&fixed);
            records.extend(read_entries::<R::Entry>(count, size, entries).ok_or_else(|| malformed(what))?);
            if count == 0 {
                break;
            }
            *next = after;
        }
        Ok(records)
    }

    /// Connects a pair.
    pub fn create_pair(&self, request: &PairCreateRequest) -> Result<PairCreateReply, Failure> {
        let (client, server) = (request.client_adapter, request.server_adapter);
        let created = self.ask(&format!("cannot connect adapter {client} to adapter {server}"), request);
        match &created {
            Ok(reply) => drop(self.pairs().insert(reply.pair, *request)),
            Err(failure) if failure.is(Status::INVALID_PARAMETER) => {
                let why = self.with_limits(request, |client, server| limits::of_pair(request, client, server));
                return created.map_err(|failure| failure.because(why.flatten()));
            }
            Err(_) => {}
        }
        created
    }

    /// Calls with the limits of both adapters; none when one of them is not there.
    fn with_limits<R>(
        &self,
        request: &PairCreateRequest,
        work: impl FnOnce(&AdapterLimits, &AdapterLimits) -> R,
    ) -> Option<R> {
        let adapters = self.adapters().ok()?;
        let limits = |index| adapters.iter().find(|entry| entry.index == index).map(|entry| &entry.limits);
        Some(work(limits(request.client_adapter)?, limits(request.server_adapter)?))
    }

    fn pairs(&self) -> MutexGuard<'_, BTreeMap<u32, PairCreateRequest>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes a pair.
    pub fn close_pair(&self, pair: u32) -> Result<(), Failure> {
        self.pairs().remove(&pair);
        let request = PairCloseRequest { header: RequestHeader::of::<PairCloseRequest>(), pair, reserved: 0 };
        let answer = self.device.buffered(PairCloseRequest::CODE, request.as_bytes(), &mut []);
        if answer.status == Status::SUCCESS {
            Ok(())
        } else {
            Err(Failure::refused(format!("cannot close pair {pair}"), answer.status))
        }
    }

    /// Sets the interrupt moderation of a pair's completion queues.
    pub fn moderate(&self, pair: u32, interval: u32, count: u32) -> Result<(), Failure> {
        let header = RequestHeader::of::<PairModerationRequest>();
        let request = PairModerationRequest { header, pair, interval, count, reserved: 0 };
        let answer = self.device.buffered(PairModerationRequest::CODE, request.as_bytes(), &mut []);
        if answer.status == Status::SUCCESS {
            Ok(())
        } else {
            Err(Failure::refused(format!("cannot moderate by {interval} µs and {count} completions"), answer.status))
        }
    }

    /// Memory for transfers of `region_length` bytes.
    pub fn allocate(&self, region_length: u64) -> Result<TransferBuffer<D::Buffer>, Failure> {
        let layout = BufferLayout::new(region_length).map_err(|status| {
            let what = format!("cannot transfer {region_length} bytes at once");
            Failure::refused(what, status).because(limits::of_region(region_length))
        })?;
        Ok(TransferBuffer { buffer: self.device.allocate(layout.total as usize)?, layout })
    }

    /// Runs a transfer whose requests must all succeed.
    pub fn transfer(
        &self,
        request: &TransferRequest,
        buffer: &mut TransferBuffer<D::Buffer>,
    ) -> Result<TransferResult, Failure> {
        let result = self.try_transfer(request, buffer)?;
        if result.failed > 0 || result.first_failure != Status::SUCCESS.0 {
            let what = format!("cannot transfer: {} of {} requests failed", result.failed, result.posted);
            return Err(Failure::refused(what, Status(result.first_failure)));
        }
        Ok(result)
    }

    /// Runs a transfer and returns what became of its requests, whether they succeeded or not.
    pub fn try_transfer(
        &self,
        request: &TransferRequest,
        buffer: &mut TransferBuffer<D::Buffer>,
    ) -> Result<TransferResult, Failure> {
        let answer = self.device.direct(TransferRequest::CODE, request.as_bytes(), &mut buffer.buffer);
        transfer_result("cannot transfer", answer, buffer).map_err(|failure| {
            let refused = failure.is(Status::INVALID_PARAMETER);
            failure.because(if refused { self.beyond_the_pair(request) } else { None })
        })
    }

    /// Which number of a transfer its pair does not take.
    fn beyond_the_pair(&self, request: &TransferRequest) -> Option<String> {
        let made = *self.pairs().get(&request.pair)?;
        let limits = self.with_limits(&made, |client, server| made.limits(client, server))?.ok()?;
        limits::of_transfer(request, &limits)
    }

    /// Runs the yardstick.
    pub fn memcpy(
        &self,
        request: &MemcpyRequest,
        buffer: &mut TransferBuffer<D::Buffer>,
    ) -> Result<TransferResult, Failure> {
        let answer = self.device.direct(MemcpyRequest::CODE, request.as_bytes(), &mut buffer.buffer);
        transfer_result("cannot measure memcpy", answer, buffer)
    }

    /// Runs a measurement.
    pub fn measure(
        &self,
        request: &MeasureRequest,
        buffer: &mut TransferBuffer<D::Buffer>,
    ) -> Result<MeasureResult, Failure> {
        const WHAT: &str = "cannot measure";
        let answer = self.device.direct(MeasureRequest::CODE, request.as_bytes(), &mut buffer.buffer);
        if answer.status != Status::SUCCESS {
            return Err(Failure::refused(WHAT, answer.status));
        }
        match MeasureResult::read_from_prefix(buffer.buffer.bytes()) {
            Ok((result, _)) if result.header == RequestHeader::of::<MeasureResult>() => Ok(result),
            _ => Err(malformed(WHAT)),
        }
    }

    /// Runs a script: the reply, and the bytes of the entries behind it.
    pub fn replay(&self, steps: &[u8]) -> Result<(ScriptReply, Vec<u8>), Failure> {
        const WHAT: &str = "cannot replay the script";
        let length = size_of::<ScriptRequest>() + steps.len();
        let (Ok(size), Ok(length)) = (u32::try_from(length), u32::try_from(steps.len())) else {
            return Err(Failure::refused(WHAT, Status::INVALID_PARAMETER));
        };
        let header = RequestHeader { version: ABI_VERSION, size };
        let mut input = ScriptRequest { header, length, reserved: 0 }.as_bytes().to_vec();
        input.extend_from_slice(steps);
        let mut output = vec![0; SCRIPT_OUTPUT];
        let answer = self.device.buffered(ScriptRequest::CODE, &input, &mut output);
        let reply = valid_part(WHAT, answer, &output, &[Status::SUCCESS])?;
        let (fixed, entries) = ScriptReply::read_from_prefix(reply).map_err(|_| malformed(WHAT))?;
        Ok((fixed, entries.to_vec()))
    }

    fn ask<R>(&self, what: &str, request: &R) -> Result<R::Reply, Failure>
    where
        R: Request,
        R::Reply: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        self.ask_for(what, request, size_of::<R::Reply>())
    }

    /// A reply of at least as many bytes.
    fn ask_for<R>(&self, what: &str, request: &R, least: usize) -> Result<R::Reply, Failure>
    where
        R: Request,
        R::Reply: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        let mut output = R::Reply::new_zeroed();
        let answer = self.device.buffered(R::CODE, request.as_bytes(), output.as_mut_bytes());
        if answer.status != Status::SUCCESS {
            return Err(Failure::refused(what, answer.status));
        }
        if answer.information < least {
            return Err(malformed(what));
        }
        Ok(output)
    }
}

/// Bytes for the reply to a script.
const SCRIPT_OUTPUT: usize = 32 << 10;

/// Bytes of the list of objects asked for at a time, and how often: a list longer than that is a mistake.
const OBJECT_PART: usize = 64 << 10;
const OBJECT_PARTS: usize = 1 << 14;

/// More than this is not a list of adapters but a mistake.
const MAX_LIST_LENGTH: usize = 16 << 20;

fn valid_part<'output>(
    what: &str,
    answer: Answer,
    output: &'output [u8],
    accepted: &[Status],
) -> Result<&'output [u8], Failure> {
    if !accepted.contains(&answer.status) {
        return Err(Failure::refused(what, answer.status));
    }
    output.get(..answer.information).ok_or_else(|| malformed(what))
}

/// The entries behind the fixed part; nothing when the counts and lengths do not fit together.
fn read_entries<T: FromBytes>(count: u32, entry_size: u32, bytes: &[u8]) -> Option<Vec<T>> {
    let (entry_size, count) = (entry_size as usize, count as usize);
    let expected = entry_size.checked_mul(count)?;
    if entry_size < size_of::<T>() || bytes.len() < expected {
        return None;
    }
    let entries = bytes.chunks_exact(entry_size).take(count);
    entries.map(|entry| T::read_from_prefix(entry).ok().map(|(entry, _)| entry)).collect()
}

fn transfer_result<B: DirectBuffer>(
    what: &str,
    answer: Answer,
    buffer: &TransferBuffer<B>,
) -> Result<TransferResult, Failure> {
    if answer.status != Status::SUCCESS {
        return Err(Failure::refused(what, answer.status));
    }
    match TransferResult::read_from_prefix(buffer.buffer.bytes()) {
        Ok((result, _)) if result.header == RequestHeader::of::<TransferResult>() => Ok(result),
        _ => Err(malformed(what)),
    }
}

fn malformed(what: &str) -> Failure {
    Failure::new(
        Kind::Refused,
        what,
        "the driver's reply does not fit together",
        "use the ndkctl that was built with this driver",
    )
}

/// Result page, source and destination.
pub struct TransferBuffer<B> {
    buffer: B,
    layout: BufferLayout,
}

impl<B: DirectBuffer> TransferBuffer<B> {
    /// The bytes that are read from.
    pub fn source(&self) -> &[u8] {
        &self.buffer.bytes()[Self::range(self.layout.source, &self.layout)]
    }

    pub fn source_mut(&mut self) -> &mut [u8] {
        let range = Self::range(self.layout.source, &self.layout);
        &mut self.buffer.bytes_mut()[range]
    }

    /// The bytes that are written to.
    pub fn destination(&self) -> &[u8] {
        &self.buffer.bytes()[Self::range(self.layout.destination, &self.layout)]
    }

    pub fn destination_mut(&mut self) -> &mut [u8] {
        let range = Self::range(self.layout.destination, &self.layout);
        &mut self.buffer.bytes_mut()[range]
    }

    /// What is read from, and what is written to.
    pub fn both(&mut self) -> (&[u8], &mut [u8]) {
        let source = Self::range(self.layout.source, &self.layout);
        let destination = Self::range(self.layout.destination, &self.layout);
        // The source lies before the destination, and they do not overlap.
        let (head, tail) = self.buffer.bytes_mut().split_at_mut(destination.start);
        (&head[source], &mut tail[..destination.len()])
    }

    pub fn region_length(&self) -> u64 {
        self.layout.region_length
    }

    /// Lays the same memory out for a shorter region.
    pub fn shrink(&mut self, region_length: u64) -> Result<(), Failure> {
        match BufferLayout::new(region_length) {
            Ok(layout) if layout.total as usize <= self.buffer.bytes().len() => {
                self.layout = layout;
                Ok(())
            }
            _ => Err(Failure::refused(
                format!("cannot transfer {region_length} bytes at once"),
                Status::BUFFER_TOO_SMALL,
            )),
        }
    }

    fn range(start: u64, layout: &BufferLayout) -> std::ops::Range<usize> {
        start as usize..(start + layout.region_length) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::read_entries;
    use softndk_ioctl::AdapterEntry;

    const ENTRY: u32 = size_of::<AdapterEntry>() as u32;

    #[test]
    fn entries_of_a_newer_driver_may_be_longer() {
        let bytes = vec![0; 2 * (ENTRY as usize + 8)];
        assert_eq!(read_entries::<AdapterEntry>(2, ENTRY + 8, &bytes).unwrap().len(), 2);
    }

    #[test]
    fn counts_and_sizes_that_do_not_fit_are_refused() {
        let bytes = vec![0; 2 * ENTRY as usize];
        for (count, size) in [(3, ENTRY), (2, ENTRY - 1), (1, 0), (u32::MAX, u32::MAX), (u32::MAX, ENTRY)] {
            assert!(read_entries::<AdapterEntry>(count, size, &bytes).is_none(), "{count} of {size}");
        }
        assert_eq!(read_entries::<AdapterEntry>(0, ENTRY, &[]).unwrap().len(), 0);
    }
}
