//! The kernel as a whole, for tests and tools: boot, load and unload drivers, threads, shutdown and its report. There
//! is one kernel per process, booted once.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::callout::{Context, ContextKind};
use crate::image::{self, Image, loader};
use crate::ledger::{self, Leak};
use crate::memory::{address_space, frames, kernel_stack, pool};
use crate::nt::{DRIVER_EXTENSION, DRIVER_OBJECT, UNICODE_STRING};
use crate::ntoskrnl::{runtime, work_items};
use crate::status::{self, NtStatus};
use crate::{
    call_image, deferred_budget, dispatcher, dpc, emulation, fault_handler, processor, registry, thread, timer, worker,
};

pub use crate::image::loader::ImageError;

/// Strict, or fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every check, guard pages, virtual time.
    #[default]
    Verify,
    /// The checks that cost nothing, real time.
    Fast,
}

/// How page frames are handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameOrder {
    /// Adjacent pages have adjacent frames, which saves maps.
    #[default]
    Contiguous,
    /// No two pages that are adjacent have adjacent frames.
    Scattered,
}

/// How NDK consumers that are drivers reach their provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NdkConsumers {
    /// Through the layer that checks both sides, [`crate::ndk::mediator`].
    #[default]
    Checked,
    /// By the provider's own objects, from image to image: for measuring. A trace needs the layer and brings it back.
    Direct,
}

/// What to boot.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct KernelConfig {
    pub processors: usize,
    pub mode: Mode,
    pub frames: FrameOrder,
    pub seed: u64,
    /// The most "physical" memory, in bytes; only what is touched is used.
    pub memory: usize,
    /// Everything waiting for so long without a deadline is a hang; `None` for ever.
    pub hang_limit: Option<Duration>,
    /// Show what drivers print.
    pub debug_output: bool,
    /// The Windows build that drivers see.
    pub build: u32,
    /// Let one thread run at a time, in an order that this seed gives.
    pub schedule: Option<u64>,
    /// What a system call of a program costs beside what the host does for it: Windows' own way in and out.
    pub system_call: Duration,
    /// What each raise and each lowering of the level that changes it costs beside what the host does for it, in cycles of the time stamp
    /// counter: Windows' write of CR8.
    pub level_change: u32,
    /// What an NDK consumer gets that comes through WSK.
    pub ndk_consumers: NdkConsumers,
    /// Count what images call of their imports, see [`crate::import_counts`].
    pub count_imports: bool,
    /// A session of Event Tracing listens to every provider from the beginning, see [`crate::event_tracing::take`].
    pub trace_events: bool,
    /// Write a line for each NDK call and callback of drivers that come through WSK.
    pub trace_ndk: bool,
    /// Hosts in other processes that WSK reaches, and the own addresses at which they reach this one. Fast mode only.
    pub machines: Vec<crate::wsk::MachineAddress>,
    /// Each adapter gets TCP/IP when it starts, and sockets of WSK reach machines on its link by it, see [`crate::stack`].
    pub stacks: bool,
    /// Write what adapters and sockets carry to this file, for Wireshark.
    pub capture: Option<PathBuf>,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self {
            processors: 2,
            mode: Mode::Verify,
            frames: FrameOrder::Contiguous,
            seed: 1,
            memory: 8 << 30,
            hang_limit: Some(Duration::from_secs(20)),
            debug_output: std::env::var_os("KERNEL_HOST_DEBUG_OUTPUT").is_some(),
            build: 20_348,
            schedule: None,
            system_call: Duration::ZERO,
            level_change: 0,
            ndk_consumers: NdkConsumers::Checked,
            count_imports: false,
            trace_events: false,
            trace_ndk: std::env::var("KERNEL_HOST_TRACE").is_ok_and(|what| what.split(',').any(|what| what == "ndk")),
            machines: Vec::new(),
            stacks: false,
            capture: None,
        }
    }
}

/// The cycles that [`KernelConfig::for_measuring`] charges for a change of the level. An assumption: a write of CR8 on hardware takes a
/// few tens of cycles, and no published figure is exact.
const LEVEL_CHANGE: u32 = 20;

/// What [`KernelConfig::for_measuring`] charges for a system call.
const SYSTEM_CALL: Duration = Duration::from_micros(1);

impl KernelConfig {
    /// For tools that measure: fast mode, nothing of the host's between an NDK consumer and its provider, and Windows' costs of level changes
    /// and system calls, which the host has not, charged.
    #[must_use]
    pub fn for_measuring() -> Self {
        Self {
            mode: Mode::Fast,
            ndk_consumers: NdkConsumers::Direct,
            level_change: LEVEL_CHANGE,
            system_call: SYSTEM_CALL,
            ..Self::default()
        }
    }
}

static BOOTED: AtomicBool = AtomicBool::new(false);
static VERIFYING: AtomicBool = AtomicBool::new(false);
static DEBUG_OUTPUT: AtomicBool = AtomicBool::new(false);
static BUILD: AtomicU32 = AtomicU32::new(0);

/// Whether the kernel was booted in [`Mode::Verify`].
#[inline]
pub fn is_verifying() -> bool {
    VERIFYING.load(Ordering::Relaxed)
}

pub(crate) fn prints_debug_output() -> bool {
    DEBUG_OUTPUT.load(Ordering::Relaxed)
}

/// The Windows build that drivers see.
pub fn build_number() -> u32 {
    BUILD.load(Ordering::Relaxed)
}

/// The booted kernel.
#[derive(Debug)]
pub struct Kernel {
    config: KernelConfig,
}

impl Kernel {
    /// Boots the kernel of this process; the calling thread becomes a kernel thread and stays one.
    pub fn boot(config: KernelConfig) -> Self {
        assert!(!BOOTED.swap(true, Ordering::SeqCst), "there is one kernel per process");
        VERIFYING.store(config.mode == Mode::Verify, Ordering::SeqCst);
        DEBUG_OUTPUT.store(config.debug_output, Ordering::SeqCst);
        BUILD.store(config.build, Ordering::SeqCst);
        crate::user::charge_system_calls(config.system_call);
        crate::import_counts::configure(config.count_imports);
        crate::event_tracing::configure(config.trace_events);
        let direct = config.ndk_consumers == NdkConsumers::Direct && !config.trace_ndk;
        crate::ndk::mediator::configure(!direct);
        crate::stack::configure(config.stacks);
        crate::schedule::start(config.schedule);
        fault_handler::install();
        fault_handler::install_interrupt();
        emulation::initialise();
        runtime::initialise();
        frames::initialise(config.memory, config.frames, config.seed);
        address_space::initialise();
        dispatcher::initialise(config.hang_limit);
        processor::initialise(config.processors);
        std::mem::forget(thread::attach("boot"));
        crate::level_charge::set(config.level_change);
        processor::start();
        deferred_budget::start();
        dispatcher::start_clock();
        worker::start();
        if let Some(path) = &config.capture {
            crate::capture::start(path);
        }
        crate::wsk::start(&config.machines);
        if config.trace_ndk {
            crate::ndk::mediator::trace::start();
        }
        Self { config }
    }

    pub fn config(&self) -> &KernelConfig {
        &self.config
    }

    /// Loads a driver and runs its entry point. `service` is the last part of the registry path that it is given.
    pub fn load_driver(&self, path: impl AsRef<Path>, service: &str) -> Result<Driver, LoadError> {
        let image = loader::load(path.as_ref()).map_err(LoadError::Image)?;
        let driver = Driver::new(image, service);
        let entry = Context::new(ContextKind::DriverEntry, "DriverEntry");
        // SAFETY: the image's entry point with the documented arguments, which live as long as the driver.
        let status = unsafe {
            call_image!(entry, driver.image.entry => NtStatus; driver.object, &raw const *driver.registry_path)
        };
        crate::ndis::driver_object::after_driver_entry(driver.object, status::is_success(status));
        crate::io::wdm::after_driver_entry(driver.object);
        if status::is_success(status) {
            return Ok(driver);
        }
        driver.remove("DriverEntry failed and left");
        Err(LoadError::DriverEntry(status))
    }

    /// Runs a closure as a kernel thread on the calling operating-system thread.
    pub fn run_thread<T>(&self, body: impl FnOnce() -> T) -> T {
        let _attachment = thread::attach("test");
        body()
    }

    /// As [`Self::run_thread`], but on another thread, which counts as running from now on: what that thread calls, and what
    /// waits for it.
    pub fn starting_thread<T>(&self, body: impl FnOnce() -> T) -> (impl FnOnce() -> T, Starting) {
        dispatcher::thread_starting();
        let place = crate::schedule::announce();
        let starting = move || {
            place.take();
            let _attachment = thread::attach("test");
            dispatcher::thread_started();
            body()
        };
        (starting, Starting(place))
    }

    /// Starts a kernel thread of the host's own.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        thread::spawn(name, body)
    }

    /// Sleeps in kernel time.
    pub fn sleep(&self, duration: Duration) {
        dispatcher::delay(-((duration.as_nanos() / 100) as i64));
    }

    /// Sleeps so long at least, and then until nothing runs ([`dispatcher::rest`]).
    ///
    /// # Panics
    ///
    /// If that does not come about.
    pub fn rest(&self, at_least: Duration) {
        let rested = dispatcher::rest(-((at_least.as_nanos() / 100) as i64));
        assert!(rested, "something runs without end");
    }

    /// The state of leaks and marks now.
    pub fn report(&self) -> Report {
        let mut leaks = pool::outstanding(None);
        leaks.extend(ledger::outstanding(None).into_iter().filter(|leak| leak.kind != "locked pages"));
        Report {
            leaks,
            pool_blocks: pool::blocks_of_images(),
            mdls: ledger::count(crate::memory::mdl::LEDGER_KIND),
            mappings: ledger::count(crate::memory::mdl::LEDGER_KIND_MAPPING),
            handles: ledger::count(crate::object_table::LEDGER_KIND),
            threads: ledger::count(crate::ntoskrnl::threads::LEDGER_KIND),
            timers: ledger::count(timer::LEDGER_KIND),
            queued_calls: dpc::queued().len(),
            work_items: worker::outstanding(),
            frames: frames::used(),
            stack_marks: kernel_stack::high_water_marks(),
            unguarded_blocks: if is_verifying() { pool::unguarded() } else { 0 },
        }
    }

    /// Ends the kernel and reports what is left.
    pub fn shutdown(self) -> Report {
        crate::ndk::mediator::trace::flush();
        let report = self.report();
        crate::wsk::stop();
        worker::stop();
        processor::stop();
        crate::capture::stop();
        dispatcher::stop_clock();
        report
    }
}

/// A thread of [`Kernel::starting_thread`], for those that wait for its end.
#[derive(Clone, Copy)]
pub struct Starting(crate::schedule::Place);

impl Starting {
    /// Runs a join of the thread, so that virtual time and the other threads go on meanwhile.
    pub fn join<T>(self, body: impl FnOnce() -> T) -> T {
        self.0.join(body)
    }
}

/// What was left at shutdown, and the depth of the stacks.
#[derive(Clone, Debug)]
pub struct Report {
    pub leaks: Vec<Leak>,
    pub pool_blocks: usize,
    pub mdls: usize,
    pub mappings: usize,
    pub handles: usize,
    pub threads: usize,
    pub timers: usize,
    pub queued_calls: usize,
    pub work_items: usize,
    /// Page frames in use, the host's own included.
    pub frames: usize,
    /// Bytes of kernel stack used below the entry, by kind of callout. Only measured when verifying.
    pub stack_marks: BTreeMap<ContextKind, usize>,
    /// Pool blocks without a guard page for lack of maps.
    pub unguarded_blocks: usize,
}

impl Report {
    /// Nothing of any image is left.
    pub fn is_clean(&self) -> bool {
        self.leaks.is_empty() && self.queued_calls == 0 && self.work_items == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "left: {} pool blocks, {} MDLs, {} mappings, {} handles, {} threads, {} timers, {} DPCs, {} work items",
            self.pool_blocks,
            self.mdls,
            self.mappings,
            self.handles,
            self.threads,
            self.timers,
            self.queued_calls,
            self.work_items
        )?;
        for leak in &self.leaks {
            writeln!(formatter, "    {leak}")?;
        }
        for (kind, bytes) in &self.stack_marks {
            writeln!(formatter, "kernel stack below {kind:?}: {bytes} bytes")?;
        }
        Ok(())
    }
}

/// Why a driver is not loaded.
#[derive(Debug)]
pub enum LoadError {
    Image(ImageError),
    /// `DriverEntry` returned this.
    DriverEntry(NtStatus),
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(error) => write!(formatter, "{error}"),
            Self::DriverEntry(status) => {
                write!(formatter, "DriverEntry returned {:#010X} ({})", *status as u32, status::name(*status))
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// A loaded driver.
pub struct Driver {
    image: Arc<Image>,
    object: *mut DRIVER_OBJECT,
    registry_path: Box<UNICODE_STRING>,
    service: String,
    /// What the strings of the driver object point at.
    _strings: Vec<Vec<u16>>,
}

// SAFETY: the driver object is image-visible kernel memory; the host only hands its address on.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl fmt::Debug for Driver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Driver")
            .field("image", &self.image.name)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// What to do when a driver is about to be unloaded, after its unload routine: checks of other parts of the host.
type UnloadCheck = fn(&Driver);

static UNLOAD_CHECKS: Mutex<Vec<UnloadCheck>> = Mutex::new(Vec::new());

/// Adds a check that runs after each driver's unload routine and before the leak check.
pub fn add_unload_check(check: UnloadCheck) {
    let mut checks = UNLOAD_CHECKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !checks.iter().any(|other| std::ptr::fn_addr_eq(*other, check)) {
        checks.push(check);
    }
}

const TAG: u32 = u32::from_le_bytes(*b"Driv");

impl Driver {
    fn new(image: Arc<Image>, service: &str) -> Self {
        let path = registry::service_path(service);
        registry::create(&path);
        let mut strings = vec![wide(&path), wide(&format!("\\Driver\\{service}")), wide(service)];
        let [registry, name, key] = [0, 1, 2].map(|index: usize| counted(&mut strings[index]));
        let bytes = size_of::<DRIVER_OBJECT>() + size_of::<DRIVER_EXTENSION>();
        let object = pool::allocate_for_host(bytes, TAG)
            .unwrap_or_else(|| panic!("no memory for a driver object"))
            .cast::<DRIVER_OBJECT>();
        // SAFETY: fresh zeroed memory for both structures.
        unsafe {
            let extension = object.add(1).cast::<DRIVER_EXTENSION>();
            (*object).Type = 4;
            (*object).Size = size_of::<DRIVER_OBJECT>() as i16;
            (*object).DriverStart = image.base as *mut c_void;
            (*object).DriverSize = image.length as u32;
            (*object).DriverExtension = extension;
            (*object).DriverName = name;
            (*object).DriverInit = image.entry as *mut c_void;
            (*extension).DriverObject = object;
            (*extension).ServiceKeyName = key;
        }
        Self { image, object, registry_path: Box::new(registry), service: service.to_owned(), _strings: strings }
    }

    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    pub fn object(&self) -> *mut DRIVER_OBJECT {
        self.object
    }

    pub fn service(&self) -> &str {
        &self.service
    }

    /// Calls the unload routine and takes the image out of memory. What the driver still holds is a bugcheck that lists
    /// it.
    pub fn unload(self) {
        self.call_unload();
        self.remove("the driver is unloaded and left");
    }

    /// As [`Driver::unload`], but returns what was left instead.
    pub fn unload_and_report(self) -> Vec<Leak> {
        self.call_unload();
        self.remove_and_report()
    }

    fn call_unload(&self) {
        crate::ndis::driver_object::before_unload(self.object);
        // SAFETY: the host's driver object; the image may have written the routine.
        let routine = unsafe { (*self.object).DriverUnload };
        if routine.is_null() {
            return;
        }
        let context = Context::new(ContextKind::DriverUnload, "DriverUnload");
        // SAFETY: the driver's own routine with its object.
        unsafe { call_image!(context, routine => (); self.object) };
        crate::ndis::driver_object::after_unload(self.object);
    }

    fn remove(self, what: &str) {
        let leaks = self.remove_and_report();
        if !leaks.is_empty() {
            let mut list = String::new();
            for leak in &leaks {
                let _ = write!(list, "\n***   {leak}");
            }
            bugcheck(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                [0x62, leaks.len() as u64, 0, 0],
                format!("{what} behind:{list}"),
            );
        }
    }

    fn remove_and_report(self) -> Vec<Leak> {
        let checks = UNLOAD_CHECKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        for check in checks {
            check(&self);
        }
        // Before anything waits for something else: what the unload routine has not waited for.
        let queued = queued_calls_of(&self.image);
        let routines = work_items::unreferenced_of(self.image.base);
        work_items::wait_for_image(self.image.base);
        processor::visit_all(thread::Thread::current());
        let base = self.image.base;
        let mut leaks = pool::outstanding(Some(base));
        leaks.extend(ledger::outstanding(Some(base)));
        leaks.extend(queued);
        leaks.extend(routines);
        pool::disown(base);
        ledger::forget(base);
        if leaks.is_empty() {
            pool::free_for_host(self.object.cast(), TAG);
            crate::lock_order::forget(&(base..base + self.image.length));
            loader::unload(&self.image);
        }
        leaks
    }
}

/// DPCs whose routine lies in the image and that are queued or running still.
fn queued_calls_of(image: &Image) -> Vec<Leak> {
    let leak = |detail| Leak { kind: "DPC".to_owned(), detail, count: 1, bytes: 0, stack: Vec::new() };
    dpc::left_within(&(image.base..image.base + image.length)).into_iter().map(leak).collect()
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain(Some(0)).collect()
}

fn counted(units: &mut [u16]) -> UNICODE_STRING {
    let bytes = units.len() * 2;
    UNICODE_STRING { Length: (bytes - 2) as u16, MaximumLength: bytes as u16, Buffer: units.as_mut_ptr() }
}

/// Every loaded image, for tools.
pub fn images() -> Vec<Arc<Image>> {
    image::all()
}
