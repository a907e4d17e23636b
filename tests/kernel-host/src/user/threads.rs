//! The threads of a program: its first one, those that it starts, and what is known of them when its time is over.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::call;
use super::dll::{self, DllError};
use super::process::{EnterGuard, ProcessState};
use super::program_state::ProgramEnd;
use crate::dispatcher::Event;
use crate::image::{Image, ImageKind, stack_trace};
use crate::memory::PAGE_SIZE;
use crate::thread::{self, Thread};

const DLL_PROCESS_ATTACH: u64 = 1;
const DLL_THREAD_ATTACH: u64 = 2;
const DLL_THREAD_DETACH: u64 = 3;

/// `STILL_ACTIVE`.
const STILL_ACTIVE: u32 = 259;

/// The least and the most that a thread's stack may be.
const LEAST_STACK: usize = 64 << 10;
const MOST_STACK: usize = 8 << 20;

/// A thread as a handle stands for it.
pub(super) struct ThreadObject {
    pub identifier: AtomicU64,
    pub code: AtomicU32,
    pub ended: Event,
    /// It has a number, and may be asked for it.
    begun: Event,
    /// Set when it may run: CREATE_SUSPENDED.
    pub resumed: Event,
}

impl ThreadObject {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            identifier: AtomicU64::new(0),
            code: AtomicU32::new(STILL_ACTIVE),
            ended: Event::notification(),
            begun: Event::notification(),
            resumed: Event::notification(),
        })
    }
}

/// The threads of a process that have not ended, and the stacks of those that had to be interrupted.
#[derive(Default)]
pub(super) struct ThreadRecords {
    running: Mutex<Vec<&'static Thread>>,
    interrupted: Mutex<Vec<Vec<u64>>>,
    ran: Mutex<String>,
}

/// What a new thread runs.
struct ThreadStart {
    object: Arc<ThreadObject>,
    stack: usize,
    /// The program's own start: images are attached to the process first.
    is_main: bool,
    target: usize,
    argument: u64,
}

/// Starts the program's first thread.
pub(super) fn start_main(state: &Arc<ProcessState>, program: &Arc<Image>) {
    let object = ThreadObject::new();
    object.resumed.set();
    let stack = stack_of(program, 0);
    let argument = state.program.environment_block() as u64;
    start(state, ThreadStart { object, stack, is_main: true, target: program.entry, argument });
}

/// `CreateThread`.
pub(super) fn create(
    state: &Arc<ProcessState>,
    target: usize,
    argument: u64,
    stack: usize,
    suspended: bool,
) -> Arc<ThreadObject> {
    let object = ThreadObject::new();
    if !suspended {
        object.resumed.set();
    }
    let stack = state.program.libraries.program().map_or(call::STACK, |program| stack_of(program, stack));
    start(state, ThreadStart { object: Arc::clone(&object), stack, is_main: false, target, argument });
    object.begun.wait(None);
    object
}

fn stack_of(program: &Image, wanted: usize) -> usize {
    wanted.max(program.stack_reserve).clamp(LEAST_STACK, MOST_STACK).next_multiple_of(PAGE_SIZE)
}

fn start(state: &Arc<ProcessState>, what: ThreadStart) {
    state.program.thread_begins();
    let state = Arc::clone(state);
    drop(thread::spawn("user thread", move || run(&state, &what)));
}

fn run(state: &Arc<ProcessState>, what: &ThreadStart) {
    let thread = Thread::current();
    what.object.identifier.store(thread.identifier(), Ordering::SeqCst);
    lock(&state.records.running).push(thread);
    what.object.begun.set();
    super::event::wait(state, &what.object.resumed, None);
    let guard = EnterGuard::new(state, what.stack);
    call::set_thread_object(&what.object);
    let result = run_program(state, what, &guard);
    let code = result.map_or_else(|| what.object.code.load(Ordering::SeqCst), |result| result as u32);
    if !state.is_dead() {
        notify_images(state, DLL_THREAD_DETACH);
    }
    guard.user_thread.storage.release(state);
    guard.exit_thread();
    lock(&state.records.running).retain(|other| !std::ptr::eq(*other, thread));
    what.object.code.store(code, Ordering::SeqCst);
    what.object.ended.set();
    if state.program.thread_ends() && !state.is_dead() {
        state.ends(ProgramEnd::Exited(code));
    }
}

/// `None`: the thread has left by ExitThread, or the process has ended.
fn run_program(state: &Arc<ProcessState>, what: &ThreadStart, guard: &EnterGuard) -> Option<u64> {
    if what.is_main {
        for image in state.program.libraries.take_unattached() {
            if attach_image(state, &image).is_err() && !state.is_dead() {
                state.fails(&format!("DllMain of {} refuses", image.name));
                return None;
            }
        }
        attach_image(state, state.program.libraries.program()?).ok()?;
    } else {
        for image in super::start::images(state) {
            add_thread_locals(state, &image);
        }
        notify_images(state, DLL_THREAD_ATTACH);
    }
    // SAFETY: the program's entry point, or the function that it gave to CreateThread with its argument.
    unsafe { call::call(&guard.user_thread, what.target, &[what.argument]) }
}

fn add_thread_locals(state: &Arc<ProcessState>, image: &Arc<Image>) {
    if let (Some(locals), Some(current)) = (&image.thread_locals, call::current()) {
        let number = state.program.libraries.number_of(state, image);
        current.storage.add_copy(state, number, locals);
    }
}

/// Gives the thread the image's variables, calls the image's callbacks and its DllMain. Nothing of it has run before.
pub(super) fn attach_image(state: &Arc<ProcessState>, image: &Arc<Image>) -> Result<(), DllError> {
    add_thread_locals(state, image);
    call_back(state, image, DLL_PROCESS_ATTACH);
    if image.kind == ImageKind::Dll { dll::attach(state, image) } else { Ok(()) }
}

fn call_back(state: &Arc<ProcessState>, image: &Arc<Image>, reason: u64) {
    for callback in image.thread_locals.iter().flat_map(|locals| &locals.callbacks) {
        // SAFETY: a callback of the image with the documented arguments.
        unsafe { super::process::try_call(state, *callback, &[image.base as u64, reason, 0]) };
    }
}

/// Tells every image that a thread begins or ends.
fn notify_images(state: &Arc<ProcessState>, reason: u64) {
    for image in super::start::images(state) {
        call_back(state, &image, reason);
        if image.kind == ImageKind::Dll && !state.is_dead() {
            dll::call_entry(state, &image, reason, false);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What each thread of a program waits for.
pub(super) fn describe_waits(state: &ProcessState) -> String {
    let mut text = String::new();
    for thread in lock(&state.records.running).iter().filter(|thread| !thread.runnable.load(Ordering::SeqCst)) {
        let place = thread.last_export().map_or("the host", |export| export.name);
        let _ = write!(text, "\na thread waits in {place}:");
        for frame in stack_trace::of_thread(thread) {
            let _ = write!(text, "\n  {frame}");
        }
    }
    text
}

/// Describes where threads were that had to be interrupted, while the images are there.
pub(super) fn name_interrupted(state: &ProcessState) {
    let stacks = std::mem::take(&mut *lock(&state.records.interrupted));
    let mut text = lock(&state.records.ran);
    for stack in stacks {
        text.push_str("\na thread ran:");
        for frame in stack_trace::name_addresses(&stack) {
            let _ = write!(text, "\n  {frame}");
        }
    }
}

/// What [`name_interrupted`] has found.
pub(super) fn describe_interrupted(state: &ProcessState) -> String {
    lock(&state.records.ran).clone()
}

/// A thread is interrupted in the program's code and will not go back to it.
pub(super) fn record_interrupted(state: &ProcessState, stack: Vec<u64>) {
    // It was in the program's code, so it holds no lock of the host's; another one may be recorded at the same time.
    lock(&state.records.interrupted).push(stack);
}
