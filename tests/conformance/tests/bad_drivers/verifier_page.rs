//! Checks `xtask/lists/verifier.md`: the checks of Driver Verifier and the Static Driver Verifier, row by row, and which of them the
//! host has.
//!
//! A row is `| check | statement | relevant | status | cover |`. A covered one names something that exists: a bad driver, a source
//! file of the host, an export, a bugcheck or a sub-code. Every bad driver is named in a row or in the list of those beyond the two
//! tools. The figures of the summary in `docs/verifier.md` are those of the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use conformance::machine::workspace;
use kernel_host::export;
use libtest_mimic::Failed;

use super::table::cases;

const BEYOND: &str = "## Bad drivers beyond the two tools";

const LIST: &str = "xtask/lists/verifier.md";
const SUMMARY: &str = "docs/verifier.md";
/// Explains the sub-codes that are the host's own.
const CODES: &str = "xtask/lists/bugchecks.md";

/// The parts of the list that are compared with the host, and of the page that sums it up.
#[derive(Default)]
struct Page {
    rows: Vec<Row>,
    /// The figures of the summary, by its first column.
    summary: BTreeMap<String, [usize; 5]>,
    /// Names in backquotes below the heading of those beyond the two tools.
    beyond: BTreeSet<String>,
}

struct Row {
    /// `Driver Verifier`, `SDV, NDIS` or `SDV, WDM`.
    tool: &'static str,
    check: String,
    relevant: bool,
    status: String,
    named: Vec<String>,
    why: bool,
}

impl Row {
    /// How many checks the row stands for.
    fn count(&self) -> usize {
        let number = |rest: &str| rest.split(' ').next()?.parse().ok();
        self.check
            .rsplit_once('(')
            .filter(|(_, rest)| rest.ends_with("rules)"))
            .and_then(|(_, rest)| number(rest))
            .unwrap_or(1)
    }
}

fn names(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn read(text: &str) -> Page {
    let mut page = Page::default();
    let (mut tool, mut beyond) = ("", false);
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            beyond = line == BEYOND;
            let heading = heading.trim_start_matches('#').trim();
            tool = match heading {
                "Driver Verifier" => "Driver Verifier",
                "Static Driver Verifier" => "SDV",
                _ if heading.starts_with("NDIS:") => "SDV, NDIS",
                _ if heading.starts_with("WDM:") => "SDV, WDM",
                _ if beyond => "",
                _ => tool,
            };
            continue;
        }
        if beyond {
            page.beyond.extend(names(line));
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        match cells[..] {
            [check, _, relevant, status, cover] if !tool.is_empty() && check != "check" => page.rows.push(Row {
                tool,
                check: check.to_owned(),
                relevant: relevant == "yes",
                status: status.to_owned(),
                named: names(cover),
                why: cover.contains("why not:"),
            }),
            [name, ref figures @ ..] if tool.is_empty() && figures.len() == 5 => {
                let figures: Vec<usize> = figures.iter().filter_map(|figure| figure.parse().ok()).collect();
                if let Ok(figures) = figures.try_into() {
                    page.summary.insert(name.to_owned(), figures);
                }
            }
            _ => {}
        }
    }
    page
}

/// Sources of the host, by their paths below its `src`.
fn sources() -> BTreeMap<String, String> {
    fn walk(folder: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("the host's sources").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, root, found);
            } else if let Ok(name) = path.strip_prefix(root) {
                let text = fs::read_to_string(&path).expect("a source file");
                found.insert(name.display().to_string(), text);
            }
        }
    }
    let root = workspace().join("tests/kernel-host/src");
    let mut found = BTreeMap::new();
    walk(&root, &root, &mut found);
    found
}

/// Whether a name of the page exists.
struct World {
    sources: BTreeMap<String, String>,
    codes: String,
}

impl World {
    fn has(&self, name: &str) -> bool {
        is_bad_driver(name) || self.sources.contains_key(name) || is_export(name) || self.is_code(name)
    }

    /// A bugcheck of the host, or a sub-code that it gives; those of its own are explained in a list.
    fn is_code(&self, name: &str) -> bool {
        if self.sources["bugcheck.rs"].contains(&format!("    {name} = 0x")) {
            return true;
        }
        let Some(number) = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
            return false;
        };
        let given = [format!("[0x{number:X},"), format!("= 0x{number:X};")];
        let explained = !(0x1001..0x2000).contains(&number) || self.codes.contains(&format!("0x{number:X}"));
        explained && self.sources.values().any(|text| given.iter().any(|form| text.contains(form)))
    }
}

fn is_bad_driver(name: &str) -> bool {
    cases().any(|case| case.name == name)
}

fn is_export(name: &str) -> bool {
    export::TABLES.iter().copied().flatten().any(|export| export.name == name)
}

pub fn page_is_true() -> Result<(), Failed> {
    let mut page = read(&fs::read_to_string(workspace().join(LIST))?);
    page.summary = read(&fs::read_to_string(workspace().join(SUMMARY))?).summary;
    let codes = fs::read_to_string(workspace().join(CODES))?;
    let mut wrong = mistakes(&page, &World { sources: sources(), codes });
    wrong.extend(uncounted(&page));
    if wrong.is_empty() { Ok(()) } else { Err(format!("{LIST}, {SUMMARY}:\n{}", wrong.join("\n")).into()) }
}

fn mistakes(page: &Page, world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in &page.rows {
        let missing: Vec<_> = row.named.iter().filter(|name| row.status == "C" && !world.has(name)).collect();
        if !missing.is_empty() {
            wrong.push(format!("{}: {missing:?} is no bad driver, file of the host, export or code", row.check));
        }
        let stands = match row.status.as_str() {
            "C" => row.relevant && !row.named.is_empty(),
            "P" | "M" => row.relevant && row.why,
            _ => !row.relevant,
        };
        if !stands {
            wrong.push(format!(
                "{}: a covered row names what covers it, a relevant one that is not covered says why",
                row.check
            ));
        }
    }
    let named: BTreeSet<&String> = page.rows.iter().flat_map(|row| &row.named).collect();
    for case in cases() {
        let name = case.name.to_owned();
        if !named.contains(&name) && !page.beyond.contains(&name) {
            wrong.push(format!("the bad driver {name} is in no row and not in the list of those beyond the two tools"));
        }
    }
    let gone = page.beyond.iter().filter(|name| !is_bad_driver(name));
    wrong.extend(gone.map(|name| format!("{name} is no bad driver")));
    wrong
}

/// Figures of the summary that are not those of the rows.
fn uncounted(page: &Page) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, tools) in [
        ("Driver Verifier", &["Driver Verifier"][..]),
        ("SDV, all rules", &["SDV, NDIS", "SDV, WDM"]),
        ("SDV, NDIS", &["SDV, NDIS"]),
        ("SDV, WDM", &["SDV, WDM"]),
    ] {
        let count = |take: &dyn Fn(&Row) -> bool| -> usize {
            page.rows.iter().filter(|row| tools.contains(&row.tool) && take(row)).map(Row::count).sum()
        };
        let status = |letter: &str| count(&|row| row.relevant && row.status == letter);
        let counted = [count(&|row| row.relevant), status("C"), status("P"), status("M"), count(&|row| !row.relevant)];
        if page.summary.get(name) != Some(&counted) {
            wrong.push(format!("the summary's figures of {name} should be {counted:?}"));
        }
    }
    wrong
}
