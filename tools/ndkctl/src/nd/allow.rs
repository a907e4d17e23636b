//! `ndkctl nd allow`: who may open `\\.\SoftNd`, the device of user-mode NetworkDirect.
//!
//! The keyword NetworkDirectSddl of an adapter's driver key says it, and that of the first adapter that starts counts. So all adapters get
//! the same text, or keep what they have: a write that fails takes back those before it.

use super::arguments::AllowArguments;
use crate::failure::{Failure, Kind};
use serde::Serialize;
use std::fmt;

/// The keyword.
pub const SDDL_KEYWORD: &str = "NetworkDirectSddl";

/// SYSTEM and administrators: everything; interactive users: open, read and write. Protected, without inherited entries.
pub const INTERACTIVE_USERS: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GRGW;;;IU)";

/// The driver keys of the adapters.
trait DriverKeys {
    /// Instance ids, and the keyword's value where there is one.
    fn values(&self) -> Result<Vec<(String, Option<String>)>, Failure>;
    /// Writes the value, or removes it; it may be absent.
    fn set(&self, instance: &str, value: Option<&str>) -> Result<(), Failure>;
}

/// What was done with an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowState {
    Written,
    Removed,
    /// It had the value, or with `--remove` none.
    Unchanged,
}

/// What `nd allow` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllowReport {
    /// The text; null with `--remove`.
    pub sddl: Option<&'static str>,
    /// Nothing was written.
    pub dry_run: bool,
    pub adapters: Vec<AllowedAdapter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllowedAdapter {
    pub instance: String,
    pub state: AllowState,
}

/// Writes or removes the value, or shows it.
pub fn run(arguments: &AllowArguments) -> Result<AllowReport, Failure> {
    let sddl = (!arguments.remove).then_some(INTERACTIVE_USERS);
    if arguments.dry_run {
        return Ok(AllowReport { sddl, dry_run: true, adapters: Vec::new() });
    }
    #[cfg(windows)]
    return set_all(&registry::Registry, sddl);
    #[cfg(not(windows))]
    Err(Failure::new(
        Kind::Unreachable,
        "cannot change who may use user-mode NetworkDirect",
        "the registry is a part of Windows",
        "run ndkctl.exe on Windows; here --keyword NetworkDirectSddl=… gives the adapters the value",
    ))
}

#[cfg_attr(not(any(windows, test)), expect(dead_code, reason = "only Windows has a registry"))]
fn set_all(keys: &impl DriverKeys, sddl: Option<&'static str>) -> Result<AllowReport, Failure> {
    let there = keys.values()?;
    if there.is_empty() {
        let what = "cannot change who may use user-mode NetworkDirect";
        return Err(Failure::new(Kind::Unreachable, what, "there is no adapter of softndk", "ndkctl adapter add"));
    }
    if let Some((instance, value)) =
        there.iter().find_map(|(instance, value)| foreign(instance, value.as_deref(), sddl))
    {
        return Err(Failure::new(
            Kind::Refused,
            format!("cannot change {SDDL_KEYWORD} of {instance}"),
            format!("it has another text: {value}"),
            "keep it, or take it away with \"ndkctl nd allow --remove\" first",
        ));
    }
    let mut adapters = Vec::new();
    for (index, (instance, value)) in there.iter().enumerate() {
        let state = match (value.as_deref() == sddl, sddl) {
            (true, _) => AllowState::Unchanged,
            (false, Some(_)) => AllowState::Written,
            (false, None) => AllowState::Removed,
        };
        if state != AllowState::Unchanged
            && let Err(failure) = keys.set(instance, sddl)
        {
            return Err(taken_back(keys, &there[..index], failure));
        }
        adapters.push(AllowedAdapter { instance: instance.clone(), state });
    }
    Ok(AllowReport { sddl, dry_run: false, adapters })
}

/// A text that is not ours, where ours is to be written.
fn foreign<'a>(instance: &'a str, value: Option<&'a str>, sddl: Option<&str>) -> Option<(&'a str, &'a str)> {
    let value = value?;
    (sddl.is_some_and(|sddl| sddl != value)).then_some((instance, value))
}

fn taken_back(keys: &impl DriverKeys, before: &[(String, Option<String>)], mut failure: Failure) -> Failure {
    for (instance, value) in before {
        if keys.set(instance, value.as_deref()).is_err() {
            failure.cause = format!("{}; {instance} keeps the new value", failure.cause);
        }
    }
    failure
}

impl fmt::Display for AllowReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sddl {
            Some(sddl) => {
                writeln!(formatter, "{SDDL_KEYWORD} = {sddl}\n  SYSTEM, administrators and interactive users")?;
            }
            None => writeln!(formatter, "{SDDL_KEYWORD} absent\n  SYSTEM and administrators")?,
        }
        for adapter in &self.adapters {
            let done = match adapter.state {
                AllowState::Written => "written",
                AllowState::Removed => "removed",
                AllowState::Unchanged => "was so already",
            };
            writeln!(formatter, "{}: {done}", adapter.instance)?;
        }
        if self.dry_run {
            return write!(formatter, "not written (dry run)");
        }
        write!(
            formatter,
            "It counts when all adapters have been stopped and the first starts again: disable and enable them, or restart."
        )
    }
}

/// The real one.
#[cfg(windows)]
mod registry {
    use super::{DriverKeys, SDDL_KEYWORD};
    use crate::adapter::SetupApi;
    use crate::adapter::registry::{READ, WRITE};
    use crate::failure::{Failure, Kind};

    pub struct Registry;

    impl DriverKeys for Registry {
        fn values(&self) -> Result<Vec<(String, Option<String>)>, Failure> {
            let keys = SetupApi::driver_keys(READ)?;
            Ok(keys.into_iter().map(|(instance, key)| (instance, key.0.get_string(SDDL_KEYWORD).ok())).collect())
        }

        fn set(&self, instance: &str, value: Option<&str>) -> Result<(), Failure> {
            let keys = SetupApi::driver_keys(WRITE)?;
            let Some((_, key)) = keys.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(instance)) else {
                return Ok(());
            };
            let done = match value {
                Some(value) => key.0.set_string(SDDL_KEYWORD, value),
                None => key.0.remove_value(SDDL_KEYWORD),
            };
            done.map_err(|error| {
                let what = format!("cannot change {SDDL_KEYWORD} of {instance}");
                Failure::new(Kind::Unreachable, what, error.to_string(), "run it as administrator")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AllowState, DriverKeys, INTERACTIVE_USERS, run, set_all};
    use crate::failure::{Failure, Kind};
    use crate::nd::arguments::AllowArguments;
    use std::cell::{Cell, RefCell};

    /// A registry that refuses the write with this number, from 1.
    struct Model {
        values: RefCell<Vec<(String, Option<String>)>>,
        writes: Cell<u32>,
        fails_at: u32,
    }

    impl Model {
        fn with(values: &[Option<&str>]) -> Self {
            let named = |(number, value): (usize, Option<&str>)| (number.to_string(), value.map(str::to_owned));
            let values = RefCell::new(values.iter().copied().enumerate().map(named).collect());
            Self { values, writes: Cell::new(0), fails_at: 0 }
        }

        fn now(&self) -> Vec<Option<String>> {
            self.values.borrow().iter().map(|(_, value)| value.clone()).collect()
        }
    }

    impl DriverKeys for Model {
        fn values(&self) -> Result<Vec<(String, Option<String>)>, Failure> {
            Ok(self.values.borrow().clone())
        }

        fn set(&self, instance: &str, value: Option<&str>) -> Result<(), Failure> {
            self.writes.set(self.writes.get() + 1);
            if self.writes.get() == self.fails_at {
                return Err(Failure::new(Kind::Unreachable, "cannot write", "refused", ""));
            }
            let mut values = self.values.borrow_mut();
            values.iter_mut().find(|(known, _)| known == instance).expect("an adapter").1 = value.map(str::to_owned);
            Ok(())
        }
    }

    fn states(report: &super::AllowReport) -> Vec<AllowState> {
        report.adapters.iter().map(|adapter| adapter.state).collect()
    }

    #[test]
    fn all_adapters_get_one_value_and_twice_is_once() {
        let keys = Model::with(&[None, Some(INTERACTIVE_USERS), None]);
        let report = set_all(&keys, Some(INTERACTIVE_USERS)).unwrap();
        assert_eq!(states(&report), [AllowState::Written, AllowState::Unchanged, AllowState::Written]);
        assert_eq!(keys.now(), vec![Some(INTERACTIVE_USERS.to_owned()); 3]);
        assert_eq!(states(&set_all(&keys, Some(INTERACTIVE_USERS)).unwrap()), [AllowState::Unchanged; 3]);
        assert_eq!(keys.writes.get(), 2);
        assert_eq!(states(&set_all(&keys, None).unwrap()), [AllowState::Removed; 3]);
        assert_eq!(keys.now(), [None, None, None]);
    }

    #[test]
    fn a_text_of_someone_else_is_kept_unless_it_is_to_be_removed() {
        let keys = Model::with(&[None, Some("D:(A;;GA;;;WD)")]);
        let failure = set_all(&keys, Some(INTERACTIVE_USERS)).unwrap_err();
        assert!(failure.cause.contains("D:(A;;GA;;;WD)") && failure.next_step.contains("--remove"), "{failure}");
        assert_eq!(keys.writes.get(), 0);
        assert_eq!(states(&set_all(&keys, None).unwrap()), [AllowState::Unchanged, AllowState::Removed]);
    }

    #[test]
    fn a_write_that_fails_takes_back_those_before_it() {
        let keys = Model { fails_at: 2, ..Model::with(&[None, None, None]) };
        assert_eq!(set_all(&keys, Some(INTERACTIVE_USERS)).unwrap_err().cause, "refused");
        assert_eq!(keys.now(), [None, None, None]);
    }

    #[test]
    fn without_adapters_there_is_nothing_to_write() {
        assert_eq!(set_all(&Model::with(&[]), None).unwrap_err().kind, Kind::Unreachable);
    }

    #[test]
    fn a_dry_run_shows_the_text() {
        let report = run(&AllowArguments { dry_run: true, remove: false }).unwrap();
        assert!(report.to_string().contains("(A;;GRGW;;;IU)") && report.to_string().contains("dry run"), "{report}");
        let report = run(&AllowArguments { dry_run: true, remove: true }).unwrap();
        assert!(report.to_string().contains("absent"), "{report}");
    }
}
