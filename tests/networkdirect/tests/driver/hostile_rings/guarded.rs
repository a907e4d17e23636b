//! Registered memory between guards, and memory that no request may reach: both full of a byte that nothing else has eight times in a row.

use super::super::program::*;
use kernel_host::kernel::FrameOrder;
use kernel_host::memory::user_buffer::UserBuffer;
use softndk_ioctl::nd::VERSION;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::{LOCK_FOR_WRITING, LockMemory};

pub const SECRET: u8 = 0xD7;
/// Bytes before the registered ones in their page, and behind them in the locked memory.
const BEFORE: usize = 1048;
const BEHIND: usize = 3000;

pub struct Guarded {
    pub region: Region,
    length: usize,
}

impl Guarded {
    /// A region for remote access whose bytes are all `fill`.
    pub fn new(nd: &Nd, domain: u64, length: usize, fill: u8) -> Self {
        let mut buffer = UserBuffer::with_offset(length + BEHIND, BEFORE, FrameOrder::Scattered);
        buffer.as_mut_slice().fill(SECRET);
        buffer.as_mut_slice()[..length].fill(fill);
        // SAFETY: the buffer begins so many bytes into its first page, which is mapped and its own.
        unsafe { std::ptr::write_bytes((buffer.address() - BEFORE) as *mut u8, SECRET, BEFORE) };
        let handle = nd.create(MR_CREATE, domain);
        let asked = LockMemory { version: VERSION, reserved: 0, region: handle };
        let lock = nd.begin_direct(LOCK_FOR_WRITING, &asked, &buffer);
        let asked = Register { length: length as u64, ..registration(handle, &buffer, REMOTE_WRITE | REMOTE_READ) };
        let token = nd.ask::<RegisterReply>(MR_REGISTER, &asked).local_token;
        Self { region: Region { handle, buffer, lock, token }, length }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.region.buffer.as_slice()[..self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.region.buffer.as_mut_slice()[..self.length]
    }

    /// The guards are whole.
    pub fn assert_guards(&self) {
        // SAFETY: as in `new`.
        let before =
            unsafe { std::slice::from_raw_parts((self.region.buffer.address() - BEFORE) as *const u8, BEFORE) };
        assert!(before.iter().all(|byte| *byte == SECRET), "written before registered memory");
        let behind = &self.region.buffer.as_slice()[self.length..];
        assert!(behind.iter().all(|byte| *byte == SECRET), "written behind registered memory");
    }

    /// Of memory that is full of the secret: it still is.
    pub fn assert_untouched(&self) {
        self.assert_guards();
        assert!(self.bytes().iter().all(|byte| *byte == SECRET), "memory of another domain was written");
    }

    /// Of memory that a hostile process may have had filled: not with secrets.
    pub fn assert_no_secrets(&self) {
        let found = self.bytes().windows(8).position(|window| window == [SECRET; 8]);
        assert_eq!(found, None, "bytes arrived that are not from registered memory of the sender");
    }
}
