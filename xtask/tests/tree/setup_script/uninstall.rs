//! What Install makes, Uninstall removes: the kinds of things on both sides, read from the script.
//!
//! Every command that makes something is known with the kind of it (`in_box.rs`). Its function writes a record of that kind first;
//! `Remove-Record` has a clause that takes such a thing away, `Test-Record` one that looks whether it is gone, and both lists of the
//! script, the order of removal and the standard records, name it.

use super::{
    in_box::{Effect, PROGRAMS},
    rules::changes,
    script::{Command, Script},
};
use std::collections::BTreeSet;

/// A record as the script writes it: kind and value, as they stand there.
fn written(script: &Script) -> BTreeSet<(String, String)> {
    records(script, "Add-Record '", "' ")
}

/// The records that Uninstall takes where the list is lost.
fn standard(script: &Script) -> BTreeSet<(String, String)> {
    records(script, "[pscustomobject]@{ Kind = '", "'; Value = ")
}

fn records(script: &Script, before: &str, between: &str) -> BTreeSet<(String, String)> {
    let record = |line: &str| {
        let (kind, value) = line.trim().strip_prefix(before)?.split_once(between)?;
        Some((kind.to_owned(), value.trim_end_matches([' ', '}']).to_owned()))
    };
    script.text().lines().filter_map(record).collect()
}

fn kinds(records: &BTreeSet<(String, String)>) -> BTreeSet<String> {
    records.iter().map(|(kind, _)| kind.clone()).collect()
}

pub fn violations(text: &str, inf: &str) -> Vec<String> {
    let script = Script::parse(text);
    let written = written(&script);
    let mut broken = Vec::new();
    let mut same = |name: &str, found: BTreeSet<String>| {
        let expected = kinds(&written);
        broken.extend(expected.difference(&found).map(|kind| format!("{name} does not have the kind {kind}")));
        broken
            .extend(found.difference(&expected).map(|kind| format!("{name} has the kind {kind}, which nothing makes")));
    };
    same("$RemovalOrder", script.list("RemovalOrder").into_iter().collect());
    same("Remove-Record", script.clauses("Remove-Record"));
    same("Test-Record", script.clauses("Test-Record"));
    same("Get-StandardRecord", kinds(&standard(&script)));
    let both = standard(&script);
    let different = written.symmetric_difference(&both);
    broken.extend(different.map(|(kind, value)| format!("the {kind} {value} is recorded or standard, but not both")));
    broken.extend(unrecorded(&script, &written));
    broken.extend(not_removed(&script, &written));
    broken.extend(from_inf(&written, inf));
    broken
}

/// Commands that make something of which no record is written before, in the same function.
fn unrecorded(script: &Script, written: &BTreeSet<(String, String)>) -> Vec<String> {
    let all = script.commands();
    let recorded = |made: &Command, kind: &str| {
        let mut before = all.iter().filter(|it| it.function == made.function && it.line < made.line);
        before.any(|it| it.name == "Add-Record" && it.words.first().is_some_and(|word| word == kind))
    };
    let mut broken = Vec::new();
    for (command, effect) in changes(script) {
        let Command { name, line, .. } = command;
        match effect {
            // A cmdlet that can make several kinds makes one of them, a program all of them.
            Effect::Makes(kinds) if PROGRAMS.iter().any(|program| program.name == name) => {
                let missing = kinds.iter().filter(|kind| !recorded(command, kind));
                broken.extend(
                    missing.map(|kind| format!("line {line}: {name} makes a {kind}, which is not recorded before")),
                );
            }
            Effect::Makes(kinds) if !kinds.iter().any(|kind| recorded(command, kind)) => {
                broken
                    .push(format!("line {line}: {name} makes a {}, which is not recorded before", kinds.join(" or ")));
            }
            Effect::ChangesPartOf(kind) if kind != "the log" && !written.iter().any(|(of, _)| of == kind) => {
                broken.push(format!("line {line}: {name} changes a {kind}, which is recorded nowhere"));
            }
            Effect::TakenBackBy(program, word) => {
                let takes_back = |it: &Command| it.name == program && it.words.first().is_some_and(|own| own == word);
                if !all.iter().any(takes_back) {
                    broken.push(format!("line {line}: nothing takes back what {name} sets: {program} {word}"));
                }
            }
            _ => {}
        }
    }
    broken
}

/// Kinds whose clause of Remove-Record reaches no command that takes such a thing away.
fn not_removed(script: &Script, written: &BTreeSet<(String, String)>) -> Vec<String> {
    let changes = changes(script);
    let takes_away = |command: &Command, effect: Effect, kind: &str| {
        let of_kind = matches!(effect, Effect::Removes(kinds) if kinds.contains(&kind));
        let in_clause = command.function == "Remove-Record" && command.clause.as_deref() == Some(kind);
        let called = |caller: &Command| {
            caller.function == "Remove-Record"
                && caller.clause.as_deref() == Some(kind)
                && caller.name == command.function
        };
        of_kind && (in_clause || script.commands().iter().any(called))
    };
    let removed = |kind: &&String| changes.iter().any(|(command, effect)| takes_away(command, *effect, kind));
    let kinds = kinds(written);
    let kept = kinds.iter().filter(|kind| !removed(kind));
    kept.map(|kind| format!("the clause {kind} of Remove-Record takes none away")).collect()
}

/// Services and event sources that the INF makes.
fn from_inf(written: &BTreeSet<(String, String)>, inf: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for line in inf.lines().filter_map(|line| line.trim().strip_prefix("AddService")) {
        let values: Vec<&str> = line.trim_start_matches([' ', '=']).split(',').map(str::trim).collect();
        let name = format!("'{}'", values[0]);
        let kinds = if values.len() > 3 { vec!["Service", "EventSource"] } else { vec!["Service"] };
        let missing = kinds.into_iter().filter(|kind| !written.contains(&((*kind).to_owned(), name.clone())));
        broken.extend(missing.map(|kind| format!("the INF makes the {kind} {name}, which is not recorded")));
    }
    broken
}
