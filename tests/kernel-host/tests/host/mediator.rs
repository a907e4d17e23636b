//! The layer between a consumer that comes through WSK and a provider: what it passes on, and what it
//! refuses. The providers are the bad drivers and their good twins, the consumer is this file: it calls the layer's tables
//! and gives it functions of its own.

// A test is a border like the crate it tests: it hands raw addresses to an image.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a table is read in one go")]

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kernel_host::bugcheck::BugCheck;
use kernel_host::callback::host_function;
use kernel_host::callout::{self, Context, ContextKind};
use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::interruption::interrupted_in_the_host;
use kernel_host::ndk::mediator;
use kernel_host::{Adapter, Driver, Kernel, KernelConfig, irql, wsk};
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::wsk::{WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_VERSION_1_0};
use ndkpi_sys::wskndk::WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH;
use softndk_images::bad_drivers;
use softndk_images::workspace::Workspace;

/// `BUGCODE_NDIS_DRIVER`, parameter 1: a rule of NDK.
const NDK: u64 = 0x10F;
const PENDING: i32 = 0x103;

// Slots of the adapter's table, of a protection domain's and of a completion queue's.
const QUERY_ADAPTER_INFO: usize = 1;
const CREATE_CQ: usize = 2;
const CREATE_PD: usize = 3;
const CREATE_CONNECTOR: usize = 5;
const RELEASE_LAM: usize = 8;
const CLOSE: usize = 0;
const ARM_CQ: usize = 3;
const COMPLETE_CONNECT: usize = 4;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A provider with one adapter, opened through the layer.
struct Machine {
    kernel: Kernel,
    driver: Driver,
    adapter: Adapter,
    opened: usize,
}

impl Machine {
    fn boot(service: &str) -> Self {
        let kernel =
            Kernel::boot(KernelConfig { hang_limit: Some(Duration::from_secs(10)), ..KernelConfig::default() });
        let image = bad_drivers::image(&Workspace::at(&root()));
        let driver = kernel.load_driver(image, service).expect("the bad driver loads");
        let inx = Inx::load(root().join("inf/softndk.inx")).expect("the INF is readable");
        let config = AdapterConfig::from_inx(&inx).expect("the INF installs");
        let config = config.with_address("10.0.0.1".parse().expect("an address"), 24);
        let adapter = kernel.add_adapter(&driver, config).expect("the adapter starts");
        let open = adapter.open_ndk(NDK_VERSION { Major: 2, Minor: 0 }).expect("an NDK adapter");
        let opened = mediator::adopt_adapter(open) as usize;
        Self { kernel, driver, adapter, opened }
    }

    fn wait_until_idle(&self) {
        self.kernel.sleep(Duration::from_millis(50));
    }

    /// Creates an object by a slot that takes a completion at the end.
    fn create(&self, slot: usize, first: &[u64]) -> usize {
        self.try_create(slot, first).expect("an object")
    }

    /// The same; none when the completion has not come for a while.
    fn try_create(&self, slot: usize, first: &[u64]) -> Option<usize> {
        let mut out = 0_u64;
        let mut arguments = vec![self.opened as u64];
        arguments.extend(first);
        arguments.extend([function(create_done as *const _, 3), COOKIE, (&raw mut out) as u64]);
        let status = call(self.opened, slot, &arguments);
        self.wait_until_idle();
        let made = if status == PENDING { CREATED.load(Ordering::SeqCst) } else { out };
        assert!(status >= 0, "the create gave {status:#x}");
        (made != 0).then_some(made as usize)
    }

    fn close(&self, object: usize) {
        call(object, CLOSE, &[object as u64, function(close_done as *const _, 1), COOKIE]);
        self.wait_until_idle();
    }

    /// The whole life cycle of the objects that the bad drivers have.
    fn live(self) {
        // One that never comes is missed when the adapter is closed.
        if let Some(domain) = self.try_create(CREATE_PD, &[]) {
            self.close(domain);
        }
        let queue = self.create(CREATE_CQ, &[8, function(notified as *const _, 2), COOKIE, 0]);
        QUEUE.store(queue, Ordering::SeqCst);
        call(queue, ARM_CQ, &[queue as u64, 1]);
        self.wait_until_idle();
        self.close(queue);
        let connector = self.create(CREATE_CONNECTOR, &[]);
        let event = function(disconnected as *const _, 1);
        call(connector, COMPLETE_CONNECT, &[connector as u64, event, COOKIE, function(request_done as *const _, 2), 0]);
        self.wait_until_idle();
        self.close(connector);
        assert_eq!(UNRELATED_PEERS.load(Ordering::SeqCst), 0, "every callback has the consumer's context");
        self.end();
    }

    fn end(self) {
        mediator::close_adapter(self.opened as *mut _);
        assert_eq!(mediator::open_adapters(), 0);
        self.adapter.remove();
        drop(self.adapter);
        self.driver.unload();
        let report = self.kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    }
}

/// The consumer's context.
const COOKIE: u64 = 0x1234_5678_9ABC;
static QUEUE: AtomicUsize = AtomicUsize::new(0);
static CREATED: AtomicU64 = AtomicU64::new(0);
static UNRELATED_PEERS: AtomicUsize = AtomicUsize::new(0);

fn meet(context: u64) {
    UNRELATED_PEERS.fetch_add(usize::from(context != COOKIE), Ordering::SeqCst);
}

unsafe extern "win64" fn create_done(context: u64, _status: u64, object: u64) {
    meet(context);
    CREATED.store(object, Ordering::SeqCst);
}

unsafe extern "win64" fn close_done(context: u64) {
    meet(context);
}

unsafe extern "win64" fn disconnected(context: u64) {
    meet(context);
}

unsafe extern "win64" fn request_done(_context: u64, _status: u64) {}

/// Arms the queue again, once.
unsafe extern "win64" fn notified(context: u64, _status: u64) {
    meet(context);
    let queue = QUEUE.swap(0, Ordering::SeqCst);
    if queue != 0 {
        call(queue, ARM_CQ, &[queue as u64, 1]);
    }
}

fn function(address: *const c_void, arguments: usize) -> u64 {
    host_function(address, arguments) as u64
}

/// Calls a slot of an object's table, as a consumer does.
fn call(object: usize, slot: usize, arguments: &[u64]) -> i32 {
    // SAFETY: an object that the layer handed out: the table lies behind its header.
    let function = unsafe { ((object + 0x28) as *const *const usize).read().add(slot).read() };
    // SAFETY: the function of that slot with its arguments.
    unsafe { callout::call_image(Context::new(ContextKind::Other, "a consumer"), function, arguments) as i32 }
}

fn in_child(test: &str, body: impl FnOnce()) -> Option<crate::child::Outcome> {
    let build = || drop(bad_drivers::build(&Workspace::at(&root())).expect("the bad drivers build"));
    crate::child::in_child(test, build, body)
}

/// A provider that ends in a bugcheck behind the layer, and its good twin that passes.
fn provider(test: &str, rule: &str, code: BugCheck, first: u64, words: &str) {
    // The child runs the same test; which twin it is, is in the environment.
    if std::env::var("KERNEL_HOST_TWIN").is_ok_and(|twin| twin == "good") {
        let outcome = in_child(test, || Machine::boot(&format!("{rule}.good")).live());
        assert!(outcome.is_none(), "the good twin runs in the child only");
        return;
    }
    let Some(outcome) = in_child(test, || Machine::boot(&format!("{rule}.bad")).live()) else { return };
    let report = outcome.expect_bugcheck();
    let found = (report["code"].as_u64(), report["parameters"][0].as_u64());
    assert_eq!(found, (Some(code as u64), Some(first)), "{report}");
    assert!(report["rule"].as_str().is_some_and(|rule| rule.contains(words)), "no {words:?} in {report}");
    crate::child::in_child_with(test, &[("KERNEL_HOST_TWIN", "good")]).expect_success();
}

#[test]
fn a_completion_that_comes_twice() {
    let words = "a second time";
    provider("a_completion_that_comes_twice", "completion-twice", BugCheck::BUGCODE_NDIS_DRIVER, NDK, words);
}

#[test]
fn a_completion_after_success() {
    // The DPC that completes runs before the create returns.
    let words = "although its completion was called";
    provider("a_completion_after_success", "completion-after-success", BugCheck::BUGCODE_NDIS_DRIVER, NDK, words);
}

#[test]
fn a_close_that_fails() {
    let words = "a close cannot fail";
    provider("a_close_that_fails", "close-fails", BugCheck::BUGCODE_NDIS_DRIVER, NDK, words);
}

#[test]
fn a_completion_that_never_comes() {
    let words = "before the completion of NdkCreatePd came";
    provider("a_completion_that_never_comes", "completion-never", BugCheck::BUGCODE_NDIS_DRIVER, NDK, words);
}

#[test]
fn a_disconnect_that_is_told_twice() {
    let words = "indicated twice";
    provider("a_disconnect_that_is_told_twice", "disconnect-twice", BugCheck::BUGCODE_NDIS_DRIVER, NDK, words);
}

#[test]
fn a_table_that_the_provider_takes_back() {
    let words = "Dispatch of an open";
    provider("a_table_that_the_provider_takes_back", "dispatch-overwritten", BugCheck::BUGCODE_NDIS_DRIVER, NDK, words);
}

#[test]
fn a_completion_inside_the_call() {
    let code = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
    provider("a_completion_inside_the_call", "completion-in-call", code, 0x1005, "in the call stack");
}

#[test]
fn two_notifications_of_a_queue_at_once() {
    let words = "run at once";
    provider(
        "two_notifications_of_a_queue_at_once",
        "notifications-at-once",
        BugCheck::BUGCODE_NDIS_DRIVER,
        NDK,
        words,
    );
}

#[test]
fn a_notification_after_the_close() {
    let words = "after the close of its object";
    provider("a_notification_after_the_close", "notification-after-close", BugCheck::BUGCODE_NDIS_DRIVER, NDK, words);
}

/// A consumer's mistake on a good provider.
fn consumer(test: &str, code: BugCheck, first: u64, words: &str, mistake: fn(&Machine)) {
    let Some(outcome) = in_child(test, || mistake(&Machine::boot("completion-twice.good"))) else { return };
    let report = outcome.expect_bugcheck();
    let found = (report["code"].as_u64(), report["parameters"][0].as_u64());
    assert_eq!(found, (Some(code as u64), Some(first)), "{report}");
    assert!(report["rule"].as_str().is_some_and(|rule| rule.contains(words)), "no {words:?} in {report}");
}

#[test]
fn an_object_is_not_used_after_its_close() {
    let test = "an_object_is_not_used_after_its_close";
    consumer(test, BugCheck::BUGCODE_NDIS_DRIVER, NDK, "not open", |machine| {
        let queue = machine.create(CREATE_CQ, &[8, 0, 0, 0]);
        // SAFETY: the queue is open: its table is the layer's.
        let arm = unsafe { ((queue + 0x28) as *const *const usize).read().add(ARM_CQ).read() };
        machine.close(queue);
        let context = Context::new(ContextKind::Other, "a consumer");
        // SAFETY: the function of that slot, with an object that is closed: the mistake.
        unsafe { callout::call_image(context, arm, &[queue as u64, 1]) };
    });
}

#[test]
fn objects_are_closed_before_their_adapter() {
    let test = "objects_are_closed_before_their_adapter";
    consumer(test, BugCheck::BUGCODE_NDIS_DRIVER, NDK, "with 2 objects that the consumer has not closed", |machine| {
        let _ = (machine.create(CREATE_PD, &[]), machine.create(CREATE_CQ, &[8, 0, 0, 0]));
        mediator::close_adapter(machine.opened as *mut _);
    });
}

#[test]
fn the_words_of_the_layer_stay_as_they_are() {
    let test = "the_words_of_the_layer_stay_as_they_are";
    consumer(test, BugCheck::BUGCODE_NDIS_DRIVER, NDK, "NdkReserved", |machine| {
        // SAFETY: the reserved block of an open adapter: only the layer may write there.
        unsafe { ((machine.opened + 0x10) as *mut usize).write(0) };
        machine.create(CREATE_PD, &[]);
    });
}

#[test]
fn adapter_information_is_asked_for_at_passive_level() {
    let test = "adapter_information_is_asked_for_at_passive_level";
    let code = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
    consumer(test, code, 0x1001, "NdkQueryAdapterInfo", |machine| {
        let level = irql::raise(irql::DISPATCH);
        call(machine.opened, QUERY_ADAPTER_INFO, &[machine.opened as u64, 0, 0]);
        irql::lower(level);
    });
}

#[test]
fn a_mapping_is_released_once() {
    let test = "a_mapping_is_released_once";
    consumer(test, BugCheck::BUGCODE_NDIS_DRIVER, NDK, "no mapping", |machine| {
        call(machine.opened, RELEASE_LAM, &[machine.opened as u64, 0x1000]);
    });
}

/// A client of WSK that has captured the provider.
struct WskClient {
    /// Where its registration lies, which stays there.
    registration: usize,
    client: u64,
    open: usize,
    close: usize,
}

static WSK_DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

const WSK: Context = Context::new(ContextKind::Other, "a client of WSK");

/// The word of a provider's table that is WskControlClient.
const CONTROL_CLIENT: usize = 3;

impl WskClient {
    fn register() -> Self {
        let npi = WSK_CLIENT_NPI { ClientContext: std::ptr::null_mut(), Dispatch: &raw const WSK_DISPATCH };
        let registration = Box::into_raw(Box::new(WSK_REGISTRATION::zeroed()));
        let mut provider = WSK_PROVIDER_NPI::zeroed();
        let mut functions = [0_usize; 2];
        // SAFETY: structures of our own; the table is the provider's while it is captured.
        unsafe {
            assert_eq!(wsk::WskRegister(&raw const npi, registration), 0);
            assert_eq!(wsk::WskCaptureProviderNPI(registration, 1, &raw mut provider), 0);
            let control = provider.Dispatch.cast::<usize>().add(CONTROL_CLIENT).read();
            let code = u64::from(WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH);
            let size = size_of_val(&functions) as u64;
            let place = (&raw mut functions) as u64;
            let asked = [provider.Client as u64, code, 0, 0, size, place, 0, 0];
            assert_eq!(callout::call_image(WSK, control, &asked) as i32, 0);
        }
        let registration = registration as usize;
        Self { registration, client: provider.Client as u64, open: functions[0], close: functions[1] }
    }

    fn open(&self, interface: u32) -> u64 {
        let mut adapter = 0_u64;
        let version = 2;
        // SAFETY: WskOpenNdkAdapter with its arguments; a place for the answer.
        let status = unsafe {
            callout::call_image(
                WSK,
                self.open,
                &[self.client, version, u64::from(interface), (&raw mut adapter) as u64],
            ) as i32
        };
        assert_eq!(status, 0);
        adapter
    }

    fn close(&self, adapter: u64) {
        // SAFETY: WskCloseNdkAdapter of an open adapter.
        unsafe { callout::call_image(WSK, self.close, &[self.client, adapter]) };
    }

    fn end(self) {
        let registration = self.registration as *mut WSK_REGISTRATION;
        // SAFETY: a registration of `register`, whose provider is captured once.
        unsafe {
            wsk::WskReleaseProviderNPI(registration);
            wsk::WskDeregister(registration);
            drop(Box::from_raw(registration));
        }
    }
}

#[test]
fn an_adapter_is_opened_while_another_one_is_closed() {
    let outcome = in_child("an_adapter_is_opened_while_another_one_is_closed", || {
        let machine = Machine::boot("completion-twice.good");
        let client = WskClient::register();
        let interface = machine.adapter.if_index();
        let opened = AtomicU64::new(client.open(interface));
        let mut point = 0;
        loop {
            let last = opened.swap(0, Ordering::SeqCst);
            let open = || opened.store(client.open(interface), Ordering::SeqCst);
            if !interrupted_in_the_host(point, open, || client.close(last)) {
                break;
            }
            point += 1;
        }
        assert!(point > 8, "{point} points");
        client.end();
        assert_eq!(kernel_host::ledger::count(wsk::LEDGER_KIND_ADAPTER), 0);
        machine.end();
    });
    if let Some(outcome) = outcome {
        outcome.expect_success();
    }
}
