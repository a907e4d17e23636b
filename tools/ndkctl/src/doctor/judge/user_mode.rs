//! User-mode NetworkDirect: the entries of the Winsock catalogue, the DLL, who may use it.

use super::Verdict;
use crate::doctor::facts::{DeviceState, Facts};
use crate::doctor::finding::Finding;
use crate::nd::allow::SDDL_KEYWORD;

const PROVIDER: &str = "user-mode NetworkDirect";
const ALLOW: &str = "ndkctl nd allow, as administrator, lets interactive users in";

pub fn judge(facts: &Facts, verdict: &mut Verdict) {
    entries(facts, verdict);
    if facts.network_direct == DeviceState::Denied {
        let cause = r"this user may not open \\.\SoftNd";
        verdict.add(Finding::ProviderRefuses.of(
            PROVIDER,
            cause,
            format!("run programs as administrator, or: {ALLOW}"),
        ));
    }
    // The first adapter's value counts.
    let Some(first) = facts.adapters.first() else { return };
    let checks = [Finding::ProviderForAdministrators];
    if verdict.known(first.interface.keywords.as_ref(), &checks).is_some() && first.keyword(SDDL_KEYWORD).is_none() {
        let cause = format!("{SDDL_KEYWORD} is absent: only SYSTEM and administrators may use it");
        verdict.add(Finding::ProviderForAdministrators.of(PROVIDER, cause, ALLOW));
    }
}

fn entries(facts: &Facts, verdict: &mut Verdict) {
    let checks = [Finding::ProviderAbsent, Finding::ProviderDllMissing];
    let Some(entries) = verdict.known(facts.entries.as_ref(), &checks) else { return };
    if entries.is_empty() {
        let cause = "no entry of softnd.dll: programs do not find the provider";
        verdict.add(Finding::ProviderAbsent.of(PROVIDER, cause, "ndkctl nd install, as administrator"));
    }
    for entry in entries.iter().filter(|entry| !entry.dll_is_there) {
        let cause = "the Winsock catalogue names this file, and it is not there";
        let next = "copy softnd.dll there, or enter another path with ndkctl nd install --dll (on Linux: cargo xtask softnd --release)";
        verdict.add(Finding::ProviderDllMissing.of(entry.path.clone(), cause, next));
    }
}
