//! Calling from the host into image code, and the checks around it: at which IRQL the image may be entered, that it
//! comes back at the same level, that it leaves no spin lock behind and how much kernel stack it used.
//!
//! The rule of the host: none of its own locks is held while one of these runs. Image code calls back into exports, and
//! a lock held across would be the host's deadlock and not the image's.

use std::ffi::c_void;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::distortion;
use crate::image;
use crate::irql::{self, IrqlRange};
use crate::memory::kernel_stack;
use crate::thread::Thread;
use crate::thunk;

/// What image code is entered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContextKind {
    /// `DriverEntry`.
    DriverEntry,
    /// `DriverUnload`.
    DriverUnload,
    /// A `KDEFERRED_ROUTINE`.
    DeferredProcedureCall,
    /// A timer function of NDIS or of an executive timer.
    Timer,
    /// A work item's routine.
    WorkItem,
    /// The start routine of a system thread.
    SystemThread,
    /// An entry point of a miniport.
    MiniportEntry,
    /// `IRP_MJ_*` of a device object.
    DeviceDispatch,
    /// `IRP` cancel routine.
    CancelRoutine,
    /// A callback of a cancel-safe queue.
    QueueCallback,
    /// An `NDK_FN_*` of a provider's dispatch table, called by a consumer.
    DispatchFunction,
    /// A callback that a provider makes into its consumer; runs in the consumer.
    ConsumerCallback,
    /// The completion routine of a packet that a driver made.
    CompletionRoutine,
    /// A notification routine (addresses, PnP, WSK …).
    Notification,
    /// Anything a test calls in an image by itself.
    Other,
}

impl ContextKind {
    pub const ALL: [Self; 15] = [
        Self::DriverEntry,
        Self::DriverUnload,
        Self::DeferredProcedureCall,
        Self::Timer,
        Self::WorkItem,
        Self::SystemThread,
        Self::MiniportEntry,
        Self::DeviceDispatch,
        Self::CancelRoutine,
        Self::QueueCallback,
        Self::DispatchFunction,
        Self::ConsumerCallback,
        Self::CompletionRoutine,
        Self::Notification,
        Self::Other,
    ];

    /// The levels at which the host may enter an image for this.
    pub fn irql(self) -> IrqlRange {
        match self {
            Self::DriverEntry | Self::DriverUnload | Self::WorkItem | Self::SystemThread => IrqlRange::PASSIVE_ONLY,
            Self::DeferredProcedureCall => IrqlRange::DISPATCH_ONLY,
            // Other drivers may send control requests up to DISPATCH_LEVEL; `irp::send` sees to the rest.
            Self::Timer
            | Self::MiniportEntry
            | Self::DeviceDispatch
            | Self::CancelRoutine
            | Self::QueueCallback
            | Self::DispatchFunction
            | Self::ConsumerCallback
            | Self::CompletionRoutine
            | Self::Notification
            | Self::Other => IrqlRange::UP_TO_DISPATCH,
        }
    }

    /// The routine may change locks and level on purpose: a queue's acquire-lock callback, a cancel routine, which gives
    /// the cancel spin lock back.
    fn may_keep_locks(self) -> bool {
        matches!(self, Self::QueueCallback | Self::CancelRoutine)
    }
}

/// What an import stub stores about the image that called: the image's stack pointer and non-volatile registers.
#[repr(C)]
pub struct Transition {
    pub rsp: u64,
    pub rbx: u64,
    pub rbp: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
}

/// One callout: its kind and the name that reports use for it.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub kind: ContextKind,
    pub name: &'static str,
}

impl Context {
    pub const fn new(kind: ContextKind, name: &'static str) -> Self {
        Self { kind, name }
    }
}

/// A callout that has not returned.
#[derive(Clone, Copy, Debug)]
pub struct ActiveContext {
    pub kind: ContextKind,
    pub name: &'static str,
    /// Spin locks that the thread held when it entered.
    pub locks: u32,
    /// How often its APCs were masked then.
    pub masked_apcs: u32,
    /// The function that was entered.
    pub target: usize,
}

/// Something that can be an argument of an image function: an integer, a pointer, a Boolean.
pub trait ImageArgument {
    fn word(self) -> u64;
}

macro_rules! image_arguments {
    ($($type:ty),*) => {
        $(impl ImageArgument for $type {
            fn word(self) -> u64 {
                self as u64
            }
        })*
    };
}

image_arguments!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, bool);

impl<T> ImageArgument for *const T {
    fn word(self) -> u64 {
        self as u64
    }
}

impl<T> ImageArgument for *mut T {
    fn word(self) -> u64 {
        self as u64
    }
}

impl<T> ImageArgument for Option<std::ptr::NonNull<T>> {
    fn word(self) -> u64 {
        self.map_or(0, |pointer| pointer.as_ptr() as u64)
    }
}

/// A result of an image function, cut out of rax.
pub trait ImageResult {
    fn from_word(word: u64) -> Self;
}

macro_rules! image_results {
    ($($type:ty),*) => {
        $(impl ImageResult for $type {
            fn from_word(word: u64) -> Self {
                word as Self
            }
        })*
    };
}

image_results!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

impl ImageResult for () {
    fn from_word(_: u64) -> Self {}
}

impl ImageResult for bool {
    fn from_word(word: u64) -> Self {
        word & 0xFF != 0
    }
}

impl<T> ImageResult for *mut T {
    fn from_word(word: u64) -> Self {
        word as Self
    }
}

impl<T> ImageResult for *const T {
    fn from_word(word: u64) -> Self {
        word as Self
    }
}

/// Calls the image function at an address: `call_image!(context, address => Result; argument, …)`. The address is an
/// integer, a pointer or a function pointer (whose Rust calling convention does not matter: only its address is used).
#[macro_export]
macro_rules! call_image {
    ($context:expr, $target:expr => $result:ty; $($argument:expr),* $(,)?) => {
        <$result as $crate::callout::ImageResult>::from_word($crate::callout::call_image(
            $context,
            $target as usize,
            &[$($crate::callout::ImageArgument::word($argument)),*],
        ))
    };
}

/// Calls image code on the current thread's kernel stack, with the checks of the module.
///
/// # Safety
///
/// `target` is a function of a loaded image that takes these arguments by the Windows convention, and what the arguments point
/// at is what that function's documentation requires.
pub unsafe fn call_image(context: Context, target: usize, arguments: &[u64]) -> u64 {
    let seen;
    let arguments = if context.kind == ContextKind::DispatchFunction {
        seen = distortion::words(context.name, arguments);
        &*seen
    } else {
        arguments
    };
    let thread = Thread::current();
    let level = thread.irql();
    if !context.kind.irql().contains(level) {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x1002, u64::from(level), target as u64, 0],
            format!("{} would be entered at {}", context.name, irql::name(level)),
        );
    }
    if crate::kernel::is_verifying() {
        check_target(context, target);
    }
    let locks = thread.spin_locks_held.load(std::sync::atomic::Ordering::Relaxed);
    let depth = push_context(thread, context, locks, target);
    crate::schedule::point(thread, &context.name);
    let measurement = kernel_stack::begin_measurement(thread);
    // The export that this callout belongs to goes on afterwards; the image has called none yet.
    let export = thread.take_export();
    // SAFETY: the caller's contract.
    let result = unsafe { thunk::call_image_raw(target, arguments) };
    thread.restore_export(export);
    kernel_stack::end_measurement(thread, context.kind, measurement);
    let masked = thread.contexts.borrow().get(depth).map(|active| active.masked_apcs);
    thread.contexts.borrow_mut().truncate(depth);
    if !context.kind.may_keep_locks() {
        check_regions(thread, context, masked.unwrap_or_default(), target);
        check_return(thread, context, level, locks, target);
    }
    crate::schedule::point(thread, &"a routine has returned");
    result
}

/// Calls a routine that may end its thread instead of returning (`PsTerminateSystemThread`). Returns whether it
/// returned by itself.
///
/// # Safety
///
/// As [`call_image()`]; and the host frames between this call and the end hold nothing that needs dropping.
pub(crate) unsafe fn call_image_until_terminated(context: Context, target: usize, arguments: &[u64]) {
    // SAFETY: the caller's contract. `terminate_current` leaves through the outermost callout, which is this one, as a
    // system thread's start routine is entered on a fresh thread.
    unsafe { call_image(context, target, arguments) };
}

pub(crate) fn push_context(thread: &Thread, context: Context, locks: u32, target: usize) -> usize {
    let mut contexts = thread.contexts.borrow_mut();
    let depth = contexts.len();
    if depth >= crate::thread::MAXIMUM_NESTING {
        drop(contexts);
        bugcheck(
            BugCheck::UNEXPECTED_KERNEL_MODE_TRAP,
            [8, depth as u64, 0, 0],
            format!("callouts nest {depth} deep; the last one is {}", context.name),
        );
    }
    contexts.push(ActiveContext {
        kind: context.kind,
        name: context.name,
        locks,
        masked_apcs: thread.masked_apcs(),
        target,
    });
    depth
}

fn check_target(context: Context, target: usize) {
    if !image::contains_code(target) && !crate::callback::is_host_function(target) {
        bugcheck(
            BugCheck::ATTEMPTED_EXECUTE_OF_NOEXECUTE_MEMORY,
            [target as u64, 0, 0, 0],
            format!("{} is at {target:#x}, which is no code of any loaded image", context.name),
        );
    }
}

fn check_return(thread: &Thread, context: Context, level: irql::Irql, locks: u32, target: usize) {
    let level_now = thread.irql();
    if level_now != level {
        bugcheck(
            BugCheck::IRQL_UNEXPECTED_VALUE,
            [u64::from(level_now) << 16 | u64::from(level) << 8, target as u64, 0, 0],
            format!("{} was entered at {} and returned at {}", context.name, irql::name(level), irql::name(level_now)),
        );
    }
    let locks_now = thread.spin_locks_held.load(std::sync::atomic::Ordering::Relaxed);
    if locks_now != locks {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x1003, u64::from(locks_now), u64::from(locks), target as u64],
            format!(
                "{} returned with {locks_now} spin locks held; {locks} were held when it was entered",
                context.name
            ),
        );
    }
}

/// Critical and guarded regions are left, and mutexes released, by the routine that entered or took them.
fn check_regions(thread: &Thread, context: Context, before: u32, target: usize) {
    let now = thread.masked_apcs();
    if now == before || context.kind == ContextKind::SystemThread {
        return;
    }
    let (code, first) = match context.kind {
        ContextKind::DeferredProcedureCall => (BugCheck::TIMER_OR_DPC_INVALID, 4),
        ContextKind::DeviceDispatch => (BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, 0xC5),
        _ => (BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, 0x4_0003),
    };
    bugcheck(
        code,
        [first, target as u64, u64::from(now), u64::from(before)],
        format!(
            "{} returned inside {now} critical or guarded regions and owned mutexes; there were {before} when it was entered",
            context.name
        ),
    )
}

/// Ends the current system thread's image code and comes back at the outermost callout.
pub(crate) fn terminate_current(thread: &Thread) -> ! {
    let outermost = outermost_host_stack(thread);
    thread.contexts.borrow_mut().truncate(1);
    // SAFETY: the outermost callout of this thread has not returned, and the exports between hold nothing.
    unsafe { thunk::leave_image(outermost, 0) }
}

/// Walks the chain of saved host stack pointers down to the callout that entered image code first.
fn outermost_host_stack(thread: &Thread) -> u64 {
    let mut host_stack = thread.host_stack.get();
    loop {
        // The callout pushed: …, previous host stack, previous kernel stack, previous transition (lowest).
        // SAFETY: `host_stack` was stored by a callout on this thread's own stack that is still active.
        let previous = unsafe { (host_stack as *const u64).add(2).read() };
        if previous == 0 {
            return host_stack;
        }
        host_stack = previous;
    }
}

/// The address in image code to which the export that is running now returns.
pub fn caller_address(thread: &Thread) -> u64 {
    let transition = thread.transition.get();
    if transition.is_null() {
        return 0;
    }
    // SAFETY: stored by an import stub of this thread; its stack slot stays mapped while the thread exists, and the image's
    // stack pointer at the entry of an import points at the return address.
    unsafe { ((*transition).rsp as *const u64).read() }
}

/// The image whose code called the export that is running now. A function that ends in a call of an import jumps there,
/// so its return address is the host's; then it is the image that was entered last.
pub fn caller_image() -> Option<std::sync::Arc<image::Image>> {
    let thread = Thread::try_current()?;
    image::containing(caller_address(thread) as usize).or_else(|| {
        let entered = thread.contexts.borrow().last().map(|active| active.target)?;
        image::containing(entered)
    })
}

/// The base of [`caller_image`], or 0: what is asked for often.
pub(crate) fn caller_base() -> usize {
    let Some(thread) = Thread::try_current() else { return 0 };
    let called = image::base_containing(caller_address(thread) as usize);
    let base = called.or_else(|| {
        let entered = thread.contexts.borrow().last().map(|active| active.target)?;
        image::base_containing(entered)
    });
    base.unwrap_or(0)
}

/// An untyped pointer to code.
pub type CodePointer = *const c_void;
