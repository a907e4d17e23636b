//! The crossing between host and program: a program's code runs on its user stack, and each function that it calls here on the
//! kernel stack of the thread, as a system call does.
//!
//! A process that is killed loses its threads here: a call in which such a thread waits ends, and the thread leaves the program's
//! code instead of returning to it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::process::ProcessState;
use super::thread_storage::ThreadStorage;
use super::threads::ThreadObject;
use crate::callout::{self, Context, ContextKind};
use crate::irql;
use crate::thread::{Thread, UserBlock};
use crate::thunk;

/// The size of a user stack of the host's own programs.
pub(super) const STACK: usize = 256 * 1024;

/// Space above the first frame, so that a stub that copies stack arguments never reads past the top.
const SLACK_AT_TOP: usize = 256;

const PROGRAM: Context = Context::new(ContextKind::Other, "a user program");

/// A thread of the host in a process.
pub(super) struct UserThread {
    pub process: Arc<ProcessState>,
    /// Its user stack.
    pub stack: Range<usize>,
    /// What it has of its own in the process.
    pub storage: Rc<ThreadStorage>,
    /// `ExitThread`: it leaves the program's code at the end of the system call.
    pub leaves: Cell<bool>,
    /// The kernel stack as the program's code was entered; 0 while none runs.
    kernel_stack: Cell<u64>,
    /// The completion port that the thread belongs to: the one that it has waited at last.
    port: Cell<usize>,
}

impl UserThread {
    /// The thread waits at a port, which counts it among its threads from now on; whether another one did.
    fn wait_at(&self, port: usize) -> bool {
        let before = self.port.replace(port);
        before != 0 && before != port
    }
}

thread_local! {
    /// The processes that this thread is in, the last one on top.
    static ENTERED: RefCell<Vec<Rc<UserThread>>> = const { RefCell::new(Vec::new()) };
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
    /// What handles of this thread stand for, if a program has started it.
    static OBJECT: RefCell<Option<Arc<ThreadObject>>> = const { RefCell::new(None) };
}

pub(super) fn set_thread_object(object: &Arc<ThreadObject>) {
    OBJECT.set(Some(Arc::clone(object)));
}

pub(super) fn thread_object() -> Option<Arc<ThreadObject>> {
    OBJECT.with_borrow(Clone::clone)
}

/// `GetLastError`.
pub(super) fn last_error() -> u32 {
    LAST_ERROR.get()
}

/// `SetLastError`.
pub(super) fn set_last_error(error: u32) {
    LAST_ERROR.set(error);
}

/// Whether the thread runs a program's code, or a function that it has called, and no driver's.
pub(crate) fn runs_program() -> bool {
    Thread::try_current().is_some_and(|thread| {
        let contexts = thread.contexts.try_borrow();
        contexts.is_ok_and(|contexts| contexts.last().is_some_and(|active| active.name == PROGRAM.name))
    })
}

/// The user stack that the thread may be on.
pub(crate) fn stack_range() -> Option<Range<u64>> {
    let current = current()?;
    let stack = &current.stack;
    Some(stack.start as u64..stack.end as u64)
}

/// The one on top.
pub(super) fn current() -> Option<Rc<UserThread>> {
    ENTERED.try_with(|entered| entered.try_borrow().ok().and_then(|entered| entered.last().cloned())).ok().flatten()
}

/// The calling thread waits at a completion port, known by its address. A thread that was counted by another port is taken out there,
/// which may then let one more of its threads run (Win32: CreateIoCompletionPort, I/O completion ports).
pub(super) fn wait_at_port(process: &ProcessState, port: usize) {
    if current().is_some_and(|user_thread| user_thread.wait_at(port)) {
        process.port_changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// The one on top, if it is in this process and none of its code runs.
pub(super) fn idle_in(process: &Arc<ProcessState>) -> Option<Rc<UserThread>> {
    current().filter(|user_thread| Arc::ptr_eq(&user_thread.process, process) && user_thread.kernel_stack.get() == 0)
}

/// A thread that is in the process already keeps what it has there.
pub(super) fn enter(process: Arc<ProcessState>, stack: Range<usize>) -> Rc<UserThread> {
    let known = ENTERED.with_borrow(|entered| {
        let same = entered.iter().rev().find(|other| Arc::ptr_eq(&other.process, &process));
        same.map(|other| Rc::clone(&other.storage))
    });
    let storage = known.unwrap_or_default();
    let leaves = Cell::new(false);
    let user_thread =
        Rc::new(UserThread { process, stack, storage, leaves, kernel_stack: Cell::new(0), port: Cell::new(0) });
    ENTERED.with_borrow_mut(|entered| entered.push(Rc::clone(&user_thread)));
    user_thread
}

pub(super) fn leave(user_thread: &Rc<UserThread>) {
    ENTERED.with_borrow_mut(|entered| {
        let top = entered.pop();
        assert!(
            top.is_some_and(|top| Rc::ptr_eq(&top, user_thread)),
            "the process that was entered last is left first"
        );
    });
}

/// Runs a function of the program's on its stack. `None`: the process was killed before it returned, or before it began.
///
/// # Safety
///
/// `target` is a function of a DLL of this process that takes these arguments, integers and pointers, by the Windows convention.
pub(super) unsafe fn call(user_thread: &Rc<UserThread>, target: usize, arguments: &[u64]) -> Option<u64> {
    let thread = Thread::current();
    assert_eq!(thread.irql(), irql::PASSIVE, "programs run at PASSIVE_LEVEL");
    if !user_thread.process.step_in(thread) {
        return None;
    }
    let kernel_stack = thread.kernel_stack.replace((user_thread.stack.end - SLACK_AT_TOP) as u64);
    let block = thread.replace_user_block(user_block(thread, user_thread));
    let outer = user_thread.kernel_stack.replace(kernel_stack);
    let depth = callout::push_context(thread, PROGRAM, 0, target);
    let export = thread.take_export();
    // SAFETY: the caller's contract; the stack is the thread's in this process.
    let result = unsafe { thunk::call_image_raw(target, arguments) };
    thread.restore_export(export);
    thread.contexts.borrow_mut().truncate(depth);
    user_thread.kernel_stack.set(outer);
    thread.kernel_stack.set(kernel_stack);
    thread.replace_user_block(block);
    let killed = user_thread.process.is_dead();
    user_thread.process.step_out(thread);
    (!killed && !user_thread.leaves.get()).then_some(result)
}

/// What the thread's code finds of its TEB.
fn user_block(thread: &Thread, user_thread: &UserThread) -> UserBlock {
    [
        user_thread.stack.end as u64,
        user_thread.stack.start as u64,
        std::ptr::from_ref(thread) as u64,
        u64::from(user_thread.process.number),
        thread.identifier(),
        user_thread.storage.array() as u64,
        user_thread.process.program.environment_block() as u64,
    ]
}

/// Whether the thread, which was interrupted in code of its program or faulted there, has to leave it: the host stack of the
/// callout to leave.
pub(crate) fn leaves_from() -> Option<u64> {
    let is_dead = runs_program() && current().is_some_and(|user_thread| user_thread.process.is_dead());
    is_dead.then(|| Thread::current().host_stack.get())
}

/// The process whose program the thread runs, where the end of one is not that of the host.
pub(super) fn contained() -> Option<Arc<ProcessState>> {
    let user_thread = current().filter(|_| runs_program())?;
    user_thread.process.program.is_contained().then(|| Arc::clone(&user_thread.process))
}

/// In nanoseconds.
static CHARGE: AtomicU64 = AtomicU64::new(0);

/// What each system call costs beside what the host does for it.
pub(crate) fn charge_system_calls(charge: Duration) {
    CHARGE.store(charge.as_nanos().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
}

fn charge() {
    let charge = CHARGE.load(Ordering::Relaxed);
    if charge != 0 {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_nanos(charge) {
            std::hint::spin_loop();
        }
    }
}

/// The body of every function that programs call: on the kernel stack, and without a return into a process that was killed.
pub(super) fn system_call<T>(body: impl FnOnce(&Arc<ProcessState>) -> T) -> T {
    let thread = Thread::current();
    let Some(user_thread) = current() else { panic!("a function of user mode is called outside of a process") };
    user_thread.process.system_calls.fetch_add(1, Ordering::Relaxed);
    charge();
    let user_stack = thread.kernel_stack.replace(user_thread.kernel_stack.get());
    let result = body(&user_thread.process);
    thread.kernel_stack.set(user_stack);
    let leaves = user_thread.process.is_dead() || user_thread.leaves.get();
    drop(user_thread);
    if leaves {
        drop(result);
        // SAFETY: the callout that this call belongs to is `call`'s, which has not returned; what this function and the export
        // around it held is dropped.
        unsafe { thunk::leave_image(thread.host_stack.get(), 0) };
    }
    result
}
