//! Measurements: a loop in the driver that does one thing again and again, over connections of its own.
//!
//! The second buffer is that of a transfer ([`crate::BufferLayout`]): result page, source, destination. Source and destination are
//! divided among the processors ([`MeasureRequest::part`]): parts of whole pages, so that no two processors write one cache line.
//! Request *n* of a processor takes stride *n* of its part, round and round.

use crate::adapter::AddressFamily;
use crate::header::{Method, Request, RequestHeader, control_code};
use crate::histogram::Histogram;
use crate::status::Status;
use crate::transfer::{BUFFER_ALIGNMENT, BufferLayout, RegionKind, stride_count};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most connections of one processor.
pub const MEASURED_CONNECTIONS_MAX: u32 = 10_000;
/// Most processors.
pub const MEASURED_PROCESSORS_MAX: usize = 64;
/// Most requests outstanding.
pub const MEASURED_DEPTH_MAX: u32 = 1 << 15;
/// Most scatter/gather elements of all strides of a processor's part together.
pub const MEASURED_SGES_MAX: u64 = 1 << 16;

/// Runs a loop and says how long it took. METHOD_OUT_DIRECT; pends until the loop is over, and can be cancelled.
///
/// The driver opens both adapters, connects, registers, warms up, runs, and closes everything, all within this request. A measurement of which
/// anything failed has no result.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; INVALID_PARAMETER (see [`MeasureRequest::check_fields`]; more processors
/// than the machine has; what the adapters refuse: depth, elements, lengths); DATATYPE_MISALIGNMENT and BUFFER_TOO_SMALL (second buffer);
/// DEVICE_DOES_NOT_EXIST; DEVICE_NOT_READY; INVALID_ADDRESS; those of connecting, registering and posting, and of a completion that was no
/// success; CONNECTION_DISCONNECTED (a connection ended meanwhile); DEVICE_REMOVED (with its adapter); IO_DEVICE_ERROR (a completion queue
/// failed, or completions came that belong to no request); INSUFFICIENT_RESOURCES; CANCELLED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MeasureRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Index of the adapter that connects and posts.
    pub client_adapter: u32,
    /// Index of the adapter that listens; may be the same.
    pub server_adapter: u32,
    /// Addresses to connect over; UNSPECIFIED: IPv4 if both have one, else IPv6.
    pub family: AddressFamily,
    /// Zero.
    pub reserved: u16,
    /// What is done again and again.
    pub operation: MeasuredOperation,
    /// How the memory is registered; REGISTERED where nothing is transferred.
    pub region_kind: RegionKind,
    /// Options.
    pub flags: MeasureFlags,
    /// Bytes of source and destination of each processor. A multiple of `request_length`; for FAST_REGISTER whole pages.
    pub region_length: u64,
    /// How often each processor does it, a multiple of `chain_length`; 0 for IDLE only.
    pub request_count: u64,
    /// Bytes of one request.
    pub request_length: u32,
    /// Local scatter/gather elements of each request ([`crate::segment`]).
    pub sge_count: u32,
    /// Requests outstanding at most, on all connections of a processor together; also how deep their queues are made.
    pub depth: u32,
    /// Requests posted in a row on one connection, all but the last deferred, and taken from the completion queue as many at a time.
    pub chain_length: u32,
    /// Connections of each processor, used in turn.
    pub connection_count: u32,
    /// Processors that do it at the same time, each on connections, completion queues and registrations of its own.
    pub processor_count: u32,
}

impl Request for MeasureRequest {
    const CODE: u32 = control_code(0x822, Method::OutDirect);
    type Reply = MeasureResult;
}

/// What a measurement repeats. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct MeasuredOperation(pub u32);

impl MeasuredOperation {
    /// NdkRead: the client pulls the source into the destination.
    pub const READ: Self = Self(1);
    /// NdkWrite: the client pushes the source into the destination.
    pub const WRITE: Self = Self(2);
    /// NdkReceive by the server, NdkSend by the client.
    pub const SEND: Self = Self(3);
    /// NdkFastRegister of the source's pages and NdkInvalidate, by the client. Afterwards it writes the pages through one more such
    /// registration into the destination, in their order in it ([`MeasureFlags::SCATTERED`], [`scattered_page`]).
    pub const FAST_REGISTER: Self = Self(4);
    /// Both queue pairs made, connect, accept, complete connect, disconnect, all closed.
    pub const CONNECT: Self = Self(5);
    /// An armed completion queue whose notifications another processor makes: from before the post of a Read to the first instruction
    /// of the notification.
    pub const NOTIFY: Self = Self(6);
    /// Connects and does nothing: for the memory that connections take.
    pub const IDLE: Self = Self(7);

    /// Whether it moves data of which each request has its own.
    #[must_use]
    pub const fn transfers(self) -> bool {
        matches!(self, Self::READ | Self::WRITE | Self::SEND)
    }
}

/// Options of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct MeasureFlags(u32);

bitflags::bitflags! {
    impl MeasureFlags: u32 {
        /// Requests carry NDK_OP_FLAG_INLINE. Write and Send.
        const INLINE = 1;
        /// Completions are waited for with NdkArmCq and its notification. Read, Write, Send; not with AT_DISPATCH.
        const NOTIFY = 2;
        /// The loop runs at DISPATCH_LEVEL, a bounded number of requests at a time. Read, Write, Send.
        const AT_DISPATCH = 4;
        /// The pages of a fast registration in an order in which no page follows the one before it.
        const SCATTERED = 8;
        /// Fills the histogram: from posting a chain to taking its last completion, one chain at a time. Costs two clock
        /// readings a chain. Read, Write, Send.
        const MEASURE_LATENCY = 16;
    }
}

impl MeasureRequest {
    /// What can be checked before the adapters are looked up; the layout the buffer must have.
    ///
    /// # Errors
    /// [`Status::INVALID_PARAMETER`]: unknown operation, kind, family or flag; one without its operation; a number that is 0 or above its
    /// maximum; a chain above the depth; a count that is no multiple of the chain, or a region that is none of the request; regions
    /// of all processors together longer than [`crate::REGION_LENGTH_MAX`]; reserved not zero.
    pub fn check_fields(&self) -> Result<BufferLayout, Status> {
        let families = [AddressFamily::UNSPECIFIED, AddressFamily::IPV4, AddressFamily::IPV6];
        let within = |number: u32, most: u32| (1..=most).contains(&number);
        let numbers = within(self.sge_count, MEASURED_SGES_MAX as u32)
            && within(self.depth, MEASURED_DEPTH_MAX)
            && within(self.chain_length, self.depth)
            && within(self.connection_count, MEASURED_CONNECTIONS_MAX)
            && within(self.processor_count, MEASURED_PROCESSORS_MAX as u32);
        if !families.contains(&self.family)
            || self.reserved != 0
            || !MeasureFlags::all().contains(self.flags)
            || !numbers
            || !self.count_fits()
            || !self.kind_fits()
            || !self.flags_fit()
            || !self.lengths_fit()
        {
            return Err(Status::INVALID_PARAMETER);
        }
        let each = self.part_stride().ok_or(Status::INVALID_PARAMETER)?;
        BufferLayout::new(each.checked_mul(u64::from(self.processor_count)).ok_or(Status::INVALID_PARAMETER)?)
    }

    fn count_fits(&self) -> bool {
        let several = self.connection_count > 1 || self.processor_count > 1 || self.chain_length > 1;
        match self.operation {
            MeasuredOperation::IDLE => self.request_count == 0 && self.processor_count == 1 && self.chain_length == 1,
            operation => {
                self.request_count > 0
                    && self.request_count.is_multiple_of(u64::from(self.chain_length))
                    && (operation.transfers() || !several)
            }
        }
    }

    fn kind_fits(&self) -> bool {
        let kinds = [RegionKind::REGISTERED, RegionKind::FAST_REGISTERED, RegionKind::LOGICAL, RegionKind::WINDOW];
        let send = self.operation == MeasuredOperation::SEND;
        kinds.contains(&self.region_kind)
            && (self.operation.transfers() || self.region_kind == RegionKind::REGISTERED)
            && !(send && self.region_kind == RegionKind::WINDOW)
    }

    /// Whether each flag has the operation it is for.
    fn flags_fit(&self) -> bool {
        let (operation, read) = (self.operation, self.operation == MeasuredOperation::READ);
        let fits = |flag, where_it_fits: bool| where_it_fits || !self.flags.contains(flag);
        fits(MeasureFlags::INLINE, operation.transfers() && !read)
            && fits(MeasureFlags::NOTIFY, operation.transfers() && !self.flags.contains(MeasureFlags::AT_DISPATCH))
            && fits(MeasureFlags::AT_DISPATCH, operation.transfers())
            && fits(MeasureFlags::MEASURE_LATENCY, operation.transfers())
            && fits(MeasureFlags::SCATTERED, operation == MeasuredOperation::FAST_REGISTER)
    }

    fn lengths_fit(&self) -> bool {
        let (region, request) = (self.region_length, u64::from(self.request_length));
        let whole = if request == 0 { region == 0 } else { region > 0 && region.is_multiple_of(request) };
        let sges = stride_count(region, self.request_length).checked_mul(u64::from(self.sge_count));
        match self.operation {
            MeasuredOperation::READ | MeasuredOperation::WRITE | MeasuredOperation::SEND => {
                whole && sges.is_some_and(|sges| sges <= MEASURED_SGES_MAX)
            }
            MeasuredOperation::NOTIFY => region == request,
            MeasuredOperation::FAST_REGISTER => {
                region > 0 && region.is_multiple_of(BUFFER_ALIGNMENT) && region == request
            }
            MeasuredOperation::CONNECT | MeasuredOperation::IDLE => region == 0 && request == 0,
            _ => false,
        }
    }

    /// Bytes from one processor's part to the next one's.
    const fn part_stride(&self) -> Option<u64> {
        if self.processor_count == 1 {
            return Some(self.region_length);
        }
        match self.region_length.div_ceil(BUFFER_ALIGNMENT).checked_mul(BUFFER_ALIGNMENT) {
            Some(stride) => Some(stride),
            None => None,
        }
    }

    /// Where in source and destination the part of a processor begins. Its length is `region_length`. Of requests that have
    /// passed [`MeasureRequest::check_fields`].
    #[must_use]
    pub const fn part(&self, processor: u32) -> u64 {
        match self.part_stride() {
            Some(stride) => stride.saturating_mul(processor as u64),
            None => 0,
        }
    }
}

/// Which page of the memory is page number `place` of a scattered registration of `count` pages: the odd ones, then the even ones. So
/// no page is followed by its neighbour.
#[must_use]
pub const fn scattered_page(place: u64, count: u64) -> u64 {
    let odd = count / 2;
    if place < odd { 2 * place + 1 } else { 2 * (place - odd) }
}

/// What was measured. At the start of the result page; the rest of the page is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MeasureResult {
    /// ABI version, and the size of this structure.
    pub header: RequestHeader,
    /// Requests posted by the clients while the time was taken: of FAST_REGISTER two each, of CONNECT none.
    pub posted: u64,
    /// Completions with success that were taken from the clients' completion queues meanwhile.
    pub completed: u64,
    /// As `completed`, of the servers: receives.
    pub received: u64,
    /// Nanoseconds from the first post to the last completion; of several processors from the first one's begin to the last one's end.
    /// Of NOTIFY the sum of the times from post to notification.
    pub elapsed: u64,
    /// Nanoseconds to open, connect, register and warm up before that.
    pub setup: u64,
    /// Nanoseconds to close everything after that.
    pub teardown: u64,
    /// Completion queue notifications taken.
    pub notifications: u64,
    /// Of these, those that another processor made than the one that the completion queue prefers. NOTIFY only.
    pub elsewhere: u64,
    /// Runs of adjacent pages in the list of the fast registration.
    pub page_runs: u32,
    /// Processors that took part.
    pub processor_count: u32,
    /// Nanoseconds from each processor's first post to its last completion.
    pub processors: [u64; MEASURED_PROCESSORS_MAX],
    /// Latency of chains ([`MeasureFlags::MEASURE_LATENCY`]), or of notifications.
    pub latency: Histogram,
}

impl MeasureResult {
    /// A result in which nothing has happened yet.
    pub const EMPTY: Self = Self {
        header: RequestHeader::of::<Self>(),
        posted: 0,
        completed: 0,
        received: 0,
        elapsed: 0,
        setup: 0,
        teardown: 0,
        notifications: 0,
        elsewhere: 0,
        page_runs: 0,
        processor_count: 0,
        processors: [0; MEASURED_PROCESSORS_MAX],
        latency: Histogram::EMPTY,
    };
}

const _: () = {
    assert!(size_of::<MeasureRequest>() == 72);
    assert!(core::mem::offset_of!(MeasureRequest, family) == 16);
    assert!(core::mem::offset_of!(MeasureRequest, operation) == 20);
    assert!(core::mem::offset_of!(MeasureRequest, flags) == 28);
    assert!(core::mem::offset_of!(MeasureRequest, region_length) == 32);
    assert!(core::mem::offset_of!(MeasureRequest, request_length) == 48);
    assert!(core::mem::offset_of!(MeasureRequest, chain_length) == 60);
    assert!(core::mem::offset_of!(MeasureRequest, processor_count) == 68);
    assert!(core::mem::offset_of!(MeasureResult, elapsed) == 32);
    assert!(core::mem::offset_of!(MeasureResult, page_runs) == 72);
    assert!(core::mem::offset_of!(MeasureResult, processors) == 80);
    assert!(core::mem::offset_of!(MeasureResult, latency) == 592);
    assert!(size_of::<MeasureResult>() == 592 + 32 + 4 * 608);
    assert!(size_of::<MeasureResult>() as u64 <= crate::RESULT_LENGTH);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGION_LENGTH_MAX;
    use zerocopy::FromZeros;

    fn read() -> MeasureRequest {
        MeasureRequest {
            header: RequestHeader::of::<MeasureRequest>(),
            operation: MeasuredOperation::READ,
            region_kind: RegionKind::REGISTERED,
            region_length: 4096,
            request_count: 32,
            request_length: 8,
            sge_count: 1,
            depth: 32,
            chain_length: 16,
            connection_count: 1,
            processor_count: 1,
            ..MeasureRequest::new_zeroed()
        }
    }

    fn of(operation: MeasuredOperation) -> MeasureRequest {
        let single = MeasureRequest { operation, chain_length: 1, ..read() };
        match operation {
            MeasuredOperation::NOTIFY => MeasureRequest { region_length: 8, ..single },
            MeasuredOperation::FAST_REGISTER => MeasureRequest { region_length: 8192, request_length: 8192, ..single },
            MeasuredOperation::CONNECT => MeasureRequest { region_length: 0, request_length: 0, ..single },
            MeasuredOperation::IDLE => MeasureRequest {
                region_length: 0,
                request_length: 0,
                request_count: 0,
                connection_count: 101,
                ..single
            },
            _ => MeasureRequest { operation, ..read() },
        }
    }

    const ALL: [MeasuredOperation; 7] = [
        MeasuredOperation::READ,
        MeasuredOperation::WRITE,
        MeasuredOperation::SEND,
        MeasuredOperation::FAST_REGISTER,
        MeasuredOperation::CONNECT,
        MeasuredOperation::NOTIFY,
        MeasuredOperation::IDLE,
    ];

    #[test]
    fn every_operation_has_a_good_request() {
        for operation in ALL {
            assert!(of(operation).check_fields().is_ok(), "{operation:?}");
        }
    }

    #[test]
    fn each_number_has_its_bounds() {
        type Change = (fn(&mut MeasureRequest, u64), &'static [u64], &'static [u64]);
        let changes: [Change; 9] = [
            (|request, number| request.sge_count = number as u32, &[1, 128], &[0, 129, 1 << 16, 0xFFFF_FFFF]),
            (|request, number| request.depth = number as u32, &[16, 32_768], &[0, 15, 32_769, 0xFFFF_FFFF]),
            (|request, number| request.chain_length = number as u32, &[1, 32], &[0, 3, 33, 0xFFFF_FFFF]),
            (|request, number| request.connection_count = number as u32, &[1, 10_000], &[0, 10_001, 0xFFFF_FFFF]),
            (|request, number| request.processor_count = number as u32, &[1, 64], &[0, 65, 0xFFFF_FFFF]),
            (|request, number| request.request_count = number, &[16, u64::MAX - 15], &[0, 1, 17, u64::MAX]),
            (|request, number| request.request_length = number as u32, &[8, 4096], &[0, 3, 4097, 8192]),
            (
                |request, number| request.region_length = number,
                &[8, 4096, 8 << 16],
                &[0, 1, 12, (8 << 16) + 8, REGION_LENGTH_MAX + 8, u64::MAX, u64::MAX - 7],
            ),
            (|request, number| request.reserved = number as u16, &[0], &[1, 0xFFFF]),
        ];
        for (number, (change, good, bad)) in changes.iter().enumerate() {
            let check = |value| {
                let mut request = MeasureRequest { region_length: 4096, ..read() };
                change(&mut request, value);
                request.check_fields().map(|_| ())
            };
            for value in *good {
                assert_eq!(check(*value), Ok(()), "change {number} to {value}");
            }
            for value in *bad {
                assert_eq!(check(*value), Err(Status::INVALID_PARAMETER), "change {number} to {value}");
            }
        }
    }

    #[test]
    fn unknown_enumerators_and_flags_are_refused() {
        let refused = |request: MeasureRequest| request.check_fields() == Err(Status::INVALID_PARAMETER);
        for number in [0, 8, u32::MAX] {
            assert!(refused(MeasureRequest { operation: MeasuredOperation(number), ..read() }));
        }
        for number in [0, 5, u32::MAX] {
            assert!(refused(MeasureRequest { region_kind: RegionKind(number), ..read() }));
        }
        assert!(refused(MeasureRequest { family: AddressFamily(7), ..read() }));
        assert!(refused(MeasureRequest { flags: MeasureFlags::from_bits_retain(32), ..read() }));
    }

    #[test]
    fn each_flag_and_kind_has_its_operations() {
        use MeasuredOperation as Op;
        let transfers: &[Op] = &[Op::READ, Op::WRITE, Op::SEND];
        let flags: [(MeasureFlags, &[Op]); 6] = [
            (MeasureFlags::INLINE, &[Op::WRITE, Op::SEND]),
            (MeasureFlags::NOTIFY, transfers),
            (MeasureFlags::AT_DISPATCH, transfers),
            (MeasureFlags::MEASURE_LATENCY, transfers),
            (MeasureFlags::SCATTERED, &[Op::FAST_REGISTER]),
            (MeasureFlags::NOTIFY.union(MeasureFlags::AT_DISPATCH), &[]),
        ];
        let kinds: [(RegionKind, &[Op]); 4] = [
            (RegionKind::REGISTERED, &ALL),
            (RegionKind::FAST_REGISTERED, transfers),
            (RegionKind::LOGICAL, transfers),
            (RegionKind::WINDOW, &[Op::READ, Op::WRITE]),
        ];
        for operation in ALL {
            for (flags, at) in flags {
                let request = MeasureRequest { flags, ..of(operation) };
                assert_eq!(request.check_fields().is_ok(), at.contains(&operation), "{flags:?} {operation:?}");
            }
            for (region_kind, at) in kinds {
                let request = MeasureRequest { region_kind, ..of(operation) };
                assert_eq!(request.check_fields().is_ok(), at.contains(&operation), "{region_kind:?} {operation:?}");
            }
            let several = [
                MeasureRequest { connection_count: 2, ..of(operation) },
                MeasureRequest { processor_count: 2, ..of(operation) },
                MeasureRequest { chain_length: 2, ..of(operation) },
            ];
            for request in several {
                let idle = operation == Op::IDLE && request.connection_count == 2;
                assert_eq!(request.check_fields().is_ok(), operation.transfers() || idle, "{request:?}");
            }
        }
    }

    #[test]
    fn parts_are_whole_pages_within_the_buffer() {
        for (region_length, processor_count, total) in [(8, 1, 8), (8, 3, 12_288), (4096, 2, 8192), (4104, 2, 16_384)] {
            let request = MeasureRequest { region_length, processor_count, ..read() };
            assert_eq!(request.check_fields().unwrap().region_length, total);
            for processor in 0..processor_count {
                assert!(request.part(processor).is_multiple_of(BUFFER_ALIGNMENT));
                assert!(request.part(processor) + region_length <= total);
            }
        }
        let too_long = MeasureRequest { region_length: 1 << 26, request_length: 1 << 20, processor_count: 2, ..read() };
        assert_eq!(too_long.check_fields(), Err(Status::INVALID_PARAMETER));
    }

    #[test]
    fn scattered_pages_are_all_pages_and_none_is_followed_by_its_neighbour() {
        for count in 1..100 {
            let pages: alloc::vec::Vec<u64> = (0..count).map(|place| scattered_page(place, count)).collect();
            assert!(pages.windows(2).all(|pair| pair[0] + 1 != pair[1]), "{pages:?}");
            let mut sorted = pages.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..count));
        }
    }

    extern crate alloc;
}
