//! `cargo xtask arguments`: every argument, field and flag that crosses a border has a test that fails when the other side forgets it or
//! takes its neighbour for it.
//!
//! The rows come from the interface definitions, the tests from `xtask/lists/arguments.txt`. The kernel host distorts one argument on its way
//! (`kernel_host::distortion`); the test that stands for the row has to fail. No image is built anew.

mod definitions;
mod layout;
pub mod list;
mod row;
mod runner;
mod suite;
mod tokens;

use crate::workspace::Workspace;
use anyhow::{Result, bail};
pub use row::{ArgumentRow, all};
use runner::Runner;
use std::collections::BTreeMap;
pub use suite::BorderSuite;

/// Tests that are tried for a row before it counts as untested.
const TRIES: usize = 12;
/// Suites whose tests take long, or are about something else and would fail by accident.
const NOT_FOR_THIS: [&str; 12] = [
    "race::",
    "fault::",
    "faults::",
    "interruption::",
    "teardown::",
    "removal::",
    "kills::",
    "phases::",
    "close_order::",
    "polled::",
    "lock::",
    "patterns::",
];

/// Show that each argument that crosses a border has a test that notices when it is forgotten or swapped.
#[derive(clap::Args)]
pub struct ArgumentsArguments {
    /// Only arguments whose name begins with one of these
    names: Vec<String>,

    /// Name the rows and their tests, and run nothing
    #[arg(long)]
    list: bool,

    /// Look for tests of the rows that have none, and write those that are found into the list
    #[arg(long, conflicts_with = "list")]
    find: bool,
}

pub fn run(arguments: &ArgumentsArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let rows = all(&workspace)?;
    let tests = list::read(&workspace)?;
    let wanted = |row: &&ArgumentRow| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| row.argument.starts_with(name.as_str()))
    };
    let chosen = rows.iter().filter(wanted).collect::<Vec<_>>();
    if chosen.is_empty() {
        bail!(
            "no argument has a name that begins with one of {:?}; `cargo xtask arguments --list` names them",
            arguments.names
        );
    }
    if arguments.list {
        for row in &chosen {
            print(row, tests.get(&list::key(row)));
        }
        return untested(&chosen, &tests);
    }
    let mut runner = Runner::new(&workspace)?;
    if arguments.find {
        let tests = find(&workspace, &mut runner, &rows, &chosen, tests)?;
        return untested(&chosen, &tests);
    }
    prove(&mut runner, &chosen, &tests)
}

fn print(row: &ArgumentRow, test: Option<&list::NamedTest>) {
    let test = match test {
        None => "NO TEST".to_owned(),
        Some((None, name)) => format!("unit {name}"),
        Some((Some(suite), name)) => format!("{suite} {name}"),
    };
    println!("{} | {} | {test}", row.argument, row.mistake);
}

fn untested(rows: &[&ArgumentRow], tests: &BTreeMap<list::Key, list::NamedTest>) -> Result<()> {
    let without = rows.iter().filter(|row| !tests.contains_key(&list::key(row))).count();
    println!("{} rows, {} tested", rows.len(), rows.len() - without);
    if without > 0 {
        bail!("{without} rows have no test; `cargo xtask arguments --list` names them");
    }
    Ok(())
}

/// Every test has to pass as it is, and to fail with the mistakes it stands for.
fn prove(runner: &mut Runner<'_>, rows: &[&ArgumentRow], tests: &BTreeMap<list::Key, list::NamedTest>) -> Result<()> {
    let (mut red, mut claimed, mut green) = (0, 0, Vec::new());
    for row in rows {
        let Some((suite, test)) = tests.get(&list::key(row)) else { continue };
        let Some(suite) = *suite else {
            claimed += 1;
            continue;
        };
        if !runner.is_green(suite, test)? {
            green.push(format!("{suite} {test} fails without a mistake"));
        } else if runner.notices(row, suite, test)? {
            red += 1;
        } else {
            green.push(format!("{} {}: {suite} {test} does not notice", row.argument, row.mistake));
        }
    }
    println!("{red} mistakes turned their tests red, {claimed} stand in unit tests");
    if !green.is_empty() {
        bail!("{} were not noticed:\n{}", green.len(), green.join("\n"));
    }
    untested(rows, tests)
}

/// Tries the tests in which a row's call is made, those with the fewest other calls first.
fn find(
    workspace: &Workspace,
    runner: &mut Runner<'_>,
    rows: &[ArgumentRow],
    chosen: &[&ArgumentRow],
    mut tests: BTreeMap<list::Key, list::NamedTest>,
) -> Result<BTreeMap<list::Key, list::NamedTest>> {
    for row in chosen.iter().filter(|row| !tests.contains_key(&list::key(row))).copied().collect::<Vec<_>>() {
        let names = runner.names(row.suite)?;
        let mut candidates = names.iter().filter(|(test, names)| {
            names.contains(&row.call) && !NOT_FOR_THIS.iter().any(|suite| test.contains(suite))
        });
        let mut ordered = candidates
            .by_ref()
            .map(|(test, names)| (!test.starts_with("values::"), names.len(), test))
            .collect::<Vec<_>>();
        ordered.sort();
        let mut found = None;
        for (_, _, test) in ordered.iter().take(TRIES) {
            if runner.is_green(row.suite, test)? && runner.notices(row, row.suite, test)? {
                found = Some((*test).clone());
                break;
            }
        }
        match found {
            Some(test) => {
                println!("{} | {} | {} {test}", row.argument, row.mistake, row.suite);
                tests.insert(list::key(row), (Some(row.suite), test));
                list::write(workspace, rows, &tests)?;
            }
            None => println!("{} | {} | NO TEST of {}", row.argument, row.mistake, ordered.len()),
        }
    }
    Ok(tests)
}
