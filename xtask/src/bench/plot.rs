//! Latency and bandwidth over the size of a request, beside memcpy and UCX, as SVG.

use super::{affinity::Processors, programs::Programs};
use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use std::{error::Error, fs, path::Path};

const SIZES: [u32; 10] = [8, 64, 512, 4096, 16_384, 65_536, 131_072, 262_144, 524_288, 1 << 20];
const OPERATIONS: [&str; 3] = ["read", "write", "send"];

/// A curve: size of a request in bytes, and its number.
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

/// One figure.
struct Figure {
    file: &'static str,
    title: &'static str,
    /// What the numbers are.
    quantity: &'static str,
    /// What stands at the axis.
    label: fn(f64) -> String,
    curves: Vec<Curve>,
}

/// Measures every size of every operation, and writes `latency.svg` and `bandwidth.svg`.
pub(super) fn draw(programs: &Programs, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (mut latency, mut bandwidth) = (Vec::new(), Vec::new());
    let mut copies = Curve { name: "memcpy".to_owned(), points: Vec::new() };
    for operation in OPERATIONS {
        let mut alone = Curve { name: format!("{operation}, one at a time"), points: Vec::new() };
        let mut chained = Curve { name: format!("{operation}, chains of 16"), points: Vec::new() };
        for size in SIZES {
            let one = format!("--operation {operation} --measure latency --size {size}");
            let measured = programs.perf(&one, Processors::One)?;
            alone.points.push((f64::from(size), measured.time));
            if let (Some(copy), "read") = (measured.memcpy, operation) {
                copies.points.push((f64::from(size), copy));
            }
            let many = format!("--operation {operation} --measure bandwidth --size {size} --chain 16 --depth 16");
            chained.points.push((f64::from(size), programs.perf(&many, Processors::One)?.time));
        }
        latency.push(alone);
        bandwidth.push(chained.as_bandwidth());
    }
    let get = |size| Ok((f64::from(size), programs.ucx_get(size)?));
    let gets = Curve { name: "UCX get".to_owned(), points: SIZES.into_iter().map(get).collect::<Result<_>>()? };
    for curve in [copies, gets] {
        bandwidth.push(curve.as_bandwidth());
        latency.push(curve);
    }
    let figures = [
        Figure {
            file: "latency.svg",
            title: "Time of a request over its size",
            quantity: "latency",
            label: time,
            curves: latency,
        },
        Figure {
            file: "bandwidth.svg",
            title: "Bandwidth over the size of a request",
            quantity: "GB/s",
            label: plain,
            curves: bandwidth,
        },
    ];
    for figure in figures {
        let file = folder.join(figure.file);
        let drawn = figure.svg().map_err(|error| anyhow!("cannot draw {}: {error}", file.display()))?;
        fs::write(&file, drawn).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

impl Curve {
    /// Bytes a nanosecond are gigabytes a second.
    fn as_bandwidth(&self) -> Self {
        Self { name: self.name.clone(), points: self.points.iter().map(|(size, time)| (*size, size / time)).collect() }
    }
}

impl Figure {
    /// Both axes are logarithmic.
    fn svg(&self) -> Result<String, Box<dyn Error>> {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, (960, 600)).into_drawing_area();
        area.fill(&WHITE)?;
        let (sizes, numbers) = self.ranges().ok_or("there are no points")?;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d((sizes.0..sizes.1).log_scale().base(2.0), (numbers.0..numbers.1).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("bytes of a request")
            .y_desc(self.quantity)
            .x_label_formatter(&|size| bytes(*size))
            .y_label_formatter(&|number| (self.label)(*number))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 16))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (number, curve) in self.curves.iter().enumerate() {
            let colour = Palette99::pick(number).to_rgba();
            let line = LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)).point_size(3);
            let drawn = chart.draw_series(line)?;
            drawn
                .label(curve.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE)
            .border_style(BLACK.mix(0.3))
            .label_font(("sans-serif", 14))
            .draw()?;
        drop(chart);
        area.present()?;
        drop(area);
        Ok(text)
    }

    /// From the least to the greatest size, and number with some room above.
    fn ranges(&self) -> Option<((f64, f64), (f64, f64))> {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let range = |which: fn(&(f64, f64)) -> f64| {
            let least = points().map(which).min_by(f64::total_cmp)?;
            Some((least, points().map(which).max_by(f64::total_cmp)?))
        };
        let (sizes, numbers) = (range(|point| point.0)?, range(|point| point.1)?);
        Some((sizes, (numbers.0 / 1.5, numbers.1 * 4.0)))
    }
}

fn bytes(size: f64) -> String {
    match size {
        size if size >= 1_048_576.0 => format!("{} MiB", size / 1_048_576.0),
        size if size >= 1024.0 => format!("{} KiB", size / 1024.0),
        size => format!("{size}"),
    }
}

fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        time if time >= 1e6 => format!("{} ms", time / 1e6),
        time if time >= 1e3 => format!("{} µs", time / 1e3),
        time => format!("{time} ns"),
    }
}

fn plain(number: f64) -> String {
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_curves_and_labels_as_text() {
        let curve = |name: &str, factor: f64| Curve {
            name: name.to_owned(),
            points: SIZES.map(|size| (f64::from(size), factor * (50.0 + f64::from(size) / 40.0))).to_vec(),
        };
        let curves = vec![curve("read, one at a time", 1.0), curve("memcpy", 0.5)];
        let figure = Figure {
            file: "latency.svg",
            title: "Time of a request over its size",
            quantity: "latency",
            label: time,
            curves,
        };
        let svg = figure.svg().unwrap();
        for text in [figure.title, "read, one at a time", "memcpy", "bytes of a request", "32 KiB", "10 µs"] {
            assert!(svg.contains(text), "{text} is not in the figure");
        }
        assert!(svg.matches("<polyline").count() >= 2, "no curves");
    }

    #[test]
    fn a_figure_without_points_is_an_error() {
        let figure = Figure { file: "none.svg", title: "none", quantity: "latency", label: time, curves: Vec::new() };
        assert!(figure.svg().is_err());
    }
}
