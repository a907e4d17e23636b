//! A kernel thread: an operating-system thread with a 24 KiB kernel stack on which image code runs, the block at its gs
//! base where image code finds a processor block and the thunks find both stack pointers, its IRQL, its processor and
//! the record of which callouts it is inside.
//!
//! A [`Thread`] is written by its own thread only; others read the atomics for reports.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::mem::offset_of;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::callout::{ActiveContext, ContextKind, Transition};
use crate::export::ExportDeclaration;
use crate::irql::{self, Irql};
use crate::memory::kernel_stack::KernelStack;
use crate::processor::Processor;
use crate::stretches::Stretch;

/// Offset of the host's stack pointer in the block at the gs base; the thunks' assembly uses these numbers.
pub const HOST_STACK_OFFSET: usize = 0x1000;
pub const KERNEL_STACK_OFFSET: usize = 0x1008;
pub const TRANSITION_OFFSET: usize = 0x1010;
/// `KPCR.Prcb.CurrentThread` of x64 Windows, which inline code reads through gs.
const CURRENT_THREAD_OFFSET: usize = 0x188;
/// `KPCR.Self` (which is the address of the `Thread` too), `KPCR.CurrentPrcb` and where the block of the processor lies in it.
pub(crate) const SELF_OFFSET: usize = 0x18;
const CURRENT_BLOCK_OFFSET: usize = 0x20;
const BLOCK_OFFSET: usize = 0x180;
/// `KPRCB.LegacyNumber` and `KPRCB.Number`.
const PROCESSOR_NUMBER_OFFSET: usize = 0x184;
pub(crate) const PROCESSOR_INDEX_OFFSET: usize = 0x1A4;
/// What the fast twins and the charge of a level change read and write through gs.
pub(crate) const IRQL_OFFSET: usize = offset_of!(Thread, irql);
pub(crate) const AT_FAVOURITE_OFFSET: usize = offset_of!(Thread, at_favourite);
pub(crate) const SPIN_LOCKS_OFFSET: usize = offset_of!(Thread, spin_locks_held);
pub(crate) const PROCESSOR_BLOCK_OFFSET: usize = offset_of!(Thread, processor_block);
pub(crate) const CHARGED_OFFSET: usize = offset_of!(Thread, charged);

/// What user code reads through gs of its TEB: `NtTib.StackBase`, `StackLimit` and `Self`, `ClientId`, `ThreadLocalStoragePointer`,
/// `ProcessEnvironmentBlock`.
const USER_BLOCK_OFFSETS: [usize; 7] = [0x08, 0x10, 0x30, 0x40, 0x48, 0x58, 0x60];

/// The fields at [`USER_BLOCK_OFFSETS`].
pub(crate) type UserBlock = [u64; 7];

/// How deep callouts into images may nest on one thread.
pub const MAXIMUM_NESTING: usize = 64;

#[repr(C, align(4096))]
pub struct Thread {
    processor_control_region: UnsafeCell<[u64; 512]>,
    pub(crate) host_stack: Cell<u64>,
    pub(crate) kernel_stack: Cell<u64>,
    pub(crate) transition: Cell<*const Transition>,
    // What the fast twins touch lies together: see `fast`.
    irql: AtomicU8,
    /// The thread is at DISPATCH on the processor whose favourite it is.
    pub(crate) at_favourite: AtomicBool,
    pub(crate) spin_locks_held: AtomicU32,
    /// The processor of `processor`.
    processor_block: AtomicPtr<Processor>,
    /// Always 0; what one charge of a level change hands to the next, see `level_charge`.
    charged: AtomicU64,
    /// Lower-IRQL processing is masked (critical regions entered and not left).
    pub(crate) critical_regions: AtomicU32,
    /// All APCs are masked (guarded regions entered and not left).
    pub(crate) guarded_regions: AtomicU32,
    /// How often it owns a KMUTEX, which masks ordinary APCs as well.
    pub(crate) mutexes_owned: AtomicU32,
    pub(crate) processor: AtomicUsize,
    pub(crate) affinity: AtomicU64,
    pub(crate) held_locks: RefCell<Vec<crate::lock_order::HeldLock>>,
    pub(crate) identifier: AtomicU64,
    pub(crate) object: AtomicPtr<crate::nt::KTHREAD>,
    export: AtomicPtr<ExportDeclaration>,
    pub(crate) contexts: RefCell<Vec<ActiveContext>>,
    pub(crate) stack: RefCell<Option<KernelStack>>,
    pub(crate) terminated: AtomicBool,
    pub(crate) name: RefCell<String>,
    /// The thread's futex word for waits.
    pub(crate) wake: AtomicU32,
    pub(crate) wait_result: AtomicI32,
    pub(crate) runnable: AtomicBool,
    pub(crate) priority: AtomicI32,
    /// Its time at DISPATCH_LEVEL, or in a DPC, while that is measured.
    pub(crate) stretch: Stretch,
    /// How often it has waited.
    pub(crate) waits: AtomicU64,
    /// What it uses of the machine's processors is read from this clock.
    pub(crate) clock: libc::clockid_t,
    /// Its number for signals.
    pub(crate) task: libc::pid_t,
    /// The thread's place in a schedule by a seed.
    pub(crate) seat: Option<&'static crate::schedule::Seat>,
}

const _: () = assert!(offset_of!(Thread, host_stack) == HOST_STACK_OFFSET);
const _: () = assert!(offset_of!(Thread, kernel_stack) == KERNEL_STACK_OFFSET);
const _: () = assert!(offset_of!(Thread, transition) == TRANSITION_OFFSET);

// SAFETY: the cells are touched only by the owning thread, or by a report that stops caring about tearing because the
// process is about to end; everything read across threads is atomic.
unsafe impl Sync for Thread {}

thread_local! {
    static CURRENT: Cell<*const Thread> = const { Cell::new(ptr::null()) };
}

/// All attached threads, for reports and the watchdog.
static THREADS: Mutex<Vec<&'static Thread>> = Mutex::new(Vec::new());
static NEXT_IDENTIFIER: AtomicU64 = AtomicU64::new(4);

impl Thread {
    /// The current kernel thread. Using the kernel from an operating-system thread that was never attached is an error
    /// of the test program, not of an image.
    #[inline]
    pub fn current() -> &'static Thread {
        let current = CURRENT.get();
        if current.is_null() {
            not_attached();
        }
        // SAFETY: set by `attach` to a block that is valid until `detach` clears it on this same thread.
        unsafe { &*current }
    }

    /// The current kernel thread, when there is one.
    #[inline]
    pub fn try_current() -> Option<&'static Thread> {
        let current = CURRENT.get();
        // SAFETY: as in `current`; null is the unattached case.
        unsafe { current.as_ref() }
    }

    #[inline]
    pub fn irql(&self) -> Irql {
        self.irql.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_irql(&self, irql: Irql) {
        self.irql.store(irql, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set_export(&self, declaration: &'static ExportDeclaration) {
        self.export.store(ptr::from_ref(declaration).cast_mut(), Ordering::Relaxed);
    }

    /// Takes the export away while an image runs that has not called one yet; for [`Self::restore_export`].
    #[inline]
    pub(crate) fn take_export(&self) -> *mut ExportDeclaration {
        let export = self.export.load(Ordering::Relaxed);
        self.export.store(ptr::null_mut(), Ordering::Relaxed);
        export
    }

    #[inline]
    pub(crate) fn restore_export(&self, export: *mut ExportDeclaration) {
        self.export.store(export, Ordering::Relaxed);
    }

    /// The export that the thread runs in host code, and in an image the last one that its running routine called.
    pub fn last_export(&self) -> Option<&'static ExportDeclaration> {
        // SAFETY: only ever set from a static reference.
        unsafe { self.export.load(Ordering::Relaxed).as_ref() }
    }

    /// What KeSetPriorityThread gave it, or the normal priority.
    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// The processor that the thread runs on; stable at DISPATCH.
    #[inline]
    pub fn processor(&self) -> usize {
        self.processor.load(Ordering::Relaxed)
    }

    /// Puts the thread on a processor; by the thread itself. Inline code reads the number at the gs base.
    pub(crate) fn set_processor(&self, index: usize) {
        self.processor.store(index, Ordering::Relaxed);
        self.processor_block.store(ptr::from_ref(crate::processor::get(index)).cast_mut(), Ordering::Relaxed);
        let region = self.processor_control_region.get().cast::<u8>();
        // SAFETY: the thread's own block, inside its bounds; a 4-byte number at a place of its own.
        unsafe {
            region.add(PROCESSOR_NUMBER_OFFSET).write(index as u8);
            region.add(PROCESSOR_INDEX_OFFSET).cast::<u32>().write(index as u32);
        }
    }

    /// Changes what user code finds of its TEB, by the thread itself; what was there before.
    pub(crate) fn replace_user_block(&self, block: UserBlock) -> UserBlock {
        let region = self.processor_control_region.get().cast::<u64>();
        let mut before = block;
        for (offset, field) in USER_BLOCK_OFFSETS.into_iter().zip(&mut before) {
            // SAFETY: the thread's own block, inside its bounds, at places that no kernel field of the host has.
            unsafe { ptr::swap(region.add(offset / 8), field) };
        }
        before
    }

    pub fn identifier(&self) -> u64 {
        self.identifier.load(Ordering::Relaxed)
    }

    pub fn name(&self) -> String {
        self.name.borrow().clone()
    }

    /// The thread is one of the host's own that waits for work to do: it may wait for ever.
    pub(crate) fn serves_others(&self) -> bool {
        self.name.try_borrow().is_ok_and(|name| name.starts_with("worker "))
    }

    /// The kinds of callout that the thread is inside, outermost first.
    pub fn context_kinds(&self) -> Vec<ContextKind> {
        self.contexts.borrow().iter().map(|active| active.kind).collect()
    }

    pub fn is_inside(&self, kind: ContextKind) -> bool {
        self.contexts.borrow().iter().any(|active| active.kind == kind)
    }

    /// The callback of a consumer whose own code runs now.
    pub(crate) fn running_callback(&self) -> Option<&'static str> {
        let contexts = self.contexts.borrow();
        contexts.last().filter(|active| active.kind == ContextKind::ConsumerCallback).map(|active| active.name)
    }

    /// Spin locks that were held when the last DPC began, or none: what a callback may find held.
    pub(crate) fn locks_at_context_entry(&self) -> u32 {
        let contexts = self.contexts.borrow();
        contexts
            .iter()
            .rev()
            .find(|active| active.kind == ContextKind::DeferredProcedureCall)
            .map_or(0, |active| active.locks)
    }

    /// Spin locks that the image's routine which runs now has taken and not released.
    pub(crate) fn locks_of_running_entry(&self) -> u32 {
        let before = self.contexts.borrow().last().map_or(0, |active| active.locks);
        self.spin_locks_held.load(Ordering::Relaxed).saturating_sub(before)
    }

    /// How often APCs of the thread are masked, of whatever kind: what must be the same when a routine returns.
    pub(crate) fn masked_apcs(&self) -> u32 {
        let parts = [&self.critical_regions, &self.guarded_regions, &self.mutexes_owned];
        parts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The address ranges of the kernel stacks that this thread's image code may be on.
    pub(crate) fn kernel_stack_ranges(&self) -> Option<Vec<std::ops::Range<u64>>> {
        let mut ranges = crate::processor::deferred_call_stack_ranges();
        ranges.extend(self.stack.try_borrow().ok()?.as_ref().map(KernelStack::range));
        ranges.extend(crate::user::call::stack_range());
        Some(ranges)
    }

    /// Runs `body` with the kernel stack that an address lies in: this thread's or its processor's.
    pub(crate) fn with_stack_at<T>(&self, address: usize, body: impl FnOnce(&KernelStack) -> T) -> Option<T> {
        let stack = self.stack.borrow();
        let own = stack.as_ref().filter(|stack| (stack.bottom()..=stack.top()).contains(&address));
        match own {
            Some(stack) => Some(body(stack)),
            None => crate::processor::deferred_call_stack_at(address).map(body),
        }
    }

    /// The dispatcher object of this thread, what Windows calls its KTHREAD.
    pub fn object(&self) -> *mut crate::nt::KTHREAD {
        self.object.load(Ordering::Relaxed)
    }
}

#[cold]
#[inline(never)]
extern "win64" fn not_attached() -> ! {
    panic!("this thread is not a kernel thread: use Kernel::run_thread or Kernel::spawn")
}

/// Every attached thread.
pub fn all() -> Vec<&'static Thread> {
    THREADS.lock().map(|threads| threads.clone()).unwrap_or_default()
}

/// Makes the calling operating-system thread a kernel thread until the guard drops.
pub fn attach(name: &str) -> Attachment {
    if Thread::try_current().is_some() {
        return Attachment { attached: false, ended: None };
    }
    let seat = crate::schedule::seat_of_attaching();
    let thread: &'static Thread = Box::leak(Box::new(Thread {
        processor_control_region: UnsafeCell::new([0; 512]),
        host_stack: Cell::new(0),
        kernel_stack: Cell::new(0),
        transition: Cell::new(ptr::null()),
        irql: AtomicU8::new(irql::PASSIVE),
        at_favourite: AtomicBool::new(false),
        spin_locks_held: AtomicU32::new(0),
        processor_block: AtomicPtr::new(ptr::null_mut()),
        charged: AtomicU64::new(0),
        critical_regions: AtomicU32::new(0),
        guarded_regions: AtomicU32::new(0),
        mutexes_owned: AtomicU32::new(0),
        processor: AtomicUsize::new(0),
        affinity: AtomicU64::new(u64::MAX),
        held_locks: RefCell::new(Vec::with_capacity(16)),
        identifier: AtomicU64::new(NEXT_IDENTIFIER.fetch_add(4, Ordering::Relaxed)),
        object: AtomicPtr::new(ptr::null_mut()),
        export: AtomicPtr::new(ptr::null_mut()),
        contexts: RefCell::new(Vec::with_capacity(MAXIMUM_NESTING)),
        stack: RefCell::new(None),
        terminated: AtomicBool::new(false),
        name: RefCell::new(name.to_owned()),
        wake: AtomicU32::new(0),
        wait_result: AtomicI32::new(0),
        runnable: AtomicBool::new(true),
        priority: AtomicI32::new(crate::priority::NORMAL),
        stretch: Stretch::new(),
        waits: AtomicU64::new(0),
        clock: crate::processor_time::clock(),
        // SAFETY: asks for the caller's own number.
        task: unsafe { libc::gettid() },
        seat,
    }));
    let stack = KernelStack::allocate();
    thread.kernel_stack.set(stack.top() as u64);
    *thread.stack.borrow_mut() = Some(stack);
    thread.set_processor(crate::processor::home_of_next_thread());
    let object = crate::object_table::create_thread_object(thread);
    thread.object.store(object, Ordering::Relaxed);
    // SAFETY: the region is this thread's own and no code runs on it yet.
    unsafe {
        let region = thread.processor_control_region.get().cast::<u64>();
        region.add(CURRENT_THREAD_OFFSET / 8).write(object as u64);
        region.add(SELF_OFFSET / 8).write(region as u64);
        region.add(CURRENT_BLOCK_OFFSET / 8).write(region as u64 + BLOCK_OFFSET as u64);
    }
    crate::thunk::set_gs_base(ptr::from_ref(thread) as u64);
    crate::fault_handler::install_signal_stack();
    CURRENT.set(thread);
    if let Ok(mut threads) = THREADS.lock() {
        threads.push(thread);
    }
    crate::dispatcher::thread_attached(thread);
    Attachment { attached: true, ended: None }
}

/// Undoes [`attach`] when dropped.
pub struct Attachment {
    attached: bool,
    /// Set when all that is left to do waits for nothing.
    ended: Option<std::sync::Arc<crate::dispatcher::Event>>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if !self.attached {
            return;
        }
        let thread = Thread::current();
        if !std::thread::panicking() {
            crate::io::irp::thread_ends(thread.identifier());
        }
        if let Some(ended) = self.ended.take() {
            ended.set();
        }
        let object = thread.object();
        // SAFETY: the thread's own object, which its reference keeps.
        unsafe { crate::dispatcher::change(object.cast(), |_| 1) };
        crate::object_table::dereference(object as usize, "the end of a thread");
        crate::dispatcher::thread_detaching(thread);
        if let Ok(mut threads) = THREADS.lock() {
            threads.retain(|other| !ptr::eq(*other, thread));
        }
        CURRENT.set(ptr::null());
        crate::thunk::set_gs_base(0);
        crate::fault_handler::remove_signal_stack();
        // The stack goes with the thread; its block stays, since reports and late readers may still hold it. A block is
        // two pages and threads are few.
        drop(thread.stack.borrow_mut().take());
        crate::schedule::leave();
    }
}

/// A thread of the host's own that is a kernel thread, e.g. a worker; joins through the dispatcher so that virtual time
/// goes on.
pub struct JoinHandle<T> {
    handle: std::thread::JoinHandle<T>,
    place: crate::schedule::Place,
    ended: std::sync::Arc<crate::dispatcher::Event>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end.
    pub fn join(self) -> T {
        self.ended.wait(None);
        // The caller counts as running meanwhile: however long a busy machine takes to end the thread, no time is skipped.
        let ended = if crate::schedule::is_on() { self.place.join(|| self.handle.join()) } else { self.handle.join() };
        match ended {
            Ok(value) => value,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }
}

/// Starts a kernel thread that runs host code (which may call into images).
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let ended = std::sync::Arc::new(crate::dispatcher::Event::notification());
    let signal = std::sync::Arc::clone(&ended);
    let thread_name = name.to_owned();
    crate::dispatcher::thread_starting();
    let place = crate::schedule::announce();
    let handle = std::thread::Builder::new()
        .name(thread_name.chars().take(15).collect())
        .stack_size(1 << 20)
        .spawn(move || {
            place.take();
            let mut attachment = attach(&thread_name);
            attachment.ended = Some(signal);
            crate::dispatcher::thread_started();
            body()
        })
        .unwrap_or_else(|error| panic!("cannot start the kernel thread {name}: {error}"));
    JoinHandle { handle, place, ended }
}
