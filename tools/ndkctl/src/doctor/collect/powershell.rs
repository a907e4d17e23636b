//! What Windows' own cmdlets say, as one JSON document of `facts.ps1`.
//!
//! The checkers that people run (Test-Rdma, SMB) look at these cmdlets, so the doctor looks at the same.

use crate::doctor::facts::{InterfaceFacts, Service};
use serde::Deserialize;
#[cfg(windows)]
use std::{path::PathBuf, process::Command};

/// It has no double quote, because it is passed as an argument.
pub const SCRIPT: &str = include_str!("facts.ps1");

/// The document.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ShellAnswers {
    pub elevated: Option<bool>,
    pub secure_boot: Option<bool>,
    pub signature_trusted: Option<bool>,
    pub network_direct: Option<bool>,
    pub verifier_flags: Option<u32>,
    pub verified_drivers: Option<String>,
    pub provider_service: Option<String>,
    pub consumer_service: Option<String>,
    pub interfaces: Vec<InterfaceFacts>,
}

impl ShellAnswers {
    /// Nothing where PowerShell cannot be run: then these checks are not made.
    #[cfg(windows)]
    pub fn collect() -> Self {
        let root = std::env::var_os("SystemRoot").map_or_else(|| PathBuf::from(r"C:\Windows"), PathBuf::from);
        // By its path: what stands in the PATH may be another program.
        let mut command = Command::new(root.join(r"System32\WindowsPowerShell\v1.0\powershell.exe"));
        command.args(["-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-Command", SCRIPT]);
        command.output().map(|output| Self::read(&output.stdout)).unwrap_or_default()
    }

    pub fn read(document: &[u8]) -> Self {
        serde_json::from_slice(document).unwrap_or_default()
    }

    /// Driver Verifier's flags, where it verifies a driver of ours.
    pub fn verifier_flags_of_ours(&self) -> Option<u32> {
        let drivers = self.verified_drivers.as_ref()?.to_ascii_lowercase();
        let ours =
            ["*", "softndk.sys", "ndktest.sys"].iter().any(|name| drivers.split_whitespace().any(|one| one == *name));
        Some(if ours { self.verifier_flags.unwrap_or(0) } else { 0 })
    }
}

/// A state of Win32_SystemDriver.
pub fn service(state: Option<&str>) -> Service {
    match state {
        Some("Running") => Service::Running,
        Some("Absent") => Service::Absent,
        Some("Stopped") => Service::Stopped,
        _ => Service::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, ShellAnswers, service};
    use crate::doctor::facts::Service;

    const DOCUMENT: &str = r#"{
        "elevated": true, "secure_boot": false, "signature_trusted": null, "network_direct": true,
        "verifier_flags": 4, "verified_drivers": "foo.sys SOFTNDK.SYS", "provider_service": "Running", "consumer_service": "Absent",
        "interfaces": [{"interface_index": 12, "max_queue_pairs": 1024, "max_completion_queues": 0, "smb_rdma_capable": false,
                        "keywords": {"CompletionMode": "1"}}]
    }"#;

    #[test]
    fn the_document_is_read() {
        let answers = ShellAnswers::read(DOCUMENT.as_bytes());
        assert_eq!((answers.elevated, answers.secure_boot), (Some(true), Some(false)));
        assert_eq!((answers.signature_trusted, answers.network_direct), (None, Some(true)));
        assert_eq!(answers.verifier_flags_of_ours(), Some(4));
        let interface = &answers.interfaces[0];
        assert_eq!((interface.interface_index, interface.max_queue_pairs), (12, Some(1024)));
        assert_eq!((interface.max_completion_queues, interface.smb_rdma_capable), (Some(0), Some(false)));
        assert_eq!(interface.keywords.as_ref().unwrap()["CompletionMode"], "1");
    }

    #[test]
    fn what_is_no_document_is_nothing() {
        let answers = ShellAnswers::read(b"\xEF\xBB\xBFoops");
        assert!(answers.elevated.is_none() && answers.interfaces.is_empty());
    }

    #[test]
    fn the_verifier_counts_for_our_drivers_only() {
        let of = |drivers: Option<&str>| {
            let verified_drivers = drivers.map(str::to_owned);
            ShellAnswers { verified_drivers, verifier_flags: Some(9), ..ShellAnswers::default() }
                .verifier_flags_of_ours()
        };
        assert_eq!((of(Some("a.sys ndktest.sys")), of(Some("*"))), (Some(9), Some(9)));
        assert_eq!((of(Some("asoftndk.sys")), of(Some("")), of(None)), (Some(0), Some(0), None));
    }

    #[test]
    fn states_of_a_service() {
        let states = ["Running", "Stopped", "Absent", "Start Pending"].map(|state| service(Some(state)));
        assert_eq!(states, [Service::Running, Service::Stopped, Service::Absent, Service::Unknown]);
        assert_eq!(service(None), Service::Unknown);
    }

    /// Each field of the document is one that the script makes, and the script can be passed as an argument.
    #[test]
    fn the_script_makes_every_field() {
        assert!(!SCRIPT.contains('"'));
        for line in DOCUMENT.split('"').filter(|word| word.contains('_') || *word == "elevated" || *word == "keywords")
        {
            assert!(SCRIPT.contains(&format!("{line} = ")), "{line} is not made");
        }
    }
}
