//! Whether the SMB server of the guest can serve: its kernel and its daemon come from two packages.
//!
//! The daemon of ksmbd-tools answers the kernel's question for a share. Since 6.1.192 or earlier the kernel takes only an answer that says
//! the size of its payload, which ksmbd-tools says since 3.5.2: with 3.4.7 of Debian 12 each TREE_CONNECT ends in
//! STATUS_BAD_NETWORK_NAME, for every client.

use super::{kernel::GuestKernel, packages::Packages};
use crate::command;
use anyhow::Result;

/// In the kernel's check of an answer.
const CHECK: &str = "resp->payload_sz <= resp->veto_list_sz";
const CHECKED_BY: &str = "fs/smb/server/transport_ipc.c";

/// The first ksmbd-tools that say the size.
const SAYS_SIZE: Version = Version(3, 5, 2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32, u32);

impl Version {
    /// The version in a text like `ksmbd-tools version : 3.4.7`.
    fn of(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().last()?.split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self(next()?, next()?, next()?))
    }
}

/// Why it cannot.
pub(super) fn obstacle(kernel: &GuestKernel<'_>, packages: &Packages) -> Result<Option<String>> {
    let source = kernel.source_text(CHECKED_BY)?;
    let said = command::output(packages.command("usr/sbin/ksmbd.mountd")?.arg("--version"))?;
    Ok(obstacle_of(&source, &said).map(|why| format!("ksmbd of {} {why}", kernel.release)))
}

fn obstacle_of(source: &str, version: &str) -> Option<String> {
    let Version(major, minor, patch) = Version::of(version).filter(|version| *version < SAYS_SIZE)?;
    let why = format!(
        "takes no share of ksmbd-tools {major}.{minor}.{patch}, whose answer has no payload size; 3.5.2 and later say it"
    );
    source.contains(CHECK).then_some(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernel_that_checks_and_a_daemon_that_is_silent_do_not_fit() {
        let checks = format!("if (flags &&\n    {CHECK})\n");
        assert!(obstacle_of(&checks, "ksmbd-tools version : 3.4.7\n").unwrap().contains("ksmbd-tools 3.4.7"));
        assert_eq!(obstacle_of(&checks, "ksmbd-tools version : 3.5.2\n"), None);
        assert_eq!(obstacle_of("", "ksmbd-tools version : 3.4.7\n"), None);
        assert_eq!(obstacle_of(&checks, "unknown"), None);
        assert!(Version(3, 10, 0) > SAYS_SIZE);
    }
}
