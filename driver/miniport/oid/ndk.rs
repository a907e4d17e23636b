//! The OIDs through which Windows shows RDMA to administrators: statistics, connections, endpoints.

use core::{
    mem::{offset_of, transmute},
    net::SocketAddr,
};

use ndkpi_sys::{
    ndis::{
        NDIS_NDK_CONNECTION_ENTRY, NDIS_NDK_CONNECTIONS_REVISION_1, NDIS_NDK_LOCAL_ENDPOINT_ENTRY,
        NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1, NDIS_NDK_STATISTICS_INFO, NDIS_NDK_STATISTICS_INFO_REVISION_1,
        NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1, NDIS_STATUS,
        NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_SUCCESS,
    },
    nt::SOCKADDR_INET,
};

use softndk_engine::Counters;
use softndk_kernel::address::inet;

use super::answer::OidAnswer;
use crate::adapter::Adapter;

/// OID_NDK_STATISTICS.
pub fn statistics(counters: &Counters, answer: OidAnswer<'_>) -> NDIS_STATUS {
    let mut information = NDIS_NDK_STATISTICS_INFO::zeroed();
    information.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: NDIS_NDK_STATISTICS_INFO_REVISION_1,
        Size: NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1,
    };
    let set = &mut information.CounterSet;
    set.Connect = counters.connect;
    set.Accept = counters.accept;
    set.ConnectFailure = counters.connect_failure;
    set.ConnectionError = counters.connection_error;
    set.ActiveConnection = counters.active_connection;
    set.CQError = counters.completion_queue_error;
    set.RDMAInOctets = counters.octets_in;
    set.RDMAOutOctets = counters.octets_out;
    set.RDMAInFrames = counters.frames_in;
    set.RDMAOutFrames = counters.frames_out;
    // SAFETY: a header, one u32 and u64 counters: no padding.
    unsafe { answer.structure(&information, NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1) }
}

/// Bytes before the first entry of either list: header, flags, count, the mapped flag and its padding.
const LIST_PREFIX: usize = 0x10;

/// Where a list says that each address is followed by one of TCP.
const MAPPED: usize = 0xC;

/// The start of either list.
fn prefix(revision: u8, count: u32, total: usize, is_mapped: bool) -> [u8; LIST_PREFIX] {
    let header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: revision,
        // NDKPI: the 16-bit size saturates.
        Size: u16::try_from(total).unwrap_or(u16::MAX),
    };
    let mut bytes = [0; LIST_PREFIX];
    let [size_low, size_high] = header.Size.to_ne_bytes();
    let [count_0, count_1, count_2, count_3] = count.to_ne_bytes();
    bytes[..4].copy_from_slice(&[header.Type, header.Revision, size_low, size_high]);
    bytes[8..12].copy_from_slice(&[count_0, count_1, count_2, count_3]);
    bytes[MAPPED] = u8::from(is_mapped);
    bytes
}

/// OID_NDK_CONNECTIONS.
pub fn connections(adapter: &Adapter, mut answer: OidAnswer<'_>) -> NDIS_STATUS {
    const SIZE: usize = size_of::<NDIS_NDK_CONNECTION_ENTRY>();
    list::<SIZE>(adapter, NDIS_NDK_CONNECTIONS_REVISION_1, &mut answer, |each| {
        adapter.provider.engine().connections(&mut |connection| {
            // A kernel connection has no user-mode owner: both owner members stay zero.
            let mut entry = [0; SIZE];
            place(&mut entry, offset_of!(NDIS_NDK_CONNECTION_ENTRY, Local), &connection.local);
            place(&mut entry, offset_of!(NDIS_NDK_CONNECTION_ENTRY, Remote), &connection.remote);
            each(&entry);
        });
    })
}

/// OID_NDK_LOCAL_ENDPOINTS.
pub fn local_endpoints(adapter: &Adapter, mut answer: OidAnswer<'_>) -> NDIS_STATUS {
    const SIZE: usize = size_of::<NDIS_NDK_LOCAL_ENDPOINT_ENTRY>();
    list::<SIZE>(adapter, NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1, &mut answer, |each| {
        adapter.provider.engine().endpoints(&mut |endpoint| {
            let mut entry = [0; SIZE];
            place(&mut entry, offset_of!(NDIS_NDK_LOCAL_ENDPOINT_ENTRY, Local), &endpoint.local);
            entry[offset_of!(NDIS_NDK_LOCAL_ENDPOINT_ENTRY, Listener)] = u8::from(endpoint.listener);
            each(&entry);
        });
    })
}

/// Returns the prefix and an entry for each that `walk` finds, or two where peers are reached by TCP: the addresses of NDK, and those of
/// TCP, which are the same. It walks twice, to write nothing into a buffer that is too
/// short; objects added between the walks are left out, removed ones are missing.
fn list<const SIZE: usize>(
    adapter: &Adapter,
    revision: u8,
    answer: &mut OidAnswer<'_>,
    walk: impl Fn(&mut dyn FnMut(&[u8; SIZE])),
) -> NDIS_STATUS {
    let is_mapped = adapter.provider.engine().may_use_streams();
    let copies = if is_mapped { 2 } else { 1 };
    let mut found = 0_usize;
    walk(&mut |_| found = found.saturating_add(copies));
    let needed = total_of::<SIZE>(found);
    *answer.needed = needed;
    *answer.written = 0;
    if answer.length < needed || answer.buffer.is_null() {
        return NDIS_STATUS_BUFFER_TOO_SHORT;
    }
    let mut count = 0_usize;
    walk(&mut |entry| {
        for _ in 0..copies {
            if count == found {
                return;
            }
            let offset = total_of::<SIZE>(count) as usize;
            // SAFETY: entry `count` of at most `found` ends inside the buffer, which was found to hold them all.
            let place = unsafe { answer.buffer.byte_add(offset) };
            // SAFETY: as above; the buffer is not the driver's own memory.
            unsafe { place.cast::<u8>().copy_from_nonoverlapping(entry.as_ptr(), SIZE) };
            count = count.saturating_add(1);
        }
    });
    let total = total_of::<SIZE>(count);
    let prefix = prefix(revision, count as u32, total as usize, is_mapped);
    // SAFETY: the buffer holds at least the prefix.
    unsafe { answer.buffer.cast::<u8>().copy_from_nonoverlapping(prefix.as_ptr(), prefix.len()) };
    *answer.written = total;
    NDIS_STATUS_SUCCESS
}

/// Bytes of a list of `count` entries; more than a buffer can have when that does not fit.
fn total_of<const SIZE: usize>(count: usize) -> u32 {
    let bytes = count.checked_mul(SIZE).and_then(|entries| entries.checked_add(LIST_PREFIX));
    bytes.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(u32::MAX)
}

/// Writes a socket address into an entry.
fn place<const SIZE: usize>(entry: &mut [u8; SIZE], offset: usize, address: &SocketAddr) {
    let form = inet(address);
    // SAFETY: any two socket addresses are as many plain bytes; `inet` starts from zeroes, so none is left unwritten.
    let bytes: [u8; size_of::<SOCKADDR_INET>()] = unsafe { transmute(form) };
    if let Some(place) = entry.get_mut(offset..offset + bytes.len()) {
        place.copy_from_slice(&bytes);
    }
}
