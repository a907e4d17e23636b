//! `ndkctl nd info`: the adapters of a provider.

use super::provider::Provider;
use super::system::System;
use crate::failure::Failure;
use crate::info::{Counter, columns_table, flag_names};
use serde::Serialize;
use softnd_interfaces::Status;
use softnd_interfaces::constants::adapter_flag;
use softnd_interfaces::v2::AdapterInfo;
use std::fmt;
use std::net::IpAddr;

/// The adapters that a provider has.
#[derive(Clone, Debug, Serialize)]
pub struct NdInfoReport {
    pub adapters: Vec<ProviderAdapter>,
    /// Why there are none, as far as the provider says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}

/// Why a provider has no adapters, by what it answers to an open: a list of addresses does not fail for these.
fn reason(status: Status) -> Option<&'static str> {
    match status {
        Status::ACCESS_DENIED => Some(
            "this user may not open the driver's device: run as administrator, or let interactive users in with \"ndkctl nd allow\"",
        ),
        Status::DEVICE_NOT_READY => Some("there is no driver, or no adapter of it"),
        _ => None,
    }
}

/// One of them.
#[derive(Clone, Debug, Serialize)]
pub struct ProviderAdapter {
    pub adapter_id: String,
    pub vendor_id: u16,
    pub device_id: u16,
    pub addresses: Vec<IpAddr>,
    /// The numbers of ND2_ADAPTER_INFO.
    pub limits: Vec<Counter>,
    pub flags: Vec<String>,
}

const FLAGS: [(u32, &str); 5] = [
    (adapter_flag::IN_ORDER_DMA_SUPPORTED, "IN_ORDER_DMA_SUPPORTED"),
    (adapter_flag::CQ_INTERRUPT_MODERATION_SUPPORTED, "CQ_INTERRUPT_MODERATION_SUPPORTED"),
    (adapter_flag::MULTI_ENGINE_SUPPORTED, "MULTI_ENGINE_SUPPORTED"),
    (adapter_flag::CQ_RESIZE_SUPPORTED, "CQ_RESIZE_SUPPORTED"),
    (adapter_flag::LOOPBACK_CONNECTIONS_SUPPORTED, "LOOPBACK_CONNECTIONS_SUPPORTED"),
];

/// Asks the provider.
pub fn run(system: &System<'_>) -> Result<NdInfoReport, Failure> {
    let provider = Provider::load(system)?;
    let mut identifiers = Vec::new();
    for address in provider.addresses()? {
        let identifier = provider.identifier_of(address)?;
        if !identifiers.contains(&identifier) {
            identifiers.push(identifier);
        }
    }
    let adapters = identifiers.into_iter().map(|identifier| {
        let adapter = provider.open(identifier)?;
        let addresses = adapter.addresses()?.into_iter().map(|address| address.ip()).collect();
        Ok(shown(&adapter.info()?, addresses))
    });
    let adapters = adapters.collect::<Result<Vec<_>, Failure>>()?;
    let reason = if adapters.is_empty() { reason(provider.answer_to_an_open()) } else { None };
    Ok(NdInfoReport { adapters, reason })
}

fn shown(info: &AdapterInfo, addresses: Vec<IpAddr>) -> ProviderAdapter {
    ProviderAdapter {
        adapter_id: format!("{:016X}", info.adapter_id),
        vendor_id: info.vendor_id,
        device_id: info.device_id,
        addresses,
        limits: limits(info),
        flags: flags(info.adapter_flags),
    }
}

fn flags(value: u32) -> Vec<String> {
    flag_names(value, &FLAGS)
}

fn limits(info: &AdapterInfo) -> Vec<Counter> {
    let wide = |name, value: usize| Counter { name, value: value as u64 };
    let narrow = |name, value: u32| Counter { name, value: u64::from(value) };
    vec![
        wide("max_registration_size", info.max_registration_size),
        wide("max_window_size", info.max_window_size),
        narrow("max_initiator_sge", info.max_initiator_sge),
        narrow("max_receive_sge", info.max_receive_sge),
        narrow("max_read_sge", info.max_read_sge),
        narrow("max_transfer_length", info.max_transfer_length),
        narrow("max_inline_data_size", info.max_inline_data_size),
        narrow("max_inbound_read_limit", info.max_inbound_read_limit),
        narrow("max_outbound_read_limit", info.max_outbound_read_limit),
        narrow("max_receive_queue_depth", info.max_receive_queue_depth),
        narrow("max_initiator_queue_depth", info.max_initiator_queue_depth),
        narrow("max_shared_receive_queue_depth", info.max_shared_receive_queue_depth),
        narrow("max_completion_queue_depth", info.max_completion_queue_depth),
        narrow("inline_request_threshold", info.inline_request_threshold),
        narrow("large_request_threshold", info.large_request_threshold),
        narrow("max_caller_data", info.max_caller_data),
        narrow("max_callee_data", info.max_callee_data),
    ]
}

impl fmt::Display for NdInfoReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.adapters.is_empty() {
            return match self.reason {
                Some(reason) => write!(formatter, "the provider has no adapters: {reason}"),
                None => write!(formatter, "the provider has no adapters"),
            };
        }
        let columns: Vec<_> = self.adapters.iter().map(ProviderAdapter::properties).collect();
        write!(formatter, "{}", columns_table(&columns))
    }
}

impl ProviderAdapter {
    /// Names and values, as the table shows them.
    fn properties(&self) -> Vec<(String, String)> {
        let lines = |lines: &[String]| if lines.is_empty() { "none".to_owned() } else { lines.join("\n") };
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let head = [
            ("adapter", self.adapter_id.clone()),
            ("addresses", lines(&addresses)),
            ("vendor, device", format!("{:04X}, {:04X}", self.vendor_id, self.device_id)),
        ];
        let head = head.map(|(name, value)| (name.to_owned(), value)).into_iter();
        let numbers = self.limits.iter().map(|limit| (limit.name.replace('_', " "), crate::info::shown(limit)));
        head.chain(numbers).chain([("flags".to_owned(), lines(&self.flags))]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{NdInfoReport, flags, reason, shown};
    use softnd_interfaces::Status;
    use softnd_interfaces::v2::AdapterInfo;

    #[test]
    fn flags_have_names_and_unknown_ones_numbers() {
        assert_eq!(flags(0x1_0001), ["IN_ORDER_DMA_SUPPORTED", "LOOPBACK_CONNECTIONS_SUPPORTED"]);
        assert_eq!(flags(0x100 | 0x2_0002), ["CQ_RESIZE_SUPPORTED", "0x20002"]);
        assert!(flags(0).is_empty());
    }

    #[test]
    fn the_report_has_every_number_of_the_structure() {
        let info =
            AdapterInfo { adapter_id: 0xAB, max_transfer_length: 1 << 30, adapter_flags: 1, ..AdapterInfo::default() };
        let adapters = vec![shown(&info, vec!["10.0.0.1".parse().unwrap()])];
        let report = NdInfoReport { adapters, reason: None };
        let text = report.to_string();
        for wanted in ["00000000000000AB", "10.0.0.1", "1 GiB", "IN_ORDER_DMA_SUPPORTED", "max callee data"] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["adapters"][0]["limits"].as_array().unwrap().len(), 17);
        assert_eq!(json["adapters"][0]["addresses"][0], "10.0.0.1");
        assert!(json.get("reason").is_none());
    }

    #[test]
    fn an_empty_report_says_why() {
        for (status, expected) in [
            (Status::INVALID_PARAMETER, "the provider has no adapters"),
            (Status::ACCESS_DENIED, "the provider has no adapters: this user may not open"),
            (Status::DEVICE_NOT_READY, "the provider has no adapters: there is no driver"),
        ] {
            let report = NdInfoReport { adapters: Vec::new(), reason: reason(status) };
            assert!(report.to_string().starts_with(expected), "{report}");
            assert_eq!(report.to_string() == expected, report.reason.is_none());
        }
    }

    // Rule: NUMBERS-1
    #[test]
    fn every_number_is_that_of_its_name() {
        let mut info = AdapterInfo { vendor_id: 0x1234, device_id: 0x5678, ..AdapterInfo::default() };
        (info.max_registration_size, info.max_window_size) = (5_001, 5_002);
        let mut expected = vec![("max_registration_size", 5_001), ("max_window_size", 5_002)];
        let mut value = 1_000;
        macro_rules! unlike {
            ($($field:ident),*) => {$(
                value += 1;
                info.$field = value;
                expected.push((stringify!($field), u64::from(value)));
            )*};
        }
        unlike!(
            max_initiator_sge,
            max_receive_sge,
            max_read_sge,
            max_transfer_length,
            max_inline_data_size,
            max_inbound_read_limit,
            max_outbound_read_limit,
            max_receive_queue_depth,
            max_initiator_queue_depth,
            max_shared_receive_queue_depth,
            max_completion_queue_depth,
            inline_request_threshold,
            large_request_threshold,
            max_caller_data,
            max_callee_data
        );
        let shown = shown(&info, Vec::new());
        assert_eq!(shown.limits.iter().map(|limit| (limit.name, limit.value)).collect::<Vec<_>>(), expected);
        assert_eq!((shown.vendor_id, shown.device_id), (0x1234, 0x5678));
        assert!(NdInfoReport { adapters: vec![shown], reason: None }.to_string().contains("1234, 5678"));
    }
}
