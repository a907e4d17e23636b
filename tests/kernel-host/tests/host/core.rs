//! The core of the kernel host, tested with a driver image of its own: stacks and calls, processors, waits and virtual
//! time, memory, faults, reports. Each trial is a process.

// A test is a border like the crate it tests: it hands raw addresses to an image.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one call into an image and its arguments belong together")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::probe::{Probe, in_child};
use kernel_host::callout::{Context, ContextKind};
use kernel_host::interruption::interrupted_in_the_host;
use kernel_host::memory::address_space::{Protection, Reservation, Zone};
use kernel_host::memory::mdl::{self, Access};
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::memory::{PAGE_SIZE, address_space, frames, pool};
use kernel_host::nt::{KDPC, KEVENT, KTIMER, PROCESSOR_NUMBER};
use kernel_host::ntoskrnl::{dispatcher_objects, dpcs, mdls, processors, timers};
use kernel_host::{
    FrameOrder, Kernel, KernelConfig, LoadError, Mode, call_image, callback, dispatcher, fault, image, machine_clock,
};

const OTHER: Context = Context::new(ContextKind::Other, "a function of the probe");

/// A structure of an image's at an address that stays.
#[allow(clippy::unnecessary_box_returns, reason = "kernel objects must not move")]
fn zeroed<T>() -> Box<T> {
    // SAFETY: only used for C structures, for which all zeroes is a value.
    Box::new(unsafe { std::mem::zeroed() })
}

trial! {
    fn arguments_beyond_the_fourth_arrive() {
        let probe = Probe::boot(KernelConfig::default());
        // SAFETY: an exported function of twelve integers.
        let sum = unsafe {
            call_image!(OTHER, probe.function("weighted_sum") => u64; 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
        };
        assert_eq!(sum, (1..=12).map(|value: u64| value * value).sum::<u64>());
        probe.finish();
    }
}

#[test]
fn variadic_imports_print_all_arguments() {
    let outcome = in_child("variadic_imports_print_all_arguments", || {
        let probe = Probe::boot(KernelConfig { debug_output: true, ..KernelConfig::default() });
        // SAFETY: an exported function without arguments.
        unsafe { call_image!(OTHER, probe.function("print_values") => u32;) };
        probe.finish();
    });
    if let Some(outcome) = outcome {
        outcome.expect_success();
        outcome.expect_output("-5 7 beef text -1 z 0000000000001234");
    }
}

static BOUNCE: AtomicU64 = AtomicU64::new(0);

extern "win64" fn bounce_back(back: u64, depth: u64) -> u64 {
    let function = BOUNCE.load(Ordering::Relaxed);
    // SAFETY: the probe's `bounce`, which called us.
    unsafe { call_image!(OTHER, function => u64; back, depth - 1) }
}

trial! {
    fn image_and_host_call_each_other_to_any_depth() {
        let probe = Probe::boot(KernelConfig::default());
        let bounce = probe.function("bounce");
        BOUNCE.store(bounce as u64, Ordering::Relaxed);
        let back = callback::host_function(bounce_back as *const _, 2);
        // SAFETY: the probe calls the host function it is given.
        let depth = unsafe { call_image!(OTHER, bounce => u64; back, 50_u64) };
        assert_eq!(depth, 50);
        probe.finish();
    }
}

trial! {
    fn missing_imports_fail_the_load_and_are_all_named() {
        let kernel = Kernel::boot(KernelConfig::default());
        let error = kernel.load_driver(crate::probe::image(Some("missing-imports")), "probe").expect_err("it must not load");
        let LoadError::Image(error) = error else { panic!("{error}") };
        let text = error.to_string();
        assert!(text.contains("ntoskrnl.exe!KeNobodyExportsThis"), "{text}");
        assert!(text.contains("ntoskrnl.exe!KeNorThis"), "{text}");
        assert!(kernel.shutdown().is_clean());
    }
}

trial! {
    fn virtual_time_jumps_when_everything_waits() {
        let probe = Probe::boot(KernelConfig::default());
        // An hour, in units of 100 ns, relative. By the machine's clock it would be the end of the trial.
        // SAFETY: an exported function of an integer.
        let slept = unsafe { call_image!(OTHER, probe.function("sleep") => i64; -36_000_000_000_i64) };
        assert!((36_000_000_000..36_100_000_000).contains(&slept), "{slept}");
        probe.finish();
    }
}

trial! {
    fn virtual_time_creeps_while_something_runs() {
        let probe = Probe::boot(KernelConfig::default());
        // The machine's clock is read before and after the host's: its time is the longer one, whatever comes between.
        let (machine, before) = (machine_clock::now(), dispatcher::now());
        while dispatcher::now() < before + 100 {
            std::hint::spin_loop();
        }
        let (passed, real) = (dispatcher::now() - before, machine_clock::now() - machine);
        assert!(passed * 10 <= real, "{passed} in {real}");
        probe.finish();
    }
}

trial! {
    fn rest_outlasts_threads_that_run_and_threads_that_are_about_to() {
        let probe = Probe::boot(KernelConfig::default());
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (late, _) = probe.kernel.starting_thread(|| {
                // Far more looks than a rest that forgot the thread would take.
                (0..20_000_000).for_each(|_| std::hint::spin_loop());
                ended.store(true, Ordering::SeqCst);
            });
            scope.spawn(|| {
                (0..20_000_000).for_each(|_| std::hint::spin_loop());
                late();
            });
            probe.kernel.rest(Duration::from_nanos(100));
            assert!(ended.load(Ordering::SeqCst));
        });
        probe.finish();
    }
}

trial! {
    fn fast_mode_sleeps_for_real() {
        let probe = Probe::boot(KernelConfig { mode: Mode::Fast, ..KernelConfig::default() });
        let before = machine_clock::now();
        // SAFETY: an exported function of an integer.
        unsafe { call_image!(OTHER, probe.function("sleep") => i64; -300_000_i64) };
        let passed = machine_clock::now() - before;
        assert!(passed >= 300_000, "{passed}");
        probe.finish();
    }
}

trial! {
    fn wait_for_any_names_the_signalled_object_and_times_out() {
        let probe = Probe::boot(KernelConfig::default());
        let mut events: [Box<KEVENT>; 3] = [zeroed(), zeroed(), zeroed()];
        for event in &mut events {
            // SAFETY: our own event: synchronization, not signalled.
            unsafe { dispatcher_objects::KeInitializeEvent(&raw mut **event, 1, 0) };
        }
        let addresses: Vec<u64> = events.iter().map(|event| &raw const **event as u64).collect();
        let timeout = -10_000_i64;
        let wait = probe.function("wait_for_any");
        let address = addresses[2] as usize;
        let setter = probe.kernel.spawn("setter", move || {
            dispatcher::delay(-20_000_000);
            // SAFETY: an initialised event, which outlives this thread.
            unsafe { dispatcher_objects::KeSetEvent(address as *mut KEVENT, 0, 0) };
        });
        // SAFETY: three initialised events; the probe waits for any of them.
        unsafe {
            let status = call_image!(OTHER, wait => i32; addresses.as_ptr(), 3_u32, &raw const timeout);
            assert_eq!(status, 0x102, "the setter sleeps longer than the first wait");
            let status = call_image!(OTHER, wait => i32; addresses.as_ptr(), 3_u32, std::ptr::null::<i64>());
            assert_eq!(status, 2);
        }
        setter.join();
        probe.finish();
    }
}

trial! {
    fn spin_lock_excludes_across_processors() {
        const EACH: u64 = 20_000;
        let probe = Probe::boot(KernelConfig { processors: 3, ..KernelConfig::default() });
        let memory: &'static mut [u64; 2] = Box::leak(Box::new([0; 2]));
        let (lock, counter) = (&raw mut memory[0] as usize, &raw mut memory[1] as usize);
        let function = probe.function("add_under_lock");
        let threads: Vec<_> = (0..3)
            .map(|_| {
                probe.kernel.spawn("adder", move || {
                    // SAFETY: a lock word and a counter that live for ever.
                    unsafe { call_image!(OTHER, function => (); lock, counter, EACH) };
                })
            })
            .collect();
        for thread in threads {
            thread.join();
        }
        assert_eq!(memory[1], 3 * EACH);
        probe.finish();
    }
}

trial! {
    fn deferred_call_runs_at_once_here_and_by_the_other_processor_there() {
        let probe = Probe::boot(KernelConfig::default());
        let mut counter = Box::new([0_u64; 2]);
        let mut deferred: Box<KDPC> = zeroed();
        let routine = probe.function("counting_routine");
        // SAFETY: our own DPC object and context.
        unsafe {
            dpcs::KeInitializeDpc(&raw mut *deferred, routine as *mut _, counter.as_mut_ptr().cast());
            let queued = call_image!(OTHER, probe.function("queue_calls") => u64; &raw mut *deferred, 5_u64);
            assert_eq!(queued, 5, "each ran before the next was queued");
            assert_eq!(counter[0], 5);
            assert_eq!(counter[1], 2, "a DPC runs at DISPATCH_LEVEL");
            for processor in 0..2 {
                let number = PROCESSOR_NUMBER { Group: 0, Number: processor, Reserved: 0 };
                assert_eq!(dpcs::KeSetTargetProcessorDpcEx(&raw mut *deferred, &raw const number), 0);
                let null = std::ptr::null_mut();
                assert_eq!(dpcs::KeInsertQueueDpc(&raw mut *deferred, null, null), 1);
                dpcs::KeFlushQueuedDpcs();
            }
        }
        assert_eq!(counter[0], 7);
        probe.finish();
    }
}

/// Two threads queue DPCs of their own to one processor; the routines add to one plain counter, which is only right when a
/// processor runs one DPC at a time. In between the threads take spin locks, so that processors gain and lose their preferred threads.
fn queue_from_two_threads(mode: Mode, rounds: u64) {
    let probe = Probe::boot(KernelConfig { mode, ..KernelConfig::default() });
    let counter = Box::leak(Box::new([0_u64; 2]));
    let context = counter.as_mut_ptr() as usize;
    let [routine, queue, pairs] =
        ["counting_routine", "queue_calls", "spin_lock_pairs"].map(|name| probe.function(name));
    let threads: Vec<_> = (0..2)
        .map(|index| {
            probe.kernel.spawn("queuer", move || {
                let mut deferred: Box<KDPC> = zeroed();
                let mut lock = Box::new(0_usize);
                let number = PROCESSOR_NUMBER { Group: 0, Number: 0, Reserved: 0 };
                let mut queued = 0;
                // SAFETY: a DPC object and a lock of our own; the context is never freed.
                unsafe {
                    dpcs::KeInitializeDpc(&raw mut *deferred, routine as *mut _, context as *mut _);
                    dpcs::KeSetTargetProcessorDpcEx(&raw mut *deferred, &raw const number);
                    for round in 0..rounds {
                        queued += call_image!(OTHER, queue => u64; &raw mut *deferred, 3 + index as u64);
                        if round.is_multiple_of(5) {
                            call_image!(OTHER, pairs => (); &raw mut *lock, 500_u64);
                        }
                    }
                    dpcs::KeFlushQueuedDpcs();
                }
                queued
            })
        })
        .collect();
    let queued: u64 = threads.into_iter().map(kernel_host::thread::JoinHandle::join).sum();
    assert_eq!(counter[0], queued);
    // How many calls find their DPC still queued depends on the machine.
    assert!(queued > 0);
    probe.finish();
}

trial! {
    /// One thread comes to the processor all the time and becomes its preferred one; the other comes now and then and takes that
    /// away. Each records when it finds the other one there.
    fn threads_at_dispatch_exclude_each_other_on_a_processor() {
        static OCCUPANTS: AtomicU64 = AtomicU64::new(0);
        static MEETINGS: AtomicU64 = AtomicU64::new(0);
        let probe = Probe::boot(KernelConfig { mode: Mode::Fast, ..KernelConfig::default() });
        let threads = [(1_000_000_u64, Duration::ZERO), (150, Duration::from_millis(3))].map(|(visits, pause)| {
            probe.kernel.spawn("visitor", move || {
                let affinity = kernel_host::nt::GROUP_AFFINITY { Mask: 1, Group: 0, Reserved: [0; 3] };
                // SAFETY: our own structure.
                unsafe { processors::KeSetSystemGroupAffinityThread(&raw const affinity, std::ptr::null_mut()) };
                for _ in 0..visits {
                    let old = kernel_host::irql::raise(kernel_host::irql::DISPATCH);
                    MEETINGS.fetch_add(OCCUPANTS.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                    OCCUPANTS.fetch_sub(1, Ordering::SeqCst);
                    kernel_host::irql::lower(old);
                    if !pause.is_zero() {
                        std::thread::sleep(pause);
                    }
                }
            })
        });
        threads.into_iter().for_each(kernel_host::thread::JoinHandle::join);
        assert_eq!(MEETINGS.load(Ordering::SeqCst), 0);
        probe.finish();
    }
}

trial! {
    fn processor_runs_one_deferred_call_at_a_time_when_verifying() {
        queue_from_two_threads(Mode::Verify, 300);
    }
}

trial! {
    fn processor_runs_one_deferred_call_at_a_time_in_fast_mode() {
        queue_from_two_threads(Mode::Fast, 3_000);
    }
}

trial! {
    fn deferred_call_waits_for_the_level_to_drop() {
        let probe = Probe::boot(KernelConfig { processors: 1, ..KernelConfig::default() });
        let mut counter = Box::new([0_u64; 2]);
        let mut deferred: Box<KDPC> = zeroed();
        let null = std::ptr::null_mut();
        // SAFETY: our own DPC object and context.
        unsafe {
            let routine = probe.function("counting_routine") as *mut _;
            dpcs::KeInitializeDpc(&raw mut *deferred, routine, counter.as_mut_ptr().cast());
            let old = kernel_host::irql::raise(kernel_host::irql::DISPATCH);
            assert_eq!(dpcs::KeInsertQueueDpc(&raw mut *deferred, null, null), 1);
            assert_eq!(dpcs::KeInsertQueueDpc(&raw mut *deferred, null, null), 0, "it is queued already");
            assert_eq!(std::ptr::read_volatile(&raw const counter[0]), 0);
            assert_eq!(dpcs::KeRemoveQueueDpc(&raw mut *deferred), 1);
            assert_eq!(dpcs::KeRemoveQueueDpc(&raw mut *deferred), 0);
            assert_eq!(dpcs::KeInsertQueueDpc(&raw mut *deferred, null, null), 1);
            kernel_host::irql::lower(old);
        }
        assert_eq!(counter[0], 1);
        probe.finish();
    }
}

trial! {
    fn periodic_timer_fires_on_virtual_time_and_stops_when_cancelled() {
        let probe = Probe::boot(KernelConfig::default());
        let mut counter = Box::new([0_u64; 2]);
        let mut deferred: Box<KDPC> = zeroed();
        let mut timer: Box<KTIMER> = zeroed();
        // SAFETY: our own timer, DPC and context.
        unsafe {
            let routine = probe.function("counting_routine") as *mut _;
            dpcs::KeInitializeDpc(&raw mut *deferred, routine, counter.as_mut_ptr().cast());
            timers::KeInitializeTimerEx(&raw mut *timer, 0);
            // Every 100 s, the first after 1 s.
            assert_eq!(timers::KeSetTimerEx(&raw mut *timer, -10_000_000, 100_000, &raw mut *deferred), 0);
            probe.kernel.sleep(Duration::from_secs(450));
            assert_eq!(timers::KeCancelTimer(&raw mut *timer), 1);
            dpcs::KeFlushQueuedDpcs();
            assert_eq!(std::ptr::read_volatile(&raw const counter[0]), 5);
            probe.kernel.sleep(Duration::from_secs(1000));
        }
        assert_eq!(counter[0], 5);
        probe.finish();
    }
}

trial! {
    fn system_thread_may_end_itself_in_a_nested_call() {
        let probe = Probe::boot(KernelConfig::default());
        let mut context = Box::new(0_u64);
        // SAFETY: the probe's thread writes the context and ends before the call returns.
        let status = unsafe { call_image!(OTHER, probe.function("run_thread") => i32; &raw mut *context) };
        assert_eq!((status, *context), (0, 1));
        probe.finish();
    }
}

trial! {
    fn affinity_chooses_the_processor() {
        let probe = Probe::boot(KernelConfig { processors: 4, ..KernelConfig::default() });
        for processor in 0..4_u64 {
            let affinity = kernel_host::nt::GROUP_AFFINITY { Mask: 1 << processor, Group: 0, Reserved: [0; 3] };
            // SAFETY: our own structure.
            unsafe {
                processors::KeSetSystemGroupAffinityThread(&raw const affinity, std::ptr::null_mut());
                assert_eq!(u64::from(processors::KeGetCurrentProcessorNumberEx(std::ptr::null_mut())), processor);
            }
        }
        probe.finish();
    }
}

trial! {
    fn mapping_is_an_alias_of_the_frames_and_a_partial_maps_by_itself() {
        let probe = Probe::boot(KernelConfig { frames: FrameOrder::Scattered, ..KernelConfig::default() });
        let mut buffer = UserBuffer::with_offset(3 * PAGE_SIZE, 100, FrameOrder::Scattered);
        let runs = frames::runs(buffer.frames()).len();
        assert_eq!(runs, buffer.frames().len(), "scattered frames are not adjacent");
        let locked = buffer.lock(Access::Write);
        // SAFETY: MDLs of our own over a live buffer.
        unsafe {
            let start = buffer.address() + 4000;
            let partial = mdls::IoAllocateMdl(start, 5000, 0, 0, std::ptr::null_mut());
            mdls::IoBuildPartialMdl(locked.as_ptr(), partial, start, 5000);
            let view = mdls::MmMapLockedPagesSpecifyCache(partial, 0, 1, 0, 0, 0x4000_0010);
            assert_ne!(view, 0);
            buffer.as_mut_slice()[4000] = 0x11;
            buffer.as_mut_slice()[8999] = 0x22;
            assert_eq!(*(view as *const u8), 0x11);
            assert_eq!(*((view + 4999) as *const u8), 0x22);
            ((view + 1) as *mut u8).write_volatile(0x33);
            assert_eq!(buffer.as_slice()[4001], 0x33);
            assert_eq!(address_space::frame_at(view), address_space::frame_at(start));
            mdls::MmUnmapLockedPages(view, partial);
            assert_eq!(mdls::MmIsAddressValid(view as *const _), 0);
            mdls::IoFreeMdl(partial);
        }
        drop(locked);
        drop(buffer);
        probe.finish();
    }
}

trial! {
    fn partial_of_a_mapped_source_shares_its_mapping() {
        let probe = Probe::boot(KernelConfig::default());
        let buffer = UserBuffer::new(2 * PAGE_SIZE);
        let locked = buffer.lock(Access::Read);
        // SAFETY: MDLs of our own over a live buffer.
        unsafe {
            let view = mdl::map(locked.as_ptr(), 0x4000_0010).expect("it maps");
            let partial = mdls::IoAllocateMdl(buffer.address() + 10, 100, 0, 0, std::ptr::null_mut());
            mdls::IoBuildPartialMdl(locked.as_ptr(), partial, buffer.address() + 10, 100);
            assert_eq!((*partial).MappedSystemVa as usize, view + 10);
            mdls::IoFreeMdl(partial);
            mdl::unmap(view, locked.as_ptr());
        }
        drop(locked);
        probe.finish();
    }
}

trial! {
    fn pages_that_another_thread_locks_and_maps_while_they_are_unlocked() {
        let probe = Probe::boot(KernelConfig::default());
        let buffer = UserBuffer::new(2 * PAGE_SIZE);
        let mut point = 0;
        loop {
            // The MDL and the mapping of the other thread.
            let (other, view) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let lock_and_map = || {
                let locked = buffer.lock(Access::Write).into_raw();
                // SAFETY: an MDL of our own over a live buffer.
                let mapped = unsafe { mdl::map(locked, 0x4000_0010) }.expect("it maps");
                other.store(locked as usize, Ordering::SeqCst);
                view.store(mapped, Ordering::SeqCst);
            };
            let met = interrupted_in_the_host(point, lock_and_map, || drop(buffer.lock(Access::Write)));
            if !met {
                break;
            }
            let locked = other.load(Ordering::SeqCst) as *mut _;
            // SAFETY: the other thread's MDL, which is mapped there.
            unsafe {
                mdl::unmap(view.load(Ordering::SeqCst), locked);
                mdl::unlock(locked);
                mdl::free(locked);
            }
            point += 1;
        }
        assert!(point > 4, "{point} points");
        drop(buffer);
        probe.finish();
    }
}

trial! {
    fn a_block_that_got_no_guard_because_maps_are_short_is_freed() {
        const TAG: u32 = 1;
        let probe = Probe::boot(KernelConfig::default());
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("a limit");
        let limit: usize = text.trim().parse().expect("a number");
        // One frame again and again: each page is a map.
        let pages = Reservation::new(Zone::UserBuffers, limit * PAGE_SIZE).expect("addresses");
        let frame = frames::allocate_run(1).expect("a frame");
        let mut used = 0;
        while address_space::maps() < limit / 4 * 3 {
            pages.map_run(used * PAGE_SIZE, frame.clone(), Protection::ReadOnly);
            used += 1;
        }
        for size in [2048, 3000, PAGE_SIZE, PAGE_SIZE + 1] {
            let block = pool::allocate_for_host(size, TAG).expect("a block");
            pool::free_for_host(block, TAG);
        }
        pages.release();
        frames::free_run(frame);
        probe.finish();
    }
}

#[test]
fn buffer_freed_while_mapped_is_a_bugcheck() {
    let outcome = in_child("buffer_freed_while_mapped_is_a_bugcheck", || {
        let probe = Probe::boot(KernelConfig::default());
        let buffer = UserBuffer::new(PAGE_SIZE);
        let locked = buffer.lock(Access::Read);
        // SAFETY: an MDL of our own over a live buffer.
        unsafe {
            let partial = mdls::IoAllocateMdl(buffer.address(), 100, 0, 0, std::ptr::null_mut());
            mdls::IoBuildPartialMdl(locked.as_ptr(), partial, buffer.address(), 100);
            mdls::MmMapLockedPagesSpecifyCache(partial, 0, 1, 0, 0, 0x4000_0010);
        }
        drop(locked);
        drop(buffer);
        probe.finish();
    });
    if let Some(outcome) = outcome {
        let report = outcome.expect_bugcheck();
        assert_eq!(report["code"], 0xC4);
        assert!(report["rule"].as_str().is_some_and(|rule| rule.contains("pages are unlocked")), "{report}");
    }
}

trial! {
    fn faults_are_injected_by_call_site() {
        const ROUNDS: u64 = 10;
        let probe = Probe::boot(KernelConfig::default());
        let function = probe.function("allocate_at_two_places");
        // SAFETY: an exported function of an integer.
        let run = || unsafe { call_image!(OTHER, function => u64; ROUNDS) };
        fault::start_recording();
        assert_eq!(run(), ROUNDS);
        let sites = fault::sites();
        assert_eq!(sites.len(), 2, "two places in a loop are two sites");
        for site in sites {
            assert_eq!((site.export, site.hits), ("ExAllocatePool2", ROUNDS));
            for hit in [1, ROUNDS / 2, ROUNDS] {
                fault::fail(site.site, hit);
                assert_eq!(run(), ROUNDS - 1);
            }
            fault::fail(site.site, ROUNDS + 1);
            assert_eq!(run(), ROUNDS, "a hit that never comes fails nothing");
        }
        fault::stop();
        assert_eq!(fault::failures(), 6);
        probe.finish();
    }
}

trial! {
    fn stack_use_below_an_entry_is_measured() {
        let probe = Probe::boot(KernelConfig::default());
        let context = Context::new(ContextKind::WorkItem, "a work item");
        for bytes in [512_u64, 4096, 1024] {
            // SAFETY: an exported function of an integer.
            unsafe { call_image!(context, probe.function("use_stack") => u64; bytes) };
        }
        let marks = probe.kernel.report().stack_marks;
        let used = marks[&ContextKind::WorkItem];
        assert!((4096..8192).contains(&used), "{used}");
        assert!(marks[&ContextKind::DriverEntry] < 1024);
        probe.finish();
    }
}

#[test]
fn stack_overflow_is_named() {
    let outcome = in_child("stack_overflow_is_named", || {
        let probe = Probe::boot(KernelConfig::default());
        // SAFETY: an exported function of an integer.
        unsafe { call_image!(OTHER, probe.function("use_stack") => u64; 30_000_u64) };
    });
    if let Some(outcome) = outcome {
        let report = outcome.expect_bugcheck();
        assert_eq!(report["name"], "UNEXPECTED_KERNEL_MODE_TRAP");
        let stack = report["stack"].as_array().expect("a stack");
        assert!(
            stack.iter().any(|frame| frame.as_str().is_some_and(|frame| frame.contains("probe::use_stack"))),
            "{report}"
        );
    }
}

#[test]
fn report_names_the_functions_on_the_stack() {
    let outcome = in_child("report_names_the_functions_on_the_stack", || {
        let probe = Probe::boot(KernelConfig::default());
        // SAFETY: the address is wrong on purpose; the fault must be reported.
        unsafe { call_image!(OTHER, probe.function("outermost_function") => u64; 0x1230_usize) };
    });
    if let Some(outcome) = outcome {
        let report = outcome.expect_bugcheck();
        assert_eq!(report["code"], 0x50);
        assert_eq!(report["parameters"][0], 0x1230);
        let stack = report["stack"].as_array().expect("a stack");
        let named = |name: &str| stack.iter().any(|frame| frame.as_str().is_some_and(|frame| frame.contains(name)));
        assert!(named("probe::innermost_function") && named("probe::outermost_function"), "{report}");
    }
}

#[test]
fn leak_is_reported_with_tag_and_call_site() {
    let outcome = in_child("leak_is_reported_with_tag_and_call_site", || {
        let probe = Probe::boot(KernelConfig::default());
        // SAFETY: an exported function of an integer.
        unsafe { call_image!(OTHER, probe.function("allocate") => *mut u8; 100_usize) };
        probe.finish();
    });
    if let Some(outcome) = outcome {
        let report = outcome.expect_bugcheck();
        let rule = report["rule"].as_str().expect("a rule");
        assert!(rule.contains("1 pool block with tag 'prob', 100 bytes") && rule.contains("probe::allocate"), "{rule}");
    }
}

#[test]
fn freeing_a_queued_timer_is_a_bugcheck() {
    let outcome = in_child("freeing_a_queued_timer_is_a_bugcheck", || {
        let probe = Probe::boot(KernelConfig::default());
        // SAFETY: pool for a timer, which is freed while it is set: on purpose.
        unsafe {
            let timer = call_image!(OTHER, probe.function("allocate") => *mut KTIMER; size_of::<KTIMER>());
            timers::KeInitializeTimer(timer);
            timers::KeSetTimer(timer, -1_000_000_000, std::ptr::null_mut());
            call_image!(OTHER, probe.function("free") => (); timer);
        }
    });
    if let Some(outcome) = outcome {
        assert_eq!(outcome.expect_bugcheck()["name"], "TIMER_OR_DPC_INVALID");
    }
}

#[test]
fn hang_is_reported_with_the_waiting_threads() {
    let outcome = in_child("hang_is_reported_with_the_waiting_threads", || {
        let hang_limit = Some(Duration::from_millis(300));
        let probe = Probe::boot(KernelConfig { hang_limit, ..KernelConfig::default() });
        let mut event: Box<KEVENT> = zeroed();
        let objects = [&raw mut *event as u64];
        // SAFETY: our own event, which is never set.
        unsafe {
            dispatcher_objects::KeInitializeEvent(&raw mut *event, 0, 0);
            let none = std::ptr::null::<i64>();
            call_image!(OTHER, probe.function("wait_for_any") => i32; objects.as_ptr(), 1_u32, none);
        }
    });
    if let Some(outcome) = outcome {
        let report = outcome.expect_bugcheck();
        assert!(report["rule"].as_str().is_some_and(|rule| rule.contains("KeWaitForMultipleObjects")), "{report}");
    }
}

trial! {
    fn image_is_gone_after_unload() {
        let probe = Probe::boot(KernelConfig::default());
        let function = probe.function("irql_calls");
        assert!(image::contains_code(function));
        // Threads of the host may take their stacks meanwhile; what an image leaves, every image leaves.
        let left = (0..5).map(|_| {
            let before = frames::used();
            let second = probe.kernel.load_driver(crate::probe::image(None), "second").expect("an image loads twice");
            assert_ne!(second.image().base, probe.driver.image().base);
            second.unload();
            frames::used().saturating_sub(before)
        });
        assert_eq!(left.min(), Some(0));
        probe.finish();
        assert!(!image::contains_code(function));
    }
}
