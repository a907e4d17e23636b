//! Tests that the kernel host detects broken rules: for every row of the table one driver that breaks one rule, and a good twin that
//! differs by one call and passes.
//!
//! The drivers are one image, `tests/bad-drivers`, built here on demand; the service name under which it is loaded
//! chooses rule and twin. A row passes when the bad one ends in the bugcheck and the words of the table, and the good
//! one passes the same scenario and leaves nothing behind. `xtask/lists/bad-drivers.md` is written from the table by a run
//! with `SOFTNDK_BLESS=1` in which every row passed; `xtask/lists/verifier.md` is held to it (`verifier_page`).

mod datagrams;
mod image;
mod scenario;
mod sockets;
mod table;
mod verifier_kernel;
mod verifier_page;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use conformance::machine::workspace;
use conformance::trial::{become_child, in_child};
use libtest_mimic::{Arguments, Failed, Trial};
use scenario::Scenario;
use table::Case;

/// Passes the path of the image to the child.
const IMAGE: &str = "SOFTNDK_BAD_DRIVERS";
/// Passes the service name to the child under which it loads the image.
const SERVICE: &str = "SOFTNDK_BAD_SERVICE";

pub fn main() -> ExitCode {
    become_child(|name| Scenario::named(name).map(Scenario::body));
    let arguments = Arguments::from_args();
    let image = if arguments.list { None } else { Some(image::build()) };
    let image: &'static Path = Box::leak(image.unwrap_or_default().into_boxed_path());
    let mut trials = vec![Trial::test("table_in_the_documentation_is_up_to_date", table_is_up_to_date)];
    trials.push(Trial::test("page_of_the_verifiers_is_true", verifier_page::page_is_true));
    for case in table::cases() {
        trials.push(Trial::test(format!("{}::bad", case.name), move || bad_twin_is_caught(image, case)));
        trials.push(Trial::test(format!("{}::good", case.name), move || good_twin_passes(image, case)));
    }
    let all = arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if all && !conclusion.has_failed() && blessing() {
        std::fs::write(documentation(), table::as_markdown()).expect("the documentation can be written");
    }
    conclusion.exit_code()
}

fn documentation() -> PathBuf {
    workspace().join("xtask/lists/bad-drivers.md")
}

/// The table is to be written anew, at the end of a run in which every row passed.
fn blessing() -> bool {
    std::env::var_os("SOFTNDK_BLESS").is_some()
}

fn run(image: &Path, case: &Case, twin: &str) -> Result<conformance::outcome::Outcome, Failed> {
    let service = format!("{}.{twin}", case.name);
    in_child(case.scenario.name(), &[(IMAGE, image.as_os_str()), (SERVICE, service.as_ref())])
}

fn bad_twin_is_caught(image: &Path, case: &Case) -> Result<(), Failed> {
    let outcome = run(image, case, "bad")?;
    let Some(code) = case.bugcheck else { return outcome.expect_failure(case.words) };
    let bugcheck = outcome.expect_bugcheck()?;
    let numbered = case.sub_code.is_none_or(|number| bugcheck.sub_code == Some(number));
    if bugcheck.code != code as u32 || !numbered || !bugcheck.rule.contains(case.words) {
        let wanted = format!("caught as something else than {} with \"{}\"", code.name(), case.words);
        return Err(outcome.failure(&wanted));
    }
    Ok(())
}

fn good_twin_passes(image: &Path, case: &Case) -> Result<(), Failed> {
    run(image, case, "good")?.expect_success()
}

fn table_is_up_to_date() -> Result<(), Failed> {
    let found = std::fs::read_to_string(documentation()).unwrap_or_default();
    if blessing() || found == table::as_markdown() {
        return Ok(());
    }
    Err(format!("{} is out of date; SOFTNDK_BLESS=1 rewrites it", documentation().display()).into())
}
