//! The adapters of this driver: identity, capabilities, counters.

use crate::header::{Method, Request, RequestHeader, control_code};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Addresses listed per adapter; [`AdapterFlags::MORE_ADDRESSES`] is set when there are more.
pub const ADAPTER_ADDRESS_MAX: usize = 16;

/// Lists all adapters. METHOD_BUFFERED.
///
/// Output: one [`AdapterListReply`], then `returned_count` entries of `entry_size` bytes each. Two calls: the first with a
/// buffer for the fixed part, the second with `required_length` bytes; again when adapters were added in between.
///
/// Statuses: SUCCESS (everything fitted); BUFFER_OVERFLOW (the fixed part and as many whole entries as fit are returned);
/// BUFFER_TOO_SMALL (output shorter than the fixed part); INFO_LENGTH_MISMATCH; REVISION_MISMATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AdapterListRequest {
    /// Version and size.
    pub header: RequestHeader,
}

impl Request for AdapterListRequest {
    const CODE: u32 = control_code(0x801, Method::Buffered);
    type Reply = AdapterListReply;
}

/// The fixed part of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AdapterListReply {
    /// ABI version, and the size of this fixed part.
    pub header: RequestHeader,
    /// Adapters there are.
    pub adapter_count: u32,
    /// Entries that follow.
    pub returned_count: u32,
    /// Distance from one entry to the next, in bytes.
    pub entry_size: u32,
    /// Output length that holds this part and all entries.
    pub required_length: u32,
}

/// One adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AdapterEntry {
    /// NET_LUID value.
    pub net_luid: u64,
    /// Bits per second in each direction, as reported to NDIS.
    pub link_speed: u64,
    /// The number that pair requests use; keeps its meaning while the adapter exists.
    pub index: u32,
    /// The system's interface index; 0 while unknown.
    pub interface_index: u32,
    /// Adapters with equal numbers are on one wire.
    pub wire_number: u32,
    /// Largest payload of a frame, in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Current address of the interface.
    pub mac_address: [u8; 6],
    /// Zero.
    pub reserved: [u8; 2],
    /// State.
    pub flags: AdapterFlags,
    /// The adapter's technology.
    pub technology: Technology,
    /// Entries of `addresses` in use.
    pub address_count: u32,
    /// Which NDK calls answer inline.
    pub completion_mode: CompletionModeInForce,
    /// Which numbers it reports and keeps.
    pub limits_profile: LimitsProfileInForce,
    /// NDK_ADAPTER_INFO as a consumer would read it.
    pub limits: AdapterLimits,
    /// Since InitializeEx.
    pub counters: AdapterCounters,
    /// Unicast addresses that NDK listeners and connectors can use.
    pub addresses: [AdapterAddress; ADAPTER_ADDRESS_MAX],
    /// What a process may have of user-mode NetworkDirect; zero where the driver has none.
    pub process_limits: ProcessLimits,
}

/// What one process may have of user-mode NetworkDirect, of all adapters together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProcessLimits {
    /// Objects, its files and contexts among them.
    pub objects: u32,
    /// Non-paged pool, in MiB.
    pub pool_mib: u32,
    /// Memory of the process that is locked, in MiB.
    pub locked_mib: u32,
    /// Requests that pend.
    pub requests: u32,
}

/// State of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct AdapterFlags(u32);

bitflags::bitflags! {
    impl AdapterFlags: u32 {
        /// NDK consumers can open it.
        const NDK_ENABLED = 1;
        /// The data path is running (not paused).
        const RUNNING = 2;
        /// Media connect state is connected.
        const LINK_UP = 4;
        /// It has more than [`ADAPTER_ADDRESS_MAX`] addresses.
        const MORE_ADDRESSES = 8;
        /// Bits of newer versions are data.
        const _ = !0;
    }
}

/// The registry keyword `CompletionMode` as the adapter runs with it, open: one more than its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct CompletionModeInForce(pub u16);

impl CompletionModeInForce {
    /// The driver does not say: an adapter of another provider, or an older driver.
    pub const UNKNOWN: Self = Self(0);
    /// Each call answers as soon as it can.
    pub const AUTO: Self = Self(1);
    /// Every call that may pend does.
    pub const FORCE_ASYNC: Self = Self(2);
    /// Every call that can answer inline does.
    pub const FORCE_INLINE: Self = Self(3);
}

/// The registry keyword `LimitsProfile` as the adapter runs with it, open: one more than its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct LimitsProfileInForce(pub u16);

impl LimitsProfileInForce {
    /// The driver does not say.
    pub const UNKNOWN: Self = Self(0);
    /// Those of a common card.
    pub const CONNECTX_LIKE: Self = Self(1);
    /// As much as the driver can.
    pub const GENEROUS: Self = Self(2);
    /// The least that the contract allows.
    pub const TINY: Self = Self(3);
}

/// NDK_RDMA_TECHNOLOGY, open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Technology(pub u32);

impl Technology {
    /// iWARP.
    pub const IWARP: Self = Self(1);
    /// InfiniBand.
    pub const INFINIBAND: Self = Self(2);
    /// RoCE.
    pub const ROCE: Self = Self(3);
    /// RoCE version 2.
    pub const ROCE_V2: Self = Self(4);
}

impl fmt::Display for Technology {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IWARP => formatter.write_str("iWARP"),
            Self::INFINIBAND => formatter.write_str("InfiniBand"),
            Self::ROCE => formatter.write_str("RoCE"),
            Self::ROCE_V2 => formatter.write_str("RoCEv2"),
            Self(other) => write!(formatter, "technology {other}"),
        }
    }
}

/// The numbers of NDK_ADAPTER_INFO, same meaning, fixed widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AdapterLimits {
    /// MaxRegistrationSize, bytes.
    pub max_registration_size: u64,
    /// MaxWindowSize, bytes.
    pub max_window_size: u64,
    /// NDKPI version of the open: major, minor.
    pub version: [u16; 2],
    /// VendorId.
    pub vendor_id: u32,
    /// DeviceId.
    pub device_id: u32,
    /// FRMRPageCount: pages that one fast-register region holds.
    pub frmr_page_count: u32,
    /// MaxInitiatorRequestSge.
    pub max_initiator_request_sge: u32,
    /// MaxReceiveRequestSge.
    pub max_receive_request_sge: u32,
    /// MaxReadRequestSge.
    pub max_read_request_sge: u32,
    /// MaxTransferLength, bytes of one request.
    pub max_transfer_length: u32,
    /// MaxInlineDataSize, bytes.
    pub max_inline_data_size: u32,
    /// MaxInboundReadLimit.
    pub max_inbound_read_limit: u32,
    /// MaxOutboundReadLimit.
    pub max_outbound_read_limit: u32,
    /// MaxReceiveQueueDepth.
    pub max_receive_queue_depth: u32,
    /// MaxInitiatorQueueDepth.
    pub max_initiator_queue_depth: u32,
    /// MaxSrqDepth; 0: no shared receive queues.
    pub max_srq_depth: u32,
    /// MaxCqDepth.
    pub max_cq_depth: u32,
    /// LargeRequestThreshold, bytes.
    pub large_request_threshold: u32,
    /// MaxCallerData, bytes.
    pub max_caller_data: u32,
    /// MaxCalleeData, bytes.
    pub max_callee_data: u32,
    /// AdapterFlags: NDK_ADAPTER_FLAG_*.
    pub adapter_flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// [`AdapterLimits`] of an NDK_ADAPTER_INFO, whose type the caller brings.
#[macro_export]
macro_rules! adapter_limits {
    ($information:expr) => {
        $crate::AdapterLimits {
            max_registration_size: $information.MaxRegistrationSize as u64,
            max_window_size: $information.MaxWindowSize as u64,
            version: [$information.Version.Major, $information.Version.Minor],
            vendor_id: $information.VendorId,
            device_id: $information.DeviceId,
            frmr_page_count: $information.FRMRPageCount,
            max_initiator_request_sge: $information.MaxInitiatorRequestSge,
            max_receive_request_sge: $information.MaxReceiveRequestSge,
            max_read_request_sge: $information.MaxReadRequestSge,
            max_transfer_length: $information.MaxTransferLength,
            max_inline_data_size: $information.MaxInlineDataSize,
            max_inbound_read_limit: $information.MaxInboundReadLimit,
            max_outbound_read_limit: $information.MaxOutboundReadLimit,
            max_receive_queue_depth: $information.MaxReceiveQueueDepth,
            max_initiator_queue_depth: $information.MaxInitiatorQueueDepth,
            max_srq_depth: $information.MaxSrqDepth,
            max_cq_depth: $information.MaxCqDepth,
            large_request_threshold: $information.LargeRequestThreshold,
            max_caller_data: $information.MaxCallerData,
            max_callee_data: $information.MaxCalleeData,
            adapter_flags: $information.AdapterFlags.bits(),
            reserved: 0,
        }
    };
}

/// The counters of OID_NDK_STATISTICS and the frame counters of OID_GEN_STATISTICS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AdapterCounters {
    /// Outbound connections established.
    pub connects: u64,
    /// Inbound connections established.
    pub accepts: u64,
    /// Attempts that failed, both directions.
    pub connect_failures: u64,
    /// Established connections that ended before the consumer disconnected.
    pub connection_errors: u64,
    /// Connections now.
    pub active_connections: u64,
    /// Completion queues that failed.
    pub completion_queue_errors: u64,
    /// RDMA bytes received.
    pub rdma_in_octets: u64,
    /// RDMA bytes sent.
    pub rdma_out_octets: u64,
    /// RDMA frames received.
    pub rdma_in_frames: u64,
    /// RDMA frames sent.
    pub rdma_out_frames: u64,
    /// Bytes of ordinary frames received.
    pub frame_in_octets: u64,
    /// Bytes of ordinary frames sent.
    pub frame_out_octets: u64,
    /// Ordinary frames received.
    pub frames_in: u64,
    /// Ordinary frames sent.
    pub frames_out: u64,
    /// Ordinary frames dropped on receive.
    pub in_discards: u64,
    /// Ordinary frames dropped on send.
    pub out_discards: u64,
}

/// ADDRESS_FAMILY, open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct AddressFamily(pub u16);

impl AddressFamily {
    /// AF_UNSPEC: no preference, or an unused entry.
    pub const UNSPECIFIED: Self = Self(0);
    /// AF_INET.
    pub const IPV4: Self = Self(2);
    /// AF_INET6, as Windows numbers it.
    pub const IPV6: Self = Self(23);
}

/// One unicast address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AdapterAddress {
    /// Which of the two `bytes` holds.
    pub family: AddressFamily,
    /// Length of the on-link prefix in bits.
    pub prefix_length: u8,
    /// Zero.
    pub reserved: u8,
    /// IPv6 scope id, 0 otherwise.
    pub scope_id: u32,
    /// The address in network order; an IPv4 address is in the first four bytes, the rest zero.
    pub bytes: [u8; 16],
}

impl AdapterAddress {
    /// An unused entry.
    pub const UNUSED: Self =
        Self { family: AddressFamily::UNSPECIFIED, prefix_length: 0, reserved: 0, scope_id: 0, bytes: [0; 16] };

    /// Packs an address.
    #[must_use]
    pub const fn new(address: IpAddr, prefix_length: u8, scope_id: u32) -> Self {
        let (family, bytes) = match address {
            IpAddr::V4(address) => {
                let [first, second, third, fourth] = address.octets();
                (AddressFamily::IPV4, [first, second, third, fourth, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            IpAddr::V6(address) => (AddressFamily::IPV6, address.octets()),
        };
        Self { family, prefix_length, reserved: 0, scope_id, bytes }
    }

    /// The bytes that its family has.
    #[must_use]
    pub const fn significant(&self) -> &[u8] {
        let length = match self.family {
            AddressFamily::IPV4 => 4,
            AddressFamily::IPV6 => 16,
            _ => 0,
        };
        self.bytes.split_at(length).0
    }

    /// The address; `None` for an unknown family.
    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        let [first, second, third, fourth, ..] = self.bytes;
        match self.family {
            AddressFamily::IPV4 => Some(IpAddr::V4(Ipv4Addr::new(first, second, third, fourth))),
            AddressFamily::IPV6 => Some(IpAddr::V6(Ipv6Addr::from_octets(self.bytes))),
            _ => None,
        }
    }
}

const _: () = {
    assert!(size_of::<AdapterListRequest>() == 8);
    assert!(size_of::<AdapterListReply>() == 24);
    assert!(core::mem::offset_of!(AdapterListReply, adapter_count) == 8);
    assert!(core::mem::offset_of!(AdapterListReply, returned_count) == 12);
    assert!(core::mem::offset_of!(AdapterListReply, entry_size) == 16);
    assert!(core::mem::offset_of!(AdapterListReply, required_length) == 20);
    assert!(size_of::<AdapterLimits>() == 96);
    assert!(core::mem::offset_of!(AdapterLimits, version) == 16);
    assert!(core::mem::offset_of!(AdapterLimits, frmr_page_count) == 28);
    assert!(core::mem::offset_of!(AdapterLimits, max_transfer_length) == 44);
    assert!(core::mem::offset_of!(AdapterLimits, max_cq_depth) == 72);
    assert!(core::mem::offset_of!(AdapterLimits, adapter_flags) == 88);
    assert!(size_of::<AdapterCounters>() == 128);
    assert!(core::mem::offset_of!(AdapterCounters, completion_queue_errors) == 40);
    assert!(core::mem::offset_of!(AdapterCounters, frame_in_octets) == 80);
    assert!(size_of::<AdapterAddress>() == 24);
    assert!(core::mem::offset_of!(AdapterAddress, scope_id) == 4);
    assert!(core::mem::offset_of!(AdapterAddress, bytes) == 8);
    assert!(size_of::<AdapterEntry>() == 680);
    assert!(core::mem::offset_of!(AdapterEntry, link_speed) == 8);
    assert!(core::mem::offset_of!(AdapterEntry, index) == 16);
    assert!(core::mem::offset_of!(AdapterEntry, mac_address) == 32);
    assert!(core::mem::offset_of!(AdapterEntry, flags) == 40);
    assert!(core::mem::offset_of!(AdapterEntry, technology) == 44);
    assert!(core::mem::offset_of!(AdapterEntry, address_count) == 48);
    assert!(core::mem::offset_of!(AdapterEntry, completion_mode) == 52);
    assert!(core::mem::offset_of!(AdapterEntry, limits_profile) == 54);
    assert!(core::mem::offset_of!(AdapterEntry, limits) == 56);
    assert!(core::mem::offset_of!(AdapterEntry, counters) == 152);
    assert!(core::mem::offset_of!(AdapterEntry, addresses) == 280);
    assert!(core::mem::offset_of!(AdapterEntry, process_limits) == 664);
    assert!(size_of::<ProcessLimits>() == 16);
};
