//! Fast mode: the twins of frequent exports do what the exports do and hand over to them where they cannot, imports are
//! counted, and a level change that is charged is the same change.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one call into an image and its arguments belong together")]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::probe::{Probe, in_child};
use kernel_host::callout::{Context, ContextKind};
use kernel_host::image::loader;
use kernel_host::memory::pool;
use kernel_host::nt::{KDPC, KLOCK_QUEUE_HANDLE, PROCESSOR_NUMBER};
use kernel_host::ntoskrnl::timers;
use kernel_host::stretches::{self, PathTimes};
use kernel_host::thread::Thread;
use kernel_host::{
    FrameOrder, KernelConfig, Mode, call_image, callback, deferred_budget, export, import_counts, level_time, thunk,
};

const OTHER: Context = Context::new(ContextKind::Other, "a function of the probe");

fn fast() -> KernelConfig {
    KernelConfig { mode: Mode::Fast, ..KernelConfig::default() }
}

/// How the calls of a test reach the exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Twin,
    Stub,
}

impl Way {
    fn address(self, name: &str) -> usize {
        let Some(export::Resolved::Function(found)) = export::resolve("ntoskrnl.exe", name) else {
            panic!("no function {name}")
        };
        match self {
            Self::Twin => {
                assert!(found.fast.is_some(), "{name} has no twin");
                loader::address_of("ntoskrnl.exe", name).expect("it is exported")
            }
            Self::Stub => thunk::stub_for(found.address, found.arguments),
        }
    }
}

/// `Call` of the probe.
#[repr(C)]
struct Call {
    function: usize,
    arguments: [usize; 3],
    result: usize,
}

/// Calls that the probe makes one after the other.
struct Script {
    way: Way,
    calls: Vec<Call>,
    /// The bits of each result that mean something.
    masks: Vec<usize>,
}

impl Script {
    fn new(way: Way) -> Self {
        Self { way, calls: Vec::new(), masks: Vec::new() }
    }

    fn call(mut self, name: &str, mask: usize, arguments: &[usize]) -> Self {
        let function = self.way.address(name);
        self.push(function, mask, arguments);
        self
    }

    /// A call whose result is a UCHAR, or that has none.
    fn byte(self, name: &str, arguments: &[usize]) -> Self {
        self.call(name, 0xFF, arguments)
    }

    fn nothing(self, name: &str, arguments: &[usize]) -> Self {
        self.call(name, 0, arguments)
    }

    fn level(self) -> Self {
        self.byte("KeGetCurrentIrql", &[])
    }

    /// Reads a word.
    fn word(mut self, address: usize) -> Self {
        let reader = callback::host_function(read_word as *const _, 1) as usize;
        self.push(reader, usize::MAX, &[address]);
        self
    }

    /// Whether an export has been entered since the script began.
    fn exports_entered(mut self) -> Self {
        let asks = callback::host_function(export_entered as *const _, 0) as usize;
        self.push(asks, usize::MAX, &[]);
        self
    }

    fn push(&mut self, function: usize, mask: usize, given: &[usize]) {
        let mut arguments = [0; 3];
        arguments[..given.len()].copy_from_slice(given);
        self.calls.push(Call { function, arguments, result: 0 });
        self.masks.push(mask);
    }

    fn run(mut self, probe: &Probe) -> Vec<usize> {
        // SAFETY: calls of exports with the arguments that they take.
        unsafe { call_image!(OTHER, probe.function("make_calls") => (); self.calls.as_mut_ptr(), self.calls.len()) };
        self.calls.iter().zip(&self.masks).map(|(call, mask)| call.result & mask).collect()
    }
}

unsafe extern "win64" fn read_word(address: *const usize) -> usize {
    // SAFETY: a word of the test's.
    unsafe { address.read_volatile() }
}

unsafe extern "win64" fn export_entered() -> usize {
    usize::from(Thread::current().last_export().is_some())
}

/// A word that lives as long as the process.
fn word() -> &'static AtomicUsize {
    Box::leak(Box::default())
}

fn address<T>(of: *const T) -> usize {
    of as usize
}

/// Comes to the processor until the thread is its favourite.
fn earn_favour(probe: &Probe) {
    let lock = word();
    // SAFETY: takes and releases a spin lock.
    unsafe { call_image!(OTHER, probe.function("spin_lock_pairs") => (); lock.as_ptr(), 10_000_u64) };
}

fn levels(way: Way) -> Script {
    Script::new(way)
        .level()
        .byte("KfRaiseIrql", &[1])
        .level()
        .byte("KeRaiseIrqlToDpcLevel", &[])
        .byte("KeRaiseIrqlToDpcLevel", &[])
        .byte("KfRaiseIrql", &[2])
        .nothing("KeLowerIrql", &[1])
        .level()
        .nothing("KfLowerIrql", &[1])
        .nothing("KfLowerIrql", &[0])
        .level()
        .byte("KfRaiseIrql", &[12])
        .level()
        .nothing("KeLowerIrql", &[2])
        .level()
        .nothing("KeLowerIrql", &[0])
        .level()
}

fn locks(way: Way) -> Script {
    let [first, second, third] = [word(), word(), word()].map(|lock| address(lock.as_ptr()));
    Script::new(way)
        .byte("KeAcquireSpinLockRaiseToDpc", &[first])
        .level()
        .nothing("KeAcquireSpinLockAtDpcLevel", &[second])
        .byte("KeAcquireSpinLockRaiseToDpc", &[third])
        .nothing("KeReleaseSpinLock", &[third, 2])
        .nothing("KeReleaseSpinLockFromDpcLevel", &[second])
        .nothing("KeReleaseSpinLock", &[first, 0])
        .level()
        .word(first)
        .word(second)
        .word(third)
}

fn queued_locks(way: Way) -> Script {
    let [first, second] = [word(), word()].map(|lock| address(lock.as_ptr()));
    let handles: &[KLOCK_QUEUE_HANDLE; 2] = Box::leak(Box::new([(); 2].map(|()| KLOCK_QUEUE_HANDLE {
        Next: std::ptr::dangling_mut(),
        Lock: std::ptr::null_mut(),
        OldIrql: 9,
    })));
    let [outer, inner] = [address(&raw const handles[0]), address(&raw const handles[1])];
    let lock = |handle: usize| handle + std::mem::offset_of!(KLOCK_QUEUE_HANDLE, Lock);
    Script::new(way)
        .nothing("KeAcquireInStackQueuedSpinLock", &[first, outer])
        .level()
        .nothing("KeAcquireInStackQueuedSpinLock", &[second, inner])
        .word(outer)
        .nothing("KeReleaseInStackQueuedSpinLock", &[inner])
        .level()
        .nothing("KeReleaseInStackQueuedSpinLock", &[outer])
        .level()
        .word(first)
        .word(second)
        .word(lock(outer))
        .word(lock(inner))
}

fn rundown(way: Way) -> Script {
    let reference = word();
    let over: &AtomicUsize = Box::leak(Box::new(AtomicUsize::new(1)));
    let [reference, over] = [reference, over].map(|word| address(word.as_ptr()));
    Script::new(way)
        .byte("ExAcquireRundownProtection", &[reference])
        .byte("ExAcquireRundownProtection", &[reference])
        .word(reference)
        .nothing("ExReleaseRundownProtection", &[reference])
        .nothing("ExReleaseRundownProtection", &[reference])
        .word(reference)
        .byte("ExAcquireRundownProtection", &[over])
        .word(over)
}

fn processor_number(way: Way) -> Script {
    let number: &PROCESSOR_NUMBER = Box::leak(Box::new(PROCESSOR_NUMBER { Group: 9, Number: 9, Reserved: 9 }));
    let whole: &[PROCESSOR_NUMBER; 2] =
        Box::leak(Box::new([*number, PROCESSOR_NUMBER { Group: 7, Number: 7, Reserved: 7 }]));
    Script::new(way)
        .call("KeGetCurrentProcessorNumberEx", 0xFFFF_FFFF, &[0])
        .call("KeGetCurrentProcessorNumberEx", 0xFFFF_FFFF, &[address(whole)])
        .word(address(whole))
}

/// A DPC of the probe's, which counts itself.
fn deferred_call(probe: &Probe) -> (usize, usize) {
    let counter = address(Box::leak(Box::new([0_u64; 2])).as_ptr());
    // SAFETY: a C structure, for which zeroes are a value; then a DPC of our own with a routine of the probe.
    unsafe {
        let object: *mut KDPC = Box::leak(Box::new(std::mem::zeroed()));
        kernel_host::ntoskrnl::dpcs::KeInitializeDpc(
            object,
            probe.function("counting_routine") as *mut _,
            counter as *mut _,
        );
        (address(object), counter)
    }
}

fn deferred_calls(way: Way, probe: &Probe) -> Script {
    let (call, counter) = deferred_call(probe);
    let lock = address(word().as_ptr());
    Script::new(way)
        .byte("KeRaiseIrqlToDpcLevel", &[])
        .byte("KeInsertQueueDpc", &[call])
        .byte("KeInsertQueueDpc", &[call])
        .word(counter)
        .nothing("KeLowerIrql", &[0])
        .word(counter)
        .byte("KeInsertQueueDpc", &[call])
        .word(counter)
        .byte("KeAcquireSpinLockRaiseToDpc", &[lock])
        .byte("KeInsertQueueDpc", &[call])
        .word(counter)
        .nothing("KeReleaseSpinLock", &[lock, 0])
        .word(counter)
        .level()
        .call("KeShouldYieldProcessor", 0xFFFF_FFFF, &[])
}

fn everything(way: Way, probe: &Probe) -> Vec<Vec<usize>> {
    let scripts =
        [levels(way), locks(way), queued_locks(way), rundown(way), processor_number(way), deferred_calls(way, probe)];
    scripts.into_iter().map(|script| script.run(probe)).collect()
}

fn compare(config: KernelConfig) {
    let probe = Probe::boot(config);
    let wanted = everything(Way::Stub, &probe);
    assert_eq!(wanted[0], [0, 0, 1, 1, 2, 2, 0, 1, 0, 0, 0, 0, 12, 0, 2, 0, 0], "the exports themselves");
    assert_eq!(wanted[5][..], [0, 1, 0, 0, 0, 1, 1, 2, 0, 1, 2, 0, 3, 0, 0], "the exports themselves");
    assert_eq!(everything(Way::Twin, &probe), wanted, "a thread that is no favourite");
    earn_favour(&probe);
    assert_eq!(everything(Way::Twin, &probe), wanted, "a favourite");
    probe.finish();
}

trial! {
    fn twins_do_what_the_exports_do() {
        compare(fast());
    }
}

trial! {
    fn charged_level_changes_are_the_same_changes() {
        compare(KernelConfig { level_change: 40, ..fast() });
    }
}

trial! {
    fn favourites_enter_no_export_for_levels_and_locks() {
        let probe = Probe::boot(fast());
        earn_favour(&probe);
        for script in [levels, locks, queued_locks] {
            let entered = script(Way::Twin).exports_entered().run(&probe);
            assert_eq!(entered.last(), Some(&0));
            let entered = script(Way::Stub).exports_entered().run(&probe);
            assert_eq!(entered.last(), Some(&1));
        }
        probe.finish();
    }
}

trial! {
    fn twins_belong_to_fast_mode() {
        let probe = Probe::boot(KernelConfig::default());
        for name in ["KeGetCurrentIrql", "KeAcquireSpinLockRaiseToDpc", "KeInsertQueueDpc"] {
            assert_eq!(Way::Twin.address(name), Way::Stub.address(name));
        }
        probe.finish();
    }
}

trial! {
    fn lock_excludes_threads_that_enter_it_by_twins() {
        let probe = Probe::boot(fast());
        let (lock, counter) = (word(), word());
        let add = probe.function("add_under_lock");
        let threads = [0, 1, 2].map(|number| {
            probe.kernel.spawn(&format!("adds {number}"), move || {
                // SAFETY: adds to a counter under a spin lock, which live as long as the process.
                unsafe { call_image!(OTHER, add => (); lock.as_ptr(), counter.as_ptr(), 200_000_u64) };
            })
        });
        threads.into_iter().for_each(kernel_host::thread::JoinHandle::join);
        assert_eq!(counter.load(Ordering::SeqCst), 600_000);
        assert_eq!(lock.load(Ordering::SeqCst), 0);
        probe.finish();
    }
}

/// Breaks a rule in a process of its own, once through the twins and once through the stubs: the reports are the same.
fn expect_the_same_report(test: &str, breaks: fn(Way) -> Script) {
    const WAY: &str = "KERNEL_HOST_WAY";
    let outcome = in_child(test, || {
        let way = if std::env::var_os(WAY).is_some() { Way::Stub } else { Way::Twin };
        let probe = Probe::boot(fast());
        earn_favour(&probe);
        breaks(way).run(&probe);
    });
    if let Some(outcome) = outcome {
        let (twin, stub) =
            (outcome.expect_bugcheck(), crate::child::in_child_with(test, &[(WAY, "stub")]).expect_bugcheck());
        assert_eq!((&twin["code"], &twin["rule"]), (&stub["code"], &stub["rule"]));
        assert!(!twin["rule"].is_null() && !twin["code"].is_null(), "{twin}");
        let stack = twin["stack"].to_string();
        assert!(stack.contains("make_calls"), "{stack}");
    }
}

macro_rules! same_report {
    ($(fn $name:ident($way:ident) $script:block)*) => {
        $(
            #[test]
            fn $name() {
                expect_the_same_report(stringify!($name), |$way| $script);
            }
        )*
    };
}

same_report! {
    fn recursion_is_reported(way) {
        let lock = address(word().as_ptr());
        Script::new(way)
            .byte("KeAcquireSpinLockRaiseToDpc", &[lock])
            .byte("KeAcquireSpinLockRaiseToDpc", &[lock])
    }

    fn release_of_a_free_lock_is_reported(way) {
        let lock = address(word().as_ptr());
        Script::new(way).byte("KeRaiseIrqlToDpcLevel", &[]).nothing("KeReleaseSpinLock", &[lock, 0])
    }

    fn lowering_with_a_lock_held_is_reported(way) {
        let lock = address(word().as_ptr());
        Script::new(way).byte("KeAcquireSpinLockRaiseToDpc", &[lock]).nothing("KeLowerIrql", &[0])
    }

    fn releasing_the_outer_of_two_locks_below_dispatch_is_reported(way) {
        let [first, second] = [word(), word()].map(|lock| address(lock.as_ptr()));
        Script::new(way)
            .byte("KeAcquireSpinLockRaiseToDpc", &[first])
            .nothing("KeAcquireSpinLockAtDpcLevel", &[second])
            .nothing("KeReleaseSpinLock", &[first, 0])
    }

    fn plain_release_of_a_queued_lock_is_reported(way) {
        let lock = address(word().as_ptr());
        let handle = address(Box::leak(Box::new([0_usize; 3])).as_ptr());
        Script::new(way)
            .nothing("KeAcquireInStackQueuedSpinLock", &[lock, handle])
            .nothing("KeReleaseSpinLock", &[lock, 0])
    }

    fn raising_downwards_is_reported(way) {
        Script::new(way).byte("KfRaiseIrql", &[2]).byte("KfRaiseIrql", &[1])
    }

    fn lowering_upwards_is_reported(way) {
        Script::new(way).nothing("KeLowerIrql", &[1])
    }

    fn acquiring_above_dispatch_is_reported(way) {
        let lock = address(word().as_ptr());
        Script::new(way).byte("KfRaiseIrql", &[5]).byte("KeAcquireSpinLockRaiseToDpc", &[lock])
    }

    fn acquiring_at_dispatch_below_it_is_reported(way) {
        let lock = address(word().as_ptr());
        Script::new(way).nothing("KeAcquireSpinLockAtDpcLevel", &[lock])
    }

    fn one_release_of_rundown_protection_too_many_is_reported(way) {
        let reference = address(word().as_ptr());
        Script::new(way).nothing("ExReleaseRundownProtection", &[reference])
    }
}

#[test]
fn fault_in_a_twin_names_the_export_and_the_drivers_stack() {
    let test = "fault_in_a_twin_names_the_export_and_the_drivers_stack";
    let outcome = in_child(test, || {
        let probe = Probe::boot(KernelConfig { count_imports: std::env::var_os("COUNT").is_some(), ..fast() });
        earn_favour(&probe);
        // SAFETY: the address is wrong on purpose; the fault must be reported.
        unsafe { call_image!(OTHER, probe.function("add_under_lock") => (); 0x1230_usize, 0_usize, 1_u64) };
    });
    if let Some(outcome) = outcome {
        for report in
            [outcome.expect_bugcheck(), crate::child::in_child_with(test, &[("COUNT", "1")]).expect_bugcheck()]
        {
            let whole = report.to_string();
            assert!(whole.contains("KeAcquireSpinLockRaiseToDpc, which is given a pointer by the driver"), "{whole}");
            assert!(report["stack"].to_string().contains("add_under_lock"), "{whole}");
        }
    }
}

/// The calls of an import of the probe since the counts were reset.
fn calls_of(name: &str) -> u64 {
    let counts = import_counts::counted();
    let found = counts.iter().find(|count| count.image == "probe.dll" && count.name == name);
    found.unwrap_or_else(|| panic!("{name} is not counted: {counts:?}")).calls
}

fn count_imports(mode: Mode) {
    let probe = Probe::boot(KernelConfig { mode, count_imports: true, ..KernelConfig::default() });
    import_counts::reset();
    let (lock, counter) = (word(), word());
    // SAFETY: exported functions of the probe with what they take.
    unsafe {
        call_image!(OTHER, probe.function("irql_calls") => u64; 1_000_u64);
        call_image!(OTHER, probe.function("add_under_lock") => (); lock.as_ptr(), counter.as_ptr(), 3_000_u64);
        let sum = call_image!(OTHER, probe.function("sleep") => i64; -1_i64);
        assert!(sum >= 0);
    }
    assert_eq!(counter.load(Ordering::SeqCst), 3_000);
    let counts = ["KeGetCurrentIrql", "KeAcquireSpinLockRaiseToDpc", "KeReleaseSpinLock", "KeDelayExecutionThread"];
    assert_eq!(counts.map(calls_of), [1_000, 3_000, 3_000, 1]);
    assert_eq!(calls_of("KeWaitForSingleObject"), 0);
    import_counts::reset();
    assert_eq!(calls_of("KeGetCurrentIrql"), 0);
    probe.finish();
}

trial! {
    fn imports_are_counted_by_image_and_name_in_fast_mode() {
        count_imports(Mode::Fast);
    }
}

trial! {
    fn imports_are_counted_by_image_and_name_when_verifying() {
        count_imports(Mode::Verify);
    }
}

trial! {
    fn nothing_is_counted_unless_asked_for() {
        let probe = Probe::boot(fast());
        // SAFETY: an exported function of an integer.
        unsafe { call_image!(OTHER, probe.function("irql_calls") => u64; 10_u64) };
        assert!(import_counts::counted().is_empty());
        probe.finish();
    }
}

/// The times on paths with a stall, and how often each: nothing but stalls takes time ([`stretches::count_stalls`]).
fn stalled(paths: &[PathTimes]) -> Vec<(u64, u64)> {
    let all = paths.iter().flat_map(|path| path.times.iter().map(|(time, count)| (*time, *count)));
    all.filter(|(time, _)| *time != 0).collect()
}

/// 200 µs as a time of a path, which is kept with four significant bits.
const STALL: u64 = 212_992;

unsafe extern "win64" fn stall(_deferred: usize, _context: usize, _first: usize, _second: usize) {
    // SAFETY: takes a number.
    unsafe { timers::KeStallExecutionProcessor(200) };
}

trial! {
    fn what_stalls_at_dispatch_level_is_a_slow_path_whatever_else_runs() {
        let probe = Probe::boot(KernelConfig { count_imports: true, ..fast() });
        stretches::count_stalls();
        level_time::measure();
        let lock = word();
        for _ in 0..5 {
            // SAFETY: takes and releases a spin lock.
            unsafe { call_image!(OTHER, probe.function("spin_lock_pairs") => (); lock.as_ptr(), 1_000_u64) };
            let stalls = Script::new(Way::Stub).byte("KfRaiseIrql", &[2]).nothing("KeStallExecutionProcessor", &[200]);
            stalls.nothing("KeLowerIrql", &[0]).run(&probe);
        }
        let paths = level_time::times();
        assert_eq!(stalled(&paths), [(STALL, 5)], "{paths:#?}");
        let all: u64 = paths.iter().flat_map(|path| path.times.values()).sum();
        assert!(all > 5_000, "{paths:#?}");
        assert!(paths.iter().all(|path| path.path.contains("probe.dll")), "{paths:#?}");
        probe.finish();
    }
}

trial! {
    fn a_deferred_call_that_stalls_is_a_slow_path() {
        let probe = Probe::boot(KernelConfig { count_imports: true, ..fast() });
        stretches::count_stalls();
        deferred_budget::measure();
        let routine = callback::host_function(stall as *const _, 4) as usize;
        // SAFETY: an all-zero KDPC is a value; the export initialises it.
        let deferred: &'static mut KDPC = Box::leak(Box::new(unsafe { std::mem::zeroed() }));
        let deferred = address(deferred);
        let script = Script::new(Way::Stub).nothing("KeInitializeDpc", &[deferred, routine, 0]);
        script.byte("KeInsertQueueDpc", &[deferred, 0, 0]).run(&probe);
        assert_eq!(stalled(&deferred_budget::times()), [(STALL, 1)]);
        probe.finish();
    }
}

trial! {
    fn times_are_kept_where_imports_are_counted_only() {
        let probe = Probe::boot(fast());
        level_time::measure();
        let lock = word();
        // SAFETY: takes and releases a spin lock.
        unsafe { call_image!(OTHER, probe.function("spin_lock_pairs") => (); lock.as_ptr(), 10_u64) };
        assert_eq!(level_time::times(), []);
        probe.finish();
    }
}

/// Frees a block of the probe's wrongly in a process of its own.
fn expect_a_wrong_free(test: &str, words: &str, frees: fn(usize) -> Script) {
    let outcome = in_child(test, || {
        let probe = Probe::boot(fast());
        // SAFETY: an exported function of the probe.
        let block = unsafe { call_image!(OTHER, probe.function("allocate") => *mut u8; 100_usize) };
        frees(address(block)).run(&probe);
    });
    if let Some(outcome) = outcome {
        let report = outcome.expect_bugcheck();
        assert_eq!(report["name"], "BAD_POOL_CALLER", "{report}");
        assert!(report["rule"].as_str().is_some_and(|rule| rule.contains(words)), "{report}");
    }
}

fn free(block: usize) -> Script {
    Script::new(Way::Stub).nothing("ExFreePool", &[block])
}

#[test]
fn second_free_is_reported() {
    expect_a_wrong_free("second_free_is_reported", "a second time", |block| {
        free(block).nothing("ExFreePool", &[block])
    });
}

#[test]
fn free_inside_a_block_is_reported() {
    expect_a_wrong_free("free_inside_a_block_is_reported", "lies inside the block at", |block| free(block + 16));
}

#[test]
fn free_of_what_is_no_block_is_reported() {
    expect_a_wrong_free("free_of_what_is_no_block_is_reported", "is no pool block", |_| free(address(word())));
}

#[test]
fn free_with_another_tag_is_reported() {
    expect_a_wrong_free("free_with_another_tag_is_reported", "is given the tag 'oops'", |block| {
        Script::new(Way::Stub).nothing("ExFreePoolWithTag", &[block, u32::from_le_bytes(*b"oops") as usize])
    });
}

trial! {
    fn pool_that_an_image_keeps_is_counted_and_reported() {
        let probe = Probe::boot(fast());
        let base = probe.driver.image().base;
        pool::restart_most(base);
        // SAFETY: exported functions of the probe.
        unsafe {
            let blocks = [100_usize, 5_000, 300_000].map(|size| call_image!(OTHER, probe.function("allocate") => *mut u8; size));
            call_image!(OTHER, probe.function("free") => (); blocks[1]);
            call_image!(OTHER, probe.function("free") => (); blocks[2]);
        }
        assert_eq!(pool::most_of(base), 305_100);
        assert_eq!(pool::blocks_of_images(), 1);
        let leaks = pool::outstanding(Some(base));
        assert_eq!(leaks.iter().map(|leak| (leak.count, leak.bytes)).collect::<Vec<_>>(), [(1, 100)], "{leaks:?}");
    }
}

trial! {
    fn pool_blocks_of_every_class_are_zeroed_aligned_and_apart() {
        let probe = Probe::boot(KernelConfig { frames: FrameOrder::Scattered, ..fast() });
        let (allocate, free) = (probe.function("allocate"), probe.function("free"));
        let sizes = [1_usize, 32, 33, 2_047, 2_048, 4_095, 4_096, 4_097, 65_536, 262_144, 262_145];
        for _ in 0..3 {
            let mut blocks = Vec::new();
            for size in sizes.into_iter().chain(sizes) {
                // SAFETY: an exported function of the probe; the block has that size.
                let block = unsafe {
                    let block = call_image!(OTHER, allocate => *mut u8; size);
                    std::slice::from_raw_parts_mut(block, size)
                };
                assert!(block.iter().all(|byte| *byte == 0), "{size} bytes are not zeroed");
                let boundary = if size < 4_096 { 16 } else { 4_096 };
                assert!(address(block.as_ptr()).is_multiple_of(boundary), "{size} bytes at {:p}", block.as_ptr());
                block.fill(0xA5);
                blocks.push((address(block.as_ptr()), size));
            }
            let mut sorted = blocks.clone();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "blocks overlap: {sorted:x?}");
            for (block, _) in blocks {
                // SAFETY: a block of the probe's.
                unsafe { call_image!(OTHER, free => (); block) };
            }
        }
        probe.finish();
    }
}
