//! The table of a sweep as a picture: time and rate over the size of a request.

use super::RowReport;
use crate::destination::Destination;
use crate::failure::{Failure, Kind};
use crate::units;
use plotters::prelude::*;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Pixels of the picture, of which each chart has one half.
const SIZE: (u32, u32) = (1_200, 560);

/// A curve: sizes and their numbers.
type Curve<'a> = (&'a str, RGBColor, Vec<(f64, f64)>);

/// Writes the picture: what was measured, and on which machine, stands above the charts.
pub fn draw(rows: &[RowReport], what: &str, debug_build: bool, to: Destination) -> Result<(), Failure> {
    let build = if debug_build { "debug build of the driver, " } else { "" };
    let drawing = picture(rows, &format!("{what} ({build}{})", machine())).map_err(|error| {
        let next_step = "this is a fault of ndkctl; please report it";
        Failure::new(Kind::File, "cannot draw the picture", error.to_string(), next_step)
    })?;
    let written = to.file().write_all(drawing.as_bytes());
    written.map_err(|error| Failure::file("write", Path::new("the picture"), &error))?;
    to.finish()
}

/// The processor, and the system under the driver.
fn machine() -> String {
    if cfg!(windows) {
        return std::env::var("PROCESSOR_IDENTIFIER")
            .map_or_else(|_| "Windows".to_owned(), |name| format!("{name}, Windows"));
    }
    let facts = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    match processor(&facts) {
        Some(name) => format!("{name}, kernel host"),
        None => "kernel host".to_owned(),
    }
}

/// Of proc(5).
fn processor(facts: &str) -> Option<&str> {
    let line = facts.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim())
}

fn picture(rows: &[RowReport], title: &str) -> Result<String, Box<dyn Error>> {
    let mut drawing = String::new();
    charts(rows, title, &mut drawing).map_err(|error| error.to_string())?;
    Ok(drawing)
}

fn charts<'a>(rows: &[RowReport], title: &str, drawing: &'a mut String) -> Result<(), Box<dyn Error + 'a>> {
    let root = SVGBackend::with_string(drawing, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 18))?;
    let (left, right) = root.split_horizontally(SIZE.0 / 2);
    let points = |number: &dyn Fn(&RowReport) -> Option<f64>| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((f64::from(row.row.size), number(row)?))).collect()
    };
    let rate = |row: &RowReport, time: f64| f64::from(row.row.size) * 1_000.0 / time;
    let times: [Curve<'_>; 2] =
        [("request", BLUE, points(&|row| Some(row.ns_per_request))), ("memcpy", RED, points(&|row| row.memcpy_ns))];
    let rates: [Curve<'_>; 2] = [
        ("request", BLUE, points(&|row| row.megabytes_per_second)),
        ("memcpy", RED, points(&|row| row.memcpy_ns.map(|time| rate(row, time)))),
    ];
    chart(&left, "Time of a request", |time| units::duration(*time), &times)?;
    chart(&right, "Rate", |rate| format!("{rate:.0} MB/s"), &rates)?;
    root.present()?;
    Ok(())
}

/// One chart, both axes by powers.
fn chart<'a>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    title: &str,
    label: impl Fn(&f64) -> String,
    curves: &[Curve<'_>],
) -> Result<(), Box<dyn Error + 'a>> {
    let all = || curves.iter().flat_map(|(_, _, points)| points);
    let range = |number: &dyn Fn(&(f64, f64)) -> f64| {
        let (low, high) =
            all().map(number).fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        if low < high { low / 1.2..high * 1.2 } else { 1.0..10.0 }
    };
    let (sizes, numbers) = (range(&|point| point.0), range(&|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(sizes.log_scale(), numbers.log_scale())?;
    let size = |bytes: &f64| units::size(*bytes as u64);
    chart.configure_mesh().x_desc("size of a request").x_label_formatter(&size).y_label_formatter(&label).draw()?;
    for (name, colour, points) in curves {
        let colour = *colour;
        let series = LineSeries::new(points.iter().copied(), &colour).point_size(3);
        chart.draw_series(series)?.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{picture, processor};

    #[test]
    fn title_is_in_the_picture() {
        let drawing = picture(&[], "Read, depth 16 (some processor)").unwrap();
        assert!(drawing.contains("Read, depth 16 (some processor)") && drawing.contains("</svg>"), "{drawing}");
    }

    #[test]
    fn processor_is_named_where_the_system_names_it() {
        assert_eq!(
            processor("processor : 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name : other\n"),
            Some("Some CPU @ 2 GHz")
        );
        assert_eq!(processor("processor : 0\n"), None);
    }
}
