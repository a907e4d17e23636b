//! A process: its number, its handles, its memory, the DLLs in it, and its end.
//!
//! The end is that of Windows: packets of its threads are cancelled and waited for, then every handle is closed, with CLEANUP
//! for each file, and then its memory goes. What a driver has locked stays until the last packet that locks it is complete.

use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::call::{self, STACK, UserThread};
use super::dll::{self, Dll, DllError};
use super::handles::ProcessHandles;
use super::memory::ProcessMemory;
use super::program_state::ProgramState;
use super::threads::{self, ThreadRecords};
use crate::dispatcher::Event;
use crate::fault_handler;
use crate::image::Image;
use crate::io::{Caller, irp};
use crate::kernel::Kernel;
use crate::memory::address_space::Protection;
use crate::thread::Thread;

/// How long threads of a killed process may stay in a driver, in kernel time: so many steps.
const LEAVE_STEPS: u32 = 100;
const LEAVE_STEP: Duration = Duration::from_millis(100);

/// What the threads in a process and its packets share.
pub(super) struct ProcessState {
    pub number: u32,
    pub caller: Caller,
    pub handles: ProcessHandles,
    pub memory: ProcessMemory,
    /// Its images, in the order in which they were loaded.
    pub images: Mutex<Vec<Arc<Image>>>,
    /// User stacks that no thread uses now.
    stacks: Mutex<Vec<Range<usize>>>,
    dead: AtomicBool,
    /// What it had is being closed and freed, or was.
    closed: AtomicBool,
    /// Signalled when it is killed: every wait in it ends.
    pub death: Event,
    /// Threads that run its code, or a call of it, by their numbers for signals.
    inside: Mutex<Vec<libc::pid_t>>,
    left: Event,
    /// The program that it was started with.
    pub program: ProgramState,
    pub records: ThreadRecords,
    /// System calls of its threads.
    pub(super) system_calls: AtomicU64,
    /// Control requests that it has sent.
    pub control_requests: AtomicU64,
    /// How often a thread of a completion port has gone to another one.
    pub(super) port_changes: AtomicU64,
    pub(super) waits_in_vain: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessState {
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Counts a thread; `false` when the process is dead.
    pub fn step_in(&self, thread: &Thread) -> bool {
        let mut inside = lock(&self.inside);
        if self.is_dead() {
            return false;
        }
        inside.push(thread.task);
        true
    }

    pub fn step_out(&self, thread: &Thread) {
        let mut inside = lock(&self.inside);
        if let Some(place) = inside.iter().rposition(|task| *task == thread.task) {
            inside.remove(place);
        }
        if inside.is_empty() && self.is_dead() {
            self.left.set();
        }
    }

    /// No thread enters any more, and waits end.
    pub fn die(&self) {
        let inside = lock(&self.inside);
        self.dead.store(true, Ordering::SeqCst);
        if inside.is_empty() {
            self.left.set();
        }
        drop(inside);
        self.death.set();
    }

    /// Waits until the threads of a dead process have left its code. They do at their next system call; those that make none are
    /// interrupted.
    fn wait_for_threads(&self) {
        for _ in 0..LEAVE_STEPS {
            if self.left.wait(Some(LEAVE_STEP)) {
                return;
            }
            lock(&self.inside).iter().for_each(|task| fault_handler::interrupt(*task));
        }
        panic!("a thread of the killed process {} runs on in its code, or in a driver", self.number);
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
            closed: AtomicBool::new(false),
            death: Event::notification(),
            inside: Mutex::new(Vec::new()),
            left: Event::notification(),
            program: ProgramState::default(),
            records: ThreadRecords::default(),
            system_calls: AtomicU64::new(0),
            control_requests: AtomicU64::new(0),
            port_changes: AtomicU64::new(0),
            waits_in_vain: AtomicU64::new(0),
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
        dll::load(&self.state, path.as_ref())
    }

    /// Makes the calling thread of the host one of this process until the guard drops. At PASSIVE_LEVEL; processes may be entered
    /// inside of each other.
    ///
    /// # Panics
    ///
    /// If the process is dead.
    pub fn enter(&self) -> EnterGuard {
        assert!(!self.state.is_dead(), "a process that has ended is entered");
        EnterGuard::new(&self.state, STACK)
    }

    /// Calls a function of a DLL of this process with integers and pointers, for the whole of rax. `None`: the process was killed
    /// meanwhile, or before. A thread that is not in the process enters it for the call.
    ///
    /// # Safety
    ///
    /// `target` is a function that takes these arguments by the Windows convention, and they are what it wants.
    pub unsafe fn try_call(&self, target: usize, arguments: &[u64]) -> Option<u64> {
        // SAFETY: the caller's contract.
        unsafe { try_call(&self.state, target, arguments) }
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

    /// How many waits for a port, of a time that is not zero, have ended without a packet.
    #[must_use]
    pub fn waits_in_vain(&self) -> u64 {
        self.state.waits_in_vain.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state.is_dead()
    }

    /// `ExitProcess`: each DLL's `DllMain` with DLL_PROCESS_DETACH, the last one first, then the end as with [`Self::kill`].
    pub fn exit(&self) {
        let images: Vec<_> = lock(&self.state.images).iter().rev().cloned().collect();
        for image in images {
            dll::detach(&self.state, &image, true);
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
        state.die();
        if state.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        state.wait_for_threads();
        threads::name_interrupted(state);
        irp::process_ends(state.number);
        state.handles.close_all();
        lock(&state.images).clear();
        state.memory.free_all();
    }
}

/// As [`Process::try_call`].
///
/// # Safety
///
/// As there.
pub(super) unsafe fn try_call(state: &Arc<ProcessState>, target: usize, arguments: &[u64]) -> Option<u64> {
    if state.is_dead() {
        return None;
    }
    if let Some(user_thread) = call::idle_in(state) {
        // SAFETY: the caller's contract.
        return unsafe { call::call(&user_thread, target, arguments) };
    }
    let guard = EnterGuard::new(state, STACK);
    // SAFETY: the caller's contract.
    unsafe { call::call(&guard.user_thread, target, arguments) }
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
    pub(super) user_thread: Rc<UserThread>,
}

impl EnterGuard {
    /// With a stack of so many bytes.
    pub(super) fn new(state: &Arc<ProcessState>, bytes: usize) -> Self {
        let mut stacks = lock(&state.stacks);
        let unused = stacks.iter().position(|stack| stack.len() == bytes).map(|place| stacks.swap_remove(place));
        drop(stacks);
        let stack = unused.unwrap_or_else(|| {
            let lowest = state.memory.allocate_stack(bytes);
            lowest..lowest + bytes
        });
        Self { user_thread: call::enter(Arc::clone(state), stack) }
    }

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
        lock(&self.user_thread.process.stacks).push(self.user_thread.stack.clone());
    }
}
