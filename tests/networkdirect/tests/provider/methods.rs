//! xtask/lists/networkdirect-methods.md: for each method the statuses that were provoked, each with the case that provokes it.
//!
//! Compared when all cases have passed: every method of the interfaces has a row, every row a success, and every status was seen in the
//! case that the page names. With NETWORKDIRECT_BLESS the page is written anew.

use super::calls::interfaces;
use networkdirect::cases::Note;
use softnd_interfaces::Status;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Where the answer is no status.
const VALUES: &[&str] = &[
    "AddRef",
    "Release",
    "GetResults",
    "GetManaResults",
    "GetLocalToken",
    "GetRemoteToken",
    "GetFileHandle",
    "StartRequestBatch",
    "SubmitRequestBatch",
];
/// There are no codes that it could take.
const NEVER_SUCCEEDS: &[&str] = &["INDAdapter Control"];

/// The first slot behind those of IND2Overlapped.
const OVERLAPPED_SLOTS: usize = 5;

const BEGIN: &str = "| method | slot | returned | completed with |\n|---|---|---|---|\n";

/// Interface, slot, method.
type Row = (&'static str, usize, String);
/// Whether by completion, and the status; `None` for a value.
type Answer = (bool, Option<u32>);

/// A method's name as Microsoft spells it.
fn spelled(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(word).collect()
}

/// All methods of the interfaces that objects have, their bases' included.
fn rows(version: char) -> Vec<Row> {
    let of_version = |name: &str| name.starts_with("IND2") == (version == '2');
    let mut rows = Vec::new();
    for it in interfaces().filter(|it| of_version(it.name) && !it.name.ends_with("Overlapped")) {
        let own = it.methods.first().map_or(3, |(_, slot)| *slot);
        // An interface that extends another one has rows for what it adds.
        let own = if own > OVERLAPPED_SLOTS { 3 } else { own };
        let inherited =
            ["QueryInterface", "AddRef", "Release", "CancelOverlappedRequests", "GetOverlappedResult"].into_iter();
        rows.extend(inherited.take(own).enumerate().map(|(slot, method)| (it.name, slot, method.to_owned())));
        rows.extend(it.methods.iter().map(|(method, slot)| (it.name, *slot, spelled(method))));
    }
    rows
}

fn name_of(status: Option<u32>) -> String {
    let Some(status) = status else { return "a value".to_owned() };
    Status(status as i32).name().map_or_else(|| format!("0x{status:08X}"), str::to_owned)
}

/// What each method has answered, and in which cases, in their order.
fn seen(notes: &[Note]) -> BTreeMap<(String, usize), BTreeMap<Answer, Vec<&'static str>>> {
    let mut seen: BTreeMap<_, BTreeMap<Answer, Vec<&'static str>>> = BTreeMap::new();
    let methods: BTreeMap<(&str, usize), String> =
        ['2', '1'].into_iter().flat_map(rows).map(|(interface, slot, method)| ((interface, slot), method)).collect();
    for (case, line) in notes {
        let words: Vec<&str> = line.split(' ').collect();
        let [interface, slot, later, status] = words[..] else { continue };
        let slot = slot.parse().expect("a slot");
        let is_value = methods.get(&(interface, slot)).is_some_and(|method| VALUES.contains(&method.as_str()));
        let status = u32::from_str_radix(status, 16).expect("a status");
        let answer = (later == "true", if is_value && later == "false" { None } else { Some(status) });
        let cases = seen.entry((interface.to_owned(), slot)).or_default().entry(answer).or_default();
        if !cases.contains(case) {
            cases.push(case);
        }
    }
    seen
}

fn table(version: char, notes: &[Note]) -> String {
    let seen = seen(notes);
    let mut text = BEGIN.to_owned();
    for (interface, slot, method) in rows(version) {
        let answers = seen.get(&(interface.to_owned(), slot));
        let column = |later: bool| {
            let of_kind = answers.into_iter().flatten().filter(|((it, _), _)| *it == later);
            let entries = of_kind.map(|((_, status), cases)| format!("{} `{}`", name_of(*status), cases[0]));
            entries.collect::<Vec<_>>().join(", ")
        };
        writeln!(text, "| {interface} {method} | {slot} | {} | {} |", column(false), column(true)).expect("a string");
    }
    text
}

fn page_path() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/lists/networkdirect-methods.md")
}

/// What is wrong with the page.
pub fn compare(notes: &[Note]) -> Result<(), String> {
    let path = page_path();
    let page = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if std::env::var_os("NETWORKDIRECT_BLESS").is_some() {
        return std::fs::write(&path, blessed(&page, notes)).map_err(|error| error.to_string());
    }
    let seen = seen(notes);
    let mut wrong = Vec::new();
    for (interface, slot, method) in ['2', '1'].into_iter().flat_map(rows) {
        let name = format!("{interface} {method}");
        let Some(columns) = columns_of(&page, &name) else {
            wrong.push(format!("no row for {name}"));
            continue;
        };
        if columns[0] != slot.to_string() {
            wrong.push(format!("{name} stands in slot {slot}"));
        }
        let answers = seen.get(&(interface.to_owned(), slot)).cloned().unwrap_or_default();
        let mut succeeds = false;
        for (later, column) in [(false, columns[1]), (true, columns[2])] {
            for entry in column.split(", ").filter(|entry| !entry.is_empty()) {
                let (status, case) = entry.split_once(" `").unwrap_or((entry, ""));
                succeeds |= ["SUCCESS", "a value"].contains(&status);
                let case = case.trim_end_matches('`');
                let found = |((it, answer), cases): (&Answer, &Vec<&str>)| {
                    *it == later && name_of(*answer) == status && cases.contains(&case)
                };
                if !answers.iter().any(found) {
                    wrong.push(format!("{name}: {status} is not seen in {case}"));
                }
            }
        }
        if !succeeds && !NEVER_SUCCEEDS.contains(&name.as_str()) {
            wrong.push(format!("{name} succeeds in no case"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("xtask/lists/networkdirect-methods.md:\n{}", wrong.join("\n"))) }
}

/// Slot and both columns of a method's row.
fn columns_of<'p>(page: &'p str, name: &str) -> Option<[&'p str; 3]> {
    let row =
        page.lines().find(|line| line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(&format!("{name} |"))))?;
    let mut cells = row.split('|').skip(2).map(str::trim);
    Some([cells.next()?, cells.next()?, cells.next()?])
}

/// The page with its tables written anew.
fn blessed(page: &str, notes: &[Note]) -> String {
    let mut text = String::new();
    let mut versions = ['2', '1'].into_iter();
    let mut inside = false;
    for line in page.lines() {
        if line == BEGIN.lines().next().expect("a head") {
            inside = true;
            text += &versions.next().map_or_else(String::new, |version| table(version, notes));
        }
        inside &= line.starts_with('|');
        if !inside {
            text += line;
            text.push('\n');
        }
    }
    text
}
