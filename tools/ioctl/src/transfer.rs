//! Transfers over a pair, and the memcpy they are measured against.
//!
//! A transfer's second buffer is one user buffer, locked by the I/O manager (METHOD_OUT_DIRECT):
//!
//! | from | length | what |
//! |---|---|---|
//! | 0 | 4096 | result page: starts with [`TransferResult`] |
//! | 4096 | `region_length` | source |
//! | 4096 + `region_length` rounded up to 4096 | `region_length` | destination |
//!
//! The buffer starts on a page boundary ([`BUFFER_ALIGNMENT`]). Owners: in a Read the source is the server's
//! memory and the destination the client's; in a Write and a Send the source is the client's and the destination the server's.
//! The client posts all requests (the server only receives). Source and destination are the caller's own memory while the
//! request runs: it may read and change them, as RDMA allows, at its own risk.
//!
//! Requests walk through the region in strides of `request_length` ([`stride`]): request *n* takes stride *n* modulo the number
//! of strides, and the last stride of the region is shorter when the lengths do not divide.

use crate::header::{Method, Request, RequestHeader, control_code};
use crate::histogram::Histogram;
use crate::status::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Alignment of the direct buffer and of the parts in it.
pub const BUFFER_ALIGNMENT: u64 = 4096;

/// Length of the result page.
pub const RESULT_LENGTH: u64 = 4096;

/// Longest region of one transfer: 64 MiB. (A fast-register region is further limited to the adapter's
/// `frmr_page_count` pages.)
pub const REGION_LENGTH_MAX: u64 = 64 << 20;

/// Distinct failing statuses counted one by one in a result.
pub const STATUS_COUNTS: usize = 8;

/// Runs requests over a pair. METHOD_OUT_DIRECT; pends until all are done, and can be cancelled.
///
/// The driver registers source and destination by `region_kind`, posts, collects completions, and removes the registrations,
/// all within this request.
///
/// A transfer that began returns SUCCESS and reports the outcome of its requests in the result page, even if they failed: a
/// failed request ends the transfer and the pair's connection. With any other status the result page is empty.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; BUFFER_TOO_SMALL (second buffer shorter than the layout);
/// DATATYPE_MISALIGNMENT (second buffer does not start on a page boundary); INVALID_PARAMETER (unknown operation, region kind
/// or flag; `sge_count`, `depth` or `chain_length` is 0 or above the pair's; `chain_length` above `depth`; count and budget
/// both 0; flag or kind without its operation; `request_length` above the adapter's transfer length; `region_length` above
/// [`REGION_LENGTH_MAX`]; reserved not zero); INVALID_BUFFER_SIZE (region longer than its kind can register); NOT_SUPPORTED;
/// NOT_FOUND (no such pair on this file); DEVICE_BUSY (the pair is running another transfer); CONNECTION_DISCONNECTED (the
/// pair's connection has ended); INSUFFICIENT_RESOURCES; CANCELLED (also when the pair or the file is closed meanwhile);
/// DEVICE_REMOVED (an adapter of the pair was halted, removed or disabled, or lost the pair's address; also for every further
/// transfer of that pair).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TransferRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Id from [`crate::PairCreateReply::pair`].
    pub pair: u32,
    /// What each request does.
    pub operation: Operation,
    /// How the memory is registered.
    pub region_kind: RegionKind,
    /// Options.
    pub flags: TransferFlags,
    /// Bytes of the source, and of the destination. 0 leaves only the result page: nothing is registered, and the requests
    /// carry no data and no valid token.
    pub region_length: u64,
    /// Requests to make; 0: until the time budget ends.
    pub request_count: u64,
    /// Bytes of one request; 0: requests without data.
    pub request_length: u32,
    /// Local scatter/gather elements of each request, see [`segment`].
    pub sge_count: u32,
    /// Requests outstanding at most.
    pub depth: u32,
    /// Requests posted in a row, all but the last with the defer flag; 1: none deferred.
    pub chain_length: u32,
    /// After this many milliseconds no more requests are posted; 0: no limit.
    pub time_budget: u32,
    /// Every how manieth request is signalled; the others carry NDK_OP_FLAG_SILENT_SUCCESS. (So is the last one, and one behind
    /// which no more fit.) 0: by [`TransferFlags::SILENT_SUCCESS`].
    pub signal_interval: u32,
}

impl Request for TransferRequest {
    const CODE: u32 = control_code(0x820, Method::OutDirect);
    type Reply = TransferResult;
}

/// What a request does. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Operation(pub u32);

impl Operation {
    /// NdkRead: the client pulls the source into the destination.
    pub const READ: Self = Self(1);
    /// NdkWrite: the client pushes the source into the destination.
    pub const WRITE: Self = Self(2);
    /// NdkSend into receives the server posted in the destination.
    pub const SEND: Self = Self(3);
}

/// How a transfer's memory becomes known to the adapter. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct RegionKind(pub u32);

impl RegionKind {
    /// NdkRegisterMr for both parts.
    pub const REGISTERED: Self = Self(1);
    /// NdkFastRegister, page by page, for both parts.
    pub const FAST_REGISTERED: Self = Self(2);
    /// NdkBuildLAM and the privileged token for the client's part; fast-registered for the server's where the client
    /// addresses it (Read, Write), and NdkBuildLAM there too for Send.
    pub const LOGICAL: Self = Self(3);
    /// NdkRegisterMr for both parts, and a memory window bound to the server's, through which the client addresses it. Read and
    /// Write only.
    pub const WINDOW: Self = Self(4);
}

/// Options of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct TransferFlags(u32);

bitflags::bitflags! {
    impl TransferFlags: u32 {
        /// Fills the latency histogram: from posting a chain to taking its last completion. Costs two clock readings a chain.
        const MEASURE_LATENCY = 1;
        /// Requests carry NDK_OP_FLAG_READ_FENCE.
        const READ_FENCE = 2;
        /// All requests of a chain but the last carry NDK_OP_FLAG_SILENT_SUCCESS.
        const SILENT_SUCCESS = 4;
        /// Requests carry NDK_OP_FLAG_INLINE. Write and Send only; `request_length` within the adapter's inline data size.
        const INLINE = 8;
        /// The client invalidates the server's fast-registered part or window; without it the server does. After a Read or
        /// Write by an empty NdkSendAndInvalidate, of a Send by the last request. Not with registered memory, of a Send only with
        /// fast-registered memory and a count.
        const REMOTE_INVALIDATE = 16;
        /// Requests carry NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, and the server's completion queue is armed for solicited
        /// completions. Send only.
        const SOLICITED = 32;
        /// The last request carries NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE: it invalidates the client's part. Read only, with
        /// fast-registered memory and a count.
        const LOCAL_INVALIDATE = 64;
    }
}

/// Copies source to destination in the driver with the copy routine of the data path: the yardstick of the same memory, the
/// same lengths and the same processor. METHOD_OUT_DIRECT, same buffer layout, same result page; pends, and can be cancelled.
///
/// Statuses: SUCCESS; INFO_LENGTH_MISMATCH; REVISION_MISMATCH; BUFFER_TOO_SMALL; DATATYPE_MISALIGNMENT; INVALID_PARAMETER
/// (flags other than MEASURE_LATENCY; count and budget both 0; `region_length` above [`REGION_LENGTH_MAX`]; reserved not
/// zero); NOT_SUPPORTED; INSUFFICIENT_RESOURCES; CANCELLED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MemcpyRequest {
    /// Version and size.
    pub header: RequestHeader,
    /// Bytes of the source, and of the destination.
    pub region_length: u64,
    /// Copies to make; 0: until the time budget ends.
    pub request_count: u64,
    /// Bytes of one copy.
    pub request_length: u32,
    /// Options; MEASURE_LATENCY only.
    pub flags: TransferFlags,
    /// After this many milliseconds no more copies are made; 0: no limit.
    pub time_budget: u32,
    /// Zero.
    pub reserved: u32,
}

impl Request for MemcpyRequest {
    const CODE: u32 = control_code(0x821, Method::OutDirect);
    type Reply = TransferResult;
}

/// What became of a transfer. At the start of the result page; the rest of the page is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TransferResult {
    /// ABI version, and the size of this structure.
    pub header: RequestHeader,
    /// Requests accepted by the client's queue pair.
    pub posted: u64,
    /// Completions with success that were taken from the client's completion queue (of memcpy: copies).
    pub completed: u64,
    /// Requests posted with NDK_OP_FLAG_SILENT_SUCCESS that are known to be done because one behind them is. In a transfer that
    /// returns SUCCESS, every request posted is among `completed`, `silent` or `failed`, and among one of them only.
    pub silent: u64,
    /// Bytes of completed and silent requests.
    pub bytes: u64,
    /// Requests that completed with another status.
    pub failed: u64,
    /// Nanoseconds from the first post to the last completion.
    pub elapsed: u64,
    /// Nanoseconds to register and map before that.
    pub setup: u64,
    /// Nanoseconds to invalidate, deregister and unmap after that.
    pub teardown: u64,
    /// Completion queue notifications taken (with [`crate::PairFlags::NOTIFY`]).
    pub notifications: u64,
    /// First status that was not success, of an inline failure or of a completion; SUCCESS if there was none.
    pub first_failure: i32,
    /// Why it ended.
    pub end_reason: EndReason,
    /// Failed requests by status, in order of appearance; unused entries are zero.
    pub failures: [StatusCount; STATUS_COUNTS],
    /// Failed requests with further statuses.
    pub other_failures: u64,
    /// Latency of chains, with [`TransferFlags::MEASURE_LATENCY`].
    pub latency: Histogram,
}

/// How often a status came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StatusCount {
    /// How often.
    pub count: u64,
    /// NTSTATUS.
    pub status: i32,
    /// Zero.
    pub reserved: u32,
}

/// Why a transfer ended. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct EndReason(pub u32);

impl EndReason {
    /// All requests were made.
    pub const COUNT: Self = Self(1);
    /// The time budget ended.
    pub const TIME_BUDGET: Self = Self(2);
    /// A request failed.
    pub const FAILURE: Self = Self(3);
}

impl TransferResult {
    /// A result in which nothing has happened yet.
    pub const EMPTY: Self = Self {
        header: RequestHeader::of::<Self>(),
        posted: 0,
        completed: 0,
        silent: 0,
        bytes: 0,
        failed: 0,
        elapsed: 0,
        setup: 0,
        teardown: 0,
        notifications: 0,
        first_failure: 0,
        end_reason: EndReason::COUNT,
        failures: [StatusCount { count: 0, status: 0, reserved: 0 }; STATUS_COUNTS],
        other_failures: 0,
        latency: Histogram::EMPTY,
    };

    /// Requests that succeeded, with or without a completion.
    #[must_use]
    pub const fn succeeded(&self) -> u64 {
        self.completed.saturating_add(self.silent)
    }

    /// Counts a failed request.
    pub fn record_failure(&mut self, status: Status) {
        if self.first_failure == Status::SUCCESS.0 {
            self.first_failure = status.0;
        }
        self.failed = self.failed.saturating_add(1);
        match self.failures.iter_mut().find(|entry| entry.count == 0 || entry.status == status.0) {
            Some(entry) => *entry = StatusCount { count: entry.count.saturating_add(1), status: status.0, reserved: 0 },
            None => self.other_failures = self.other_failures.saturating_add(1),
        }
    }
}

/// Where the parts of the direct buffer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLayout {
    /// Offset of the source.
    pub source: u64,
    /// Offset of the destination.
    pub destination: u64,
    /// Bytes of each.
    pub region_length: u64,
    /// Bytes of the whole buffer.
    pub total: u64,
}

impl BufferLayout {
    /// The layout for a region length.
    ///
    /// # Errors
    /// [`Status::INVALID_PARAMETER`]: the region is longer than [`REGION_LENGTH_MAX`].
    pub const fn new(region_length: u64) -> Result<Self, Status> {
        if region_length > REGION_LENGTH_MAX {
            return Err(Status::INVALID_PARAMETER);
        }
        let source = RESULT_LENGTH;
        // Small by the check above: neither the rounding nor the sums can wrap.
        let destination = source + region_length.div_ceil(BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT;
        Ok(Self { source, destination, region_length, total: destination + region_length })
    }

    /// Checks a user buffer against the layout: `offset` is its start within its first page.
    ///
    /// # Errors
    /// [`Status::DATATYPE_MISALIGNMENT`], then [`Status::BUFFER_TOO_SMALL`].
    pub const fn check_buffer(&self, offset: u64, length: u64) -> Result<(), Status> {
        if !offset.is_multiple_of(BUFFER_ALIGNMENT) {
            Err(Status::DATATYPE_MISALIGNMENT)
        } else if length < self.total {
            Err(Status::BUFFER_TOO_SMALL)
        } else {
            Ok(())
        }
    }
}

/// A part of a region, or of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// Strides of a region: 1 if the request or the region is empty.
#[must_use]
pub const fn stride_count(region_length: u64, request_length: u32) -> u64 {
    if request_length == 0 || region_length == 0 { 1 } else { region_length.div_ceil(request_length as u64) }
}

/// The part of the region that request number `request` takes.
#[must_use]
pub const fn stride(region_length: u64, request_length: u32, request: u64) -> Stride {
    // A stride lies within the region, so the product cannot exceed its length.
    let offset = request % stride_count(region_length, request_length) * request_length as u64;
    let rest = region_length - offset;
    let length = if rest < request_length as u64 { rest as u32 } else { request_length };
    Stride { offset, length }
}

/// The part of a request of `length` bytes that its SGE number `sge` of `count` covers: equal parts, the last one takes the
/// rest. With more SGEs than bytes all but the last are empty. `None` if there is no such SGE.
#[must_use]
pub const fn segment(length: u32, count: u32, sge: u32) -> Option<Stride> {
    if sge >= count {
        return None;
    }
    let share = length / count;
    // sge < count, so the product is at most length.
    let offset = share * sge;
    let rest = length - offset;
    Some(Stride { offset: offset as u64, length: if sge + 1 == count { rest } else { share } })
}

const _: () = {
    assert!(size_of::<TransferRequest>() == 64);
    assert!(core::mem::offset_of!(TransferRequest, pair) == 8);
    assert!(core::mem::offset_of!(TransferRequest, operation) == 12);
    assert!(core::mem::offset_of!(TransferRequest, region_kind) == 16);
    assert!(core::mem::offset_of!(TransferRequest, flags) == 20);
    assert!(core::mem::offset_of!(TransferRequest, region_length) == 24);
    assert!(core::mem::offset_of!(TransferRequest, request_count) == 32);
    assert!(core::mem::offset_of!(TransferRequest, request_length) == 40);
    assert!(core::mem::offset_of!(TransferRequest, chain_length) == 52);
    assert!(core::mem::offset_of!(TransferRequest, time_budget) == 56);
    assert!(size_of::<MemcpyRequest>() == 40);
    assert!(core::mem::offset_of!(MemcpyRequest, region_length) == 8);
    assert!(core::mem::offset_of!(MemcpyRequest, request_count) == 16);
    assert!(core::mem::offset_of!(MemcpyRequest, request_length) == 24);
    assert!(core::mem::offset_of!(MemcpyRequest, flags) == 28);
    assert!(core::mem::offset_of!(MemcpyRequest, time_budget) == 32);
    assert!(size_of::<StatusCount>() == 16);
    assert!(core::mem::offset_of!(TransferResult, posted) == 8);
    assert!(core::mem::offset_of!(TransferResult, silent) == 24);
    assert!(core::mem::offset_of!(TransferResult, elapsed) == 48);
    assert!(core::mem::offset_of!(TransferResult, first_failure) == 80);
    assert!(core::mem::offset_of!(TransferResult, failures) == 88);
    assert!(core::mem::offset_of!(TransferResult, other_failures) == 216);
    assert!(core::mem::offset_of!(TransferResult, latency) == 224);
    assert!(size_of::<TransferResult>() == 224 + 32 + 4 * 608);
    assert!(size_of::<TransferResult>() as u64 <= RESULT_LENGTH);
};

#[cfg(test)]
mod tests {
    use super::{
        BufferLayout, REGION_LENGTH_MAX, STATUS_COUNTS, Stride, TransferResult, segment, stride, stride_count,
    };
    use crate::Status;

    #[test]
    fn layout_puts_each_part_on_a_page() {
        for (region_length, destination) in [
            (0, 4096),
            (1, 8192),
            (4095, 8192),
            (4096, 8192),
            (4097, 12288),
            (REGION_LENGTH_MAX, 4096 + REGION_LENGTH_MAX),
        ] {
            let layout = BufferLayout::new(region_length).unwrap();
            assert_eq!((layout.source, layout.destination), (4096, destination));
            assert_eq!(layout.total, destination + region_length);
        }
    }

    #[test]
    fn layout_refuses_what_is_too_long() {
        for region_length in [REGION_LENGTH_MAX + 1, u64::MAX - 4095, u64::MAX] {
            assert_eq!(BufferLayout::new(region_length), Err(Status::INVALID_PARAMETER));
        }
    }

    #[test]
    fn buffers_are_checked_for_alignment_then_length() {
        let layout = BufferLayout::new(1).unwrap();
        assert_eq!(layout.check_buffer(0, 8193), Ok(()));
        assert_eq!(layout.check_buffer(0, u64::MAX), Ok(()));
        assert_eq!(layout.check_buffer(0, 8192), Err(Status::BUFFER_TOO_SMALL));
        for offset in [1, 8, 4095] {
            assert_eq!(layout.check_buffer(offset, 0), Err(Status::DATATYPE_MISALIGNMENT));
        }
    }

    #[test]
    fn strides_cover_the_region_once_and_wrap() {
        for (region_length, request_length) in [(1, 1), (1, 100), (100, 1), (100, 7), (4096, 4096), (1_048_579, 65_536)]
        {
            let count = stride_count(region_length, request_length);
            let mut next = 0;
            for request in 0..count {
                let part = stride(region_length, request_length, request);
                assert_eq!(part.offset, next);
                assert!(part.length > 0 && part.length <= request_length);
                next += u64::from(part.length);
            }
            assert_eq!(next, region_length);
            assert_eq!(stride(region_length, request_length, count), stride(region_length, request_length, 0));
            let last = stride(region_length, request_length, u64::MAX);
            assert!(last.offset + u64::from(last.length) <= region_length);
        }
    }

    #[test]
    fn empty_requests_have_one_empty_stride() {
        for (region_length, request_length) in [(0, 0), (0, 5), (0, u32::MAX), (9, 0)] {
            assert_eq!(stride_count(region_length, request_length), 1);
            for request in [0, 1, u64::MAX] {
                assert_eq!(stride(region_length, request_length, request), Stride { offset: 0, length: 0 });
            }
        }
    }

    #[test]
    fn segments_cover_the_request_once() {
        for length in [0, 1, 2, 31, 32, 33, 4096, u32::MAX] {
            for count in [1, 2, 3, 32, u32::MAX] {
                let mut next = 0;
                for sge in 0..count.min(40) {
                    let part = segment(length, count, sge).unwrap();
                    assert_eq!(part.offset, next);
                    next += u64::from(part.length);
                }
                if count <= 40 {
                    assert_eq!(next, u64::from(length));
                }
                let last = segment(length, count, count - 1).unwrap();
                assert_eq!(last.offset + u64::from(last.length), u64::from(length));
                assert_eq!(segment(length, count, count), None);
            }
        }
        assert_eq!(segment(5, 0, 0), None);
    }

    #[test]
    fn failures_are_counted_by_status_and_the_first_is_kept() {
        let mut result = TransferResult::EMPTY;
        result.record_failure(Status::REMOTE_RESOURCES);
        result.record_failure(Status::CANCELLED);
        result.record_failure(Status::CANCELLED);
        assert_eq!(result.first_failure, Status::REMOTE_RESOURCES.0);
        assert_eq!((result.failures[0].count, result.failures[0].status), (1, Status::REMOTE_RESOURCES.0));
        assert_eq!((result.failures[1].count, result.failures[1].status), (2, Status::CANCELLED.0));
        assert_eq!(result.failed, 3);
    }

    #[test]
    fn a_status_too_many_is_counted_as_other() {
        let mut result = TransferResult::EMPTY;
        for status in 1..=STATUS_COUNTS + 2 {
            result.record_failure(Status(-(status as i32)));
        }
        assert_eq!(result.other_failures, 2);
        assert_eq!(result.failed, STATUS_COUNTS as u64 + 2);
    }
}
