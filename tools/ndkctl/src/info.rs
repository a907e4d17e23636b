//! `ndkctl info`: the driver and its adapters, one column each.

use crate::arguments::InfoArguments;
use crate::client::Client;
use crate::failure::Failure;
use crate::identity::{self, Build, OneBuild, Part, ProviderDll};
use crate::transport::{Device, interface_alias};
use crate::units;
use serde::Serialize;
use softndk_ioctl::{
    ADAPTER_ADDRESS_MAX, AdapterCounters, AdapterEntry, AdapterFlags, AdapterLimits, ObjectSummaryReply, ProcessLimits,
    VersionFlags, VersionReply,
};
use std::fmt;
use std::path::Path;
use tabled::builder::Builder;
use tabled::settings::Style;

/// What `info` found.
#[derive(Clone, Debug, Serialize)]
pub struct InfoReport {
    /// This program.
    pub tool: Build,
    /// Whether tool, drivers and DLL are of one build.
    pub one_build: OneBuild,
    /// softndk.sys, where it is loaded.
    pub driver: Option<Driver>,
    /// ndktest.sys, where it is loaded.
    pub consumer: Option<Consumer>,
    /// The provider of user-mode NetworkDirect, where there is one.
    pub dll: Option<ProviderDll>,
    pub adapters: Vec<Adapter>,
    /// With `--counters`.
    pub objects: Option<Vec<Counter>>,
}

/// The driver.
#[derive(Clone, Debug, Serialize)]
pub struct Driver {
    #[serde(flatten)]
    pub build: Build,
    pub abi_version: u32,
    pub ndis_version: String,
    pub ndkpi_version: String,
    pub processors: u32,
    pub debug_build: bool,
    /// Pair and transfer requests are there: ping, copy and perf work.
    pub transfers: bool,
}

/// The consumer.
#[derive(Clone, Debug, Serialize)]
pub struct Consumer {
    pub driver: Driver,
    /// How many adapters of any provider it can open.
    pub adapters: usize,
}

/// One adapter.
#[derive(Clone, Debug, Serialize)]
pub struct Adapter {
    pub index: u32,
    /// The name that Windows shows, where it has one.
    pub alias: Option<String>,
    pub interface_index: u32,
    /// NET_LUID in hexadecimal: JSON numbers do not hold 64 bits.
    pub net_luid: String,
    pub mac_address: String,
    pub mtu: u32,
    pub link_speed: u64,
    pub link: Link,
    pub wire_number: u32,
    pub ndk_enabled: bool,
    pub technology: String,
    /// The keyword CompletionMode in force; null where the driver does not say.
    pub completion_mode: Option<String>,
    /// The keyword LimitsProfile in force; null where the driver does not say.
    pub limits_profile: Option<String>,
    /// NDK_ADAPTER_FLAG_…, without that beginning.
    pub flags: Vec<String>,
    /// As "address/prefix length".
    pub addresses: Vec<String>,
    /// There are more than the driver lists.
    pub more_addresses: bool,
    pub limits: Vec<Counter>,
    /// With `--counters`.
    pub counters: Option<Vec<Counter>>,
}

/// State of the link and the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    Up,
    /// Connected, but NDIS has paused the adapter.
    Paused,
    Down,
}

/// A named number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counter {
    pub name: &'static str,
    pub value: u64,
}

/// A client and what its driver said of itself, or why there is none.
type Connected<D> = Result<(Client<D>, VersionReply), Failure>;

/// Asks both drivers for everything. One may be missing: softndk.sys where the provider is a network card, ndktest.sys where nothing is
/// to be moved. The adapters are the provider's, with its counters; without it, those that the consumer finds.
pub fn collect<D: Device>(
    provider: Connected<D>,
    consumer: Connected<D>,
    dll: Option<&Path>,
    arguments: &InfoArguments,
) -> Result<InfoReport, Failure> {
    let (provider, consumer) = match (provider, consumer) {
        (Err(_), Err(failure)) => return Err(failure),
        (provider, consumer) => (provider.ok(), consumer.ok()),
    };
    let adapters = match (&provider, &consumer) {
        (Some((client, _)), _) | (None, Some((client, _))) => client.adapters()?,
        (None, None) => Vec::new(),
    };
    let objects = provider.as_ref().filter(|_| arguments.counters).map(|(client, _)| client.objects()).transpose()?;
    let consumer = consumer.as_ref().map(|(client, version)| Ok((client.adapters()?.len(), version))).transpose()?;
    let consumer = consumer.map(|(adapters, version)| Consumer { driver: driver(version), adapters });
    let mut report = InfoReport {
        tool: Build::of_tool(),
        one_build: OneBuild::Unknown,
        driver: provider.as_ref().map(|(_, version)| driver(version)),
        consumer,
        dll: dll.and_then(ProviderDll::read),
        adapters: adapters.iter().map(|entry| adapter(entry, arguments.counters)).collect(),
        objects: objects.as_ref().map(object_counts),
    };
    report.one_build = OneBuild::of(&report.parts());
    Ok(report)
}

fn driver(version: &VersionReply) -> Driver {
    let dotted = |[major, minor]: [u16; 2]| format!("{major}.{minor}");
    Driver {
        build: Build::of_driver(version),
        abi_version: version.header.version,
        ndis_version: dotted(version.ndis_version),
        ndkpi_version: dotted(version.ndkpi_version),
        processors: version.processor_count,
        debug_build: version.flags.contains(VersionFlags::DEBUG_BUILD),
        transfers: version.flags.contains(VersionFlags::TRANSFERS),
    }
}

pub(crate) fn adapter(entry: &AdapterEntry, counters: bool) -> Adapter {
    let used = (entry.address_count as usize).min(ADAPTER_ADDRESS_MAX);
    let addresses = entry.addresses.iter().take(used);
    let mac_address: Vec<String> = entry.mac_address.iter().map(|byte| format!("{byte:02X}")).collect();
    Adapter {
        index: entry.index,
        alias: interface_alias(entry.net_luid, entry.interface_index),
        interface_index: entry.interface_index,
        net_luid: format!("{:016X}", entry.net_luid),
        mac_address: mac_address.join("-"),
        mtu: entry.mtu,
        link_speed: entry.link_speed,
        link: link(entry.flags),
        wire_number: entry.wire_number,
        ndk_enabled: entry.flags.contains(AdapterFlags::NDK_ENABLED),
        technology: entry.technology.to_string(),
        completion_mode: named(entry.completion_mode.0, &COMPLETION_MODES),
        limits_profile: named(entry.limits_profile.0, &LIMITS_PROFILES),
        flags: flags(entry.limits.adapter_flags),
        addresses: addresses
            .filter_map(|address| Some(format!("{}/{}", address.ip()?, address.prefix_length)))
            .collect(),
        more_addresses: entry.flags.contains(AdapterFlags::MORE_ADDRESSES),
        limits: [limits(&entry.limits), process_limits(&entry.process_limits)].concat(),
        counters: counters.then(|| counter_values(&entry.counters)),
    }
}

/// By one less than the number: 0 is the number of a driver that does not say.
const COMPLETION_MODES: [&str; 3] = ["auto", "force-async", "force-inline"];
const LIMITS_PROFILES: [&str; 3] = ["connectx-like", "generous", "tiny"];

/// The name of a value of a keyword; the number of one without.
fn named(value: u16, names: &[&str]) -> Option<String> {
    let index = value.checked_sub(1)?;
    Some(names.get(usize::from(index)).map_or_else(|| index.to_string(), |name| (*name).to_owned()))
}

/// NDK_ADAPTER_FLAG_…
const FLAGS: [(u32, &str); 7] = [
    (0x1, "IN_ORDER_DMA_SUPPORTED"),
    (0x2, "RDMA_READ_SINK_NOT_REQUIRED"),
    (0x4, "CQ_INTERRUPT_MODERATION_SUPPORTED"),
    (0x8, "MULTI_ENGINE_SUPPORTED"),
    (0x10, "RDMA_READ_LOCAL_INVALIDATE_SUPPORTED"),
    (0x100, "CQ_RESIZE_SUPPORTED"),
    (0x1_0000, "LOOPBACK_CONNECTIONS_SUPPORTED"),
];

fn flags(value: u32) -> Vec<String> {
    flag_names(value, &FLAGS)
}

/// The names of flags, and those without one together as a number.
pub fn flag_names(value: u32, names: &[(u32, &str)]) -> Vec<String> {
    let known = names.iter().fold(0, |known, (flag, _)| known | flag);
    let set = names.iter().filter(|(flag, _)| value & flag != 0).map(|(_, name)| (*name).to_owned());
    set.chain((value & !known != 0).then(|| format!("0x{:X}", value & !known))).collect()
}

fn link(flags: AdapterFlags) -> Link {
    match (flags.contains(AdapterFlags::LINK_UP), flags.contains(AdapterFlags::RUNNING)) {
        (true, true) => Link::Up,
        (true, false) => Link::Paused,
        (false, _) => Link::Down,
    }
}

/// None where the driver has no user-mode NetworkDirect.
fn process_limits(limits: &ProcessLimits) -> Vec<Counter> {
    if *limits == ProcessLimits::default() {
        return Vec::new();
    }
    let counter = |name, value: u32| Counter { name, value: u64::from(value) };
    vec![
        counter("process_objects", limits.objects),
        counter("process_pool_mib", limits.pool_mib),
        counter("process_locked_mib", limits.locked_mib),
        counter("process_requests", limits.requests),
    ]
}

fn limits(limits: &AdapterLimits) -> Vec<Counter> {
    let narrow = |name, value: u32| Counter { name, value: u64::from(value) };
    vec![
        Counter { name: "max_registration_size", value: limits.max_registration_size },
        Counter { name: "max_window_size", value: limits.max_window_size },
        narrow("frmr_page_count", limits.frmr_page_count),
        narrow("max_initiator_request_sge", limits.max_initiator_request_sge),
        narrow("max_receive_request_sge", limits.max_receive_request_sge),
        narrow("max_read_request_sge", limits.max_read_request_sge),
        narrow("max_transfer_length", limits.max_transfer_length),
        narrow("max_inline_data_size", limits.max_inline_data_size),
        narrow("max_inbound_read_limit", limits.max_inbound_read_limit),
        narrow("max_outbound_read_limit", limits.max_outbound_read_limit),
        narrow("max_receive_queue_depth", limits.max_receive_queue_depth),
        narrow("max_initiator_queue_depth", limits.max_initiator_queue_depth),
        narrow("max_srq_depth", limits.max_srq_depth),
        narrow("max_cq_depth", limits.max_cq_depth),
        narrow("large_request_threshold", limits.large_request_threshold),
        narrow("max_caller_data", limits.max_caller_data),
        narrow("max_callee_data", limits.max_callee_data),
        narrow("adapter_flags", limits.adapter_flags),
    ]
}

fn counter_values(counters: &AdapterCounters) -> Vec<Counter> {
    [
        ("connects", counters.connects),
        ("accepts", counters.accepts),
        ("connect_failures", counters.connect_failures),
        ("connection_errors", counters.connection_errors),
        ("active_connections", counters.active_connections),
        ("completion_queue_errors", counters.completion_queue_errors),
        ("rdma_in_octets", counters.rdma_in_octets),
        ("rdma_out_octets", counters.rdma_out_octets),
        ("rdma_in_frames", counters.rdma_in_frames),
        ("rdma_out_frames", counters.rdma_out_frames),
        ("frame_in_octets", counters.frame_in_octets),
        ("frame_out_octets", counters.frame_out_octets),
        ("frames_in", counters.frames_in),
        ("frames_out", counters.frames_out),
        ("in_discards", counters.in_discards),
        ("out_discards", counters.out_discards),
    ]
    .map(|(name, value)| Counter { name, value })
    .to_vec()
}

fn object_counts(objects: &ObjectSummaryReply) -> Vec<Counter> {
    [
        ("adapters", u64::from(objects.adapters)),
        ("ndk_adapters", u64::from(objects.ndk_adapters)),
        ("completion_queues", u64::from(objects.completion_queues)),
        ("protection_domains", u64::from(objects.protection_domains)),
        ("memory_regions", u64::from(objects.memory_regions)),
        ("logical_mappings", u64::from(objects.logical_mappings)),
        ("memory_windows", u64::from(objects.memory_windows)),
        ("shared_receive_queues", u64::from(objects.shared_receive_queues)),
        ("queue_pairs", u64::from(objects.queue_pairs)),
        ("listeners", u64::from(objects.listeners)),
        ("connectors", u64::from(objects.connectors)),
        ("shared_endpoints", u64::from(objects.shared_endpoints)),
        ("files", u64::from(objects.files)),
        ("pairs", u64::from(objects.pairs)),
        ("pool_bytes", objects.pool_bytes),
        ("pool_blocks", objects.pool_blocks),
    ]
    .map(|(name, value)| Counter { name, value })
    .to_vec()
}

impl fmt::Display for InfoReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = |driver: &Driver| if driver.debug_build { ", debug build" } else { "" };
        writeln!(formatter, "ndkctl {}", self.tool)?;
        if let Some(driver) = &self.driver {
            let build = build(driver);
            writeln!(
                formatter,
                "softndk {}{build}: NDIS {}, NDKPI {}, control ABI {}, {} processors",
                driver.build, driver.ndis_version, driver.ndkpi_version, driver.abi_version, driver.processors
            )?;
        }
        if let Some(Consumer { driver, adapters }) = &self.consumer {
            let build = build(driver);
            writeln!(
                formatter,
                "ndktest {}{build}: control ABI {}, opens {adapters} adapters through Winsock Kernel",
                driver.build, driver.abi_version
            )?;
        }
        if let Some(ProviderDll { path, build }) = &self.dll {
            let build = build.as_ref().map_or_else(|| "of an unknown build".to_owned(), Build::to_string);
            writeln!(formatter, "{} {build}", path.display())?;
        }
        if self.one_build == OneBuild::No {
            writeln!(formatter, "not of one build: {}; install all of one package", identity::list(&self.parts()))?;
        }
        if self.adapters.is_empty() {
            return write!(formatter, "no adapters");
        }
        write!(formatter, "{}", self.adapter_table())?;
        if let Some(objects) = &self.objects {
            write!(formatter, "\n{}", object_table(objects))?;
        }
        Ok(())
    }
}

impl InfoReport {
    /// All of which the build is known.
    fn parts(&self) -> Vec<Part> {
        let driver = self.driver.as_ref().map(|driver| &driver.build);
        let consumer = self.consumer.as_ref().map(|consumer| &consumer.driver.build);
        let dll = self.dll.as_ref().and_then(|dll| dll.build.as_ref());
        let parts =
            [("ndkctl", Some(&self.tool)), ("softndk.sys", driver), ("ndktest.sys", consumer), ("softnd.dll", dll)];
        parts.into_iter().filter_map(|(name, build)| Some(Part { name, build: build?.clone() })).collect()
    }

    fn adapter_table(&self) -> tabled::Table {
        columns_table(&self.adapters.iter().map(Adapter::properties).collect::<Vec<_>>())
    }
}

/// A row per property, a column per adapter. All adapters have the same properties in the same order.
pub fn columns_table(columns: &[Vec<(String, String)>]) -> tabled::Table {
    let mut table = Builder::default();
    for (row, (name, _)) in columns.first().into_iter().flatten().enumerate() {
        let cells = columns.iter().filter_map(|column| column.get(row)).map(|(_, value)| value.clone());
        table.push_record(std::iter::once(name.clone()).chain(cells));
    }
    let mut table = table.build();
    table.with(Style::rounded());
    table
}

pub fn shown(counter: &Counter) -> String {
    match counter.name {
        "adapter_flags" => format!("0x{:X}", counter.value),
        name if name.ends_with("_size") || name.ends_with("_length") => units::size(counter.value),
        _ => units::count(counter.value),
    }
}

fn object_table(objects: &[Counter]) -> tabled::Table {
    let mut table = Builder::default();
    table.push_record(["live objects", "count"]);
    for counter in objects {
        table.push_record([counter.name.replace('_', " "), units::count(counter.value)]);
    }
    let mut table = table.build();
    table.with(Style::rounded());
    table
}

impl Adapter {
    /// Names and values, as the table shows them.
    fn properties(&self) -> Vec<(String, String)> {
        let state = [
            ("adapter", self.index.to_string()),
            ("alias", self.alias.clone().unwrap_or_else(|| "none".to_owned())),
            ("interface index", self.interface_index.to_string()),
            ("NET_LUID", self.net_luid.clone()),
            ("MAC address", self.mac_address.clone()),
            ("addresses", self.address_lines()),
            ("link", self.link()),
            ("MTU", units::count(u64::from(self.mtu))),
            ("wire number", self.wire_number.to_string()),
            ("NDK", (if self.ndk_enabled { "enabled" } else { "disabled" }).to_owned()),
            ("technology", self.technology.clone()),
            ("completion mode", self.completion_mode.clone().unwrap_or_else(|| "unknown".to_owned())),
            ("limits profile", self.limits_profile.clone().unwrap_or_else(|| "unknown".to_owned())),
        ];
        let numbers = self.limits.iter().chain(self.counters.iter().flatten());
        let numbers = numbers.map(|counter| {
            let value = if counter.name == "adapter_flags" { self.flags.join("\n") } else { shown(counter) };
            (counter.name.replace('_', " "), value)
        });
        state.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(numbers).collect()
    }

    fn address_lines(&self) -> String {
        let more = self.more_addresses.then(|| "and more".to_owned());
        let lines: Vec<String> = self.addresses.iter().cloned().chain(more).collect();
        if lines.is_empty() { "none".to_owned() } else { lines.join("\n") }
    }

    fn link(&self) -> String {
        let state = match self.link {
            Link::Up => "up",
            Link::Paused => "up, paused",
            Link::Down => "down",
        };
        format!("{state}, {}", units::link_speed(self.link_speed))
    }
}

#[cfg(test)]
mod tests {
    use super::{Adapter, Consumer, Counter, InfoReport, Link, adapter, driver, named as name_of, object_counts};
    use crate::identity::{Build, OneBuild};
    use softndk_ioctl::{
        AdapterAddress, AdapterEntry, AdapterFlags, CompletionModeInForce, LimitsProfileInForce, ObjectSummaryReply,
        ProcessLimits, RequestHeader, Technology, VersionFlags, VersionReply,
    };
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use zerocopy::FromZeros;

    fn version() -> VersionReply {
        VersionReply {
            header: RequestHeader::of::<VersionReply>(),
            driver_version: [0, 1, 2, 0],
            ndis_version: [6, 60],
            ndkpi_version: [2, 1],
            processor_count: 2,
            flags: VersionFlags::TRANSFERS,
            commit: [0; 48],
        }
    }

    fn entry() -> AdapterEntry {
        let mut entry = AdapterEntry::new_zeroed();
        entry.index = 3;
        entry.net_luid = 0x0006_0080_0000_0000;
        entry.mac_address = [2, 0xAB, 0, 0, 0, 1];
        entry.link_speed = 100_000_000_000;
        (entry.completion_mode, entry.limits_profile) = (CompletionModeInForce(3), LimitsProfileInForce(2));
        entry.limits.adapter_flags = 0x2_0104;
        entry.interface_index = 9;
        entry.technology = Technology::IWARP;
        entry.flags = AdapterFlags::NDK_ENABLED | AdapterFlags::LINK_UP | AdapterFlags::RUNNING;
        entry.address_count = 2;
        entry.addresses[0] = AdapterAddress::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 24, 0);
        entry.addresses[1] = AdapterAddress::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 64, 0);
        entry.limits.max_transfer_length = 1 << 30;
        entry
    }

    fn report(adapters: Vec<Adapter>) -> InfoReport {
        let consumer = Consumer { driver: driver(&version()), adapters: adapters.len() };
        let (tool, driver) = (Build::of_tool(), Some(driver(&version())));
        let consumer = Some(consumer);
        InfoReport { tool, one_build: OneBuild::No, driver, consumer, dll: None, adapters, objects: None }
    }

    #[test]
    fn the_table_shows_what_a_reader_looks_for() {
        let text = report(vec![adapter(&entry(), false)]).to_string();
        for wanted in [
            "softndk 0.1.2",
            "ndktest 0.1.2",
            "opens 1 adapters",
            "NDIS 6.60",
            "NDKPI 2.1",
            "02-AB-00-00-00-01",
            "10.0.0.1/24",
            "::1/64",
            "1 GiB",
            "iWARP",
            "100 Gbit/s",
            "force-inline",
            "generous",
            "CQ_RESIZE_SUPPORTED",
            "0x20000",
            "softndk 0.1.2 (commit unknown)",
            "not of one build: ndkctl ",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn json_has_the_documented_names() {
        let json = serde_json::to_value(report(vec![adapter(&entry(), true)])).unwrap();
        assert_eq!(json["driver"]["version"], "0.1.2");
        assert_eq!(json["driver"]["commit"], "unknown");
        assert_eq!((&json["one_build"], &json["tool"]["commit"]), (&"no".into(), &softndk_ioctl::COMMIT.into()));
        assert_eq!(json["consumer"]["adapters"], 1);
        let adapter = &json["adapters"][0];
        assert_eq!(adapter["index"], 3);
        assert_eq!(adapter["net_luid"], "0006008000000000");
        assert_eq!(adapter["addresses"][0], "10.0.0.1/24");
        assert_eq!(adapter["ndk_enabled"], true);
        assert_eq!(
            (&adapter["completion_mode"], &adapter["limits_profile"]),
            (&"force-inline".into(), &"generous".into())
        );
        assert_eq!(adapter["flags"][2], "0x20000");
        assert_eq!(adapter["limits"].as_array().unwrap().len(), 18);
        assert_eq!(adapter["counters"].as_array().unwrap().len(), 16);
    }

    #[test]
    fn an_address_count_that_is_too_large_is_cut() {
        let mut entry = entry();
        entry.address_count = u32::MAX;
        assert_eq!(adapter(&entry, false).addresses.len(), 2);
    }

    #[test]
    fn no_adapters_is_said() {
        assert!(report(Vec::new()).to_string().contains("no adapters"));
    }

    #[test]
    fn objects_are_named() {
        let objects = ObjectSummaryReply { queue_pairs: 4, pool_blocks: 9, ..ObjectSummaryReply::default() };
        let counts = object_counts(&objects);
        assert!(counts.iter().any(|counter| counter.name == "queue_pairs" && counter.value == 4));
        assert!(counts.iter().any(|counter| counter.name == "pool_blocks" && counter.value == 9));
    }

    /// Names with values of their own: one in another's place shows.
    macro_rules! unlike {
        ($structure:expr; $($field:ident),* $(,)?) => {{
            let mut value = 1_000;
            let mut expected = Vec::new();
            $(
                value += 1;
                $structure.$field = value;
                expected.push((stringify!($field), u64::from(value)));
            )*
            expected
        }};
    }

    fn named(counters: &[Counter]) -> Vec<(&'static str, u64)> {
        counters.iter().map(|counter| (counter.name, counter.value)).collect()
    }

    // Rule: NUMBERS-1
    #[test]
    fn every_limit_is_that_of_its_name() {
        let mut entry = entry();
        let mut expected = unlike!(entry.limits; max_registration_size, max_window_size);
        expected.extend(unlike!(entry.limits; frmr_page_count, max_initiator_request_sge, max_receive_request_sge, max_read_request_sge, max_transfer_length, max_inline_data_size, max_inbound_read_limit, max_outbound_read_limit, max_receive_queue_depth, max_initiator_queue_depth, max_srq_depth, max_cq_depth, large_request_threshold, max_caller_data, max_callee_data, adapter_flags));
        entry.limits.max_registration_size += 500;
        entry.limits.max_window_size += 500;
        expected[..2].iter_mut().for_each(|(_, value)| *value += 500);
        assert_eq!(named(&adapter(&entry, false).limits), expected);
    }

    // Rule: NUMBERS-1
    #[test]
    fn every_limit_of_a_process_is_that_of_its_name() {
        let mut entry = entry();
        let before = adapter(&entry, false).limits.len();
        entry.process_limits = ProcessLimits { objects: 501, pool_mib: 502, locked_mib: 503, requests: 504 };
        let expected = [
            ("process_objects", 501),
            ("process_pool_mib", 502),
            ("process_locked_mib", 503),
            ("process_requests", 504),
        ];
        assert_eq!(named(&adapter(&entry, false).limits[before..]), expected);
    }

    // Rule: NUMBERS-1
    #[test]
    fn every_counter_is_that_of_its_name_and_direction() {
        let mut entry = entry();
        let expected = unlike!(entry.counters; connects, accepts, connect_failures, connection_errors, active_connections, completion_queue_errors, rdma_in_octets, rdma_out_octets, rdma_in_frames, rdma_out_frames, frame_in_octets, frame_out_octets, frames_in, frames_out, in_discards, out_discards);
        let shown = adapter(&entry, true);
        assert_eq!(named(shown.counters.as_ref().unwrap()), expected);
        let text = report(vec![shown]).to_string();
        for (name, value) in expected {
            let name = format!(" {} ", name.replace('_', " "));
            let line = text.lines().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("{name} is not shown"));
            assert!(line.contains(&crate::units::count(value)), "{line}");
        }
    }

    #[test]
    fn every_count_of_objects_is_that_of_its_name() {
        let mut objects = ObjectSummaryReply::default();
        let mut expected = unlike!(objects; adapters, ndk_adapters, completion_queues, protection_domains, memory_regions, logical_mappings, memory_windows, shared_receive_queues, queue_pairs, listeners, connectors, shared_endpoints, files, pairs);
        expected.extend(unlike!(objects; pool_bytes, pool_blocks));
        (objects.pool_bytes, objects.pool_blocks) = (77_777, 88);
        expected[14..].copy_from_slice(&[("pool_bytes", 77_777), ("pool_blocks", 88)]);
        assert_eq!(named(&object_counts(&objects)), expected);
    }

    #[test]
    fn every_property_of_an_adapter_and_a_driver_is_that_of_its_name() {
        let mut entry = entry();
        (entry.index, entry.interface_index, entry.wire_number, entry.mtu) = (3, 17, 29, 1_514);
        entry.mac_address = [0x02, 0x13, 0x24, 0x35, 0x46, 0x57];
        let shown = adapter(&entry, false);
        assert_eq!((shown.index, shown.interface_index, shown.wire_number, shown.mtu), (3, 17, 29, 1_514));
        assert_eq!((&*shown.mac_address, &*shown.net_luid), ("02-13-24-35-46-57", "0006008000000000"));
        assert_eq!(shown.addresses, ["10.0.0.1/24", "::1/64"]);
        let version =
            VersionReply { driver_version: [4, 5, 6, 0], ndis_version: [6, 85], ndkpi_version: [2, 1], ..version() };
        let shown = driver(&VersionReply { processor_count: 7, ..version });
        assert_eq!((&*shown.build.version, &*shown.ndis_version, &*shown.ndkpi_version), ("4.5.6", "6.85", "2.1"));
        assert_eq!((shown.processors, shown.debug_build, shown.transfers), (7, false, true));
        let debug = driver(&VersionReply { flags: VersionFlags::DEBUG_BUILD, ..version });
        assert!(debug.debug_build && !debug.transfers);
    }

    #[test]
    fn a_value_without_a_name_is_a_number_and_none_is_not_known() {
        let names = ["a", "b"];
        assert_eq!(
            (0..4).map(|value| name_of(value, &names)).collect::<Vec<_>>(),
            [None, Some("a".to_owned()), Some("b".to_owned()), Some("2".to_owned())]
        );
    }

    #[test]
    fn a_flag_alone_says_one_thing() {
        let of = |flags| {
            let mut entry = entry();
            entry.flags = flags;
            let shown = adapter(&entry, false);
            (shown.link, shown.ndk_enabled, shown.more_addresses)
        };
        assert_eq!(of(AdapterFlags::LINK_UP), (Link::Paused, false, false));
        assert_eq!(of(AdapterFlags::RUNNING), (Link::Down, false, false));
        assert_eq!(of(AdapterFlags::LINK_UP | AdapterFlags::RUNNING), (Link::Up, false, false));
        assert_eq!(of(AdapterFlags::NDK_ENABLED), (Link::Down, true, false));
        assert_eq!(of(AdapterFlags::MORE_ADDRESSES), (Link::Down, false, true));
    }
}
