//! Addresses as clients give and take them, sockaddrs, and as the driver does, all of one size; and lists of them.

use alloc::vec::Vec;
use core::mem::{offset_of, size_of};

use softnd_interfaces::{
    Status,
    constants::{FAMILY_IPV4, FAMILY_IPV6, IPV4_ADDRESS_LENGTH, IPV6_ADDRESS_LENGTH},
    structures::{SocketAddressEntry, SocketAddressList},
};
use softndk_ioctl::nd::control::SocketAddress;
use zerocopy::{FromZeros, IntoBytes};

use crate::{
    argument::{Bytes, Place, Target},
    heap::{put_all, try_list},
};

/// A number that a client's length is: 32 bits in version 2, a pointer's in version 1.
pub trait Length: Copy {
    fn from_usize(length: usize) -> Self;
    fn into_usize(self) -> usize;
}

impl Length for u32 {
    fn from_usize(length: usize) -> Self {
        Self::try_from(length).unwrap_or(Self::MAX)
    }

    fn into_usize(self) -> usize {
        self as usize
    }
}

impl Length for usize {
    fn from_usize(length: usize) -> Self {
        length
    }

    fn into_usize(self) -> usize {
        self
    }
}

/// How long a sockaddr of a family is; none for families that are no IP.
fn length_of(family: u16) -> Option<usize> {
    match family {
        FAMILY_IPV4 => Some(IPV4_ADDRESS_LENGTH),
        FAMILY_IPV6 => Some(IPV6_ADDRESS_LENGTH),
        _ => None,
    }
}

/// Reads a sockaddr. INVALID_PARAMETER when there is none, INVALID_ADDRESS when it is too short or of another family.
pub fn read(address: Bytes, length: usize) -> Result<SocketAddress, Status> {
    let mut family = [0; 2];
    if length < family.len() {
        return Err(Status::INVALID_ADDRESS);
    }
    if !address.copy_to(&mut family) {
        return Err(Status::INVALID_PARAMETER);
    }
    let needed = length_of(u16::from_le_bytes(family)).filter(|needed| *needed <= length);
    let needed = needed.ok_or(Status::INVALID_ADDRESS)?;
    let mut read = SocketAddress::new_zeroed();
    if let Some(bytes) = read.as_mut_bytes().get_mut(..needed) {
        address.copy_to(bytes);
    }
    Ok(read)
}

/// The bytes of the sockaddr that an address is; all of it for a family that the driver should not give.
fn bytes(address: &SocketAddress) -> &[u8] {
    let bytes = address.as_bytes();
    length_of(address.family).and_then(|length| bytes.get(..length)).unwrap_or(bytes)
}

/// Writes a sockaddr. BUFFER_OVERFLOW, with the length that it needs and nothing else written, where there is less room.
pub fn write<L: Length>(address: &SocketAddress, target: Target, length: Place<L>) -> Result<(), Status> {
    let room = length.read().ok_or(Status::INVALID_PARAMETER)?;
    let bytes = bytes(address);
    length.write(L::from_usize(bytes.len()))?;
    if target.is_none() || room.into_usize() < bytes.len() {
        return Err(Status::BUFFER_OVERFLOW);
    }
    target.write(bytes);
    Ok(())
}

/// Where an entry of a list stands; with the number of entries, where they end.
fn entry_offset(index: usize) -> usize {
    index.saturating_mul(size_of::<SocketAddressEntry>()).saturating_add(offset_of!(SocketAddressList, addresses))
}

/// Bytes of an address in a list: the next one stays aligned.
fn step(address: &SocketAddress) -> usize {
    bytes(address).len().saturating_add(7) & !7
}

/// Writes a list of addresses, which stand behind it in the same memory. BUFFER_OVERFLOW, with the length that it needs and
/// nothing else written, where there is less room. An empty list takes as much as one with an entry has before its address:
/// clients take a length of 0 for a failure.
pub fn write_list<L: Length>(
    addresses: &[SocketAddress],
    list: Place<SocketAddressList>,
    length: Place<L>,
) -> Result<(), Status> {
    let room = length.read().ok_or(Status::INVALID_PARAMETER)?;
    let header = entry_offset(addresses.len()).max(size_of::<SocketAddressList>());
    let needed = addresses.iter().map(step).fold(header, usize::saturating_add);
    length.write(L::from_usize(needed))?;
    if list.is_none() || room.into_usize() < needed {
        return Err(Status::BUFFER_OVERFLOW);
    }
    let target = Target::of_place(list);
    target.write(&(addresses.len() as u64).to_le_bytes());
    let mut offset = header;
    for (index, address) in addresses.iter().enumerate() {
        let bytes = bytes(address);
        // SOCKET_ADDRESS: a pointer, then a length with padding.
        let pointer = (target.address() as u64).wrapping_add(offset as u64);
        let entry = entry_offset(index);
        target.write_at(entry, &pointer.to_le_bytes());
        target.write_at(entry.saturating_add(8), &(bytes.len() as u64).to_le_bytes());
        target.write_at(offset, bytes);
        offset = offset.saturating_add(step(address));
    }
    Ok(())
}

/// Addresses out of the bytes of an answer of the driver.
pub fn from_answer(answer: &[u8]) -> Result<Vec<SocketAddress>, Status> {
    let (chunks, _) = answer.as_chunks::<{ size_of::<SocketAddress>() }>();
    let mut addresses = try_list(chunks.len())?;
    for chunk in chunks {
        let mut address = SocketAddress::new_zeroed();
        address.as_mut_bytes().copy_from_slice(chunk);
        // Another family cannot be told to clients.
        if length_of(address.family).is_some() {
            put_all(&mut addresses, [address]);
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    fn address(family: u16, last: u8) -> SocketAddress {
        let mut address = SocketAddress { family, ..SocketAddress::default() };
        address.rest[3] = last;
        address
    }

    fn listed(addresses: &[SocketAddress], room: u32) -> (Result<(), Status>, u32, Vec<u64>) {
        let mut memory = std::vec![u64::MAX; 64];
        let mut length = room;
        let list = Place::local(&mut memory[0]);
        let written = write_list(addresses, list.cast(), Place::local(&mut length));
        (written, length, memory)
    }

    #[test]
    fn empty_list_needs_room_for_its_header() {
        assert_eq!(listed(&[], 0).0, Err(Status::BUFFER_OVERFLOW));
        let (written, length, memory) = listed(&[], 24);
        assert_eq!((written, length, memory[0]), (Ok(()), 24, 0));
    }

    #[test]
    fn addresses_stand_behind_the_list_with_lengths_of_their_families() {
        let addresses = [address(FAMILY_IPV4, 1), address(FAMILY_IPV6, 2)];
        let needed = 8 + 2 * 16 + 16 + 32;
        let (written, length, memory) = listed(&addresses, needed - 1);
        assert_eq!((written, length, memory[0]), (Err(Status::BUFFER_OVERFLOW), needed, u64::MAX));

        let (written, length, memory) = listed(&addresses, 400);
        assert_eq!((written, length), (Ok(()), needed));
        assert_eq!((memory[0], memory[2], memory[4]), (2, 16, 28));
        assert_eq!(memory[1], ptr::from_ref(&memory[5]) as u64);
        assert_eq!(memory[3], ptr::from_ref(&memory[7]) as u64);
        assert_eq!(memory[5] & 0xFFFF, 2);
    }

    #[test]
    fn short_and_foreign_addresses_are_refused() {
        let given = address(FAMILY_IPV4, 9);
        // SAFETY: a local.
        let bytes = unsafe { Bytes::at(ptr::from_ref(&given).cast()) };
        assert_eq!(read(bytes, 16).unwrap().rest[3], 9);
        assert_eq!(read(bytes, 15), Err(Status::INVALID_ADDRESS));
        let foreign = address(1, 0);
        // SAFETY: as above.
        assert_eq!(read(unsafe { Bytes::at(ptr::from_ref(&foreign).cast()) }, 28), Err(Status::INVALID_ADDRESS));
        // SAFETY: no memory.
        assert_eq!(read(unsafe { Bytes::at(ptr::null()) }, 16), Err(Status::INVALID_PARAMETER));
    }
}
