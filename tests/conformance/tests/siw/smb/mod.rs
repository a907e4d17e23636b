//! A client of SMB Direct, as small as it can be, and the server of Linux: file data goes by tokens of this side's memory, and inside
//! messages that are cut into many Sends.

use conformance::consumer::{Buffer, Window, WindowKind};
use crc::{CRC_32_ISO_HDLC, Crc};

use super::connection::with_adapter;
use super::guest;
use session::Session;

mod direct;
mod fields;
mod session;

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
const SHARE: &str = "softndk";
/// Bytes of the file that go by tokens, and bytes that go inside messages.
const BY_TOKENS: [usize; 5] = [1, 4096, 65_537, 500_000, 1 << 20];
const INSIDE: [usize; 4] = [1, 5000, 100_000, 170_000];

/// Each size is written and read back, by tokens and inside messages; then the guest computes a checksum of the file.
pub fn server_of_linux() {
    with_adapter(|adapter| {
        guest::expect(&format!("ksmbd {SHARE}"));
        let mut session = Session::open(adapter, SHARE, "data");
        let mut file = Vec::new();
        for (size, seed) in BY_TOKENS.into_iter().zip(0x51..) {
            file.extend(through_memory(&mut session, file.len() as u64, size, seed));
        }
        for (size, seed) in INSIDE.into_iter().zip(0x71_usize..) {
            let offset = file.len() as u64;
            let data: Vec<u8> = (0..size).map(|position| (position * 7 + position / 251 + seed) as u8).collect();
            session.write(offset, &data);
            assert!(session.read(offset, size) == data, "what came back of {size} bytes differs");
            file.extend(data);
        }
        session.close();
        let seen = guest::expect("crc32 /share/data");
        assert_eq!(
            seen.split_whitespace().next(),
            Some(&*format!("{:08x}", CRC.checksum(&file))),
            "the file in the guest"
        );
        let counts = &session.direct.counts;
        println!(
            "counted: dialect {:#06x}, {} requests; {} bytes written and read back, equal; {} Sends of {} credits, {} \
             received of {}",
            session::DIALECT,
            session.requests,
            file.len(),
            counts.sent,
            counts.granted_by_peer,
            counts.received,
            counts.granted
        );
    });
}

/// Has the server read this side's memory and write it; the bytes.
fn through_memory(session: &mut Session<'_>, offset: u64, size: usize, seed: u64) -> Vec<u8> {
    let source = session.direct.connection.open(size);
    source.buffer.fill_with_seed(seed);
    session.write_from(offset, &source);
    let end = &session.direct.connection.end;
    let sink = Window::open(end, Buffer::scattered(size), WindowKind::FastRegistered);
    session.read_into(offset, &sink);
    sink.buffer.assert_seed(seed, 0..size);
    source.buffer.to_vec()
}
