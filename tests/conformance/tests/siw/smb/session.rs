//! A session of SMB 3.0.2 as a guest: requests and responses inside SMB Direct, one at a time.

use conformance::consumer::{Adapter, Window};

use super::direct::SmbDirect;
use super::fields::{Fields, u16_at, u32_at, u64_at};

pub const DIALECT: u16 = 0x0302;
/// Of an account that the server does not have.
const USER: &str = "softndk";

/// Commands.
const NEGOTIATE: u16 = 0;
const SESSION_SETUP: u16 = 1;
const LOGOFF: u16 = 2;
const TREE_CONNECT: u16 = 3;
const TREE_DISCONNECT: u16 = 4;
const CREATE: u16 = 5;
const CLOSE: u16 = 6;
const READ: u16 = 8;
const WRITE: u16 = 9;

const MORE_PROCESSING_REQUIRED: u32 = 0xC000_0016;
/// A request or response of more bytes takes a credit of SMB for each so many.
const BYTES_OF_CREDIT: usize = 65_536;
const CREDITS_REQUESTED: u16 = 128;
/// The capability of requests that take more than one credit.
const LARGE_REQUESTS: u32 = 4;

const HEADER: usize = 64;
/// Bytes before what varies: of SESSION_SETUP, TREE_CONNECT, CREATE, and of READ and WRITE.
const SETUP_FIXED: usize = HEADER + 24;
const TREE_FIXED: usize = HEADER + 8;
const CREATE_FIXED: usize = HEADER + 56;
const TRANSFER_FIXED: usize = HEADER + 48;
/// Bytes before the data of a response to READ.
const READ_FIXED: usize = HEADER + 16;

/// NTLM of Unicode.
const NTLM_FLAGS: u32 = 0x0000_0201;
const NTLM_AUTHENTICATE_FIXED: u32 = 64;

/// Where the bytes of READ and WRITE are.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Channel {
    /// In the message.
    None = 0,
    /// In this side's memory, which a descriptor names.
    Rdma = 1,
    /// As [`Self::Rdma`], with the token invalidated by the response.
    RdmaInvalidate = 2,
}

/// A session, a share and a file that is open.
pub struct Session<'a> {
    pub direct: SmbDirect<'a>,
    next_message: u64,
    /// Numbers that the server has given: of the session, the share and the file.
    id: u64,
    tree: u32,
    file: [u8; 16],
    /// Requests made.
    pub requests: u32,
}

impl<'a> Session<'a> {
    /// Signs in as a guest and creates a file of a share.
    pub fn open(adapter: &'a Adapter, share: &str, file: &str) -> Self {
        let direct = SmbDirect::connect(adapter);
        let mut session = Self { direct, next_message: 0, id: 0, tree: 0, file: [0; 16], requests: 0 };
        session.negotiate();
        session.sign_in();
        session.connect_tree(share);
        session.create(file);
        session
    }

    fn negotiate(&mut self) {
        let body = Fields::default().u16(36).u16(1).u16(1).u16(0).u32(LARGE_REQUESTS);
        let response = self.run(NEGOTIATE, 1, body.bytes(&[0x5A; 16]).u64(0).u16(DIALECT));
        assert_eq!(u16_at(&response, HEADER + 4), DIALECT);
    }

    /// Two messages of NTLM: the second one names the user and has no password.
    fn sign_in(&mut self) {
        let ntlm = |kind| Fields::default().bytes(b"NTLMSSP\0").u32(kind);
        let first = ntlm(1).u32(NTLM_FLAGS).u64(0).u64(0);
        let (status, response) = self.exchange(SESSION_SETUP, 1, setup(&first));
        assert_eq!(status, MORE_PROCESSING_REQUIRED);
        let challenge = &response[u16_at(&response, HEADER + 4).into()..];
        assert!(challenge.starts_with(&ntlm(2).0), "a challenge: {challenge:02x?}");
        self.id = u64_at(&response, 40);

        let name = Fields::default().text(USER).0;
        let length = name.len() as u16;
        let empty = |fields: Fields| fields.u16(0).u16(0).u32(NTLM_AUTHENTICATE_FIXED);
        let second = empty(empty(empty(ntlm(3)))).u16(length).u16(length).u32(NTLM_AUTHENTICATE_FIXED);
        let second = empty(empty(second)).u32(NTLM_FLAGS).bytes(&name);
        let response = self.run(SESSION_SETUP, 1, setup(&second));
        assert_eq!(u16_at(&response, HEADER + 2), 1, "a session of a guest");
    }

    fn connect_tree(&mut self, share: &str) {
        let path = Fields::default().text(&format!(r"\\10.77.0.2\{share}")).0;
        let body = Fields::default().u16(9).u16(0).u16(TREE_FIXED as u16).u16(path.len() as u16).bytes(&path);
        let response = self.run(TREE_CONNECT, 1, body);
        self.tree = u32_at(&response, 36);
    }

    /// Creates a file, to be read and written by all.
    fn create(&mut self, file: &str) {
        const READ_AND_WRITE: u32 = 0x0012_019F;
        const SHARED: u32 = 7;
        const OVERWRITE_OR_CREATE: u32 = 5;
        const NO_FOLDER: u32 = 0x40;
        let name = Fields::default().text(file).0;
        let body = Fields::default().u16(57).u16(0).u32(2).u64(0).u64(0).u32(READ_AND_WRITE).u32(0x80).u32(SHARED);
        let body = body.u32(OVERWRITE_OR_CREATE).u32(NO_FOLDER).u16(CREATE_FIXED as u16).u16(name.len() as u16);
        let response = self.run(CREATE, 1, body.u32(0).u32(0).bytes(&name));
        self.file.copy_from_slice(&response[HEADER + 64..HEADER + 80]);
    }

    /// The server reads memory of this side into the file.
    pub fn write_from(&mut self, offset: u64, source: &Window<'_>) {
        let length = source.buffer.length();
        let body = self.write_body(0, 0, offset, Channel::Rdma, length).bytes(&descriptor(source));
        let response = self.run(WRITE, credits(length), body);
        assert_eq!(u32_at(&response, HEADER + 4) as usize, length, "bytes written");
    }

    /// The server writes the file into memory of this side, and invalidates its token.
    pub fn read_into(&mut self, offset: u64, sink: &Window<'_>) {
        let length = sink.buffer.length();
        let body = self.read_body(length, offset, Channel::RdmaInvalidate).bytes(&descriptor(sink));
        let response = self.run(READ, credits(length), body);
        let [inside, outside] = [HEADER + 4, HEADER + 8].map(|at| u32_at(&response, at) as usize);
        assert_eq!((inside, outside), (0, length), "bytes read");
        assert_eq!(self.direct.invalidated.take(), Some(sink.remote_token()));
    }

    /// Bytes inside the request.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let body = self.write_body(TRANSFER_FIXED as u16, data.len(), offset, Channel::None, 0).bytes(data);
        let response = self.run(WRITE, credits(data.len()), body);
        assert_eq!(u32_at(&response, HEADER + 4) as usize, data.len(), "bytes written");
    }

    /// Bytes inside the response.
    pub fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        let body = self.read_body(length, offset, Channel::None).u8(0);
        let response = self.run(READ, credits(length), body);
        assert_eq!(usize::from(response[HEADER + 2]), READ_FIXED, "where the data is");
        assert_eq!(u32_at(&response, HEADER + 4) as usize, length, "bytes read");
        response[READ_FIXED..].to_vec()
    }

    fn write_body(&self, data: u16, length: usize, offset: u64, channel: Channel, outside: usize) -> Fields {
        let body = Fields::default().u16(49).u16(data).u32(length as u32).u64(offset).bytes(&self.file);
        with_channel(body, channel, outside).u32(0)
    }

    fn read_body(&self, length: usize, offset: u64, channel: Channel) -> Fields {
        let body = Fields::default().u16(49).u8(READ_FIXED as u8).u8(0).u32(length as u32).u64(offset);
        with_channel(body.bytes(&self.file).u32(length as u32), channel, 0)
    }

    /// Closes the file, the share and the session, and disconnects.
    pub fn close(&mut self) {
        self.run(CLOSE, 1, Fields::default().u16(24).u16(0).u32(0).bytes(&self.file));
        self.run(TREE_DISCONNECT, 1, Fields::default().u16(4).u16(0));
        self.run(LOGOFF, 1, Fields::default().u16(4).u16(0));
        self.direct.connection.disconnect();
    }

    /// Runs a request that succeeds; its response.
    #[track_caller]
    fn run(&mut self, command: u16, charge: u16, body: Fields) -> Vec<u8> {
        let (status, response) = self.exchange(command, charge, body);
        assert_eq!(status, 0, "status {status:#010x} of command {command}");
        response
    }

    fn exchange(&mut self, command: u16, charge: u16, body: Fields) -> (u32, Vec<u8>) {
        let number = self.next_message;
        self.next_message += u64::from(charge);
        self.requests += 1;
        let request = Fields::default().bytes(b"\xFESMB").u16(HEADER as u16).u16(charge).u32(0).u16(command);
        let request = request.u16(CREDITS_REQUESTED).u32(0).u32(0).u64(number).u32(0).u32(self.tree).u64(self.id);
        self.direct.send(&request.bytes(&[0; 16]).fields(body).0);
        let response = self.direct.receive();
        assert!(response.starts_with(b"\xFESMB"), "no response: {response:02x?}");
        assert_eq!(
            (u16_at(&response, 12), u64_at(&response, 24)),
            (command, number),
            "command and number of a response"
        );
        (u32_at(&response, 8), response)
    }
}

/// Credits of SMB for so many bytes.
fn credits(length: usize) -> u16 {
    length.div_ceil(BYTES_OF_CREDIT) as u16
}

fn setup(token: &Fields) -> Fields {
    let body = Fields::default().u16(25).u8(0).u8(1).u32(0).u32(0);
    body.u16(SETUP_FIXED as u16).u16(token.0.len() as u16).u64(0).bytes(&token.0)
}

/// The fields of READ and WRITE about a channel, whose descriptor is behind all.
fn with_channel(body: Fields, channel: Channel, remaining: usize) -> Fields {
    let (offset, length) = match channel {
        Channel::None => (0, 0),
        Channel::Rdma | Channel::RdmaInvalidate => (TRANSFER_FIXED as u16, 16),
    };
    body.u32(channel as u32).u32(remaining as u32).u16(offset).u16(length)
}

/// Memory of this side.
fn descriptor(window: &Window<'_>) -> Vec<u8> {
    let remote = window.remote(0);
    Fields::default().u64(remote.address).u32(remote.token).u32(window.buffer.length() as u32).0
}
