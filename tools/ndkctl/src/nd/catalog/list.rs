//! `ndkctl nd list`: the providers of NetworkDirect in the catalogue.

use super::Registered;
use super::entry::Generation;
use crate::failure::Failure;
use serde::Serialize;
use std::fmt;
use tabled::builder::Builder;
use tabled::settings::Style;

/// What `nd list` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListReport {
    pub entries: Vec<ListedEntry>,
}

/// One provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedEntry {
    pub catalog_entry_id: u32,
    pub name: String,
    pub provider_id: String,
    pub version: i32,
    pub address_family: i32,
    pub path: String,
    /// Which entry of softnd.dll it is; null for other providers.
    pub ours: Option<Generation>,
}

/// Lists them.
pub fn list() -> Result<ListReport, Failure> {
    #[cfg(windows)]
    return Ok(report(&super::install::Catalog::entries(&super::winsock::Winsock::start()?)?));
    #[cfg(not(windows))]
    Err(super::needs_windows("cannot list the providers"))
}

#[cfg_attr(not(any(windows, test)), expect(dead_code, reason = "only Windows has a catalogue"))]
fn report(entries: &[Registered]) -> ListReport {
    let with_flag = entries.iter().filter(|entry| entry.info.is_network_direct());
    let shown = |entry: &Registered| ListedEntry {
        catalog_entry_id: entry.info.catalog_entry_id,
        name: entry.info.shown_name(),
        provider_id: entry.info.shown_id(),
        version: entry.info.version,
        address_family: entry.info.address_family,
        path: entry.path.clone(),
        ours: entry.info.generation(),
    };
    ListReport { entries: with_flag.map(shown).collect() }
}

impl fmt::Display for ListReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entries.is_empty() {
            return write!(formatter, "no providers of NetworkDirect in the Winsock catalogue");
        }
        let mut table = Builder::default();
        table.push_record(["entry", "name", "version", "family", "ProviderId", "DLL"]);
        for entry in &self.entries {
            table.push_record([
                entry.catalog_entry_id.to_string(),
                entry.name.clone(),
                format!("0x{:X}", entry.version),
                entry.address_family.to_string(),
                entry.provider_id.clone(),
                entry.path.clone(),
            ]);
        }
        let mut table = table.build();
        table.with(Style::rounded());
        write!(formatter, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::{Generation, Registered, report};
    use crate::nd::catalog::entry::ProtocolInfo;

    #[test]
    fn only_providers_of_networkdirect_are_listed() {
        let ours = ProtocolInfo { catalog_entry_id: 1042, ..ProtocolInfo::ours(Generation::Version2) };
        let transport = ProtocolInfo { provider_flags: 0, ..ours };
        let foreign = ProtocolInfo { provider_id: [1; 16], ..ours };
        let entries = [(ours, "a.dll"), (transport, "b.dll"), (foreign, "c.dll")];
        let report = report(&entries.map(|(info, path)| Registered { info, path: path.to_owned() }));
        assert_eq!(report.entries.len(), 2);
        assert_eq!((report.entries[0].ours, report.entries[1].ours), (Some(Generation::Version2), None));
        let text = report.to_string();
        for wanted in ["1042", "softndk NetworkDirect 2", "0x20000", "a.dll", "c.dll", "4E17FD8D"] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        assert_eq!(serde_json::to_value(&report).unwrap()["entries"][0]["ours"], "version2");
        assert!(super::ListReport { entries: Vec::new() }.to_string().contains("no providers"));
    }
}
