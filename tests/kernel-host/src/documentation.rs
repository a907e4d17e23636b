//! The table of exports in `xtask/lists/exports.md`, made from the declarations themselves, so that the list cannot differ from
//! the code.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::export::{DATA_TABLES, TABLES};
use crate::user::imports;

struct ExportRow {
    name: &'static str,
    irql: &'static str,
    models: String,
    checks: String,
    source: String,
}

/// Splits documentation lines into what is modelled, what is checked and where it is written.
fn row(name: &'static str, irql: &'static str, documentation: &[&str]) -> ExportRow {
    let (mut models, mut checks, mut source) = (Vec::new(), Vec::new(), Vec::new());
    // A line without a heading belongs to the heading before.
    let mut into = &mut models;
    for line in documentation {
        let mut text = line.trim();
        if let Some(rest) = text.strip_prefix("Checks:") {
            into = &mut checks;
            text = rest.trim();
        } else if let Some(rest) = text.strip_prefix("Source:") {
            into = &mut source;
            text = rest.trim();
        }
        into.push(text.trim_end_matches('.').to_owned());
    }
    ExportRow { name, irql, models: models.join(" "), checks: checks.join(" "), source: source.join(" ") }
}

fn rows() -> BTreeMap<&'static str, Vec<ExportRow>> {
    let mut modules: BTreeMap<&'static str, Vec<ExportRow>> = BTreeMap::new();
    for export in TABLES.iter().chain(imports::TABLES).copied().flatten() {
        let irql = if export.direct { "any level" } else { export.irql.describe() };
        modules.entry(export.module).or_default().push(row(export.name, irql, export.documentation));
    }
    for export in DATA_TABLES.iter().copied().flatten() {
        modules.entry(export.module).or_default().push(row(export.name, "address", export.documentation));
    }
    for rows in modules.values_mut() {
        rows.sort_by_key(|row| row.name);
    }
    modules
}

/// The table, a heading per module.
pub fn table() -> String {
    let mut text = String::new();
    for (module, rows) in rows() {
        let _ = writeln!(text, "### {module}: {} exports\n", rows.len());
        text.push_str("| export | level | modelled | checked besides the level | source |\n|---|---|---|---|---|\n");
        for row in rows {
            let ExportRow { name, irql, models, checks, source } = row;
            let _ = writeln!(text, "| `{name}` | {irql} | {models} | {checks} | {source} |");
        }
        text.push('\n');
    }
    text
}

/// Exports without a source.
pub fn without_source() -> Vec<&'static str> {
    rows().into_values().flatten().filter(|row| row.source.is_empty()).map(|row| row.name).collect()
}

/// Exports that are declared more than once.
pub fn declared_twice() -> Vec<&'static str> {
    rows()
        .into_values()
        .flat_map(|rows| {
            rows.windows(2).filter(|pair| pair[0].name == pair[1].name).map(|pair| pair[0].name).collect::<Vec<_>>()
        })
        .collect()
}

/// The module definition file of everything that a module exports, with which drivers are linked.
#[must_use]
pub fn definition(module: &str) -> String {
    let functions = TABLES.iter().copied().flatten().filter(|export| export.module == module);
    let data = DATA_TABLES.iter().copied().flatten().filter(|export| export.module == module);
    let names =
        functions.map(|export| export.name.to_owned()).chain(data.map(|export| format!("{} DATA", export.name)));
    let names: std::collections::BTreeSet<String> = names.collect();
    format!("LIBRARY {module}\nEXPORTS\n{}\n", names.into_iter().collect::<Vec<_>>().join("\n"))
}
