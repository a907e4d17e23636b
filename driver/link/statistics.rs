//! Counters of one adapter and the NDIS structures that report them.
//!
//! Frames are counted here by the virtual wire; RDMA traffic is counted by the engine and added when the statistics are
//! queried, because OID_GEN_STATISTICS counts RDMA bytes too.

use core::sync::atomic::{AtomicU64, Ordering};

use ndkpi_sys::ndis::{
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_SIZEOF_STATISTICS_INFO_REVISION_1, NDIS_STATISTICS_FLAGS,
    NDIS_STATISTICS_INFO, NDIS_STATISTICS_INFO_REVISION_1,
};

use super::handle::MacAddress;

/// All counters of NDIS_STATISTICS_INFO, in the NDIS_STATISTICS_FLAGS_VALID_* family.
pub const SUPPORTED_STATISTICS: NDIS_STATISTICS_FLAGS = NDIS_STATISTICS_FLAGS::from_bits_retain(0x003F_87FF);

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Unicast,
    Multicast,
    Broadcast,
}

impl Destination {
    pub fn of(address: MacAddress) -> Self {
        if address == [0xFF; 6] {
            Self::Broadcast
        } else if address[0] & 1 == 1 {
            Self::Multicast
        } else {
            Self::Unicast
        }
    }
}

/// Frames and bytes in one direction.
#[derive(Default)]
pub struct Direction {
    frames: [AtomicU64; 3],
    octets: [AtomicU64; 3],
    pub errors: AtomicU64,
    pub discards: AtomicU64,
}

#[derive(Default)]
pub struct Statistics {
    pub received: Direction,
    pub sent: Direction,
}

/// A reading of one direction.
#[derive(Clone, Copy, Default)]
pub struct Reading {
    pub frames: [u64; 3],
    pub octets: [u64; 3],
    pub errors: u64,
    pub discards: u64,
}

impl Reading {
    pub fn frame_sum(&self) -> u64 {
        self.frames.iter().fold(0, |sum, frames| sum.wrapping_add(*frames))
    }

    pub fn octet_sum(&self) -> u64 {
        self.octets.iter().fold(0, |sum, octets| sum.wrapping_add(*octets))
    }

    /// Adds RDMA traffic, which is unicast by nature.
    pub fn add_unicast(&mut self, frames: u64, octets: u64) {
        self.frames[0] = self.frames[0].wrapping_add(frames);
        self.octets[0] = self.octets[0].wrapping_add(octets);
    }
}

fn slot(destination: Destination) -> usize {
    match destination {
        Destination::Unicast => 0,
        Destination::Multicast => 1,
        Destination::Broadcast => 2,
    }
}

impl Direction {
    pub fn count(&self, destination: Destination, octets: usize) {
        let counters = self.frames.iter().zip(&self.octets).nth(slot(destination));
        if let Some((frame_count, octet_count)) = counters {
            frame_count.fetch_add(1, Ordering::Relaxed);
            octet_count.fetch_add(octets as u64, Ordering::Relaxed);
        }
    }

    pub fn read(&self) -> Reading {
        let mut reading = Reading {
            errors: self.errors.load(Ordering::Relaxed),
            discards: self.discards.load(Ordering::Relaxed),
            ..Reading::default()
        };
        for (value, counter) in reading.frames.iter_mut().zip(&self.frames) {
            *value = counter.load(Ordering::Relaxed);
        }
        for (value, counter) in reading.octets.iter_mut().zip(&self.octets) {
            *value = counter.load(Ordering::Relaxed);
        }
        reading
    }
}

/// The structure of OID_GEN_STATISTICS.
pub fn information(received: &Reading, sent: &Reading) -> NDIS_STATISTICS_INFO {
    NDIS_STATISTICS_INFO {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_STATISTICS_INFO_REVISION_1,
            Size: NDIS_SIZEOF_STATISTICS_INFO_REVISION_1,
        },
        SupportedStatistics: SUPPORTED_STATISTICS,
        ifInDiscards: received.discards,
        ifInErrors: received.errors,
        ifHCInOctets: received.octet_sum(),
        ifHCInUcastPkts: received.frames[0],
        ifHCInMulticastPkts: received.frames[1],
        ifHCInBroadcastPkts: received.frames[2],
        ifHCOutOctets: sent.octet_sum(),
        ifHCOutUcastPkts: sent.frames[0],
        ifHCOutMulticastPkts: sent.frames[1],
        ifHCOutBroadcastPkts: sent.frames[2],
        ifOutErrors: sent.errors,
        ifOutDiscards: sent.discards,
        ifHCInUcastOctets: received.octets[0],
        ifHCInMulticastOctets: received.octets[1],
        ifHCInBroadcastOctets: received.octets[2],
        ifHCOutUcastOctets: sent.octets[0],
        ifHCOutMulticastOctets: sent.octets[1],
        ifHCOutBroadcastOctets: sent.octets[2],
    }
}
