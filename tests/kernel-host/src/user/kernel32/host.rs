//! What the run-time library (`tests/kernel-host/run-time`) asks the host: the Winsock catalogue, the addresses of the machine, and to end a
//! program.

use crate::netio::{self, mib};
use crate::user::call::system_call;
use ndkpi_sys::nt::SOCKADDR_INET;

/// Bytes of WSAPROTOCOL_INFOW, and where its ProviderId and dwCatalogEntryId are.
const PROTOCOL_INFO: usize = 628;
const PROVIDER_ID: usize = 20;
const ENTRY_ID: usize = 36;

/// The number of the first entry.
const FIRST_ENTRY: u32 = 1001;

/// Bytes of SOCKADDR_STORAGE with the length of the prefix behind it, and where that is.
const LOCAL_ADDRESS: usize = 136;
const PREFIX: usize = 128;

/// The longest text that a program is ended with.
const LONGEST_REASON: usize = 512;

/// An address with its prefix, as the library has it.
fn local_address(row: &netio::address_table::AddressRow) -> [u8; LOCAL_ADDRESS] {
    let mut bytes = [0; LOCAL_ADDRESS];
    let address = mib::socket_address(row.address.address);
    // SAFETY: a structure of plain numbers, read as its bytes.
    let own = unsafe { std::slice::from_raw_parts((&raw const address).cast::<u8>(), size_of::<SOCKADDR_INET>()) };
    let length = if row.address.address.is_ipv4() { 16 } else { own.len() };
    bytes[..length].copy_from_slice(&own[..length]);
    bytes[PREFIX..PREFIX + 4].copy_from_slice(&u32::from(row.address.prefix_length).to_le_bytes());
    bytes
}

crate::exports! {
    module "kernel-host.dll";

    /// The entries of the Winsock catalogue, if they all fit; their number.
    /// Source: the host's own
    [PASSIVE_ONLY] fn HostCatalogEntries(to: usize, most: u32) -> u32 {
        system_call(|process| {
            let entries = process.program.setup().map_or(&[][..], |setup| &setup.catalog);
            if entries.len() <= most as usize {
                for (number, entry) in (0..).zip(entries) {
                    let mut bytes = entry.protocol.clone();
                    bytes.resize(PROTOCOL_INFO, 0);
                    bytes[ENTRY_ID..ENTRY_ID + 4].copy_from_slice(&(FIRST_ENTRY + number).to_le_bytes());
                    process.memory.write(to + number as usize * PROTOCOL_INFO, &bytes);
                }
            }
            entries.len() as u32
        })
    }

    /// The path of the DLL of the provider with a ProviderId; its length with the zero, or 0.
    /// Source: the host's own
    [PASSIVE_ONLY] fn HostCatalogPath(provider: usize, to: usize, size: u32) -> u32 {
        system_call(|process| {
            let wanted = process.memory.read(provider, 16);
            let entries = process.program.setup().map_or(&[][..], |setup| &setup.catalog);
            let is_it = |bytes: &[u8]| wanted.as_deref() == bytes.get(PROVIDER_ID..PROVIDER_ID + 16);
            let Some(entry) = entries.iter().find(|entry| is_it(&entry.protocol)) else { return 0 };
            let path: Vec<u8> = entry.path.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
            let fits = path.len() <= 2 * size as usize && process.memory.write(to, &path);
            if fits { path.len() as u32 / 2 } else { 0 }
        })
    }

    /// The unicast addresses of the adapters, at most so many, with their prefixes; how many.
    /// Source: the host's own
    [PASSIVE_ONLY] fn HostLocalAddresses(to: usize, most: u32) -> u32 {
        system_call(|process| {
            let rows = netio::table().rows();
            let written = rows.iter().take(most as usize).enumerate().filter(|(number, row)| {
                process.memory.write(to + number * LOCAL_ADDRESS, &local_address(row))
            });
            written.count() as u32
        })
    }

    /// Ends the calling program for what it did.
    /// Source: the host's own
    [PASSIVE_ONLY] fn HostProgramFails(why: usize) {
        system_call(|process| {
            let bytes = (0..LONGEST_REASON).map_while(|offset| process.memory.read(why + offset, 1)?.pop());
            let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
            process.fails(&String::from_utf8_lossy(&text));
        });
    }
}
