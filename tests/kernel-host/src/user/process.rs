//! A process: its number, its handles, its memory, the DLLs in it, and its end.
//!
//! The end is that of Windows: packets of its threads are cancelled and waited for, then every handle is closed, with CLEANUP
//! for each file, and then its memory goes. What a driver has locked stays until the last packet that locks it is complete.

use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::call::{self, STACK, UserThread};
use super::dll::{self, Dll, DllError};
use super::handles::ProcessHandles;
use super::memory::ProcessMemory;
use crate::dispatcher::Event;
use crate::image::Image;
use crate::io::{Caller, irp};
use crate::kernel::Kernel;
use crate::memory::address_space::Protection;
use crate::thread::Thread;

/// How long threads of a killed process may stay in a driver, in kernel time.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// What the threads in a process and its packets share.
pub(super) struct ProcessState {
    pub number: u32,
    pub caller: Caller,
    pub handles: ProcessHandles,
    pub memory: ProcessMemory,
    /// Its images, in the order in which they were loaded.
    pub images: Mutex<Vec<Arc<Image>>>,
    /// User stacks that no thread uses now.
    stacks: Mutex<Vec<usize>>,
    dead: AtomicBool,
    /// Signalled when it is killed: every wait in it ends.
    pub death: Event,
    /// Threads that run its code, or a call of it.
    inside: Mutex<usize>,
    left: Event,
    /// System calls of its threads.
    pub(super) system_calls: AtomicU64,
    /// Control requests that it has sent.
    pub control_requests: AtomicU64,
    /// How often a thread of a completion port has gone to another one.
    pub(super) port_changes: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessState {
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Counts a thread; `false` when the process is dead.
    pub fn step_in(&self) -> bool {
        let mut inside = lock(&self.inside);
        if self.is_dead() {
            return false;
        }
        *inside += 1;
        true
    }

    pub fn step_out(&self) {
        let mut inside = lock(&self.inside);
        *inside -= 1;
        if *inside == 0 && self.is_dead() {
            self.left.set();
        }
    }

    /// No thread enters any more; whether this call has ended it, and how many threads are inside.
    fn die(&self) -> (bool, usize) {
        let inside = lock(&self.inside);
        (!self.dead.swap(true, Ordering::SeqCst), *inside)
    }
}

/// A process of user mode. Dropping it kills it.
pub struct Process {
    pub(super) state: Arc<ProcessState>,
}

impl Kernel {
    /// Starts a process without any DLL, as an elevated administrator's.
    pub fn start_process(&self) -> Process {
        self.start_process_as(Caller::Administrator)
    }

    /// As [`Self::start_process`], for another user.
    pub fn start_process_as(&self, caller: Caller) -> Process {
        static NEXT: AtomicU32 = AtomicU32::new(8000);
        let number = NEXT.fetch_add(4, Ordering::Relaxed);
        let state = ProcessState {
            number,
            caller,
            handles: ProcessHandles::of_process(number),
            memory: ProcessMemory::default(),
            images: Mutex::new(Vec::new()),
            stacks: Mutex::new(Vec::new()),
            dead: AtomicBool::new(false),
            death: Event::notification(),
            inside: Mutex::new(0),
            left: Event::notification(),
            system_calls: AtomicU64::new(0),
            control_requests: AtomicU64::new(0),
            port_changes: AtomicU64::new(0),
        };
        Process { state: Arc::new(state) }
    }
}

impl Process {
    /// What drivers get from `IoGetRequestorProcessId`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.state.number
    }

    /// How many system calls its threads have made.
    #[must_use]
    pub fn system_calls(&self) -> u64 {
        self.state.system_calls.load(Ordering::Relaxed)
    }

    /// Loads a copy of a DLL for this process and runs its `DllMain`, at PASSIVE_LEVEL.
    pub fn load_dll(&self, path: impl AsRef<Path>) -> Result<Dll, DllError> {
        dll::load(self, path.as_ref())
    }

    /// Makes the calling thread of the host one of this process until the guard drops. At PASSIVE_LEVEL; processes may be entered
    /// inside of each other.
    ///
    /// # Panics
    ///
    /// If the process is dead.
    pub fn enter(&self) -> EnterGuard {
        assert!(!self.state.is_dead(), "a process that has ended is entered");
        self.enter_anyway()
    }

    /// A process that is killed meanwhile runs no code of the thread's: `call` finds that out.
    fn enter_anyway(&self) -> EnterGuard {
        let stack = lock(&self.state.stacks).pop().unwrap_or_else(|| self.state.memory.allocate_stack(STACK));
        EnterGuard { user_thread: call::enter(Arc::clone(&self.state), stack) }
    }

    /// Calls a function of a DLL of this process with integers and pointers, for the whole of rax. `None`: the process was killed
    /// meanwhile, or before. A thread that is not in the process enters it for the call.
    ///
    /// # Safety
    ///
    /// `target` is a function that takes these arguments by the Windows convention, and they are what it wants.
    pub unsafe fn try_call(&self, target: usize, arguments: &[u64]) -> Option<u64> {
        if self.state.is_dead() {
            return None;
        }
        if let Some(user_thread) = call::idle_in(&self.state) {
            // SAFETY: the caller's contract.
            return unsafe { call::call(&user_thread, target, arguments) };
        }
        let guard = self.enter_anyway();
        // SAFETY: the caller's contract.
        unsafe { call::call(&guard.user_thread, target, arguments) }
    }

    /// As [`Self::try_call`], for a process that is not killed meanwhile.
    ///
    /// # Safety
    ///
    /// As [`Self::try_call`].
    ///
    /// # Panics
    ///
    /// If it is killed.
    pub unsafe fn call(&self, target: usize, arguments: &[u64]) -> u64 {
        // SAFETY: the caller's contract.
        unsafe { self.try_call(target, arguments) }.unwrap_or_else(|| panic!("the process was killed in a call"))
    }

    /// Zeroed memory that can be read and written; the address of its first page.
    #[must_use]
    pub fn allocate(&self, bytes: usize) -> usize {
        self.state.memory.allocate(bytes, Protection::ReadWrite)
    }

    /// Takes memory of [`Self::allocate`] away; `false` when there is none at this address. What is locked goes later.
    pub fn free(&self, address: usize) -> bool {
        self.state.memory.free(address)
    }

    /// Changes the protection of the pages of a range; `false` when they are not all its own.
    pub fn protect(&self, address: usize, length: usize, protection: Protection) -> bool {
        self.state.memory.protect(address, length, protection).is_some()
    }

    /// Copies from the memory of the process; `None` when it may not be read.
    #[must_use]
    pub fn read(&self, address: usize, length: usize) -> Option<Vec<u8>> {
        self.state.memory.read(address, length)
    }

    /// Copies to the memory of the process; `false` when it may not be written.
    pub fn write(&self, address: usize, bytes: &[u8]) -> bool {
        self.state.memory.write(address, bytes)
    }

    /// How many handles are open.
    #[must_use]
    pub fn open_handles(&self) -> usize {
        self.state.handles.count()
    }

    /// How many blocks the process has from its heap.
    #[must_use]
    pub fn heap_blocks(&self) -> usize {
        self.state.memory.heap_blocks()
    }

    /// How many control requests it has sent so far, those that were refused included.
    #[must_use]
    pub fn control_requests(&self) -> u64 {
        self.state.control_requests.load(Ordering::Relaxed)
    }

    /// How often a thread that had waited at a completion port has waited at another one: the first port then counts it no more among
    /// the threads that it lets run.
    #[must_use]
    pub fn port_changes(&self) -> u64 {
        self.state.port_changes.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state.is_dead()
    }

    /// `ExitProcess`: each DLL's `DllMain` with DLL_PROCESS_DETACH, the last one first, then the end as with [`Self::kill`].
    pub fn exit(&self) {
        let images: Vec<_> = lock(&self.state.images).iter().rev().cloned().collect();
        for image in images {
            dll::detach(self, &image, true);
        }
        self.kill();
    }

    /// Ends the process, wherever its threads are: waits end, and threads leave its code at their next system call. No DLL
    /// runs any more. Twice is once.
    ///
    /// # Panics
    ///
    /// If a thread does not leave the process's code.
    pub fn kill(&self) {
        let state = &self.state;
        let (first, inside) = state.die();
        if !first {
            return;
        }
        state.death.set();
        if inside != 0 {
            let left = state.left.wait(Some(LEAVE_LIMIT));
            assert!(left, "a thread of the killed process {} runs on in its code, or in a driver", state.number);
        }
        irp::process_ends(state.number);
        state.handles.close_all();
        lock(&state.images).clear();
        state.memory.free_all();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.kill();
        }
    }
}

/// A thread's time in a process; dropping it leaves the process, and the thread and its packets go on.
pub struct EnterGuard {
    user_thread: Rc<UserThread>,
}

impl EnterGuard {
    /// `ExitThread`: the packets that this thread has sent in this process are cancelled and waited for, but for those of files
    /// with a completion port. A thread of the host that ends does the same for all of its processes.
    pub fn exit_thread(self) {
        let process = self.user_thread.process.number;
        drop(self);
        irp::thread_leaves(Thread::current().identifier(), process);
    }
}

impl Drop for EnterGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        call::leave(&self.user_thread);
        lock(&self.user_thread.process.stacks).push(self.user_thread.stack);
    }
}
