//! Memory that consumers register: bytes that both sides of a connection may touch at any time.

use softndk_engine::Memory;
use std::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Bytes that every thread may write at the same time, as registered memory is.
struct Bytes(Box<[UnsafeCell<u8>]>);

// SAFETY: reached through raw pointers only, racing by design.
unsafe impl Sync for Bytes {}
// SAFETY: plain bytes.
unsafe impl Send for Bytes {}

/// A stretch of bytes, mapped.
pub struct Mapped {
    bytes: Arc<Bytes>,
    /// Where in the bytes it begins.
    first: usize,
    live: Arc<AtomicUsize>,
}

impl Memory for Mapped {
    fn length(&self) -> u64 {
        (self.bytes.0.len() - self.first) as u64
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Mapped {
    pub(crate) fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let offset = self.first + offset as usize;
        assert!(offset + length <= self.bytes.0.len(), "the engine checks bounds");
        self.bytes.0.as_ptr().cast_mut().cast::<u8>().wrapping_add(offset)
    }
}

/// The consumer's side of a stretch of bytes.
#[derive(Clone)]
pub struct Buffer(Arc<Bytes>);

impl Buffer {
    /// Bytes that a peer may write at the same time can be filled all the same.
    pub fn fill(&self, byte: u8) {
        for place in &self.0.0 {
            // SAFETY: as for `write`.
            unsafe { place.get().write_volatile(byte) };
        }
    }

    pub fn new(length: usize, fill: u8) -> Self {
        Self(Arc::new(Bytes((0..length).map(|_| UnsafeCell::new(fill)).collect())))
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        for (place, byte) in self.0.0[offset..].iter().zip(bytes) {
            // SAFETY: racing writes of single bytes are what registered memory is about.
            unsafe { place.get().write_volatile(*byte) };
        }
    }

    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        // SAFETY: as for `write`.
        self.0.0[offset..offset + length].iter().map(|place| unsafe { place.get().read_volatile() }).collect()
    }

    /// Maps the bytes from the `first` on; `live` counts the mappings.
    pub(crate) fn mapped(&self, first: usize, live: Arc<AtomicUsize>) -> Mapped {
        Mapped { bytes: self.0.clone(), first, live }
    }

    pub fn address(&self) -> u64 {
        self.0.0.as_ptr() as u64
    }

    pub fn length(&self) -> u64 {
        self.0.0.len() as u64
    }
}
