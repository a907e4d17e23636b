//! One driver image that can break any one rule of the kernel, or, as that rule's good twin, keep it.
//!
//! Which rule and which twin is the *service name*, the last part of the registry path given to `DriverEntry`:
//! `double-free.bad` breaks the rule, `double-free.good` differs from it by one call and keeps it. One build therefore
//! gives every case. A name that is not in the table fails to load. The runner and the list of what each case must
//! bring about are in `tests/conformance`; this crate only misbehaves. It keeps no rules by design and shares no code
//! with softndk.sys.
//!
//! Unsafe everywhere: each line calls the kernel, half of them wrongly on purpose.

#![no_std]
#![allow(clashing_extern_declarations, reason = "files declare what they need, each in its own types")]
#![allow(clippy::missing_safety_doc, reason = "nothing here is safe, that is its purpose")]

mod connector;
mod datagrams;
mod device;
mod events;
mod handles;
mod irql;
mod kernel;
mod lifetime;
mod mappings;
mod mdl;
mod miniport;
mod mutexes;
mod pool;
mod pool_kinds;
mod priority;
mod queue;
mod sockets;
mod spin_lock;
mod timing;
mod traffic;
mod unload;
mod wdm;

use core::panic::PanicInfo;

use kernel::{DriverObject, KeBugCheckEx, NtStatus, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, UnicodeString};

/// What the compiler's floating-point code refers to.
#[unsafe(no_mangle)]
pub static _fltused: i32 = 0;

/// What the precompiled core library's unwind tables refer to; nothing unwinds here.
#[unsafe(no_mangle)]
pub extern "C" fn __CxxFrameHandler3() -> i32 {
    0
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: a panic is a defect of this crate; the code is "RPNC", as drivers in Rust report it.
    unsafe { KeBugCheckEx(0x5250_4E43, 0, 0, 0, 0) }
}

type Step = unsafe fn(good: bool);

/// What a case does: something while it loads, and perhaps something while it unloads.
enum Case {
    Load(Step),
    LoadUnload(Step, Step),
    /// Registers the miniport; the fault shows when NDIS drives it.
    Miniport(miniport::Fault),
    /// The same miniport; the fault shows at its control device.
    Device(device::Fault),
    /// A device of `IoCreateDevice`.
    Wdm,
    /// A conversation over sockets, while it loads.
    Sockets(sockets::Fault),
    /// One of datagrams.
    Datagrams(datagrams::Fault),
}

use Case::{Device, Load, LoadUnload, Miniport, Wdm};
use miniport::Fault;

static CASES: &[(&str, Case)] = &[
    ("wait-at-dispatch", Load(irql::wait_at_dispatch)),
    ("delay-at-dispatch", Load(irql::delay_at_dispatch)),
    ("passive-call-at-dispatch", Load(irql::passive_call_at_dispatch)),
    ("pool-at-device-level", Load(irql::pool_at_device_level)),
    ("driver-entry-returns-raised", Load(irql::returns_raised)),
    ("lower-above-current", Load(irql::lower_above_current)),
    ("raise-below-current", Load(irql::raise_below_current)),
    ("spin-lock-recursion", Load(spin_lock::recursion)),
    ("spin-lock-released-twice", Load(spin_lock::released_twice)),
    ("spin-lock-released-by-another", Load(spin_lock::released_by_another)),
    ("spin-lock-released-below-dispatch", Load(spin_lock::released_below_dispatch)),
    ("spin-lock-acquired-below-dispatch", Load(spin_lock::acquired_below_dispatch)),
    ("spin-lock-held-on-return", Load(spin_lock::held_on_return_from_dpc)),
    ("spin-locks-out-of-order", Load(spin_lock::out_of_order)),
    ("spin-locks-in-a-circle", Load(spin_lock::out_of_order_by_a_third)),
    ("spin-lock-held-over-wait", Load(spin_lock::held_over_a_wait)),
    ("spin-lock-never-released", Load(spin_lock::never_released)),
    ("spin-lock-freed-while-held", Load(spin_lock::freed_while_held)),
    ("dpc-too-long", Load(spin_lock::dpc_too_long)),
    ("dpc-without-end", Load(spin_lock::dpc_without_end)),
    ("dpc-returns-raised", Load(spin_lock::dpc_returns_raised)),
    ("dpc-waits", Load(spin_lock::dpc_waits)),
    ("double-free", Load(pool::double_free)),
    ("wrong-tag", Load(pool::wrong_tag)),
    ("tag-zero", Load(pool::tag_zero)),
    ("size-zero", Load(pool::size_zero)),
    ("pool-freed-at-device-level", Load(pool::freed_at_device_level)),
    ("pool-freed-with-timer", Load(pool::freed_with_timer)),
    ("free-inside-block", Load(pool::free_inside_block)),
    ("use-after-free", Load(pool::use_after_free)),
    ("overrun-by-one", Load(pool::overrun_by_one)),
    ("overrun-by-sixteen", Load(pool::overrun_by_sixteen)),
    ("underrun", Load(pool::underrun)),
    ("pool-leak", Load(pool::leak)),
    ("wild-read", Load(pool::wild_read)),
    ("mdl-access-after-unmap", Load(mdl::access_after_unmap)),
    ("mdl-freed-while-mapped", Load(mdl::freed_while_mapped)),
    ("mdl-unmapped-twice", Load(mdl::unmapped_twice)),
    ("mdl-mapped-unlocked", Load(mdl::mapped_unlocked)),
    ("mdl-of-pool-mapped", Load(mdl::mapped_pool)),
    ("mdl-write-to-read-only", Load(mdl::write_to_read_only)),
    ("mdl-access-after-unlock", Load(mdl::access_after_unlock)),
    ("mdl-mapped-after-unlock", Load(mdl::mapped_after_unlock)),
    ("mdl-unlocked-while-mapped", Load(mdl::unlocked_while_mapped)),
    ("mdl-unlocked-twice", Load(mdl::unlocked_twice)),
    ("mdl-freed-while-locked", Load(mdl::freed_while_locked)),
    ("mdl-freed-marked-locked", Load(mdl::freed_marked_locked)),
    ("mdl-leak", Load(mdl::leak)),
    ("timer-running-at-unload", LoadUnload(lifetime::start_timer, lifetime::stop_timer)),
    ("thread-running-at-unload", LoadUnload(lifetime::start_thread, lifetime::stop_thread)),
    ("handle-leak", Load(lifetime::handle_leak)),
    ("handle-closed-twice", Load(lifetime::handle_closed_twice)),
    ("rundown-released-too-often", Load(lifetime::rundown_released_too_often)),
    ("stack-overflow", Load(lifetime::stack_overflow)),
    ("threads-that-starve-others", Load(priority::starve)),
    ("characteristics-type", Miniport(Fault::CharacteristicsType)),
    ("characteristics-revision", Miniport(Fault::CharacteristicsRevision)),
    ("characteristics-size", Miniport(Fault::CharacteristicsSize)),
    ("halt-handler-missing", Miniport(Fault::HaltHandlerMissing)),
    ("direct-oid-pair-missing", Miniport(Fault::DirectOidPairMissing)),
    ("provider-type", Miniport(Fault::ProviderType)),
    ("registration-type", Miniport(Fault::RegistrationType)),
    ("registration-size", Miniport(Fault::RegistrationSize)),
    ("general-attributes-first", Miniport(Fault::GeneralFirst)),
    ("general-attributes-missing", Miniport(Fault::GeneralMissing)),
    ("power-capabilities-missing", Miniport(Fault::PowerCapabilitiesMissing)),
    ("multicast-address", Miniport(Fault::MulticastAddress)),
    ("mandatory-oid-missing", Miniport(Fault::OidMissing)),
    ("ndk-oid-missing", Miniport(Fault::NdkOidMissing)),
    ("ndk-attributes-size", Miniport(Fault::NdkAttributesSize)),
    ("ndk-info-missing", Miniport(Fault::NdkInfoMissing)),
    ("fast-register-pages-too-few", Miniport(Fault::FastRegisterPagesTooFew)),
    ("set-state-pends", Miniport(Fault::SetStatePends)),
    ("event-in-oid", Miniport(Fault::EventInOid)),
    ("oid-overrun", Miniport(Fault::OidOverrun)),
    ("oid-returns-raised", Miniport(Fault::OidReturnsRaised)),
    ("work-item-left", Miniport(Fault::WorkItemLeft)),
    ("buffer-pool-left", Miniport(Fault::BufferPoolLeft)),
    ("configuration-left", Miniport(Fault::ConfigurationLeft)),
    ("null-slot", Miniport(Fault::NullSlot)),
    ("wrong-object-type", Miniport(Fault::WrongObjectType)),
    ("reserved-not-zero", Miniport(Fault::ReservedNotZero)),
    ("table-on-heap", Miniport(Fault::TableOnHeap)),
    ("completion-in-call", Miniport(Fault::CompletionInCall)),
    ("completion-after-success", Miniport(Fault::CompletionAfterSuccess)),
    ("completion-twice", Miniport(Fault::CompletionTwice)),
    ("completion-never", Miniport(Fault::CompletionNever)),
    ("close-fails", Miniport(Fault::CloseFails)),
    ("dispatch-overwritten", Miniport(Fault::DispatchOverwritten)),
    ("disconnect-twice", Miniport(Fault::DisconnectTwice)),
    ("device-left", Miniport(Fault::DeviceLeft)),
    ("completion-under-lock", Miniport(Fault::CompletionLocked)),
    ("notification-under-lock", Miniport(Fault::NotificationLocked)),
    ("notification-at-device-level", Miniport(Fault::NotificationRaised)),
    ("notifications-at-once", Miniport(Fault::NotificationsAtOnce)),
    ("notification-after-close", Miniport(Fault::NotificationAfterClose)),
    ("send-kept", Miniport(Fault::SendKept)),
    ("send-completed-twice", Miniport(Fault::SendCompletedTwice)),
    ("send-completed-pending", Miniport(Fault::SendCompletedPending)),
    ("send-completed-under-lock", Miniport(Fault::SendCompletedLocked)),
    ("send-completed-level-untold", Miniport(Fault::SendCompletedLevelUntold)),
    ("send-touched-after-completion", Miniport(Fault::SendTouchedAfterCompletion)),
    ("senders-list-indicated", Miniport(Fault::SendersListIndicated)),
    ("receive-short", Miniport(Fault::ReceiveShort)),
    ("receive-without-source", Miniport(Fault::ReceiveWithoutSource)),
    ("receive-miscounted", Miniport(Fault::ReceiveMiscounted)),
    ("receive-indicated-twice", Miniport(Fault::ReceiveIndicatedTwice)),
    ("receive-under-lock", Miniport(Fault::ReceiveIndicatedLocked)),
    ("receive-freed-early", Miniport(Fault::ReceiveFreedEarly)),
    ("receive-level-untold", Miniport(Fault::ReceiveLevelUntold)),
    ("receive-level-wrong", Miniport(Fault::ReceiveLevelWrong)),
    ("receive-while-halting", Miniport(Fault::ReceiveWhileHalting)),
    ("pause-fails", Miniport(Fault::PauseFails)),
    ("pause-never-completed", Miniport(Fault::PauseNeverCompleted)),
    ("pause-completed-twice", Miniport(Fault::PauseCompletedTwice)),
    ("pause-completed-and-returned", Miniport(Fault::PauseCompletedAndReturned)),
    ("restart-completed-unasked", Miniport(Fault::RestartCompletedUnasked)),
    ("restart-never-completed", Miniport(Fault::RestartNeverCompleted)),
    ("status-type", Miniport(Fault::StatusType)),
    ("status-without-source", Miniport(Fault::StatusWithoutSource)),
    ("link-state-header", Miniport(Fault::LinkStateHeader)),
    ("link-state-short", Miniport(Fault::LinkStateShort)),
    ("oid-never-completed", Miniport(Fault::OidNeverCompleted)),
    ("oid-completed-twice", Miniport(Fault::OidCompletedTwice)),
    ("oid-completed-and-returned", Miniport(Fault::OidCompletedAndReturned)),
    ("irp-completed-twice", Device(device::Fault::CompletedTwice)),
    ("irp-never-completed", Device(device::Fault::NeverCompleted)),
    ("irp-information-too-large", Device(device::Fault::InformationTooLarge)),
    ("irp-pending-not-marked", Device(device::Fault::PendingNotMarked)),
    ("irp-marked-not-pending", Device(device::Fault::MarkedNotPending)),
    ("irp-status-differs", Device(device::Fault::StatusDiffers)),
    ("irp-completed-raised", Device(device::Fault::CompletedRaised)),
    ("irp-completed-pending", Device(device::Fault::CompletedPending)),
    ("irp-completed-under-lock", Device(device::Fault::CompletedLocked)),
    ("irp-completed-cancelable", Device(device::Fault::CompletedCancelable)),
    ("irp-output-unwritten", Device(device::Fault::OutputUnwritten)),
    ("irp-survives-its-thread", Device(device::Fault::NotCancelable)),
    ("cancel-routine-keeps-lock", Device(device::Fault::CancelKeepsLock)),
    ("irp-returns-in-critical-region", Device(device::Fault::ReturnsInRegion)),
    ("sent-frame-written", Miniport(Fault::SendWritten)),
    ("irp-status-unwritten", Device(device::Fault::StatusUnwritten)),
    ("irp-status-meaningless", Device(device::Fault::StatusMeaningless)),
    ("irp-cleanup-fails", Device(device::Fault::CleanupFails)),
    ("irp-close-fails", Device(device::Fault::CloseFails)),
    ("irp-marked-after-unlock", Device(device::Fault::MarkedAfterUnlock)),
    ("irp-marked-after-interlocked-queue", Device(device::Fault::MarkedAfterQueue)),
    ("irp-cancel-not-read", Device(device::Fault::CancelNotRead)),
    ("irp-input-written", Device(device::Fault::InputWritten)),
    ("device-flags-contradict", Wdm),
    ("dpc-queued-at-unload", LoadUnload(unload::ready, unload::queue_call)),
    ("work-item-queued-at-unload", LoadUnload(unload::queue_work, unload::leave_work)),
    ("stall-too-long", Load(timing::stall_too_long)),
    ("text-without-end", Load(timing::text_without_end)),
    ("send-too-late", Miniport(Fault::SendTooLate)),
    ("sends-stand-still", Miniport(Fault::SendsStandStill)),
    ("oid-too-late", Miniport(Fault::OidTooLate)),
    ("level-asked-in-send", Miniport(Fault::LevelAsked)),
    ("periodic-timer-cancelled-raised", Miniport(Fault::TimerCancelledRaised)),
];

/// Every table of cases: this one, and those of the files that have one of their own.
static TABLES: &[&[(&str, Case)]] = &[CASES, datagrams::CASES, events::CASES, handles::CASES, mappings::CASES, mutexes::CASES, pool_kinds::CASES, sockets::CASES];

/// The case that this load plays, for the unload routine.
static CHOICE: spin_lock::Shared<Option<(&'static Case, bool)>> = spin_lock::Shared(core::cell::UnsafeCell::new(None));

/// Picks the case and its twin from the last component of the registry path.
unsafe fn choose(path: &UnicodeString) -> Option<(&'static Case, bool)> {
    let text = core::slice::from_raw_parts(path.buffer, usize::from(path.length / 2));
    let service = text.rsplit(|unit| *unit == u16::from(b'\\')).next()?;
    let named = |name: &str, twin: &str| {
        let expected = name.bytes().chain(twin.bytes()).map(u16::from);
        expected.eq(service.iter().copied())
    };
    TABLES.iter().copied().flatten().find_map(|(name, case)| match () {
        () if named(name, ".bad") => Some((case, false)),
        () if named(name, ".good") => Some((case, true)),
        () => None,
    })
}

static DRIVER: core::sync::atomic::AtomicPtr<DriverObject> = core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());

/// The driver object of this image.
fn driver_object() -> *mut DriverObject {
    DRIVER.load(core::sync::atomic::Ordering::Relaxed)
}

unsafe extern "C" fn unload(_: *mut DriverObject) {
    match &*CHOICE.0.get() {
        Some((LoadUnload(_, step), good)) => step(*good),
        Some((Wdm, _)) => wdm::delete(),
        _ => {}
    }
}

/// The entry point of the image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn DriverEntry(driver: *mut DriverObject, path: *const UnicodeString) -> NtStatus {
    let Some(choice) = choose(&*path) else { return STATUS_OBJECT_NAME_NOT_FOUND };
    *CHOICE.0.get() = Some(choice);
    DRIVER.store(driver, core::sync::atomic::Ordering::Relaxed);
    let good = choice.1;
    match choice.0 {
        Load(step) | LoadUnload(step, _) => {
            (*driver).unload = Some(unload);
            step(good);
            STATUS_SUCCESS
        }
        Wdm => {
            (*driver).unload = Some(unload);
            wdm::make(driver, good);
            STATUS_SUCCESS
        }
        Case::Sockets(fault) => {
            (*driver).unload = Some(unload);
            sockets::talk(if good { sockets::Fault::None } else { *fault });
            STATUS_SUCCESS
        }
        Case::Datagrams(fault) => {
            (*driver).unload = Some(unload);
            datagrams::talk(if good { datagrams::Fault::None } else { *fault });
            STATUS_SUCCESS
        }
        Miniport(fault) => miniport::register(driver, path, if good { Fault::None } else { *fault }),
        Device(fault) => {
            device::choose(if good { device::Fault::None } else { *fault });
            miniport::register(driver, path, Fault::None)
        }
    }
}
