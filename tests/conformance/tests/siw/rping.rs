//! What rping says: adverts of memory, answered by messages of any content, and texts that both sides know.

use conformance::consumer::{Remote, Window};

use super::connection::{Connection, MESSAGE};

/// Where rping listens.
pub const PORT: u16 = 7174;

/// Memory that a message offers: address, token, length, each big-endian.
pub fn advert(remote: Remote, length: usize) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    message[..8].copy_from_slice(&remote.address.to_be_bytes());
    message[8..12].copy_from_slice(&remote.token.to_be_bytes());
    message[12..].copy_from_slice(&(length as u32).to_be_bytes());
    message
}

/// What a message offers.
pub fn offered(message: [u8; MESSAGE]) -> (Remote, usize) {
    let address = u64::from_be_bytes(message[..8].try_into().expect("eight bytes"));
    let [token, length] =
        [8, 12].map(|start| u32::from_be_bytes(message[start..start + 4].try_into().expect("four bytes")));
    (Remote { address, token }, length as usize)
}

/// The text of a ping: its number, then letters, each time from the next one on, and a zero at the end.
pub fn text(ping: usize, size: usize) -> Vec<u8> {
    let letters = b'A'..=b'z';
    let first = ping % letters.clone().count();
    let head = format!("rdma-ping-{ping}: ").into_bytes();
    let mut text: Vec<u8> = head.into_iter().chain(letters.cycle().skip(first)).take(size - 1).collect();
    text.push(0);
    text
}

/// What a program of rping printed of these pings.
pub fn printed(prefix: &str, pings: usize, size: usize) -> String {
    let line = |ping| {
        let mut text = text(ping, size);
        text.pop();
        format!("{prefix}{}\n", String::from_utf8(text).expect("letters"))
    };
    (0..pings).map(line).collect()
}

/// Fills memory with a text.
pub fn fill(window: &Window<'_>, text: &[u8]) {
    window.buffer.fill(|position| text[position]);
}

/// One ping as a client: the guest reads one window and writes it into the other.
pub fn ping(connection: &Connection<'_>, source: &Window<'_>, sink: &Window<'_>) {
    for window in [source, sink] {
        connection.send(&advert(window.remote(0), window.buffer.length()));
        connection.message();
        connection.expect_message();
    }
}
