//! What the programs print, read.

use super::{longest::Paths, plan::Quantity};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What a program says of a step.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Measurement {
    /// Nanoseconds of a request.
    pub(super) time: f64,
    /// Requests a second, of all processors together.
    pub(super) rate: f64,
    /// What two processors do, as a share of twice what one does.
    pub(super) scaling: Option<f64>,
    /// Nanoseconds of a memcpy of the same size, measured before and after.
    pub(super) memcpy: Option<f64>,
    /// Nanoseconds of a request's bytes by plain TCP.
    pub(super) tcp: Option<f64>,
    pub(super) queue_pair_bytes: Option<f64>,
    /// System calls of a request.
    pub(super) system_calls: Option<f64>,
    /// The times of DPCs, and of calls at DISPATCH_LEVEL, by path.
    pub(super) dpc_paths: Paths,
    pub(super) dispatch_paths: Paths,
}

impl Measurement {
    pub(super) fn value(&self, quantity: Quantity) -> Result<f64> {
        let value = match quantity {
            Quantity::Time => Some(self.time),
            Quantity::Scaling => self.scaling,
            Quantity::QueuePairBytes => self.queue_pair_bytes,
            Quantity::SystemCalls => self.system_calls,
        };
        value.with_context(|| format!("the report has no {quantity:?}"))
    }
}

/// One JSON document.
pub(super) fn document(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("this is no JSON: {text}"))
}

/// A number that must be there.
pub(super) fn number(value: &Value, name: &str) -> Result<f64> {
    value.get(name).and_then(Value::as_f64).with_context(|| format!("no number {name} in {value}"))
}

/// What `ndkctl --json perf` printed for one row and one round of its own.
pub(super) fn perf(document: &Value) -> Result<Measurement> {
    let report = document.get("report").context("ndkctl perf printed no report")?;
    ensure!(report["debug_build"] != true, "the image was built without optimisation");
    let row = report.pointer("/rows/0").context("ndkctl perf printed no row")?;
    let round = row.pointer("/rounds/0").context("ndkctl perf printed no round")?;
    ensure!(row["completions_verified"] == true, "the completions were not verified: {row}");
    ensure!(row["bytes_verified"] == true || !moves_bytes(row), "the bytes were not verified: {row}");
    let time = number(round, "ns")?;
    ensure!(time > 0.0, "a request took no time: {row}");
    let memcpy = ["memcpy_ns", "memcpy_again_ns"].map(|name| round.get(name).and_then(Value::as_f64));
    let memcpy = match memcpy {
        [Some(first), Some(again)] if first > 0.0 && again > 0.0 => Some(f64::midpoint(first, again)),
        _ => None,
    };
    Ok(Measurement {
        time,
        rate: rate(row, time),
        memcpy,
        queue_pair_bytes: row.get("queue_pair_bytes").and_then(Value::as_f64),
        dpc_paths: Paths::read(report.get("dpc_paths")),
        dispatch_paths: Paths::read(report.get("dispatch_paths")),
        ..Measurement::default()
    })
}

fn moves_bytes(row: &Value) -> bool {
    matches!(row["operation"].as_str(), Some("read" | "write" | "send"))
}

/// Each processor has a time per request; without them, the request's time is that of the one processor.
fn rate(row: &Value, time: f64) -> f64 {
    let processors = row.get("per_processor_ns").and_then(Value::as_array);
    let rates = processors.into_iter().flatten().filter_map(Value::as_f64).map(|each| 1e9 / each);
    let rate: f64 = rates.sum();
    if rate > 0.0 { rate } else { 1e9 / time }
}

/// What the client of two kernel hosts has reported: one row.
pub(super) fn stream(report: &Value) -> Result<Measurement> {
    let row = report.pointer("/rows/0").context("ndkctl nd perf printed no row")?;
    let requests = number(row, "requests")?;
    let each = |value: &Value| Ok::<_, anyhow::Error>(number(value, "elapsed")? / requests);
    let time = each(row)?;
    ensure!(time > 0.0, "a request took no time: {row}");
    ensure!(row["operation"] != "read" || number(row, "bytes_compared")? > 0.0, "no bytes were compared: {row}");
    Ok(Measurement { time, rate: 1e9 / time, tcp: Some(each(&row["tcp"])?), ..Measurement::default() })
}

/// What the program that reads through softnd.dll printed.
pub(super) fn speed(document: &Value) -> Result<Measurement> {
    let time = number(document, "nanoseconds")?;
    Ok(Measurement {
        time,
        rate: 1e9 / time,
        memcpy: Some(f64::midpoint(number(document, "memcpy")?, number(document, "memcpy_again")?)),
        system_calls: Some(number(document, "system_calls")?),
        ..Measurement::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read() -> Value {
        json!({"report": {
            "rows": [{
                "operation": "read", "measure": "bandwidth", "size": 65536, "processors": 1, "ns_per_request": 1700.0,
                "rounds": [{"ns": 1650.5, "memcpy_ns": 1600.0, "memcpy_again_ns": 1610.0}],
                "completions_verified": true, "bytes_verified": true, "queue_pair_bytes": null, "per_processor_ns": [],
            }],
            "dpc_paths": {"a": {"12000": 1}}, "dispatch_paths": null,
            "debug_build": false,
        }})
    }

    #[test]
    fn a_row_of_perf_is_read() {
        let measured = perf(&read()).unwrap();
        let expected = Measurement {
            time: 1650.5,
            rate: 1e9 / 1650.5,
            memcpy: Some(1605.0),
            dpc_paths: Paths::read(Some(&json!({"a": {"12000": 1}}))),
            ..Measurement::default()
        };
        assert_eq!(measured, expected);
    }

    #[test]
    fn the_rate_of_two_processors_is_the_sum_of_theirs() {
        let mut document = read();
        document["report"]["rows"][0]["per_processor_ns"] = json!([100.0, 50.0]);
        assert!((perf(&document).unwrap().rate - 3e7).abs() < 1.0);
    }

    #[test]
    fn a_row_without_memcpy_and_bytes_is_read() {
        let mut document = read();
        let row = &mut document["report"]["rows"][0];
        row["operation"] = json!("connect");
        row["rounds"] = json!([{"ns": 4000.0, "memcpy_ns": null, "memcpy_again_ns": null}]);
        row["bytes_verified"] = Value::Null;
        row["queue_pair_bytes"] = json!(5000);
        let measured = perf(&document).unwrap();
        assert_eq!((measured.memcpy, measured.queue_pair_bytes), (None, Some(5000.0)));
    }

    #[test]
    fn what_was_not_verified_or_is_not_there_is_an_error() {
        let changes: [(&str, Value); 7] = [
            ("/report/rows/0/bytes_verified", json!(false)),
            ("/report/rows/0/bytes_verified", Value::Null),
            ("/report/rows/0/completions_verified", json!(false)),
            ("/report/rows/0/rounds", json!([])),
            ("/report/rows/0/rounds/0/ns", json!(0.0)),
            ("/report/rows", json!([])),
            ("/report/debug_build", json!(true)),
        ];
        for (place, value) in changes {
            let mut document = read();
            *document.pointer_mut(place).unwrap() = value;
            assert!(perf(&document).is_err(), "{place}");
        }
        assert!(perf(&json!({"error": "none"})).is_err());
    }

    #[test]
    fn a_row_across_a_stream_is_beside_plain_tcp() {
        let row = |compared, tcp| json!({"rows": [{"operation": "read", "requests": 4, "elapsed": 80, "bytes_compared": compared, "tcp": tcp}]});
        let measured = stream(&row(8, json!({"elapsed": 20}))).unwrap();
        assert_eq!((measured.time, measured.tcp), (20.0, Some(5.0)));
        assert!(stream(&row(0, json!({"elapsed": 20}))).is_err());
        assert!(stream(&row(8, Value::Null)).is_err());
    }

    #[test]
    fn a_line_of_the_reads_through_the_library_is_read() {
        let line = json!({"nanoseconds": 200.0, "memcpy": 3.0, "memcpy_again": 4.0, "system_calls": 0.5});
        let measured = speed(&line).unwrap();
        assert_eq!((measured.time, measured.memcpy, measured.system_calls), (200.0, Some(3.5), Some(0.5)));
        assert!(speed(&json!({"nanoseconds": 200.0})).is_err());
    }
}
