//! What a run says: the table, the JSON document, and whether it is good.

use super::{
    plan,
    rounds::Rounds,
    row::{BenchRow, Standing},
};
use anyhow::{Result, bail};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fmt::Write};
use tabled::{
    builder::Builder,
    settings::{Alignment, Style, object::Columns},
};

pub(super) struct BenchReport {
    rows: Vec<BenchRow>,
    /// Rows that are not there, and why.
    not_measured: BTreeMap<&'static str, String>,
    /// The paths that take longest, by row.
    longest: BTreeMap<&'static str, String>,
}

impl BenchReport {
    pub(super) fn of(rounds: Rounds) -> Self {
        let rows = rounds.rows();
        let mut not_measured = rounds.failures;
        for plan in plan::rows() {
            if !rows.iter().any(|row| row.plan.key == plan.key) {
                not_measured.entry(plan.key).or_insert_with(|| "no round has it".to_owned());
            }
        }
        let longest = rounds.longest.into_iter().map(|(key, (path, _))| (key, path)).collect();
        Self { rows, not_measured, longest }
    }

    /// Fails where a bound is missed or a row was not measured.
    pub(super) fn verdict(&self) -> Result<()> {
        let missed = self.rows.iter().filter(|row| row.standing() == Standing::MissesBound);
        let failures = [
            ("these bounds are missed", missed.map(|row| row.plan.key).collect::<Vec<_>>()),
            ("these rows were not measured", self.not_measured.keys().copied().collect()),
        ];
        let failures = failures.iter().filter(|(_, keys)| !keys.is_empty());
        let failures: Vec<_> = failures.map(|(what, keys)| format!("{what}: {}", keys.join(", "))).collect();
        if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("; ")) }
    }

    pub(super) fn json(&self) -> Value {
        let results: Map<String, Value> = self.rows.iter().map(|row| (row.plan.key.to_owned(), row.json())).collect();
        json!({ "results": results, "not_measured": self.not_measured, "longest_paths": self.longest })
    }

    /// For a person.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.table());
        for (key, reason) in &self.not_measured {
            let _ = writeln!(text, "{key} was not measured: {}", on_a_line(reason));
        }
        for (key, path) in &self.longest {
            let _ = writeln!(text, "{key}: {path}");
        }
        text
    }

    fn table(&self) -> String {
        let mut builder = Builder::default();
        builder.push_record(["", "value", "unit", "compared with", "ratio", "bound", "aim", "spread", ""]);
        for row in &self.rows {
            let goal = row.plan.goal;
            let limit = |number: Option<f64>| {
                let sign = if goal.is_some_and(|goal| goal.at_least) { "≥" } else { "≤" };
                number.map_or_else(|| "-".to_owned(), |number| format!("{sign} {}", short(number)))
            };
            builder.push_record([
                row.plan.key.to_owned(),
                short(row.value),
                row.plan.quantity.unit().to_owned(),
                row.plan.baseline.name().unwrap_or("-").to_owned(),
                short(row.ratio),
                limit(goal.map(|goal| goal.bound)),
                limit(goal.and_then(|goal| goal.aim)),
                short(row.spread()),
                remark(row.standing()).to_owned(),
            ]);
        }
        let mut table = builder.build();
        table.with(Style::blank());
        for column in [1, 4, 5, 6, 7] {
            table.modify(Columns::one(column), Alignment::right());
        }
        table.to_string()
    }
}

fn remark(standing: Standing) -> &'static str {
    match standing {
        Standing::Number | Standing::KeepsAim => "",
        Standing::MissesAim => "misses its aim",
        Standing::MissesBound => "MISSES ITS BOUND",
        Standing::Noisy => "noisy: the bound lies within the spread",
    }
}

/// The beginning of what a program said; the document has all of it.
fn on_a_line(reason: &str) -> String {
    const LENGTH: usize = 400;
    let words: Vec<&str> = reason.split_whitespace().collect();
    let line = words.join(" ");
    if line.chars().count() <= LENGTH { line } else { line.chars().take(LENGTH).chain(['…']).collect() }
}

/// About three digits.
fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{number:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::row::Sample, *};

    fn row(key: &str, ratios: &[f64]) -> BenchRow {
        let samples: Vec<_> = ratios.iter().map(|ratio| Sample { value: 100.0, ratio: *ratio }).collect();
        BenchRow::of(plan::rows().find(|row| row.key == key).unwrap(), &samples)
    }

    fn report(rows: Vec<BenchRow>) -> BenchReport {
        BenchReport { rows, not_measured: BTreeMap::new(), longest: BTreeMap::new() }
    }

    #[test]
    fn a_run_that_measured_nothing_fails_and_names_every_row() {
        let error = BenchReport::of(Rounds::default()).verdict().unwrap_err().to_string();
        assert!(plan::rows().all(|plan| error.contains(plan.key)), "{error}");
    }

    #[test]
    fn one_row_that_was_not_measured_fails_the_run() {
        let mut report = report(vec![row("read_8_single", &[1.0])]);
        assert!(report.verdict().is_ok());
        report.not_measured.insert("read_64k", "the program ended".to_owned());
        assert_eq!(report.verdict().unwrap_err().to_string(), "these rows were not measured: read_64k");
        assert!(report.text().contains("read_64k was not measured: the program ended"));
        assert_eq!(report.json()["not_measured"]["read_64k"], "the program ended");
    }

    #[test]
    fn one_bound_that_is_missed_fails_the_run_and_others_are_marked() {
        let of = |ratios: &[f64]| report(vec![row("qp_bytes", &[1.0]), row("read_8_single", ratios)]);
        assert!(of(&[2.5]).verdict().is_ok() && of(&[2.5]).text().contains("misses its aim"));
        let missed = of(&[3.5]);
        assert_eq!(missed.verdict().unwrap_err().to_string(), "these bounds are missed: read_8_single");
        assert!(missed.text().contains("MISSES ITS BOUND"));
        let noisy = of(&[3.5, 2.5, 3.5]);
        assert!(noisy.verdict().is_ok() && noisy.text().contains("noisy: the bound lies within the spread"));
    }

    #[test]
    fn the_document_has_what_readers_of_it_expect() {
        let expected = json!({
            "value": 100.0, "unit": "ns", "baseline": "memcpy", "ratio": 1.05, "bound": 1.06, "bound_is": "at most",
            "aim": 1.03, "misses_bound": false, "noisy": false, "spread": 0.0,
        });
        assert_eq!(report(vec![row("read_64k", &[1.05])]).json()["results"]["read_64k"], expected);
    }
}
