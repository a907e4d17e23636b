//! Prints what came of a command, and turns it into an exit code. A report that could not be written is a failure like any other.

use crate::failure::Failure;
use crate::identity::Build;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// A report in both of its forms.
pub(crate) struct Printed {
    pub text: String,
    pub json: Value,
    /// What the process ends with where nothing went wrong: 0, or a code that says more of the report.
    pub exit_code: i32,
    /// What went wrong after the report was complete: the report is printed all the same.
    pub failure: Option<Failure>,
}

impl Printed {
    /// Of a command that has printed line by line.
    pub fn nothing() -> Self {
        Self { text: String::new(), json: Value::Null, exit_code: 0, failure: None }
    }

    fn is_nothing(&self) -> bool {
        self.text.is_empty() && self.json.is_null() && self.failure.is_none()
    }

    /// A report that ends the process with this code.
    pub fn with_exit_code(self, exit_code: i32) -> Self {
        Self { exit_code, ..self }
    }
}

/// Windows' exit code for "done, but a restart is needed" (ERROR_SUCCESS_REBOOT_REQUIRED).
#[cfg(windows)]
pub const RESTART_NEEDED: i32 = 3010;

/// Prints the outcome of the command with this name: the report on `out`, for people the failure on `errors`.
pub(crate) fn print(
    name: &str,
    as_json: bool,
    outcome: &Result<Printed, Failure>,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> i32 {
    let (report, failure) = match outcome {
        Ok(report) => (Some(report), report.failure.as_ref()),
        Err(failure) => (None, Some(failure)),
    };
    let written = match report {
        Some(report) if report.is_nothing() => Ok(()),
        _ if as_json => writeln!(out, "{:#}", document(name, report, failure)),
        Some(report) => writeln!(out, "{}", report.text),
        None => Ok(()),
    };
    if let (false, Some(failure)) = (as_json, failure) {
        complain(errors, failure);
    }
    let code = failure.map_or_else(|| report.map_or(0, |report| report.exit_code), Failure::exit_code);
    let lost = flushed(written, out).err().map(|failure| {
        complain(errors, &failure);
        failure.exit_code()
    });
    // A failure of the command comes before one of the disk, and that before what a report says by its code.
    if failure.is_none() { lost.unwrap_or(code) } else { code }
}

/// Success and failure have one form: a report, an error, or, where the report was complete before the failure, both.
fn document(name: &str, report: Option<&Printed>, failure: Option<&Failure>) -> Value {
    let mut document = json!({ "command": name, "tool": Build::of_tool(), "ok": failure.is_none() });
    if let Some(report) = report {
        document["report"] = report.json.clone();
    }
    if let Some(failure) = failure {
        document["error"] = json!({ "failure": failure, "exit_code": failure.kind.exit_code() });
    }
    document
}

/// Whether everything reached its file. A reader that has seen enough and closed the pipe is no failure.
pub(crate) fn flushed(written: io::Result<()>, out: &mut impl Write) -> Result<(), Failure> {
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure {
            next_step: "make space where the output goes, or write it elsewhere".to_owned(),
            ..Failure::file("write to", Path::new("standard output"), &error)
        }),
        _ => Ok(()),
    }
}

fn complain(errors: &mut impl Write, failure: &Failure) {
    // There is no third stream to report a failure of this one on; the exit code says it.
    let _ = writeln!(errors, "ndkctl: {failure}");
}

#[cfg(test)]
mod tests {
    use super::{Printed, print};
    use crate::failure::{Failure, Kind};
    use serde_json::{Value, json};
    use std::io::{self, Write};

    /// A stream whose writes, or whose flushes, end with this error.
    struct Broken {
        kind: io::ErrorKind,
        at_flush: bool,
    }

    impl Write for Broken {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            if self.at_flush { Ok(buffer.len()) } else { Err(self.kind.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.kind.into())
        }
    }

    fn report(failure: Option<Failure>) -> Printed {
        Printed { text: "a table".to_owned(), json: json!({ "rows": 1 }), exit_code: 0, failure }
    }

    fn refused() -> Failure {
        Failure::new(Kind::Refused, "cannot", "because", "try")
    }

    /// Exit code and both streams.
    fn printed(as_json: bool, outcome: &Result<Printed, Failure>) -> (i32, String, String) {
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let code = print("ping", as_json, outcome, &mut out, &mut errors);
        (code, String::from_utf8(out).unwrap(), String::from_utf8(errors).unwrap())
    }

    #[test]
    fn full_disk_is_a_failure_in_both_forms_and_in_a_flush() {
        for (as_json, at_flush) in [(true, false), (false, false), (true, true), (false, true)] {
            let mut errors = Vec::new();
            let mut full = Broken { kind: io::ErrorKind::StorageFull, at_flush };
            assert_eq!(
                print("ping", as_json, &Ok(report(None)), &mut full, &mut errors),
                i32::from(Kind::File.exit_code())
            );
            let said = String::from_utf8(errors).unwrap();
            assert!(said.contains("cannot write to standard output"), "{said}");
        }
    }

    #[test]
    fn failure_of_the_command_comes_before_that_of_the_disk() {
        let mut full = Broken { kind: io::ErrorKind::StorageFull, at_flush: false };
        assert_eq!(
            print("ping", true, &Err(refused()), &mut full, &mut Vec::new()),
            i32::from(Kind::Refused.exit_code())
        );
    }

    #[test]
    fn reader_that_has_seen_enough_is_no_failure() {
        let mut closed = Broken { kind: io::ErrorKind::BrokenPipe, at_flush: false };
        let mut errors = Vec::new();
        assert_eq!(print("ping", true, &Ok(report(None)), &mut closed, &mut errors), 0);
        assert!(errors.is_empty());
    }

    #[test]
    fn report_may_have_a_code_of_its_own_unless_something_went_wrong() {
        let with = |failure| Ok(report(failure).with_exit_code(3010));
        assert_eq!(printed(true, &with(None)).0, 3010);
        assert_eq!(printed(true, &with(Some(refused()))).0, 1);
        let mut full = Broken { kind: io::ErrorKind::StorageFull, at_flush: false };
        assert_eq!(print("ping", true, &with(None), &mut full, &mut Vec::new()), i32::from(Kind::File.exit_code()));
        let document: Value = serde_json::from_str(&printed(true, &with(None)).1).unwrap();
        assert_eq!((&document["ok"], &document["tool"]["commit"]), (&Value::Bool(true), &softndk_ioctl::COMMIT.into()));
    }

    #[test]
    fn report_is_printed_beside_a_later_failure() {
        let (code, out, errors) = printed(false, &Ok(report(Some(refused()))));
        assert_eq!((code, out.as_str()), (1, "a table\n"));
        assert!(errors.starts_with("ndkctl: cannot"), "{errors}");
        let (code, out, errors) = printed(true, &Ok(report(Some(refused()))));
        let document: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, errors.as_str(), &document["ok"]), (1, "", &Value::Bool(false)));
        assert_eq!((&document["report"]["rows"], &document["error"]["exit_code"]), (&json!(1), &json!(1)));
    }
}
