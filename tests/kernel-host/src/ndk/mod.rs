//! The opener's side of NDK: how NDIS lets a consumer open a provider's adapter and makes all of them close when NDK is
//! disabled or the adapter is removed.
//!
//! An opened adapter is checked before a consumer sees it. A consumer that is a Rust test gets the provider's own object and
//! calls its tables; one that is a driver and comes through WSK has the layer of [`mediator`] in between, as on Windows.

pub mod mediator;
pub mod object_check;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use ndkpi_sys::ndisndk::NDIS_OPEN_NDK_ADAPTER_PARAMETERS;
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::NDK_ADAPTER;

use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::dispatcher::Event;
use crate::host_lock::HostLock;
use crate::ndis::loan::Loan;
use crate::ndis::miniport::{Miniport, MiniportState};
use crate::ndis::rendezvous::LIMIT;
use crate::ndis::rule::{Group, broken};
use crate::ndis::status as ndis_status;
use crate::status::NtStatus;

type Closer = Arc<dyn Fn() + Send + Sync>;

/// The NDK adapters that are open on a miniport, and the consumers to notify when they must close.
pub struct Opens {
    inner: HostLock<OpenRecords>,
    all_closed: Event,
}

#[derive(Default)]
struct OpenRecords {
    /// Whether the layers above may open the provider.
    enabled: bool,
    /// Opens that the provider has not answered yet.
    opening: usize,
    /// Address of each open adapter by the number of its open; 0 while its close is under way, because the provider may
    /// give the address out again before the close has returned here.
    open: BTreeMap<u64, usize>,
    next: u64,
    /// The most adapters that were open at a time.
    most: usize,
    consumers: BTreeMap<u64, Closer>,
}

impl OpenRecords {
    /// Adapters that are open, or may be in a moment.
    fn count(&self) -> usize {
        self.open.len() + self.opening
    }
}

impl Default for Opens {
    fn default() -> Self {
        Self { inner: HostLock::default(), all_closed: Event::notification() }
    }
}

impl Opens {
    /// Whether the layers above may open the provider.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.inner.lock().enabled
    }

    pub fn set_enabled(&self, enabled: bool) {
        self.inner.lock().enabled = enabled;
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.lock().open.len()
    }

    /// The most that were open at a time since the last call.
    pub fn take_most(&self) -> usize {
        let mut inner = self.inner.lock();
        let now = inner.open.len();
        std::mem::replace(&mut inner.most, now)
    }

    /// Makes every consumer close and waits until no adapter is open.
    pub fn close_all(&self, miniport: &Miniport, why: &str) {
        self.close_all_or(miniport, why, || ());
    }

    /// As [`Opens::close_all`]; `otherwise` is done before the wait when something is still open then.
    pub fn close_all_or(&self, miniport: &Miniport, why: &str, otherwise: impl FnOnce()) {
        let consumers: Vec<Closer> = self.inner.lock().consumers.values().cloned().collect();
        for close in consumers {
            close();
        }
        if self.count() != 0 {
            otherwise();
        }
        loop {
            let open = {
                let inner = self.inner.lock();
                let open = inner.count();
                if open == 0 {
                    return;
                }
                // Within the hold that saw one: a thread that waits here already has its wake-up still to come.
                self.all_closed.reset();
                open
            };
            if !self.all_closed.wait(Some(LIMIT)) {
                let rule = format!("{why}: {open} NDK adapters are still open after {LIMIT:?}");
                broken(Group::Ndk, miniport.handle, rule);
            }
        }
    }

    /// An open is on its way to the provider, unless that is disabled and it goes through NDIS: a disable waits for it.
    fn begin(&self, directly: bool) -> Option<OpenUnderWay<'_>> {
        let mut inner = self.inner.lock();
        if !inner.enabled && !directly {
            return None;
        }
        inner.opening += 1;
        Some(OpenUnderWay(self))
    }

    /// The number of a new open; `None` when the address is that of an adapter which is open.
    fn opened(&self, adapter: *mut NDK_ADAPTER) -> Option<u64> {
        let mut inner = self.inner.lock();
        if inner.open.values().any(|address| *address == adapter as usize) {
            return None;
        }
        inner.next += 1;
        let number = inner.next;
        inner.open.insert(number, adapter as usize);
        inner.most = inner.most.max(inner.open.len());
        Some(number)
    }

    fn closing(&self, number: u64) {
        self.inner.lock().open.insert(number, 0);
    }

    fn closed(&self, number: u64) {
        let mut inner = self.inner.lock();
        inner.open.remove(&number);
        self.tell_if_last(inner);
    }

    fn tell_if_last(&self, inner: MutexGuard<'_, OpenRecords>) {
        let last = inner.count() == 0;
        drop(inner);
        if last {
            self.all_closed.set();
        }
    }
}

/// An open that the provider has not answered yet.
struct OpenUnderWay<'a>(&'a Opens);

impl Drop for OpenUnderWay<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        inner.opening -= 1;
        self.0.tell_if_last(inner);
    }
}

/// A consumer's registration for the notice that it has to close; ends when dropped.
pub struct ConsumerRegistration {
    miniport: Arc<Miniport>,
    number: u64,
}

impl Drop for ConsumerRegistration {
    fn drop(&mut self) {
        self.miniport.ndk_opens.inner.lock().consumers.remove(&self.number);
    }
}

/// Registers a consumer: `close` is called when NDK is disabled or the adapter is removed, and has to close what it opened.
pub fn register_consumer(miniport: &Arc<Miniport>, close: impl Fn() + Send + Sync + 'static) -> ConsumerRegistration {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    miniport.ndk_opens.inner.lock().consumers.insert(number, Arc::new(close));
    ConsumerRegistration { miniport: Arc::clone(miniport), number }
}

/// An open NDK adapter. Closing it blocks until the provider has no descendant of it left; dropping it closes it.
pub struct NdkAdapter {
    miniport: Arc<Miniport>,
    adapter: *mut NDK_ADAPTER,
    version: NDK_VERSION,
    number: u64,
}

// SAFETY: the object is used through its dispatch table, whose functions any thread may call.
unsafe impl Send for NdkAdapter {}
// SAFETY: as above.
unsafe impl Sync for NdkAdapter {}

/// Opens the provider as NDIS does: refused by NDIS itself while NDK is disabled.
pub fn open(miniport: &Arc<Miniport>, version: NDK_VERSION) -> Result<NdkAdapter, NtStatus> {
    if miniport.driver.ndk().is_none() || miniport.ndk().is_none() {
        return Err(ndis_status::NOT_SUPPORTED);
    }
    let opening = miniport.ndk_opens.begin(false).ok_or(ndis_status::ADAPTER_NOT_READY)?;
    ask_provider(miniport, version, &opening)
}

/// Calls the provider's open handler without asking NDIS first, as happens when the disable races with an open.
pub fn open_directly(miniport: &Arc<Miniport>, version: NDK_VERSION) -> Result<NdkAdapter, NtStatus> {
    let opening = miniport.ndk_opens.begin(true).ok_or(ndis_status::ADAPTER_NOT_READY)?;
    ask_provider(miniport, version, &opening)
}

fn ask_provider(
    miniport: &Arc<Miniport>,
    version: NDK_VERSION,
    _opening: &OpenUnderWay<'_>,
) -> Result<NdkAdapter, NtStatus> {
    let handlers = miniport.driver.ndk().ok_or(ndis_status::NOT_SUPPORTED)?;
    if matches!(miniport.state(), MiniportState::Initializing | MiniportState::Halting | MiniportState::Halted) {
        return Err(ndis_status::ADAPTER_NOT_READY);
    }
    let parameters = Loan::new(NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, SwitchId: 0, VPortId: 0 });
    let adapter: Loan<*mut NDK_ADAPTER> = Loan::new(std::ptr::null_mut());
    let context = Context::new(ContextKind::MiniportEntry, "OpenNDKAdapterHandler");
    // SAFETY: the registered handler, with the arguments of OPEN_NDK_ADAPTER_HANDLER.
    let answer = unsafe {
        call_image!(context, handlers.open => i32; miniport.context(), parameters.as_pointer(), adapter.as_pointer())
    };
    let adapter = adapter.read();
    let rule = |text: &str| -> ! { broken(Group::Ndk, miniport.handle, format!("OpenNDKAdapterHandler: {text}")) };
    match answer {
        ndis_status::SUCCESS if adapter.is_null() => rule("succeeded without an adapter"),
        ndis_status::SUCCESS => {}
        ndis_status::PENDING => rule("returned NDIS_STATUS_PENDING, which it may not"),
        failure => return Err(failure),
    }
    let negotiated = object_check::check_adapter(adapter, version).unwrap_or_else(|text| rule(&text));
    let Some(number) = miniport.ndk_opens.opened(adapter) else {
        rule("handed out an NDK_ADAPTER that is open already");
    };
    Ok(NdkAdapter { miniport: Arc::clone(miniport), adapter, version: negotiated, number })
}

impl NdkAdapter {
    /// The provider's object.
    #[must_use]
    pub fn as_pointer(&self) -> *mut NDK_ADAPTER {
        self.adapter
    }

    /// The version that the provider runs for this open.
    #[must_use]
    pub fn version(&self) -> NDK_VERSION {
        self.version
    }

    /// The miniport that was opened.
    #[must_use]
    pub fn miniport(&self) -> &Arc<Miniport> {
        &self.miniport
    }

    /// Closes the adapter; blocks until every descendant is closed and no callback runs.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for NdkAdapter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The test has failed already; a close that waits for its objects would hide the reason.
            return;
        }
        let Some(handlers) = self.miniport.driver.ndk() else { return };
        self.miniport.ndk_opens.closing(self.number);
        let context = Context::new(ContextKind::MiniportEntry, "CloseNDKAdapterHandler");
        // SAFETY: the registered handler, with the arguments of CLOSE_NDK_ADAPTER_HANDLER.
        unsafe { call_image!(context, handlers.close => (); self.miniport.context(), self.adapter) };
        self.miniport.ndk_opens.closed(self.number);
    }
}
