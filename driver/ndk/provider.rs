//! NDK on one adapter: on or off, who has it open, and the thread that tells NDIS about changes.
//!
//! NDKPI: the disable event stays pending until every NDK adapter is closed, and closing one may need any other thread of
//! ours. So the events have a thread of their own, which does nothing else.

use core::{
    ffi::c_void,
    net::IpAddr,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
};

use ndkpi_sys::ndis::{
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2, NDIS_STATUS,
    NDIS_STATUS_RESOURCES, NET_PNP_EVENT_NOTIFICATION, NET_PNP_EVENT_NOTIFICATION_REVISION_2, NdisMNetPnPEvent,
    NetEventNDKDisable, NetEventNDKEnable,
};

use softndk_engine::{Adapter as EngineAdapter, AdapterSettings, Counters, Fabric};

use super::limits;
use crate::{
    adapter::{Adapter, MiniportHandle},
    configuration::Configuration,
    driver::Driver,
    kernel::{
        dpc,
        event::Event,
        pool::OutOfMemory,
        rundown::Rundown,
        spin_lock::SpinLock,
        thread::{self, Thread},
    },
    platform::KernelPlatform,
    status,
};

/// What the event thread is asked to bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Wanted {
    Nothing = 0,
    Enabled = 1,
    Disabled = 2,
    End = 3,
}

impl Wanted {
    fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Enabled,
            2 => Self::Disabled,
            3 => Self::End,
            _ => Self::Nothing,
        }
    }
}

pub struct Provider {
    /// The engine's part of the adapter.
    engine: EngineAdapter<KernelPlatform>,
    /// Opens are let in.
    enabled: AtomicBool,
    /// The adapter is being halted.
    leaving: AtomicBool,
    /// One reference per open NDK adapter.
    opens: Rundown,
    wanted: AtomicU8,
    wake: Event,
    thread: SpinLock<Option<Thread>>,
}

impl Provider {
    /// PASSIVE_LEVEL.
    pub fn try_new(configuration: &Configuration, fabric: &Fabric<KernelPlatform>) -> Result<Self, NDIS_STATUS> {
        let none = |OutOfMemory| NDIS_STATUS_RESOURCES;
        let opens = Rundown::try_open().map_err(none)?;
        let wake = Event::try_synchronization(false).map_err(none)?;
        let settings = AdapterSettings { limits: limits::of(configuration), wire: configuration.wire_number };
        let engine = fabric.add_adapter(settings).map_err(status::of_create)?;
        if !configuration.network_direct {
            engine.shut_down();
        }
        Ok(Self {
            engine,
            enabled: AtomicBool::new(configuration.network_direct),
            leaving: AtomicBool::new(false),
            opens,
            wanted: AtomicU8::new(Wanted::Nothing as u8),
            wake,
            thread: SpinLock::new(None),
        })
    }

    /// Starts the event thread. PASSIVE_LEVEL, once the adapter is at its final address.
    pub fn start(&self, adapter: &Adapter) -> Result<(), NDIS_STATUS> {
        let context: *const Adapter = adapter;
        // SAFETY: `run_events` takes the adapter's address; `stop` joins the thread before the adapter is freed.
        let thread = unsafe { Thread::start(run_events, context.cast_mut().cast()) }?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends NDK on this adapter: no new opens, every open closed, the event thread gone. PASSIVE_LEVEL.
    pub fn stop(&self) {
        self.enabled.store(false, Ordering::Release);
        self.ask(Wanted::End);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
        // NDIS closes what it opened before HaltEx; this wait is the proof.
        self.opens.shut();
        self.engine.shut_down();
        // An open counts down before the engine's last touch of it: let the turns that are on their way end.
        dpc::flush();
        self.engine.remove();
    }

    /// The engine's part of the adapter.
    pub fn engine(&self) -> &EngineAdapter<KernelPlatform> {
        &self.engine
    }

    /// Switches NDK on or off and lets the event thread tell NDIS. Never blocks.
    pub fn set_state(&self, enable: bool) {
        if self.is_leaving() {
            return;
        }
        let changed = self.enabled.swap(enable, Ordering::AcqRel) != enable;
        if changed {
            self.ask(if enable { Wanted::Enabled } else { Wanted::Disabled });
        }
    }

    /// The adapter is being halted: nothing new is let in. Before the driver's own sessions on it are ended.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.enabled.store(false, Ordering::SeqCst);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire) && !self.is_leaving()
    }

    /// The device is gone: nothing new is let in, and nothing switches it on again.
    pub fn surprise_removed(&self) {
        self.leave();
        self.engine.shut_down();
    }

    /// A reference for a new open, or nothing while NDK is off. Give it back with [`Provider::closed`].
    pub fn opening(&self) -> bool {
        self.is_enabled() && self.opens.acquire()
    }

    pub fn closed(&self) {
        self.opens.release();
    }

    /// The interface's addresses changed: listeners and connections of vanished ones end. Without memory for the list the
    /// old one stays until the next change. `IRQL <= DISPATCH_LEVEL`.
    pub fn addresses_changed(&self, addresses: &[IpAddr]) {
        let _kept_on_failure = self.engine.set_addresses(addresses);
    }

    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    fn ask(&self, wanted: Wanted) {
        // The end is final: a change of state that comes later is of no interest any more.
        let _previous = self.wanted.fetch_update(Ordering::AcqRel, Ordering::Acquire, |current| {
            (Wanted::from_raw(current) != Wanted::End).then_some(wanted as u8)
        });
        self.wake.set();
    }

    /// The next thing to bring about.
    fn next(&self) -> Wanted {
        self.wake.wait();
        let raw = self.wanted.load(Ordering::Acquire);
        if Wanted::from_raw(raw) != Wanted::End {
            // Lost only to a newer wish, whose own wake-up is then on its way.
            let _taken = self.wanted.compare_exchange(raw, Wanted::Nothing as u8, Ordering::AcqRel, Ordering::Relaxed);
        }
        Wanted::from_raw(raw)
    }
}

/// The event thread of one adapter.
unsafe extern "C" fn run_events(context: *mut c_void) {
    // SAFETY: `Provider::start` gave the adapter, which outlives this thread.
    if let Some(adapter) = unsafe { Adapter::from_context(context) } {
        loop {
            match adapter.provider.next() {
                Wanted::Nothing => {}
                Wanted::Enabled => {
                    // Here and not when it was asked for: a disable that is still under way would shut down after it.
                    if adapter.provider.is_enabled() {
                        adapter.provider.engine.start();
                        if adapter.provider.is_leaving() {
                            // A removal that came in between has shut down too early.
                            adapter.provider.engine.shut_down();
                        }
                    }
                    announce(adapter.miniport, true);
                }
                Wanted::Disabled => {
                    // NDIS does not know about our own opens, and waits only for its own.
                    if let Some(driver) = Driver::get() {
                        driver.pairs.end_adapter(adapter.index);
                    }
                    announce(adapter.miniport, false);
                    adapter.provider.engine.shut_down();
                }
                Wanted::End => break,
            }
        }
    }
    thread::exit();
}

/// Tells NDIS that NDK was switched. Disabling returns when every NDK adapter has been closed. PASSIVE_LEVEL.
fn announce(miniport: MiniportHandle, enabled: bool) {
    let mut notification = NET_PNP_EVENT_NOTIFICATION::zeroed();
    notification.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: NET_PNP_EVENT_NOTIFICATION_REVISION_2,
        Size: NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2,
    };
    notification.NetPnPEvent.NetEvent = if enabled { NetEventNDKEnable } else { NetEventNDKDisable };
    // SAFETY: PASSIVE_LEVEL on our own thread, outside any OID handler and without locks; the notification is complete.
    let _status = unsafe { NdisMNetPnPEvent(miniport.0, &raw mut notification) };
}
