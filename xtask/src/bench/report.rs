//! What a run says: the table, the JSON document, and whether it is good.

use super::{
    plan::{self, Goal},
    row::{BenchRow, Standing, median},
    session::Session,
};
use anyhow::{Result, bail};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fmt::Write};
use tabled::{
    builder::Builder,
    settings::{Alignment, Style, object::Columns},
};

pub(super) struct BenchReport {
    pub(super) rows: Vec<BenchRow>,
    /// Rows with a bound that are not there, and why.
    pub(super) not_measured: BTreeMap<&'static str, String>,
    calibrations: BTreeMap<String, Vec<f64>>,
    imports: BTreeMap<&'static str, BTreeMap<String, f64>>,
    /// The paths that take longest, by row.
    longest: BTreeMap<&'static str, (String, u64)>,
    /// How UCX moves bytes, where it is installed.
    pub(super) transport: Option<String>,
    /// Nanoseconds of the engine alone, by row.
    pub(super) engine: BTreeMap<String, f64>,
}

impl BenchReport {
    pub(super) fn of(session: Session, has_ucx: bool) -> Self {
        let rows = session.rows(has_ucx);
        let mut not_measured = session.failures;
        for plan in plan::rows() {
            if !rows.iter().any(|row| row.key == plan.key) {
                not_measured.entry(plan.key).or_insert_with(|| "no round has it".to_owned());
            }
        }
        Self {
            rows,
            not_measured,
            calibrations: session.calibrations,
            imports: session.imports,
            longest: session.longest,
            transport: None,
            engine: BTreeMap::new(),
        }
    }

    /// Fails where a bound is missed or a row was not measured.
    pub(super) fn verdict(&self) -> Result<()> {
        let missed: Vec<&str> = self.with(Standing::MissesBound).collect();
        let absent: Vec<&str> = self.not_measured.keys().copied().collect();
        match (missed.is_empty(), absent.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => bail!("these bounds are missed: {}", missed.join(", ")),
            (true, false) => bail!("these rows were not measured: {}", absent.join(", ")),
            (false, false) => {
                bail!(
                    "these bounds are missed: {}; these rows were not measured: {}",
                    missed.join(", "),
                    absent.join(", ")
                )
            }
        }
    }

    fn with(&self, verdict: Standing) -> impl Iterator<Item = &str> {
        self.rows.iter().filter(move |row| row.verdict() == verdict).map(|row| row.key)
    }

    pub(super) fn json(&self) -> Value {
        let mut calibration: Map<String, Value> =
            self.calibrations.iter().map(|(name, values)| (name.clone(), json!(median(values)))).collect();
        calibration.extend(self.against_itself());
        if let Some(transport) = &self.transport {
            calibration.insert("ucx_transport".to_owned(), json!(transport));
        }
        let results: Map<String, Value> = self.rows.iter().map(|row| (row.key.to_owned(), row.json())).collect();
        json!({
            "calibration": calibration,
            "results": results,
            "not_measured": self.not_measured,
            "imports_per_request": self.imports,
            "longest_paths": self.longest.iter().map(|(key, (path, _))| (*key, path)).collect::<BTreeMap<_, _>>(),
            "engine": self.engine,
        })
    }

    /// Each copy as a multiple of the same copy: how quiet the machine was.
    fn against_itself(&self) -> Map<String, Value> {
        let copies = self.calibrations.iter().filter_map(|(name, again)| {
            let name = name.strip_suffix("_again_ns")?;
            let first = self.calibrations.get(&format!("{name}_ns"))?;
            let ratios: Vec<f64> = again.iter().zip(first).map(|(again, first)| again / first).collect();
            Some((format!("{name}_against_itself"), json!(median(&ratios))))
        });
        copies.collect()
    }

    /// For a person: rows, calibrations, imports, the engine.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.table());
        for (key, reason) in &self.not_measured {
            let _ = writeln!(text, "{key} was not measured: {}", on_a_line(reason));
        }
        let calibrations: Vec<_> =
            self.calibrations.iter().map(|(name, values)| format!("{name} {}", short(median(values)))).collect();
        let _ = writeln!(text, "\ncalibration: {}", calibrations.join(", "));
        if let Some(transport) = &self.transport {
            let _ = writeln!(text, "UCX moves bytes by {transport}");
        }
        for (key, imports) in &self.imports {
            let named: Vec<_> = imports.iter().map(|(name, count)| format!("{name} {}", short(*count))).collect();
            let _ = writeln!(text, "imports of a request, {key}: {}", named.join(", "));
        }
        for (key, (path, _)) in &self.longest {
            let _ = writeln!(text, "{key}: {path}");
        }
        if !self.engine.is_empty() {
            let rows: Vec<_> = self.engine.iter().map(|(name, time)| format!("{name} {}", short(*time))).collect();
            let _ = writeln!(text, "the engine alone, ns: {}", rows.join(", "));
        }
        text
    }

    fn table(&self) -> String {
        let mut builder = Builder::default();
        builder.push_record(["", "value", "unit", "compared with", "ratio", "bound", "aim", "spread", ""]);
        for row in &self.rows {
            let limit = |number: Option<f64>| match (row.goal, number) {
                (Goal::AtLeast(_), Some(number)) => format!("≥ {}", short(number)),
                (_, Some(number)) => format!("≤ {}", short(number)),
                (_, None) => "-".to_owned(),
            };
            let limits = row.goal.limits();
            builder.push_record([
                row.key.to_owned(),
                short(row.value),
                row.unit.to_owned(),
                row.baseline.clone().unwrap_or_else(|| "-".to_owned()),
                short(row.ratio),
                limit(limits.map(|limits| limits.bound)),
                limit(limits.and_then(|limits| limits.aim)),
                short(row.spread),
                remark(row),
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

fn remark(row: &BenchRow) -> String {
    match row.verdict() {
        Standing::Number | Standing::KeepsAim => String::new(),
        Standing::KeepsBound => "misses its aim".to_owned(),
        Standing::MissesBound => "MISSES ITS BOUND".to_owned(),
        Standing::Void => format!("void: restless in {} of {} rounds", row.void_rounds, row.rounds),
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
    use super::{super::plan::Limits, *};

    fn row(key: &'static str, ratio: f64) -> BenchRow {
        BenchRow {
            key,
            unit: "ns",
            baseline: None,
            value: 100.0,
            ratio,
            goal: Goal::AtMost(Limits { bound: 2.0, aim: Some(1.0) }),
            spread: 0.1,
            void_rounds: 0,
            rounds: 3,
        }
    }

    /// Every row of the plan with the same ratio.
    fn report(ratio: f64) -> BenchReport {
        let mut report = BenchReport::of(Session::default(), true);
        report.not_measured.clear();
        report.rows = plan::rows().map(|plan| row(plan.key, ratio)).collect();
        report
    }

    #[test]
    fn a_run_that_measured_nothing_fails_and_names_every_row() {
        let report = BenchReport::of(Session::default(), true);
        let error = report.verdict().unwrap_err().to_string();
        assert!(plan::rows().all(|plan| error.contains(plan.key)), "{error}");
    }

    #[test]
    fn one_row_that_was_not_measured_fails_the_run() {
        let mut report = report(1.0);
        assert!(report.verdict().is_ok());
        report.not_measured.insert("read_64k", "the program ended".to_owned());
        assert_eq!(report.verdict().unwrap_err().to_string(), "these rows were not measured: read_64k");
        assert!(report.text().contains("read_64k was not measured: the program ended"));
        assert_eq!(report.json()["not_measured"]["read_64k"], "the program ended");
    }

    #[test]
    fn one_bound_that_is_missed_fails_the_run_and_a_missed_aim_is_marked() {
        let mut report = report(1.0);
        report.rows[0] = row("read_8_chain16", 1.5);
        assert!(report.verdict().is_ok() && report.text().contains("misses its aim"));
        report.rows[0] = row("read_8_chain16", 2.5);
        assert_eq!(report.verdict().unwrap_err().to_string(), "these bounds are missed: read_8_chain16");
        report.rows[0].void_rounds = 2;
        assert!(report.verdict().is_ok() && report.text().contains("void: restless in 2 of 3 rounds"));
    }

    #[test]
    fn the_document_has_what_readers_of_it_expect() {
        let mut report = report(1.5);
        report.calibrations.insert("memcpy_8_ns".to_owned(), vec![2.0, 4.0]);
        report.calibrations.insert("memcpy_8_again_ns".to_owned(), vec![3.0, 4.0]);
        let document = report.json();
        let expected = json!({
            "value": 100.0, "unit": "ns", "baseline": null, "ratio": 1.5, "bound": 2.0, "bound_is": "at most", "aim": 1.0,
            "void": false, "void_rounds": 0, "spread": 0.1,
        });
        assert_eq!(document["results"]["read_64k"], expected);
        assert_eq!(
            document["calibration"],
            json!({
                "memcpy_8_ns": 3.0, "memcpy_8_again_ns": 3.5, "memcpy_8_against_itself": 1.25,
            })
        );
    }
}
