//! What one pair can do, worked out from its adapters' limits, and the checks of requests against it: the part of a request's
//! meaning that is arithmetic, so that it is tested where it is defined.

use crate::adapter::{AdapterLimits, AddressFamily};
use crate::pair::{PairCreateRequest, PairFlags};
use crate::status::Status;
use crate::transfer::{
    BUFFER_ALIGNMENT, BufferLayout, MemcpyRequest, Operation, RegionKind, TransferFlags, TransferRequest,
};

/// Depth of a queue whose request has 0, or the adapter's limit if that is less.
const DEFAULT_DEPTH: u32 = 128;

/// The numbers of one pair, both adapters considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairLimits {
    /// Depth of the client's initiator queue.
    pub initiator_queue_depth: u32,
    /// Depth of the server's receive queue.
    pub receive_queue_depth: u32,
    /// SGEs of a request, of either direction.
    pub max_request_sge: u32,
    /// Reads the client may have outstanding.
    pub read_limit: u32,
    /// Bytes of a request.
    pub max_transfer_length: u32,
    /// Bytes of a request with inline data.
    pub max_inline_data_size: u32,
    /// Bytes that one fast-register region covers.
    pub max_fast_register_length: u64,
}

impl PairCreateRequest {
    /// What can be checked before the adapters are looked up.
    ///
    /// # Errors
    /// [`Status::INVALID_PARAMETER`]: unknown family or flag.
    pub fn check_fields(&self) -> Result<(), Status> {
        let families = [AddressFamily::UNSPECIFIED, AddressFamily::IPV4, AddressFamily::IPV6];
        if !families.contains(&self.family) || !PairFlags::all().contains(self.flags) {
            return Err(Status::INVALID_PARAMETER);
        }
        Ok(())
    }

    /// Fills the defaults in and checks depths, SGEs and read limit.
    ///
    /// # Errors
    /// [`Status::INVALID_PARAMETER`]: one of them is above the limit of an adapter that has to keep it.
    pub fn limits(&self, client: &AdapterLimits, server: &AdapterLimits) -> Result<PairLimits, Status> {
        let sge = client.max_initiator_request_sge.min(client.max_read_request_sge).min(server.max_receive_request_sge);
        let reads = client.max_outbound_read_limit.min(server.max_inbound_read_limit);
        let (initiator, receive) = (client.max_initiator_queue_depth, server.max_receive_queue_depth);
        Ok(PairLimits {
            initiator_queue_depth: chosen(self.initiator_queue_depth, DEFAULT_DEPTH, initiator)?,
            receive_queue_depth: chosen(self.receive_queue_depth, DEFAULT_DEPTH, receive)?,
            max_request_sge: chosen(self.max_request_sge, sge, sge)?,
            read_limit: chosen(self.read_limit, reads, reads)?,
            max_transfer_length: client.max_transfer_length.min(server.max_transfer_length),
            max_inline_data_size: client.max_inline_data_size,
            max_fast_register_length: u64::from(client.frmr_page_count.min(server.frmr_page_count)) * BUFFER_ALIGNMENT,
        })
    }
}

/// A number of a request, its default where it is 0, and nothing above its limit.
fn chosen(wanted: u32, default: u32, limit: u32) -> Result<u32, Status> {
    match wanted {
        0 => Ok(default.min(limit)),
        wanted if wanted <= limit => Ok(wanted),
        _ => Err(Status::INVALID_PARAMETER),
    }
}

impl TransferRequest {
    /// What can be checked before the pair is looked up; the layout its buffer must have.
    ///
    /// # Errors
    /// [`Status::INVALID_PARAMETER`]: unknown operation, kind or flag; a flag without its operation or kind; no SGEs, depth or
    /// chain; a chain above the depth; neither count nor budget; a region that is too long.
    pub fn check_fields(&self) -> Result<BufferLayout, Status> {
        let layout = BufferLayout::new(self.region_length)?;
        let operations = [Operation::READ, Operation::WRITE, Operation::SEND];
        let kinds = [RegionKind::REGISTERED, RegionKind::FAST_REGISTERED, RegionKind::LOGICAL, RegionKind::WINDOW];
        let known = operations.contains(&self.operation)
            && kinds.contains(&self.region_kind)
            && TransferFlags::all().contains(self.flags);
        let counted = self.sge_count > 0 && self.chain_length > 0 && self.chain_length <= self.depth;
        let ends = self.request_count > 0 || self.time_budget > 0;
        if known && counted && ends && self.flags_fit() { Ok(layout) } else { Err(Status::INVALID_PARAMETER) }
    }

    /// Whether each flag, and the kind, has the operation it is for.
    fn flags_fit(&self) -> bool {
        let (read, send) = (self.operation == Operation::READ, self.operation == Operation::SEND);
        let fast = self.region_kind == RegionKind::FAST_REGISTERED;
        let counted = self.request_count > 0;
        let fits = |flag, where_it_fits: bool| where_it_fits || !self.flags.contains(flag);
        fits(TransferFlags::INLINE, !read)
            && fits(TransferFlags::SOLICITED, send)
            && fits(TransferFlags::LOCAL_INVALIDATE, read && fast && counted)
            && fits(
                TransferFlags::REMOTE_INVALIDATE,
                !send && self.region_kind != RegionKind::REGISTERED || fast && counted,
            )
            && !(send && self.region_kind == RegionKind::WINDOW)
    }

    /// Whether the pair can do it.
    ///
    /// # Errors
    /// [`Status::INVALID_PARAMETER`]: SGEs, depth, request length or inline data above the pair's limits.
    /// [`Status::INVALID_BUFFER_SIZE`]: the region is longer than one fast-register region covers, and has to be one.
    pub fn check_against(&self, pair: &PairLimits) -> Result<(), Status> {
        let inline = self.flags.contains(TransferFlags::INLINE);
        // A send needs a receive for each request outstanding.
        let receives = self.operation != Operation::SEND || self.depth <= pair.receive_queue_depth;
        if self.sge_count > pair.max_request_sge
            || self.depth > pair.initiator_queue_depth
            || !receives
            || self.request_length > pair.max_transfer_length
            || (inline && self.request_length > pair.max_inline_data_size)
        {
            return Err(Status::INVALID_PARAMETER);
        }
        if self.is_fast_registered() && self.region_length > pair.max_fast_register_length {
            return Err(Status::INVALID_BUFFER_SIZE);
        }
        Ok(())
    }

    /// Whether a part of the memory is fast-registered.
    fn is_fast_registered(&self) -> bool {
        let logical_target = self.region_kind == RegionKind::LOGICAL && self.operation != Operation::SEND;
        self.region_kind == RegionKind::FAST_REGISTERED || logical_target
    }
}

impl MemcpyRequest {
    /// Everything there is to check; the layout its buffer must have.
    ///
    /// # Errors
    /// [`Status::INVALID_PARAMETER`]: flags other than MEASURE_LATENCY; neither count nor budget; a region that is too long;
    /// reserved not zero.
    pub fn check_fields(&self) -> Result<BufferLayout, Status> {
        let layout = BufferLayout::new(self.region_length)?;
        let ends = self.request_count > 0 || self.time_budget > 0;
        if TransferFlags::MEASURE_LATENCY.contains(self.flags) && ends && self.reserved == 0 {
            Ok(layout)
        } else {
            Err(Status::INVALID_PARAMETER)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PairLimits;
    use crate::{
        AdapterLimits, AddressFamily, MemcpyRequest, Operation, PairCreateRequest, PairFlags, REGION_LENGTH_MAX,
        RegionKind, RequestHeader, Status, TransferFlags, TransferRequest,
    };
    use zerocopy::FromZeros;

    fn adapter() -> AdapterLimits {
        let mut limits = AdapterLimits::new_zeroed();
        limits.frmr_page_count = 512;
        limits.max_initiator_request_sge = 32;
        limits.max_receive_request_sge = 32;
        limits.max_read_request_sge = 30;
        limits.max_transfer_length = 1 << 30;
        limits.max_inline_data_size = 256;
        limits.max_inbound_read_limit = 16;
        limits.max_outbound_read_limit = 128;
        limits.max_receive_queue_depth = 16_351;
        limits.max_initiator_queue_depth = 16_350;
        limits
    }

    fn pair() -> PairLimits {
        PairCreateRequest::new_zeroed().limits(&adapter(), &adapter()).unwrap()
    }

    fn transfer() -> TransferRequest {
        TransferRequest {
            header: RequestHeader::of::<TransferRequest>(),
            pair: 1,
            operation: Operation::READ,
            region_kind: RegionKind::REGISTERED,
            flags: TransferFlags::empty(),
            region_length: 4096,
            request_count: 1,
            request_length: 64,
            sge_count: 1,
            depth: 1,
            chain_length: 1,
            time_budget: 0,
            signal_interval: 0,
        }
    }

    #[test]
    fn zeros_become_defaults_within_the_limits() {
        let limits = pair();
        assert_eq!((limits.initiator_queue_depth, limits.receive_queue_depth), (128, 128));
        assert_eq!((limits.max_request_sge, limits.read_limit), (30, 16));
        assert_eq!(limits.max_fast_register_length, 512 * 4096);
        let mut small = adapter();
        small.max_initiator_queue_depth = 5;
        let limits = PairCreateRequest::new_zeroed().limits(&small, &adapter()).unwrap();
        assert_eq!(limits.initiator_queue_depth, 5);
    }

    #[test]
    fn each_number_of_a_pair_is_taken_up_to_its_limit() {
        type Field = fn(&mut PairCreateRequest) -> &mut u32;
        let fields: [(Field, u32); 4] = [
            (|request| &mut request.initiator_queue_depth, 16_350),
            (|request| &mut request.receive_queue_depth, 16_351),
            (|request| &mut request.max_request_sge, 30),
            (|request| &mut request.read_limit, 16),
        ];
        for (field, limit) in fields {
            let mut request = PairCreateRequest::new_zeroed();
            *field(&mut request) = limit;
            assert!(request.limits(&adapter(), &adapter()).is_ok(), "{limit}");
            for above in [limit + 1, u32::MAX] {
                *field(&mut request) = above;
                assert_eq!(request.limits(&adapter(), &adapter()), Err(Status::INVALID_PARAMETER), "{above}");
            }
        }
    }

    #[test]
    fn unknown_families_and_flags_are_refused() {
        let mut request = PairCreateRequest::new_zeroed();
        for (family, expected) in [(0, true), (2, true), (23, true), (1, false), (24, false), (u16::MAX, false)] {
            request.family = AddressFamily(family);
            assert_eq!(request.check_fields().is_ok(), expected, "{family}");
        }
        request.family = AddressFamily::IPV4;
        request.flags = PairFlags::NOTIFY;
        assert_eq!(request.check_fields(), Ok(()));
        request.flags = PairFlags::NOTIFY | PairFlags::SHARED_RECEIVE;
        assert_eq!(request.check_fields(), Ok(()));
        request.flags = PairFlags::from_bits_retain(4);
        assert_eq!(request.check_fields(), Err(Status::INVALID_PARAMETER));
    }

    #[test]
    fn a_good_transfer_passes_and_each_wrong_field_does_not() {
        assert_eq!(transfer().check_fields().map(|layout| layout.total), Ok(4096 * 3));
        let wrong: [fn(&mut TransferRequest); 18] = [
            |request| request.operation = Operation(0),
            |request| request.operation = Operation(4),
            |request| request.region_kind = RegionKind(0),
            |request| request.region_kind = RegionKind(5),
            |request| request.flags = TransferFlags::from_bits_retain(128),
            |request| request.flags = TransferFlags::SOLICITED,
            |request| request.flags = TransferFlags::LOCAL_INVALIDATE,
            |request| (request.operation, request.region_kind) = (Operation::SEND, RegionKind::WINDOW),
            |request| request.flags = TransferFlags::INLINE,
            |request| request.flags = TransferFlags::REMOTE_INVALIDATE,
            |request| {
                request.flags = TransferFlags::REMOTE_INVALIDATE;
                request.region_kind = RegionKind::FAST_REGISTERED;
                request.operation = Operation::SEND;
                (request.request_count, request.time_budget) = (0, 1);
            },
            |request| request.region_length = REGION_LENGTH_MAX + 1,
            |request| request.region_length = u64::MAX,
            |request| request.request_count = 0,
            |request| request.sge_count = 0,
            |request| request.depth = 0,
            |request| request.chain_length = 0,
            |request| request.chain_length = 2,
        ];
        for (number, change) in wrong.iter().enumerate() {
            let mut request = transfer();
            change(&mut request);
            assert_eq!(request.check_fields(), Err(Status::INVALID_PARAMETER), "wrong field {number}");
        }
    }

    #[test]
    fn flags_pass_with_their_operation() {
        let inline = TransferRequest { operation: Operation::WRITE, flags: TransferFlags::INLINE, ..transfer() };
        assert!(inline.check_fields().is_ok());
        let invalidate = TransferRequest {
            region_kind: RegionKind::LOGICAL,
            flags: TransferFlags::REMOTE_INVALIDATE | TransferFlags::MEASURE_LATENCY,
            ..transfer()
        };
        assert!(invalidate.check_fields().is_ok());
        let budget = TransferRequest { request_count: 0, time_budget: 1, ..transfer() };
        assert!(budget.check_fields().is_ok());
    }

    #[test]
    fn a_transfer_is_held_against_its_pair() {
        let limits = pair();
        let check = |change: fn(&mut TransferRequest)| {
            let mut request = transfer();
            change(&mut request);
            request.check_against(&limits)
        };
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|request| request.sge_count = 30), Ok(()));
        assert_eq!(check(|request| request.sge_count = 31), Err(Status::INVALID_PARAMETER));
        assert_eq!(check(|request| request.depth = 128), Ok(()));
        assert_eq!(check(|request| request.depth = 129), Err(Status::INVALID_PARAMETER));
        assert_eq!(check(|request| request.request_length = 1 << 30), Ok(()));
        assert_eq!(check(|request| request.request_length = (1 << 30) + 1), Err(Status::INVALID_PARAMETER));
        let inline = |length| TransferRequest {
            operation: Operation::WRITE,
            flags: TransferFlags::INLINE,
            request_length: length,
            ..transfer()
        };
        assert_eq!(inline(256).check_against(&limits), Ok(()));
        assert_eq!(inline(257).check_against(&limits), Err(Status::INVALID_PARAMETER));
    }

    #[test]
    fn sends_need_receives_for_their_depth() {
        let mut limits = pair();
        limits.receive_queue_depth = 3;
        let sends = |depth| TransferRequest { operation: Operation::SEND, depth, ..transfer() }.check_against(&limits);
        assert_eq!(sends(3), Ok(()));
        assert_eq!(sends(4), Err(Status::INVALID_PARAMETER));
        assert_eq!(TransferRequest { depth: 4, ..transfer() }.check_against(&limits), Ok(()));
    }

    #[test]
    fn only_fast_registered_regions_are_limited_by_pages() {
        let limits = pair();
        let check = |operation, region_kind, region_length| {
            TransferRequest { operation, region_kind, region_length, ..transfer() }.check_against(&limits)
        };
        let (most, above) = (512 * 4096, 512 * 4096 + 1);
        for (operation, kind, limited) in [
            (Operation::READ, RegionKind::REGISTERED, false),
            (Operation::READ, RegionKind::FAST_REGISTERED, true),
            (Operation::SEND, RegionKind::FAST_REGISTERED, true),
            (Operation::WRITE, RegionKind::LOGICAL, true),
            (Operation::SEND, RegionKind::LOGICAL, false),
        ] {
            assert_eq!(check(operation, kind, most), Ok(()));
            let expected = if limited { Err(Status::INVALID_BUFFER_SIZE) } else { Ok(()) };
            assert_eq!(check(operation, kind, above), expected, "{operation:?} {kind:?}");
        }
    }

    #[test]
    fn memcpy_takes_latency_and_nothing_else() {
        let mut request = MemcpyRequest::new_zeroed();
        request.request_count = 1;
        assert!(request.check_fields().is_ok());
        request.flags = TransferFlags::MEASURE_LATENCY;
        assert!(request.check_fields().is_ok());
        let wrong: [fn(&mut MemcpyRequest); 4] = [
            |request| request.flags = TransferFlags::MEASURE_LATENCY | TransferFlags::READ_FENCE,
            |request| request.request_count = 0,
            |request| request.region_length = REGION_LENGTH_MAX + 1,
            |request| request.reserved = 1,
        ];
        for (number, change) in wrong.iter().enumerate() {
            let mut changed = request;
            change(&mut changed);
            assert_eq!(changed.check_fields(), Err(Status::INVALID_PARAMETER), "wrong field {number}");
        }
    }
}
