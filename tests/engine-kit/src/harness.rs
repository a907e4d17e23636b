//! The platform of the engine in tests: plain memory, time that a test moves, blocks and mappings that are counted.

use crate::{
    lock::SpinLock,
    memory::{Buffer, Mapped},
    network::{Network, TcpListeningSocket, TcpSocket},
};
use softndk_cells::NoMemory;
use softndk_engine::{ConnectError, Platform};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// A block of the front end.
pub struct ConsumerObject {
    pub id: u64,
    live: Arc<AtomicUsize>,
}

impl Drop for ConsumerObject {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

thread_local! {
    /// The processor this thread plays.
    pub static PROCESSOR: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    /// This thread is at DISPATCH_LEVEL.
    static RAISED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Does something as the other of the two processors, below DISPATCH_LEVEL.
pub(crate) fn on_another_processor<R>(act: impl FnOnce() -> R) -> R {
    let before = (PROCESSOR.replace(1 - PROCESSOR.get()), RAISED.replace(false));
    let result = act();
    PROCESSOR.set(before.0);
    RAISED.set(before.1);
    result
}

/// Everything outside the engine.
pub struct Harness {
    pub scheduled: AtomicBool,
    pub dispatch: AtomicBool,
    /// Nanoseconds; moved by [`crate::World::advance`] only.
    pub timer_queue: Arc<AtomicU64>,
    /// The wake-up deadline of each processor.
    pub wakes: Arc<Mutex<BTreeMap<u32, u64>>>,
    pub network: Arc<Network>,
    pub blocks: Arc<AtomicUsize>,
    pub mappings: Arc<AtomicUsize>,
    pub copies: AtomicU64,
    /// Runs before each copy: a test steps in between two pieces.
    pub before_copy: Mutex<Option<Box<dyn FnMut() + Send>>>,
    pub watch_copies: AtomicBool,
    /// Copies in their order while watched: whether it was the end of a message, where to, how long.
    pub order: Mutex<Vec<(bool, u64, usize)>>,
}

impl Default for Harness {
    fn default() -> Self {
        let (timer_queue, wakes) = (Arc::<AtomicU64>::default(), Arc::<Mutex<_>>::default());
        Self {
            scheduled: AtomicBool::default(),
            dispatch: AtomicBool::default(),
            network: Arc::new(Network::new(timer_queue.clone(), wakes.clone())),
            timer_queue,
            wakes,
            blocks: Arc::default(),
            mappings: Arc::default(),
            copies: AtomicU64::default(),
            before_copy: Mutex::default(),
            watch_copies: AtomicBool::default(),
            order: Mutex::default(),
        }
    }
}

impl Harness {
    fn copied(&self, last: bool, to: u64, length: usize) {
        if self.watch_copies.load(Ordering::Relaxed) {
            self.order.lock().unwrap().push((last, to, length));
            self.copies.fetch_add(1, Ordering::SeqCst);
            let hook = self.before_copy.lock().unwrap().take();
            if let Some(mut hook) = hook {
                hook();
                self.before_copy.lock().unwrap().get_or_insert(hook);
            }
        }
    }
}

impl Platform for Harness {
    type Lock<T: Send> = SpinLock<T>;
    type Memory = Mapped;
    type ConsumerObject = ConsumerObject;
    type CloseCallback = u64;
    type RequestCallback = u64;
    type NotifyCallback = u64;
    type ConnectCallback = u64;
    type DisconnectCallback = u64;
    type Socket = TcpSocket;
    type ListeningSocket = TcpListeningSocket;

    fn connect(&self, from: SocketAddr, to: SocketAddr) -> Result<TcpSocket, ConnectError> {
        Ok(Network::connect(&self.network, from, to)?)
    }

    fn listen(&self, at: SocketAddr) -> Result<TcpListeningSocket, ConnectError> {
        Ok(Network::listen(&self.network, at)?)
    }

    fn secret(&self) -> Result<[u32; 4], NoMemory> {
        Ok([0x9E37_79B9, 0x7F4A_7C15, 0xBF58_476D, 0x1CE4_E5B9])
    }

    fn copy(&self, to: (&Mapped, u64), from: (&Mapped, u64), length: usize) {
        self.copied(false, to.1, length);
        let (to, from) = (to.0.at(to.1, length), from.0.at(from.1, length));
        // SAFETY: both ranges were checked by `at`; they may overlap.
        unsafe { std::ptr::copy(from, to, length) };
    }

    fn copy_last(&self, to: (&Mapped, u64), from: (&Mapped, u64), length: usize) {
        assert!(length <= softndk_engine::limits::LAST_BYTES);
        self.copied(true, to.1, length);
        let (to, from) = (to.0.at(to.1, length), from.0.at(from.1, length));
        // SAFETY: as for `copy`.
        unsafe { std::ptr::copy(from, to, length) };
    }

    fn store(&self, to: (&Mapped, u64), bytes: &[u8]) {
        let to = to.0.at(to.1, bytes.len());
        // SAFETY: checked by `at`; engine memory does not overlap consumer memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn load(&self, into: &mut [u8], from: (&Mapped, u64)) {
        self.copied(false, from.1, into.len());
        let from = from.0.at(from.1, into.len());
        // SAFETY: checked by `at`; engine memory does not overlap consumer memory.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    fn read_inline(&self, address: u64, into: &mut [u8]) {
        // SAFETY: an inline SGE of these tests names a buffer that outlives the post.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len()) };
    }

    fn processor(&self) -> u32 {
        PROCESSOR.with(std::cell::Cell::get)
    }

    fn schedule(&self, _processor: u32) {
        self.scheduled.store(true, Ordering::SeqCst);
    }

    fn at_dispatch(&self) -> bool {
        self.dispatch.load(Ordering::Relaxed) || RAISED.with(std::cell::Cell::get)
    }

    fn raised<R>(&self, piece: impl FnOnce(bool) -> R) -> R {
        let at_dispatch = self.at_dispatch();
        let before = RAISED.with(|raised| raised.replace(true));
        let result = piece(at_dispatch);
        RAISED.with(|raised| raised.set(before));
        result
    }

    fn wake_at(&self, processor: u32, deadline: u64) {
        self.wakes.lock().unwrap().insert(processor, deadline);
    }

    fn now(&self) -> u64 {
        self.timer_queue.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
pub struct HarnessCounters {
    pub blocks: Arc<AtomicUsize>,
    pub mappings: Arc<AtomicUsize>,
}

impl HarnessCounters {
    pub fn consumer_object(&self, id: u64) -> ConsumerObject {
        self.blocks.fetch_add(1, Ordering::SeqCst);
        ConsumerObject { id, live: self.blocks.clone() }
    }

    pub fn map(&self, buffer: &Buffer) -> Mapped {
        self.map_from(buffer, 0)
    }

    /// Maps a buffer from its `first` byte on.
    pub fn map_from(&self, buffer: &Buffer, first: usize) -> Mapped {
        self.mappings.fetch_add(1, Ordering::SeqCst);
        buffer.mapped(first, self.mappings.clone())
    }
}
