//! `ndkctl nd install` and `nd remove`: two entries, one for each version, written once however often it is asked for.

use super::Registered;
use super::entry::{GENERATIONS, Generation, ProtocolInfo};
use crate::failure::Failure;
use crate::nd::arguments::InstallArguments;
use serde::Serialize;
use std::fmt::{self, Write as _};
use zerocopy::IntoBytes;

/// Where the DLL is unless it is said.
const DEFAULT_PATH: &str = r"%SystemRoot%\System32\softnd.dll";

/// What the system's catalogue can do.
pub trait Catalog {
    /// Every entry.
    fn entries(&self) -> Result<Vec<Registered>, Failure>;
    /// Adds an entry to the native catalogue and to that of 32-bit programs.
    fn add(&self, entry: &Registered) -> Result<(), Failure>;
    /// Takes the entry with this ProviderId out of both; it is there.
    fn take_out(&self, info: &ProtocolInfo) -> Result<(), Failure>;
}

/// What was done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryState {
    Installed,
    /// It was there as it should be.
    Unchanged,
    /// It was there with another path or other fields.
    Replaced,
    Removed,
    /// There was nothing to remove.
    Absent,
    /// `--dry-run`.
    NotWritten,
}

/// What `nd install` or `nd remove` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CatalogReport {
    pub entries: Vec<EntryReport>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryReport {
    pub generation: Generation,
    pub state: EntryState,
    pub name: String,
    pub provider_id: String,
    /// Of the DLL; null where none was given.
    pub path: Option<String>,
    /// WSAPROTOCOL_INFOW byte by byte, in hexadecimal digits.
    pub info: String,
}

impl EntryReport {
    fn new(generation: Generation, state: EntryState, path: Option<&str>) -> Self {
        let info = ProtocolInfo::ours(generation);
        Self {
            generation,
            state,
            name: info.shown_name(),
            provider_id: info.shown_id(),
            path: path.map(str::to_owned),
            info: crate::copy::hexadecimal(info.as_bytes()),
        }
    }
}

/// Writes the entries, or shows them.
pub fn install(arguments: &InstallArguments) -> Result<CatalogReport, Failure> {
    let path = arguments.dll.as_deref().unwrap_or(DEFAULT_PATH);
    if arguments.dry_run {
        let entry = |generation| EntryReport::new(generation, EntryState::NotWritten, Some(path));
        return Ok(CatalogReport { entries: GENERATIONS.map(entry).to_vec() });
    }
    #[cfg(windows)]
    return super::winsock::check_dll(path).and_then(|path| install_in(&super::winsock::Winsock::start()?, &path));
    #[cfg(not(windows))]
    Err(super::needs_windows("cannot install softnd.dll"))
}

/// Takes them out.
pub fn remove() -> Result<CatalogReport, Failure> {
    #[cfg(windows)]
    return remove_from(&super::winsock::Winsock::start()?);
    #[cfg(not(windows))]
    Err(super::needs_windows("cannot remove softnd.dll"))
}

/// What is there of ours.
fn ours(catalog: &impl Catalog) -> Result<Vec<Registered>, Failure> {
    let mut entries = catalog.entries()?;
    entries.retain(|entry| entry.info.generation().is_some());
    Ok(entries)
}

#[cfg_attr(not(any(windows, test)), expect(dead_code, reason = "only Windows has a catalogue"))]
fn install_in(catalog: &impl Catalog, path: &str) -> Result<CatalogReport, Failure> {
    let there = ours(catalog)?;
    let mut entries = Vec::new();
    for generation in GENERATIONS {
        let wanted = Registered { info: ProtocolInfo::ours(generation), path: path.to_owned() };
        let old = there.iter().find(|entry| entry.info.generation() == Some(generation));
        let same =
            |old: &Registered| old.path.eq_ignore_ascii_case(&wanted.path) && old.info.says_the_same_as(&wanted.info);
        let state = match old {
            Some(old) if same(old) => EntryState::Unchanged,
            Some(old) => {
                catalog.take_out(&old.info)?;
                catalog.add(&wanted)?;
                EntryState::Replaced
            }
            None => {
                catalog.add(&wanted)?;
                EntryState::Installed
            }
        };
        entries.push(EntryReport::new(generation, state, Some(path)));
    }
    Ok(CatalogReport { entries })
}

#[cfg_attr(not(any(windows, test)), expect(dead_code, reason = "only Windows has a catalogue"))]
fn remove_from(catalog: &impl Catalog) -> Result<CatalogReport, Failure> {
    let there = ours(catalog)?;
    let mut entries = Vec::new();
    for generation in GENERATIONS {
        let old = there.iter().find(|entry| entry.info.generation() == Some(generation));
        if let Some(old) = old {
            catalog.take_out(&old.info)?;
        }
        let state = if old.is_some() { EntryState::Removed } else { EntryState::Absent };
        entries.push(EntryReport::new(generation, state, old.map(|old| old.path.as_str())));
    }
    Ok(CatalogReport { entries })
}

impl fmt::Display for CatalogReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for entry in &self.entries {
            let done = match entry.state {
                EntryState::Installed => "installed",
                EntryState::Unchanged => "was installed already",
                EntryState::Replaced => "replaced",
                EntryState::Removed => "removed",
                EntryState::Absent => "was not installed",
                EntryState::NotWritten => "not written (dry run)",
            };
            let _ = writeln!(text, "{} {}: {done}", entry.name, entry.provider_id);
            if let Some(path) = &entry.path {
                let _ = writeln!(text, "  DLL: {path}");
            }
            if entry.state == EntryState::NotWritten {
                write_fields(&mut text, &ProtocolInfo::ours(entry.generation));
            }
        }
        write!(formatter, "{}", text.trim_end())
    }
}

/// The fields that are not zero, by the names of the structure.
fn write_fields(text: &mut String, info: &ProtocolInfo) {
    let fields = [
        ("dwServiceFlags1", format!("0x{:X}", info.service_flags[0])),
        ("dwProviderFlags", format!("0x{:X}", info.provider_flags)),
        ("ProtocolChain.ChainLen", info.chain_length.to_string()),
        ("iVersion", format!("0x{:X}", info.version)),
        ("iAddressFamily", info.address_family.to_string()),
        ("iMaxSockAddr, iMinSockAddr", format!("{}, {}", info.max_socket_address, info.min_socket_address)),
        ("iSocketType, iProtocol", format!("{}, {}", info.socket_type, info.protocol)),
        ("dwMessageSize", format!("0x{:X}", info.message_size)),
    ];
    for (name, value) in fields {
        let _ = writeln!(text, "  {name}: {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::{Catalog, EntryState, InstallArguments, ProtocolInfo, Registered, install, install_in, remove_from};
    use crate::failure::{Failure, Kind};
    use crate::nd::catalog::entry::Generation;
    use std::cell::RefCell;

    /// A catalogue as Winsock keeps it, and what was asked of it.
    struct InMemory {
        entries: RefCell<Vec<Registered>>,
        refuses: bool,
    }

    impl InMemory {
        fn new() -> Self {
            let mut foreign = ProtocolInfo::ours(Generation::Version2);
            foreign.provider_id = [7; 16];
            let foreign = Registered { info: foreign, path: "other.dll".to_owned() };
            Self { entries: RefCell::new(vec![foreign]), refuses: false }
        }

        fn ours(&self) -> usize {
            self.entries.borrow().iter().filter(|entry| entry.info.generation().is_some()).count()
        }
    }

    impl Catalog for InMemory {
        fn entries(&self) -> Result<Vec<Registered>, Failure> {
            Ok(self.entries.borrow().clone())
        }

        fn add(&self, entry: &Registered) -> Result<(), Failure> {
            if self.refuses {
                return Err(Failure::new(Kind::Unreachable, "", "", ""));
            }
            let mut entries = self.entries.borrow_mut();
            let mut entry = entry.clone();
            entry.info.catalog_entry_id = 1000 + entries.len() as u32;
            assert!(!entries.iter().any(|old| old.info.provider_id == entry.info.provider_id), "Winsock refuses that");
            entries.push(entry);
            Ok(())
        }

        fn take_out(&self, info: &ProtocolInfo) -> Result<(), Failure> {
            let mut entries = self.entries.borrow_mut();
            let place = entries.iter().position(|entry| entry.info.provider_id == info.provider_id);
            entries.remove(place.expect("an entry that is there"));
            Ok(())
        }
    }

    fn states(report: &super::CatalogReport) -> Vec<EntryState> {
        report.entries.iter().map(|entry| entry.state).collect()
    }

    #[test]
    fn twice_is_once_and_others_stay() {
        let catalog = InMemory::new();
        assert_eq!(states(&install_in(&catalog, r"C:\softnd.dll").unwrap()), [EntryState::Installed; 2]);
        assert_eq!(states(&install_in(&catalog, r"c:\SOFTND.dll").unwrap()), [EntryState::Unchanged; 2]);
        assert_eq!((catalog.ours(), catalog.entries.borrow().len()), (2, 3));
        assert_eq!(states(&remove_from(&catalog).unwrap()), [EntryState::Removed; 2]);
        assert_eq!(states(&remove_from(&catalog).unwrap()), [EntryState::Absent; 2]);
        assert_eq!(catalog.entries.borrow().len(), 1, "what is not ours");
    }

    #[test]
    fn an_entry_that_differs_is_replaced() {
        let catalog = InMemory::new();
        install_in(&catalog, r"C:\old\softnd.dll").unwrap();
        assert_eq!(states(&install_in(&catalog, r"C:\new\softnd.dll").unwrap()), [EntryState::Replaced; 2]);
        catalog.entries.borrow_mut()[1].info.message_size = 5;
        let report = install_in(&catalog, r"C:\new\softnd.dll").unwrap();
        assert_eq!(states(&report), [EntryState::Replaced, EntryState::Unchanged]);
        assert_eq!(catalog.ours(), 2);
    }

    #[test]
    fn a_refusal_is_handed_on() {
        let catalog = InMemory { refuses: true, ..InMemory::new() };
        assert_eq!(install_in(&catalog, "x").map_err(|failure| failure.kind), Err(Kind::Unreachable));
    }

    #[test]
    fn a_dry_run_shows_every_field() {
        let arguments = InstallArguments { dry_run: true, ..InstallArguments::default() };
        let report = install(&arguments).unwrap();
        let text = report.to_string();
        for wanted in [
            r"%SystemRoot%\System32\softnd.dll",
            "4E17FD8D-3F4F-433D-AD1A-761C59D359F6",
            "981B3AB2-AF3C-4254-B079-D830D140C655",
            "dwServiceFlags1: 0x8E",
            "dwProviderFlags: 0x14",
            "iVersion: 0x20000",
            "iVersion: 0x1\n",
            "iAddressFamily: 23",
            "not written",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        assert_eq!(report.entries[0].info.len(), 2 * 628);
    }
}
