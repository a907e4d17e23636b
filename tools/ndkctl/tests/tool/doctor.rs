//! `ndkctl doctor` on the kernel host's machine: what can be provoked there is. The unit tests of `doctor::judge` provoke every finding by
//! changed facts.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use ndkctl::doctor::Finding;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn target(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(path)
}

/// The image under test: the debug one, whose arithmetic is checked, before the release one.
fn image() -> PathBuf {
    if let Some(path) = std::env::var_os("SOFTNDK_IMAGE") {
        return path.into();
    }
    let found = ["driver/x64/debug/softndk.sys", "driver/x64/release/softndk.sys"].map(target);
    found.into_iter().find(|path| path.exists()).expect("there is no driver image; `cargo xtask driver` builds one")
}

/// Runs the doctor on a machine: exit code and report.
fn doctor(words: &[&str], dll: &Path) -> (i32, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkctl"));
    command.args(["--json", "doctor"]).args(words).env("SOFTNDK_IMAGE", image()).env("SOFTNDK_DLL", dll);
    let output = command.output().expect("the binary starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let document: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {words:?}:\n{text}{errors}"));
    assert_eq!(document["ok"], true, "{document:#}");
    (output.status.code().expect("an exit code"), document["report"].clone())
}

/// A file that stands for the provider: it is only looked whether it is there, and which build it is of.
fn some_dll() -> PathBuf {
    image()
}

/// The names of the findings.
fn found(report: &Value) -> BTreeSet<String> {
    let findings = report["findings"].as_array().expect("a list");
    for finding in findings {
        for part in ["subject", "cause", "next_step"] {
            assert!(finding[part].as_str().is_some_and(|text| !text.is_empty()), "{part} of {finding:#}");
        }
    }
    findings.iter().map(|finding| finding["finding"].as_str().expect("a name").to_owned()).collect()
}

fn name(finding: Finding) -> String {
    serde_json::to_value(finding).unwrap().as_str().unwrap().to_owned()
}

/// What is found on the ordinary machine, whatever else is: the image under test may be the debug one.
fn ordinary() -> BTreeSet<String> {
    [Finding::DebugBuild, Finding::ProviderForAdministrators].map(name).into()
}

/// What provokes a finding on the machine: options of the command line.
const ON_THE_MACHINE: [(Finding, &str, i32); 14] = [
    (Finding::DriverAbsent, "--image /no/such/softndk.sys", 9),
    (Finding::ConsumerAbsent, "--image /no/such/softndk.sys", 9),
    (Finding::NotElevated, "--caller user", 9),
    (Finding::ProviderRefuses, "--caller user", 9),
    (Finding::ProviderForAdministrators, "", 0),
    (Finding::AloneOnWire, "--adapters 1", 0),
    (Finding::NdkOff, "--keyword *NetworkDirect=0", 9),
    (Finding::LinkSpeedUnbelievable, "--keyword LinkSpeedMbps=100000", 8),
    (Finding::FlowControlAskedFor, "--keyword *NetworkDirectTechnology=4", 8),
    (Finding::KeywordOdd, "--completion-mode force-async", 8),
    (Finding::KeywordOdd, "--limits tiny", 8),
    (Finding::KeywordOdd, "--keyword AcceptTimeoutMs=0", 8),
    (Finding::KeywordInvalid, "--keyword WireNumber=65536", 8),
    (Finding::UplinkWithoutStreams, "--keyword UplinkPeers=192.0.2.2", 8),
];

#[test]
fn findings_of_the_machine() {
    for (finding, words, exit_code) in ON_THE_MACHINE {
        let (code, report) = doctor(&words.split_whitespace().collect::<Vec<_>>(), &some_dll());
        assert!(found(&report).contains(&name(finding)), "{words} does not provoke {finding:?}: {report:#}");
        assert_eq!(code, exit_code, "{words}: {report:#}");
        let quiet = doctor(&[], &some_dll()).1;
        assert!(
            ordinary().contains(&name(finding)) || !found(&quiet).contains(&name(finding)),
            "{finding:?} is always there"
        );
    }
}

#[test]
fn ordinary_machine_has_notes_only_and_ends_with_0() {
    let (code, report) = doctor(&[], &some_dll());
    let rest: Vec<_> = found(&report).difference(&ordinary()).cloned().collect();
    assert_eq!((code, rest, &report["errors"], &report["warnings"]), (0, vec![], &0.into(), &0.into()));
    let facts = &report["facts"];
    assert_eq!(
        (&facts["provider"]["device"]["state"], &facts["network_direct"]["state"]),
        (&"open".into(), &"open".into())
    );
    assert_eq!(facts["consumer_interfaces"].as_array().unwrap().len(), 2);
    assert_eq!(facts["adapters"][0]["interface"]["keywords"]["CompletionMode"], "0");
}

/// The text that `nd allow` writes lets in a user who is not an administrator.
#[test]
fn allowed_user_is_not_refused() {
    let keyword = format!("NetworkDirectSddl={}", ndkctl::nd::allow::INTERACTIVE_USERS);
    let words = ["--caller", "user", "--keyword", keyword.as_str()];
    let (_, report) = doctor(&words, &some_dll());
    assert_eq!(report["facts"]["network_direct"]["state"], "open", "{report:#}");
    assert!(!found(&report).contains(&name(Finding::ProviderRefuses)), "{report:#}");
    let (_, refused) = doctor(&words[..2], &some_dll());
    assert_eq!(refused["facts"]["network_direct"]["state"], "denied", "{refused:#}");
    let (_, allowed) = doctor(&words[2..], &some_dll());
    assert!(!found(&allowed).contains(&name(Finding::ProviderForAdministrators)), "{allowed:#}");
}

#[test]
fn dll_that_is_not_there_is_found() {
    let (code, report) = doctor(&[], Path::new("/no/such/softnd.dll"));
    assert!(code == 9 && found(&report).contains(&name(Finding::ProviderDllMissing)), "{report:#}");
}
