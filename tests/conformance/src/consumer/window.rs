//! Memory made usable for requests in one of the three ways the contract knows: registered, fast-registered, or a
//! logical mapping under the privileged token.

use std::ops::Range;

use ndkpi_sys::ndkpi::*;

use super::buffer::{Buffer, sge};
use super::pair::End;
use super::protection_domain::{Mapping, MemoryRegion};
use super::queue_pair::{FastRegistration, Remote};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    Registered,
    FastRegistered,
    /// Local use only.
    Privileged,
}

/// A buffer and the tokens that open it.
pub struct Window<'a> {
    pub region: Option<MemoryRegion>,
    pub mapping: Option<Mapping<'a>>,
    pub buffer: Buffer,
    local_token: u32,
    remote_token: u32,
    kind: WindowKind,
}

/// The request context of the fast registrations made here.
pub const REGISTRATION: u64 = 0xFA57;

impl<'a> Window<'a> {
    /// Opens a buffer to an end with every right; a fast registration is posted on the end's queue pair and awaited.
    pub fn open(end: &End<'a>, buffer: Buffer, kind: WindowKind) -> Self {
        let rights = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
        Self::open_with(end, buffer, kind, rights)
    }

    /// As [`Self::open`] with the rights of a fast registration; a registered region gets their equivalents.
    pub fn open_with(end: &End<'a>, buffer: Buffer, kind: WindowKind, rights: NDK_OP_FLAGS) -> Self {
        match kind {
            WindowKind::Registered => {
                let region = end.domain.register(&buffer, registration_rights(rights));
                let (local_token, remote_token) = (region.local_token(), region.remote_token());
                Self { region: Some(region), mapping: None, buffer, local_token, remote_token, kind }
            }
            WindowKind::FastRegistered => {
                let mapping = Mapping::build(end.adapter, &buffer).expect("a logical mapping");
                let region = end.domain.fast_region(mapping.pages().len() as u32, true);
                register_fast(end, &region, &mapping, &buffer, rights);
                let (local_token, remote_token) = (region.local_token(), region.remote_token());
                Self { region: Some(region), mapping: Some(mapping), buffer, local_token, remote_token, kind }
            }
            WindowKind::Privileged => {
                let mapping = Mapping::build(end.adapter, &buffer).expect("a logical mapping");
                let local_token = end.domain.privileged_token();
                Self { region: None, mapping: Some(mapping), buffer, local_token, remote_token: 0, kind }
            }
        }
    }

    /// Memory that is registered already.
    pub fn of_region(buffer: Buffer, region: MemoryRegion) -> Self {
        let (local_token, remote_token) = (region.local_token(), region.remote_token());
        let kind = WindowKind::Registered;
        Self { region: Some(region), mapping: None, buffer, local_token, remote_token, kind }
    }

    /// Puts other memory and its region in place of the present ones.
    pub fn replace(&mut self, buffer: Buffer, region: MemoryRegion) {
        *self = Self::of_region(buffer, region);
    }

    /// Reads the tokens again, after a registration.
    pub fn refresh(&mut self) {
        if let Some(region) = &self.region {
            (self.local_token, self.remote_token) = (region.local_token(), region.remote_token());
        }
    }

    pub fn local_token(&self) -> u32 {
        self.local_token
    }

    pub fn remote_token(&self) -> u32 {
        self.remote_token
    }

    /// The place `offset` bytes into the buffer, for a peer.
    pub fn remote(&self, offset: usize) -> Remote {
        assert!(self.kind != WindowKind::Privileged, "the privileged token is local");
        Remote { address: self.buffer.label() + offset as u64, token: self.remote_token }
    }

    pub fn sge(&self, range: Range<usize>) -> NDK_SGE {
        match (&self.mapping, self.kind) {
            (Some(mapping), WindowKind::Privileged) => {
                let length = range.len();
                if length > 0 {
                    assert_adjacent(mapping, range.start, range.end - 1);
                }
                let start = if length > 0 { mapping.address_of(range.start) } else { 0 };
                sge(start, length, self.local_token)
            }
            _ => self.buffer.sge(range, self.local_token),
        }
    }

    pub fn in_sges(&self, count: usize) -> Vec<NDK_SGE> {
        self.first_in_sges(self.buffer.length(), count)
    }

    /// The first `length` bytes in `count` scatter/gather elements.
    pub fn first_in_sges(&self, length: usize, count: usize) -> Vec<NDK_SGE> {
        let cut = |index: usize| length * index / count;
        (0..count).map(|index| self.sge(cut(index)..cut(index + 1))).collect()
    }
}

/// Consumers merge pages whose logical addresses are adjacent and no others.
fn assert_adjacent(mapping: &Mapping<'_>, first: usize, last: usize) {
    let distance = mapping.address_of(last) - mapping.address_of(first);
    assert_eq!(distance, (last - first) as u64, "logical pages of one mapping that cannot be merged");
}

fn registration_rights(rights: NDK_OP_FLAGS) -> NDK_MR_FLAGS {
    let mut flags = NDK_MR_FLAG_ALLOW_LOCAL_READ;
    if rights.contains(NDK_OP_FLAG_ALLOW_LOCAL_WRITE) {
        flags |= NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
    }
    if rights.contains(NDK_OP_FLAG_ALLOW_REMOTE_READ) {
        flags |= NDK_MR_FLAG_ALLOW_REMOTE_READ;
    }
    if rights.contains(NDK_OP_FLAG_ALLOW_REMOTE_WRITE) {
        flags |= NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
    }
    flags
}

/// Posts a fast registration of a whole buffer under its label and waits for it.
pub fn register_fast(
    end: &End<'_>,
    region: &MemoryRegion,
    mapping: &Mapping<'_>,
    buffer: &Buffer,
    rights: NDK_OP_FLAGS,
) {
    let registration = FastRegistration {
        pages: mapping.pages(),
        first_byte_offset: mapping.first_byte_offset(),
        length: buffer.length(),
        base: buffer.label(),
    };
    let status = end.queue_pair.fast_register(REGISTRATION, region.object(), &registration, rights);
    assert_eq!(status, 0, "posting a fast registration");
    let result = end.initiator.wait_for_one();
    assert_eq!(result.Status, 0, "a fast registration");
    assert_eq!(result.Type, NdkOperationTypeFastRegister);
    assert_eq!(result.RequestContext as u64, REGISTRATION);
}
