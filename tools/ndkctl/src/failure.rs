//! Failures in the form that every command prints: what was tried, why it failed, and the next step.

use serde::Serialize;
use softndk_ioctl::Status;
use std::fmt;
use std::io;
use std::path::Path;

/// Kinds of failure, one exit code each. (0 is success, 2 a command line that clap refuses.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The driver refused a request, or a transfer failed.
    Refused,
    /// The arguments do not go together.
    Usage,
    /// The driver could not be reached: no device, no rights, or no image to load.
    Unreachable,
    /// Data arrived, but not the data that were sent.
    Corrupt,
    /// Objects were left behind when the driver was unloaded.
    LeftBehind,
    /// A file could not be read or written.
    File,
}

impl Kind {
    /// The process's exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Refused => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Corrupt => 4,
            Self::LeftBehind => 5,
            Self::File => 6,
        }
    }
}

/// One failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub kind: Kind,
    /// What was tried, as "cannot …".
    pub what: String,
    pub cause: String,
    /// What the reader can do about it.
    pub next_step: String,
    /// NTSTATUS, where the driver or the system gave one.
    pub status: Option<u32>,
}

impl Failure {
    /// A text that is no script.
    #[must_use]
    pub fn no_script(file: &Path, cause: String) -> Self {
        let next_step = "docs/ndkctl.md describes the lines of a script";
        Self::new(Kind::Usage, format!("cannot understand {}", file.display()), cause, next_step)
    }

    pub fn new(kind: Kind, what: impl Into<String>, cause: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { kind, what: what.into(), cause: cause.into(), next_step: next_step.into(), status: None }
    }

    /// A request that the driver (or the I/O manager) answered with a failing status.
    pub fn refused(what: impl Into<String>, status: Status) -> Self {
        let cause = match status.meaning() {
            Some(meaning) => format!("{status}: {meaning}"),
            None => status.to_string(),
        };
        Self { status: Some(status.0 as u32), ..Self::new(Kind::Refused, what, cause, next_step(status)) }
    }

    /// What the process ends with.
    #[must_use]
    pub const fn exit_code(&self) -> i32 {
        self.kind.exit_code() as i32
    }

    /// Whether the driver gave this status.
    #[must_use]
    pub fn is(&self, status: Status) -> bool {
        self.status == Some(status.0 as u32)
    }

    /// With the reason, where it is known, in the place of what the status means in general.
    #[must_use]
    pub fn because(self, reason: Option<String>) -> Self {
        let Some(reason) = reason else { return self };
        let status = self.status.map(|status| format!("{}: ", Status(status.cast_signed())));
        Self { cause: status.unwrap_or_default() + &reason, ..self }
    }

    /// A file operation that failed.
    pub fn file(what: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(
            Kind::File,
            format!("cannot {what} {}", path.display()),
            error.to_string(),
            "check that the path exists and that you may use it",
        )
    }
}

/// What helps against a status of the control device.
fn next_step(status: Status) -> &'static str {
    known_next_step(status).unwrap_or(if cfg!(windows) {
        "\"ndkctl refusals\" lists which NDK calls the driver refused last, and why"
    } else {
        // Each command has a machine of its own: afterwards there is nothing to ask.
        "add --trace ndk: it shows each NDK call of the command and its status"
    })
}

/// What usually helps against a status, where that is known.
#[must_use]
pub const fn known_next_step(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::REVISION_MISMATCH | Status::INFO_LENGTH_MISMATCH | Status::INVALID_DEVICE_REQUEST => {
            "use the ndkctl that was built with this driver"
        }
        Status::ACCESS_DENIED => "run it as administrator",
        Status::DEVICE_NOT_READY => "enable NDK on the adapter (Enable-NetAdapterRdma) and look at \"ndkctl info\"",
        Status::DEVICE_DOES_NOT_EXIST => "choose an adapter index that \"ndkctl info\" lists",
        Status::INVALID_ADDRESS => "give both adapters an address of that family, or choose another with --family",
        Status::HOST_UNREACHABLE => {
            "give both adapters the same wire number; to reach another machine's adapter set Transport to 1 (auto) at both ends"
        }
        Status::INSUFFICIENT_RESOURCES => "try smaller depths or sizes; \"ndkctl info\" shows the limits",
        Status::INVALID_PARAMETER | Status::INVALID_BUFFER_SIZE | Status::DATA_OVERRUN | Status::BUFFER_OVERFLOW => {
            "compare sizes, depths and counts with the limits in \"ndkctl info\""
        }
        Status::NOT_SUPPORTED => "this driver does not do that (yet); look at its version with \"ndkctl info\"",
        Status::DEVICE_REMOVED => "look whether the adapter is still there with \"ndkctl info\", then try again",
        Status::DEVICE_BUSY => "wait for the other transfer",
        _ => return None,
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}\n  cause: {}\n  next:  {}", self.what, self.cause, self.next_step)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::{Failure, Kind};
    use softndk_ioctl::Status;
    use std::collections::HashSet;

    const KINDS: [Kind; 6] =
        [Kind::Refused, Kind::Usage, Kind::Unreachable, Kind::Corrupt, Kind::LeftBehind, Kind::File];

    #[test]
    fn every_kind_has_its_own_exit_code_and_none_means_success() {
        let codes: HashSet<u8> = KINDS.iter().map(|kind| kind.exit_code()).collect();
        assert_eq!(codes.len(), KINDS.len());
        assert!(!codes.contains(&0));
    }

    #[test]
    fn a_refusal_names_request_status_and_next_step() {
        let failure = Failure::refused("cannot connect adapter 0 to adapter 1", Status::HOST_UNREACHABLE);
        let text = failure.to_string();
        assert!(text.contains("adapter 0 to adapter 1"), "{text}");
        assert!(text.contains("STATUS_HOST_UNREACHABLE"), "{text}");
        assert!(text.contains("wire number") && text.contains("Transport to 1"), "{text}");
        assert_eq!(failure.status, Some(0xC000_023D));
    }

    #[test]
    fn a_reason_takes_the_place_of_what_the_status_means() {
        let failure = Failure::refused("cannot ping", Status::INVALID_PARAMETER);
        assert!(failure.is(Status::INVALID_PARAMETER) && !failure.is(Status::SUCCESS));
        assert_eq!(failure.clone().because(None), failure);
        let cause = failure.because(Some("9 is more than 8".to_owned())).cause;
        assert_eq!(cause, "STATUS_INVALID_PARAMETER (0xC000000D): 9 is more than 8");
    }

    /// A next step is something that the reader can do with the tools that are there.
    #[test]
    fn next_step_of_any_status_names_a_command() {
        let step = Failure::refused("cannot ping", Status(0xC012_3456_u32 as i32)).next_step;
        assert!(step.contains(if cfg!(windows) { "ndkctl refusals" } else { "--trace ndk" }), "{step}");
    }

    #[test]
    fn an_unknown_status_is_shown_as_a_number() {
        let failure = Failure::refused("cannot ping", Status(0xC012_3456_u32 as i32));
        assert!(failure.to_string().contains("0xC0123456"), "{failure}");
    }
}
