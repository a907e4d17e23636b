//! NDK on one adapter: its state, its opens, and the thread that reports changes to NDIS.
//!
//! NDKPI: the disable event stays pending until every NDK adapter is closed, and closing one may need any other thread of the
//! driver. So the events have a thread of their own, which does nothing else.

use core::{
    ffi::c_void,
    sync::atomic::{AtomicBool, Ordering},
};

use ndkpi_sys::ndis::{
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2, NDIS_STATUS,
    NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS, NET_PNP_EVENT_NOTIFICATION, NET_PNP_EVENT_NOTIFICATION_REVISION_2,
    NdisMNetPnPEvent, NetEventNDKDisable, NetEventNDKEnable,
};
use ndkpi_sys::netioapi::{MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW};
use softndk_kernel::{
    dpc,
    event::Event,
    pool::NoMemory,
    rundown::Rundown,
    spin_lock::SpinLock,
    thread::{self, Thread},
};

use softndk_engine::{Adapter as EngineAdapter, AdapterAddress, AdapterSettings, Counters, Fabric};
use softndk_ioctl::{NdkCall, RefusalCause};

use super::limits;
use crate::{
    link::{address::Addresses, configuration::Configuration, handle::MiniportHandle},
    runtime::{
        event,
        platform::KernelPlatform,
        refusal::{Nothing, Refusal, refuse},
    },
    tags,
};

pub struct Provider {
    configuration: Configuration,
    miniport: MiniportHandle,
    /// The interface's addresses: those for listening and connecting.
    addresses: Addresses,
    /// The engine's part of the adapter.
    engine: EngineAdapter<KernelPlatform>,
    /// The last requested state; the event thread applies it.
    wanted: AtomicBool,
    /// The state that the event thread has applied. Opens are accepted while both are true: off as soon as it is requested, on
    /// when a disable that is under way has ended.
    on: AtomicBool,
    /// The adapter is being halted.
    leaving: AtomicBool,
    /// The event thread should end.
    ending: AtomicBool,
    /// One reference per open NDK adapter.
    opens: Rundown,
    wake: Event,
    thread: SpinLock<Option<Thread>>,
}

impl Provider {
    /// PASSIVE_LEVEL.
    pub fn try_new(
        miniport: MiniportHandle,
        net_luid: u64,
        configuration: Configuration,
        fabric: &Fabric<KernelPlatform>,
    ) -> Result<Self, NDIS_STATUS> {
        let none = |NoMemory| NDIS_STATUS_RESOURCES;
        let opens = Rundown::try_open(tags::RUNDOWN).map_err(none)?;
        let addresses = Addresses::try_new(net_luid).map_err(none)?;
        let wake = Event::try_synchronization(tags::EVENT, false).map_err(none)?;
        let settings = AdapterSettings {
            limits: limits::of(&configuration),
            wire: configuration.wire_number,
            timeouts: configuration.timeouts,
            logical_pages: configuration.logical_pages,
            transport: configuration.transport,
            stream_crc: configuration.stream_crc,
        };
        let refused = |cause| refuse(NdkCall::INITIALIZE, &Nothing, cause);
        let engine = fabric.add_adapter(settings).map_err(refused)?;
        if !configuration.network_direct {
            engine.shut_down();
        }
        Ok(Self {
            configuration,
            miniport,
            addresses,
            engine,
            wanted: AtomicBool::new(configuration.network_direct),
            on: AtomicBool::new(configuration.network_direct),
            leaving: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            opens,
            wake,
            thread: SpinLock::new(None),
        })
    }

    /// Starts the event thread, which follows changes of addresses too. PASSIVE_LEVEL, once the adapter is at its final address.
    pub fn start(&self) -> Result<(), NDIS_STATUS> {
        let context: *const Self = self;
        let context = context.cast_mut().cast();
        // SAFETY: `run_events` takes the provider's address; `stop` joins the thread before the adapter is freed.
        let thread = unsafe { Thread::start(run_events, context) }?;
        *self.thread.lock() = Some(thread);
        // SAFETY: `addresses_changed` takes the provider's address; `stop` cancels the notification before the adapter is freed.
        unsafe { self.addresses.watch(addresses_changed, context) }?;
        self.follow_addresses();
        Ok(())
    }

    /// Ends NDK on this adapter: no new opens, every open closed, the event thread gone. PASSIVE_LEVEL.
    pub fn stop(&self) {
        self.leave();
        // First: the notification makes the engine end what used a vanished address.
        self.addresses.forget();
        self.ending.store(true, Ordering::SeqCst);
        self.wake.set();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
        // NDIS closes its opens before HaltEx; this wait verifies it.
        self.opens.shut();
        self.engine.shut_down();
        // An open counts down before the engine's last touch of it: let the service passes under way end.
        dpc::flush();
        self.engine.remove();
    }

    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The engine's part of the adapter.
    pub fn engine(&self) -> &EngineAdapter<KernelPlatform> {
        &self.engine
    }

    /// Switches NDK on or off and lets the event thread report it to NDIS. Never blocks.
    pub fn set_state(&self, enable: bool) {
        self.wanted.store(enable, Ordering::SeqCst);
        self.wake.set();
    }

    /// The adapter is being halted: nothing new is let in.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    pub fn is_enabled(&self) -> bool {
        self.on.load(Ordering::SeqCst) && self.wanted.load(Ordering::SeqCst) && !self.is_leaving()
    }

    /// The device is gone: nothing new is let in, and nothing switches it on again.
    pub fn surprise_removed(&self) {
        self.leave();
        self.engine.shut_down();
    }

    /// A reference for a new open; false while NDK is off. Give it back with [`Provider::closed`].
    pub fn engine_open(&self) -> bool {
        self.is_enabled() && self.opens.acquire()
    }

    pub fn closed(&self) {
        self.opens.release();
    }

    /// The interface's addresses.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Listeners and connections of addresses that vanished end. `None` without memory for the list: the old one stays.
    /// `IRQL <= DISPATCH_LEVEL`.
    fn publish(&self, addresses: &[AdapterAddress]) -> Option<()> {
        self.engine.set_scoped_addresses(addresses).ok()
    }

    /// Reads the addresses; where memory is short the event thread tries again. PASSIVE_LEVEL.
    fn follow_addresses(&self) {
        if !self.addresses.refresh(&|addresses| self.publish(addresses)) {
            self.wake.set();
        }
    }

    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// Lets opens in. On the event thread, so that a disable that is still under way cannot be overtaken.
    fn switch_on(&self) {
        self.engine.start();
        self.on.store(true, Ordering::SeqCst);
        if self.is_leaving() {
            // A removal that came in between has shut down too early.
            self.engine.shut_down();
        }
    }

    /// Ends every connection and listener, and notifies their consumers.
    fn switch_off(&self) {
        self.on.store(false, Ordering::SeqCst);
        self.engine.shut_down();
    }

    /// Applies the wanted state, and reports it to NDIS where the last report differs; an error when NDIS did not take it. The
    /// actual and the reported state may differ: a request may be taken back before the event that failed is raised again.
    fn follow(&self, reported: &mut bool) -> Result<(), NDIS_STATUS> {
        while !self.is_leaving() {
            let wanted = self.wanted.load(Ordering::SeqCst);
            if wanted != self.on.load(Ordering::SeqCst) {
                if wanted {
                    self.switch_on();
                } else {
                    self.switch_off();
                }
                event::ndk_switched(self.addresses.net_luid(), wanted);
            }
            if wanted == *reported {
                break;
            }
            announce(self.miniport, wanted)?;
            *reported = wanted;
        }
        Ok(())
    }
}

/// How long the event thread waits before it tries again what failed for the first time, in milliseconds; twice as long with
/// each further failure.
const AGAIN: u32 = 100;
/// How often that doubles: the longest wait is 25.6 s.
const DOUBLINGS: u32 = 8;
/// How often an event for which NDIS has no resources is raised: over about 50 s.
const TRIES: u32 = 10;

/// The wait after so many failures in a row, in milliseconds.
fn pause(failures: u32) -> u32 {
    AGAIN << failures.saturating_sub(1).min(DOUBLINGS)
}

/// The event thread of one adapter. It compares what is wanted with what was reported to NDIS last, so that requests that cross
/// are answered by events that alternate; and it follows changes of addresses that could not be read for want of memory. While
/// a disable waits for consumers to close, address changes wait too: all engine objects have ended then, and none is created.
///
/// Only lack of resources is waited out: addresses are read again for as long as the adapter exists, an event is raised at most
/// [`TRIES`] times. An event that NDIS refuses for another reason is not raised again before the next request.
unsafe extern "C" fn run_events(context: *mut c_void) {
    // SAFETY: `Provider::start` gave the provider, which outlives this thread.
    if let Some(provider) = unsafe { context.cast::<Provider>().as_ref() } {
        // Only this thread changes it.
        let mut reported = provider.on.load(Ordering::SeqCst);
        // In a row; and how often the event may be raised before the next request.
        let (mut failures, mut tries) = (0_u32, TRIES);
        loop {
            let called = if failures == 0 {
                provider.wake.wait();
                true
            } else {
                provider.wake.wait_at_most(pause(failures))
            };
            if provider.ending.load(Ordering::SeqCst) {
                break;
            }
            if called {
                tries = TRIES;
            }
            let caught_up = provider.addresses.catch_up(&|addresses| provider.publish(addresses));
            if tries != 0 {
                tries = match provider.follow(&mut reported) {
                    Ok(()) => TRIES,
                    Err(NDIS_STATUS_RESOURCES) => tries.saturating_sub(1),
                    Err(_) => 0,
                };
            }
            let again = !caught_up || (tries != 0 && tries != TRIES);
            failures = if again { failures.saturating_add(1) } else { 0 };
        }
    }
    thread::exit();
}

/// netio: an address of some interface was added, removed or changed. PASSIVE_LEVEL.
unsafe extern "C" fn addresses_changed(
    context: *mut c_void,
    _row: *mut MIB_UNICASTIPADDRESS_ROW,
    _kind: MIB_NOTIFICATION_TYPE,
) {
    // SAFETY: the context is the provider that registered; it cancels the notification before it is freed.
    if let Some(provider) = unsafe { context.cast::<Provider>().as_ref() } {
        provider.follow_addresses();
    }
}

/// Reports to NDIS that NDK was switched; an error when NDIS did not take it. Disabling returns when every NDK adapter has been
/// closed. PASSIVE_LEVEL.
fn announce(miniport: MiniportHandle, enabled: bool) -> Result<(), NDIS_STATUS> {
    let mut notification = NET_PNP_EVENT_NOTIFICATION::zeroed();
    notification.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: NET_PNP_EVENT_NOTIFICATION_REVISION_2,
        Size: NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2,
    };
    notification.NetPnPEvent.NetEvent = if enabled { NetEventNDKEnable } else { NetEventNDKDisable };
    // SAFETY: PASSIVE_LEVEL on the driver's own thread, outside any OID handler and without locks; the notification is
    // complete.
    let status = unsafe { NdisMNetPnPEvent(miniport.0, &raw mut notification) };
    if status == NDIS_STATUS_SUCCESS {
        return Ok(());
    }
    let refusal = Refusal::new(RefusalCause::NDIS_REFUSED, status);
    Err(refuse(NdkCall::NET_PNP_EVENT, &Nothing, refusal))
}
