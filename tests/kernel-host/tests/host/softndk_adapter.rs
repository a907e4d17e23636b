//! One or two adapters of the real driver image: frames on the wire, NDK switched off and on, keywords of every kind, the
//! INF without a mandatory keyword, and every allocation on the way made to fail once.
//!
//! One process has one kernel, so the scenarios run one after the other, each with a fresh load of the driver.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::driver_image::{image, root};
use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::io::{GENERIC_READ, GENERIC_WRITE};
use kernel_host::ndis::adapter::StartError;
use kernel_host::ndis::data_path::Frame;
use kernel_host::ndis::miniport::MiniportState;
use kernel_host::ndis::{oid, status};
use kernel_host::ndk::NdkAdapter;
use kernel_host::ntoskrnl::debug_print;
use kernel_host::{Adapter, Driver, Kernel, KernelConfig, fault, irql};
use ndkpi_sys::ndkinfo::NDK_VERSION;

const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };
const BROADCAST: [u8; 6] = [0xFF; 6];

struct Machine {
    kernel: Kernel,
    inx: Inx,
}

impl Machine {
    fn load(&self) -> Driver {
        self.kernel.load_driver(image(), "softndk").expect("the driver loads")
    }

    fn config(&self) -> AdapterConfig {
        AdapterConfig::from_inx(&self.inx).expect("the INF installs")
    }

    fn adapter(&self, driver: &Driver, config: AdapterConfig) -> Adapter {
        self.kernel.add_adapter(driver, config).expect("the adapter starts")
    }

    /// Lets DPCs and threads run until they are idle.
    fn wait_until_idle(&self) {
        self.kernel.rest(Duration::from_millis(50));
    }
}

#[test]
fn adapters_of_the_real_image() {
    crate::child::passes_in_child("adapters_of_the_real_image", adapters_of_the_real_image_here);
}

fn adapters_of_the_real_image_here() {
    let inx = Inx::load(root().join("inf/softndk.inx")).expect("the INF is readable");
    let machine = Machine { kernel: Kernel::boot(KernelConfig::default()), inx };
    frames_reach_the_peer(&machine);
    frames_and_direct_oids_at_dispatch(&machine);
    frames_stay_on_their_wire(&machine);
    oids_of_every_length(&machine);
    oids_with_bad_contents(&machine);
    a_paused_adapter_neither_sends_nor_receives(&machine);
    disable_closes_consumers_and_enable_brings_ndk_back(&machine);
    the_keyword_keeps_ndk_off(&machine);
    a_forgotten_mandatory_keyword_keeps_the_adapter_down(&machine);
    keywords_out_of_range_do_no_harm(&machine);
    unknown_values_are_in_the_debug_output(&machine);
    every_allocation_fails_once(&machine);
    let report = machine.kernel.shutdown();
    assert!(report.is_clean(), "{report}");
}

fn mac(adapter: &Adapter) -> [u8; 6] {
    adapter.general().expect("a started adapter").current_mac
}

/// A frame with a payload that differs from byte to byte.
fn frame(to: [u8; 6], from: [u8; 6], length: usize) -> Vec<u8> {
    let payload = (0..length.saturating_sub(14)).map(|index| index as u8);
    let mut bytes: Vec<u8> = to.into_iter().chain(from).chain([0x88, 0xB5]).chain(payload).collect();
    bytes.truncate(length);
    bytes
}

fn received(adapter: &Adapter) -> Vec<Vec<u8>> {
    adapter.take_received().expect("a started adapter")
}

// Rule: NDIS-WIRE-1, NDIS-WIRE-2, NDIS-WIRE-3, NDIS-WIRE-4
fn frames_reach_the_peer(machine: &Machine) {
    let driver = machine.load();
    let (first, second) = (machine.adapter(&driver, machine.config()), machine.adapter(&driver, machine.config()));
    let (from, to) = (mac(&first), mac(&second));
    let sent = [frame(to, from, 60), frame(to, from, 1514), frame(BROADCAST, from, 100), frame(to, from, 200)];
    assert_eq!(first.send_frames(&sent).expect("sends"), [status::SUCCESS; 4]);
    machine.wait_until_idle();
    assert_eq!(received(&second), sent, "all of them, in order, unchanged");
    assert_eq!(received(&first), Vec::<Vec<u8>>::new(), "nothing comes back to the sender");

    let short = frame(to, from, 20);
    assert_eq!(first.send_frames(std::slice::from_ref(&short)).expect("sends"), [status::SUCCESS]);
    machine.wait_until_idle();
    let mut padded = short;
    padded.resize(60, 0);
    assert_eq!(received(&second), [padded], "padded with zeros to the least Ethernet frame");

    let whole = frame(to, from, 900);
    let pieces = vec![whole[..9].to_vec(), whole[9..14].to_vec(), whole[14..15].to_vec(), whole[15..].to_vec()];
    let batch = first.send(vec![Frame { pieces, ..Frame::default() }]).expect("sends");
    assert_eq!(batch.wait(), [status::SUCCESS]);
    machine.wait_until_idle();
    assert_eq!(received(&second), [whole], "put together from its pieces");

    let foreign = [frame([2, 0, 0, 0, 0, 99], from, 60), frame([1, 0, 0x5E, 0, 0, 77], from, 60)];
    assert_eq!(first.send_frames(&foreign).expect("sends"), [status::SUCCESS; 2]);
    machine.wait_until_idle();
    assert_eq!(received(&second), Vec::<Vec<u8>>::new(), "the packet filter lets neither through");

    for length in [13, 1515, 4000] {
        let answers = first.send_frames(&[frame(to, from, length)]).expect("sends");
        assert!(answers.iter().all(|answer| *answer < 0), "{length} bytes are refused");
    }
    let many: Vec<_> = (0..1000).map(|_| frame(to, from, 64)).collect();
    assert_eq!(first.send_frames(&many).expect("sends").len(), 1000, "each is completed, whatever is dropped");
    machine.wait_until_idle();
    assert!(!received(&second).is_empty());
    driver.unload();
}

// Rule: NDIS-WIRE-7, NDIS-OID-9
fn frames_and_direct_oids_at_dispatch(machine: &Machine) {
    let driver = machine.load();
    let (first, second) = (machine.adapter(&driver, machine.config()), machine.adapter(&driver, machine.config()));
    // No DPC runs before the level is lowered: all of them wait for one.
    let sent = [128, 129, 130].map(|length| frame(mac(&second), mac(&first), length));
    let level = irql::raise(irql::DISPATCH);
    let batch = first.send(sent.iter().cloned().map(Frame::from).collect()).expect("sends");
    let statistics = first.direct_query_oid(oid::OID_NDK_STATISTICS, 0xF8).expect("a started adapter");
    irql::lower(level);
    assert_eq!(batch.wait(), [status::SUCCESS; 3]);
    assert_eq!((statistics.status, statistics.bytes_done), (status::SUCCESS, 0xF8));
    machine.wait_until_idle();
    assert_eq!(received(&second), sent, "in order");
    driver.unload();
}

/// The host sees bytes beyond the reported ones, lengths beyond the buffer and failures without the needed length.
fn oids_of_every_length(machine: &Machine) {
    const LENGTHS: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 40, 0x97, 0x98, 0xF8, 1000];
    let driver = machine.load();
    let adapter = machine.adapter(&driver, machine.config());
    for entry in oid::ETHERNET.iter().chain(oid::NDK) {
        for length in LENGTHS {
            let direct = adapter.direct_query_oid(entry.oid, length).expect("a started adapter");
            let query = adapter.query_oid(entry.oid, length).expect("a started adapter");
            for answer in [direct, query] {
                let full = answer.status == status::SUCCESS && answer.bytes_done as usize <= length;
                assert!(full || answer.status < 0, "{} with {length}: {:#x}", entry.name, answer.status);
            }
            let answer = adapter.set_oid(entry.oid, &vec![0xFF; length]).expect("a started adapter");
            assert!(answer.status <= 0, "{} set with {length} bytes: {:#x}", entry.name, answer.status);
        }
    }
    machine.wait_until_idle();
    driver.unload();
}

fn oids_with_bad_contents(machine: &Machine) {
    const PACKET_FILTER: u32 = 0x0001_010E;
    const MULTICAST_LIST: u32 = 0x0101_0103;
    const INTERRUPT_MODERATION: u32 = 0x0001_0209;
    let driver = machine.load();
    let adapter = machine.adapter(&driver, machine.config());
    let set = |oid, data: &[u8]| adapter.set_oid(oid, data).expect("a started adapter").status;
    assert_eq!(set(PACKET_FILTER, &0x4000_0000_u32.to_le_bytes()), status::NOT_SUPPORTED, "an unknown filter");
    assert_eq!(set(PACKET_FILTER, &[0, 0, 0]), status::INVALID_LENGTH);
    assert_eq!(set(PACKET_FILTER, &0_u32.to_le_bytes()), status::SUCCESS);
    assert_eq!(set(MULTICAST_LIST, &[1; 7]), status::INVALID_LENGTH);
    assert_eq!(set(MULTICAST_LIST, &[1; 6 * 32]), status::SUCCESS, "as many as the attributes promise");
    assert_eq!(set(MULTICAST_LIST, &[1; 6 * 33]), status::MULTICAST_FULL);
    assert_eq!(set(INTERRUPT_MODERATION, &[0x80, 1, 12, 0, 0, 0, 0, 0, 2, 0, 0, 0]), status::INVALID_DATA);
    driver.unload();
}

// Rule: NDIS-WIRE-1
fn frames_stay_on_their_wire(machine: &Machine) {
    let driver = machine.load();
    let first = machine.adapter(&driver, machine.config());
    let other = machine.adapter(&driver, machine.config().with_keyword("WireNumber", "7"));
    first.send_frames(&[frame(BROADCAST, mac(&first), 60)]).expect("sends");
    machine.wait_until_idle();
    assert_eq!(received(&other), Vec::<Vec<u8>>::new());
    driver.unload();
}

// Rule: NDIS-WIRE-8
fn a_paused_adapter_neither_sends_nor_receives(machine: &Machine) {
    let driver = machine.load();
    let (first, second) = (machine.adapter(&driver, machine.config()), machine.adapter(&driver, machine.config()));
    let hello = frame(mac(&second), mac(&first), 60);
    second.pause().expect("pauses");
    assert_eq!(
        first.send_frames(std::slice::from_ref(&hello)).expect("sends"),
        [status::SUCCESS],
        "a wire without another adapter"
    );
    machine.wait_until_idle();
    second.restart().expect("restarts");
    machine.wait_until_idle();
    assert_eq!(received(&second), Vec::<Vec<u8>>::new(), "nothing was kept for later");
    first.send_frames(std::slice::from_ref(&hello)).expect("sends");
    machine.wait_until_idle();
    assert_eq!(received(&second), [hello]);
    driver.unload();
}

/// A consumer that keeps an adapter open until it is asked to close.
fn set_state(adapter: &Adapter, enabled: bool) -> i32 {
    adapter.set_oid(oid::OID_NDK_SET_STATE, &[u8::from(enabled)]).expect("a started adapter").status
}

// Rule: NDIS-OID-8, NDIS-OID-10, NDK-OPEN-3
fn disable_closes_consumers_and_enable_brings_ndk_back(machine: &Machine) {
    static OPEN: Mutex<Vec<NdkAdapter>> = Mutex::new(Vec::new());
    static CLOSED: AtomicUsize = AtomicUsize::new(0);
    let driver = machine.load();
    let adapter = machine.adapter(&driver, machine.config());
    for _ in 0..3 {
        OPEN.lock().expect("unpoisoned").push(adapter.open_ndk(VERSION).expect("opens"));
    }
    let consumer = adapter.on_ndk_close(|| {
        let open = std::mem::take(&mut *OPEN.lock().expect("unpoisoned"));
        CLOSED.fetch_add(open.len(), Ordering::SeqCst);
    });
    let consumer = consumer.expect("a started adapter");
    assert_eq!(set_state(&adapter, false), status::SUCCESS);
    machine.wait_until_idle();
    assert_eq!((CLOSED.load(Ordering::SeqCst), adapter.ndk_opens()), (3, 0));
    assert!(!adapter.is_ndk_enabled(), "the event came");
    assert_eq!(
        adapter.open_ndk_directly(VERSION).err(),
        Some(status::ADAPTER_NOT_READY),
        "the provider refuses by itself"
    );
    assert_eq!(set_state(&adapter, true), status::SUCCESS);
    machine.wait_until_idle();
    assert!(adapter.is_ndk_enabled());
    adapter.open_ndk(VERSION).expect("opens again").close();
    adapter.set_keyword("*NetworkDirect", "0");
    set_state(&adapter, false);
    machine.wait_until_idle();
    set_state(&adapter, true);
    machine.wait_until_idle();
    assert!(!adapter.is_ndk_enabled(), "the keyword, read now, forbids it");
    for length in [0, 2] {
        let answer = adapter.set_oid(oid::OID_NDK_SET_STATE, &vec![1; length]).expect("a started adapter");
        assert!(length != 0 || answer.status == status::INVALID_LENGTH, "{length} bytes: {:#x}", answer.status);
    }
    drop(consumer);
    driver.unload();
}

// Rule: NDIS-LIFE-10
// Rule: NDIS-LIFE-10
fn the_keyword_keeps_ndk_off(machine: &Machine) {
    let driver = machine.load();
    let adapter = machine.adapter(&driver, machine.config().with_keyword("*NetworkDirect", "0"));
    assert!(!adapter.is_ndk_enabled());
    assert_eq!(adapter.open_ndk(VERSION).err(), Some(status::ADAPTER_NOT_READY));
    assert_eq!(adapter.open_ndk_directly(VERSION).err(), Some(status::ADAPTER_NOT_READY));
    driver.unload();
}

fn a_forgotten_mandatory_keyword_keeps_the_adapter_down(machine: &Machine) {
    let driver = machine.load();
    for keyword in ["*IfType", "*MediaType", "*PhysicalMediaType"] {
        let started = machine.kernel.add_adapter(&driver, machine.config().without_keyword(keyword));
        assert_eq!(started.err(), Some(StartError::MissingKeyword(keyword)));
    }
    driver.unload();
}

fn keywords_out_of_range_do_no_harm(machine: &Machine) {
    let names = [
        "WireNumber",
        "LinkSpeedMbps",
        "LimitsProfile",
        "NetworkAddress",
        "*NetworkDirect",
        "*NetworkDirectTechnology",
    ];
    let values = [
        "",
        "0",
        "-1",
        "4294967295",
        "99999999999999999999",
        "x",
        "01005E000001",
        "000000000000",
        "02AABBCCDDEE",
        "\u{1F980}",
    ];
    for name in names {
        let driver = machine.load();
        for value in values {
            let adapter = machine.adapter(&driver, machine.config().with_keyword(name, value));
            assert_eq!(adapter.state(), MiniportState::Running, "{name} = {value:?}");
            adapter.remove();
        }
        let bare = machine.adapter(&driver, machine.config().without_keyword(name));
        assert_eq!(bare.state(), MiniportState::Running, "no {name}");
        driver.unload();
    }
}

/// A value that is not taken goes to the debugger's output with its keyword; one that is taken does not.
fn unknown_values_are_in_the_debug_output(machine: &Machine) {
    debug_print::keep();
    for (name, value, is_known) in [
        ("CompletionMode", "banana", false),
        ("CompletionMode", "2", true),
        ("LimitsProfile", "9", false),
        ("ConnectTimeoutMs", "86400001", false),
        ("ConnectTimeoutMs", "86400000", true),
        ("*NetworkDirect", "x", false),
        ("NetworkDirectObjects", "15", false),
    ] {
        let before = debug_print::kept().len();
        let driver = machine.load();
        machine.adapter(&driver, machine.config().with_keyword(name, value)).remove();
        driver.unload();
        let said: Vec<String> = debug_print::kept().into_iter().skip(before).map(|printed| printed.text).collect();
        let sentence = format!("softndk: \"{value}\" is no value of the keyword {name}, so its default is used\n");
        assert_eq!(said.is_empty(), is_known, "{name} = {value}: {said:?}");
        assert!(said.iter().all(|text| *text == sentence), "{name} = {value}: {said:?}");
    }
}

/// Load, adapter, open, control device, unload, in which any call may fail; what was made is taken down in order.
fn short_scenario(machine: &Machine) {
    let Ok(driver) = machine.kernel.load_driver(image(), "softndk") else { return };
    let address = "10.9.9.9".parse().expect("an address");
    if let Ok(adapter) = machine.kernel.add_adapter(&driver, machine.config().with_address(address, 24)) {
        let _ = adapter.open_ndk(VERSION).map(NdkAdapter::close);
        let file = machine.kernel.open_device(r"\\.\SoftNdk", GENERIC_READ | GENERIC_WRITE);
        drop(file);
        adapter.remove();
    }
    driver.unload();
}

// Rule: NDIS-LIFE-8, NDK-OPEN-7
fn every_allocation_fails_once(machine: &Machine) {
    fault::start_recording();
    short_scenario(machine);
    let sites = fault::sites();
    fault::stop();
    assert!(sites.len() > 10, "only {} sites allocate: nothing is injected", sites.len());
    for record in &sites {
        for hit in [1, record.hits] {
            fault::fail(record.site, hit);
            let before = fault::failures();
            short_scenario(machine);
            fault::stop();
            assert_eq!(fault::failures(), before + 1, "hit {hit} of {} did not come", record.export);
        }
    }
    short_scenario(machine);
}
