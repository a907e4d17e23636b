//! The table of a sweep as a picture: time and rate over the size of a request.

use super::RowReport;
use crate::failure::Failure;
use crate::units;
use plotters::prelude::*;
use std::error::Error;
use std::io;
use std::path::Path;

/// Pixels of the picture, of which each chart has one half.
const SIZE: (u32, u32) = (1_200, 560);

/// A curve: sizes and their numbers.
type Curve<'a> = (&'a str, RGBColor, Vec<(f64, f64)>);

/// Writes the picture.
pub fn draw(rows: &[RowReport], file: &Path) -> Result<(), Failure> {
    picture(rows, file).map_err(|error| Failure::file("write", file, &io::Error::other(error.to_string())))
}

fn picture<'a>(rows: &[RowReport], file: &'a Path) -> Result<(), Box<dyn Error + 'a>> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
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
