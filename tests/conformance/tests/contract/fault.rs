//! Every allocation and every mapping on the way to a finished transfer made to fail once: the call that needed it
//! answers insufficient resources, everything built so far is closed again, and nothing is left behind.
//!
//! The sites are found by running the life once while the host records them; then each is failed at its first hit, and
//! what the failing path reaches for the first time is added, until nothing new appears.

use std::collections::{BTreeMap, BTreeSet};

use conformance::case;
use conformance::consumer::{
    Adapter, Buffer, CompletionQueue, Connector, FastRegistration, Listener, Mapping, Offer, ProtectionDomain,
    QueuePair, QueuePairShape, completion,
};
use conformance::machine::{Setup, image, inx, settle};
use conformance::trial::Case;
use kernel_host::fault::{self, Site};
use kernel_host::inf::AdapterConfig;
use kernel_host::{Kernel, LoadError};
use ndkpi_sys::ndis::NDIS_STATUS_RESOURCES;
use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_NO_MORE_ENTRIES};

pub const CASES: &[Case] = &[
    case!(every_allocation_of_a_life_with_a_transfer_fails_once: "NDK-FAULT-1"),
    case!(one_allocation_in_twenty_fails_at_random: "NDK-FAULT-1"),
];

/// The stacks of the sites, named while the image that they lie in was loaded.
type Names = BTreeMap<Site, String>;

/// Loads, starts two adapters, opens both, connects, transfers by every kind of memory, closes, unloads. Stops at the
/// first failure, closes what there is, and says where and how it failed.
fn life(kernel: &Kernel, setup: &Setup, names: &mut Names) -> Result<(), (&'static str, NTSTATUS)> {
    let driver = match kernel.load_driver(image(), "softndk") {
        Ok(driver) => driver,
        Err(LoadError::DriverEntry(status)) => return Err(("DriverEntry", status)),
        Err(error) => panic!("{error}"),
    };
    let result = adapters_life(kernel, setup, &driver);
    for record in fault::sites() {
        names.entry(record.site).or_insert_with(|| {
            let frames = kernel_host::image::stack_trace::name(&record.stack);
            frames.iter().fold(String::new(), |text, frame| text + "\n    " + &frame.to_string())
        });
    }
    driver.unload();
    result
}

fn adapters_life(kernel: &Kernel, setup: &Setup, driver: &kernel_host::Driver) -> Result<(), (&'static str, NTSTATUS)> {
    use kernel_host::ndis::adapter::StartError;
    let inx = inx();
    let mut adapters = Vec::new();
    let mut result = Ok(());
    for adapter in &setup.adapters {
        let mut config = AdapterConfig::from_inx(&inx).expect("a configuration from the INF");
        for address in &adapter.addresses {
            config = config.with_address(*address, if address.is_ipv4() { 24 } else { 64 });
        }
        match kernel.add_adapter(driver, config) {
            Ok(adapter) => adapters.push(adapter),
            Err(StartError::Initialize(status)) => {
                result = Err(("MiniportInitializeEx", status));
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    if result.is_ok() {
        result = consumers_life(&adapters, setup);
    }
    adapters.iter().for_each(kernel_host::Adapter::remove);
    result
}

fn open(adapters: &[kernel_host::Adapter], setup: &Setup, index: usize) -> Result<Adapter, (&'static str, NTSTATUS)> {
    let opened = adapters[index].open_ndk(NDK_VERSION { Major: 2, Minor: 0 });
    let opened = opened.map_err(|status| ("OpenNDKAdapter", status))?;
    let addresses = setup.adapters[index].addresses.iter().map(|ip| std::net::SocketAddr::new(*ip, 0)).collect();
    Ok(Adapter::new(opened, addresses))
}

/// The objects of one side, each created only if all before it were.
struct Side {
    queue_pair: QueuePair,
    initiator: CompletionQueue,
    receive: CompletionQueue,
    domain: ProtectionDomain,
}

impl Side {
    fn new(adapter: &Adapter) -> Result<Self, (&'static str, NTSTATUS)> {
        let at = |place: &'static str| move |status| (place, status);
        let domain = ProtectionDomain::new(adapter).map_err(at("CreatePd"))?;
        let receive = CompletionQueue::new(adapter, 32).map_err(at("CreateCq"))?;
        let initiator = CompletionQueue::new(adapter, 32).map_err(at("CreateCq"))?;
        let shape = QueuePairShape::default();
        let queue_pair = QueuePair::new(&domain, &receive, &initiator, shape).map_err(at("CreateQp"))?;
        Ok(Self { queue_pair, initiator, receive, domain })
    }
}

fn check(place: &'static str, status: NTSTATUS) -> Result<(), (&'static str, NTSTATUS)> {
    if status == 0 { Ok(()) } else { Err((place, status)) }
}

fn consumers_life(adapters: &[kernel_host::Adapter], setup: &Setup) -> Result<(), (&'static str, NTSTATUS)> {
    let first = open(adapters, setup, 0)?;
    let second = open(adapters, setup, 1)?;
    let (near, far) = (Side::new(&first)?, Side::new(&second)?);
    let listener = Listener::new(&second).map_err(|status| ("CreateListener", status))?;
    check("Listen", listener.listen(second.address()))?;
    let connector = Connector::new(&first).map_err(|status| ("CreateConnector", status))?;
    let offer = Offer::default();
    let connecting = connector.begin_connect(&near.queue_pair, first.address(), listener.local_address(), &offer);
    if connecting.inline() < 0 {
        return Err(("Connect", connecting.inline()));
    }
    settle();
    if connecting.is_done() {
        // The passive side could not make a connector: refused before anybody saw it.
        return check("Connect", connecting.wait());
    }
    let offered = listener.next();
    let accepting = offered.begin_accept(&far.queue_pair, &offer);
    if accepting.inline() < 0 {
        offered.close();
        let _ = connecting.wait();
        return Err(("Accept", accepting.inline()));
    }
    check("Connect", connecting.wait())?;
    check("CompleteConnect", connector.begin_complete_connect().wait())?;
    check("Accept", accepting.wait())?;
    transfers(&first, &near, &second, &far)?;
    let leaving = connector.begin_disconnect();
    let _ = offered.wait_for_disconnect();
    check("Disconnect", offered.begin_disconnect().wait())?;
    check("Disconnect", leaving.wait())
}

/// A Send, a Read of registered memory and a Write to fast-registered memory out of mapped memory.
fn transfers(first: &Adapter, near: &Side, second: &Adapter, far: &Side) -> Result<(), (&'static str, NTSTATUS)> {
    const LENGTH: usize = 20_000;
    let none = NDK_OP_FLAGS::empty();
    let done = |side: &Side| check("a completion", side.initiator.wait_for_one().Status);
    let (local, remote) = (Buffer::scattered(LENGTH), Buffer::scattered(LENGTH));
    let rights = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
    let near_region = near.domain.create_region(false).map_err(|status| ("CreateMr", status))?;
    check("RegisterMr", near_region.register(&local, rights))?;
    let far_region = far.domain.create_region(false).map_err(|status| ("CreateMr", status))?;
    check("RegisterMr", far_region.register(&remote, rights))?;
    let place = conformance::consumer::Remote { address: remote.label(), token: far_region.remote_token() };
    check("Read", near.queue_pair.read(1, &[local.whole(near_region.local_token())], place, none))?;
    done(near)?;

    let mapping = Mapping::build(second, &remote).map_err(|status| ("BuildLAM", status))?;
    let fast = far.domain.create_region(true).map_err(|status| ("CreateMr", status))?;
    check("InitializeFastRegisterMr", fast.initialize_fast_register(8, true))?;
    let registration = FastRegistration {
        pages: mapping.pages(),
        first_byte_offset: mapping.first_byte_offset(),
        length: LENGTH,
        base: remote.label(),
    };
    let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
    check("FastRegister", far.queue_pair.fast_register(2, fast.object(), &registration, flags))?;
    done(far)?;
    let source = Mapping::build(first, &local).map_err(|status| ("BuildLAM", status))?;
    let element = conformance::consumer::element(source.address_of(0), LENGTH, near.domain.privileged_token());
    let place = conformance::consumer::Remote { address: remote.label(), token: fast.remote_token() };
    check("Write", near.queue_pair.write(3, &[element], place, none))?;
    done(near)?;
    check("Invalidate", far.queue_pair.invalidate(4, fast.object(), none))?;
    done(far)?;

    check("Receive", far.queue_pair.receive(5, &[remote.whole(far_region.local_token())]))?;
    check("Send", near.queue_pair.send(6, &[local.whole(near_region.local_token())], none))?;
    done(near)?;
    check("a completion", far.receive.wait_for_one().Status)?;
    check("DeregisterMr", near_region.deregister())
}

/// What a call may answer when memory is short. A connect that meets a peer without memory is refused or aborted.
fn is_clean(place: &str, status: NTSTATUS) -> bool {
    match status {
        STATUS_INSUFFICIENT_RESOURCES => true,
        ndkpi_sys::nt::STATUS_CONNECTION_REFUSED | ndkpi_sys::nt::STATUS_CONNECTION_ABORTED => {
            matches!(place, "Connect" | "Accept" | "CompleteConnect")
        }
        STATUS_NO_MORE_ENTRIES => false,
        _ => status == NDIS_STATUS_RESOURCES,
    }
}

fn assert_nothing_left(kernel: &Kernel, what: &str) {
    completion::verify_all();
    let report = kernel.report();
    assert!(report.is_clean(), "{what}: {report}");
}

fn every_allocation_of_a_life_with_a_transfer_fails_once() {
    let setup = Setup::default();
    let kernel = Kernel::boot(setup.kernel.clone());
    fault::start_recording();
    let mut names = Names::new();
    assert_eq!(life(&kernel, &setup, &mut names), Ok(()), "the life without a fault");
    assert_nothing_left(&kernel, "the life without a fault");
    let mut known = fault::sites();
    let mut tried: BTreeSet<Site> = BTreeSet::new();
    let mut fired = 0;
    while let Some(record) = known.iter().find(|record| !tried.contains(&record.site)).cloned() {
        tried.insert(record.site);
        let before = fault::failures();
        // A bugcheck names its own stack; this line names the fault that led there.
        let stack = names.get(&record.site).cloned().unwrap_or_default();
        eprintln!("failing {} at{stack}", record.export);
        fault::fail(record.site, 1);
        let result = life(&kernel, &setup, &mut names);
        let failures = fault::failures() - before;
        fired += failures;
        let what = || format!("{} failed at{stack}\nand the life ended in {result:x?}", record.export);
        if let Err((place, status)) = result {
            assert!(failures > 0, "failed without a fault: {}", what());
            assert!(is_clean(place, status), "{}", what());
        }
        assert_nothing_left(&kernel, &what());
        known = fault::sites();
    }
    fault::stop();
    println!("{} sites, {fired} faults", tried.len());
    assert!(fired >= 20, "only {fired} faults of {} sites", tried.len());
    assert_eq!(life(&kernel, &setup, &mut names), Ok(()), "the life after all faults");
    assert_nothing_left(&kernel, "the life after all faults");
}

fn one_allocation_in_twenty_fails_at_random() {
    let setup = Setup::default();
    let kernel = Kernel::boot(setup.kernel.clone());
    let mut succeeded = 0;
    for seed in 1..=60 {
        // The later runs are gentler, so that some get far.
        fault::fail_randomly(20 + seed * 3, seed);
        let result = life(&kernel, &setup, &mut Names::new());
        fault::stop();
        succeeded += u32::from(result.is_ok());
        if let Err((place, status)) = result {
            assert!(is_clean(place, status), "seed {seed}: {place} answered {status:#010x}");
        }
        assert_nothing_left(&kernel, &format!("seed {seed}: {result:x?}"));
    }
    println!("{succeeded} of 60 lives went through");
}
