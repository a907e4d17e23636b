//! `cargo xtask pictures`: the README's pictures, made anew from what the project's commands say.
//!
//! `hang.svg` is from the report of a run of `tests/own-drivers/wrong-close-order.c`, which forgets a close: its head and its list of open
//! objects. `rate.svg` is what `ndkctl perf --sweep --svg` draws of Reads on this machine, beside memcpy; it wants a quiet one.

use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    tools,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use std::{fmt::Write as _, fs, process::Command};

/// The consumer whose report is shown.
const CONSUMER: &str = "tests/own-drivers/wrong-close-order.c";
/// Where the parts of the report begin that are shown, and how many lines each has.
const PARTS: [(&str, usize); 2] = [("*** STOP:", 5), ("***   open NDK objects", 10)];
/// How long a line is at most.
const COLUMNS: usize = 112;
/// A line that has one of these stands out.
const MARKED: [&str; 2] = ["waits for the close of", "made by NdkCreateQp"];

/// What `rate.svg` shows.
const SWEEP: &str = "--quiet perf --mode measure --operation read --sweep --svg";

/// Draw the README's pictures anew: a hang report, and the rate of Reads over their size
#[derive(clap::Args)]
pub struct PicturesArguments {}

pub fn run(_: &PicturesArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    draw_hang(&workspace)?;
    draw_rate(&workspace)
}

fn draw_rate(workspace: &Workspace) -> Result<()> {
    let image = driver::build(workspace, Arch::X64, Profile::Release)?;
    let file = workspace.path("docs/pictures/rate.svg");
    let mut perf = Command::new(tools::build(workspace)?);
    perf.current_dir(workspace.root()).arg("--image").arg(image).args(SWEEP.split(' ')).arg(&file);
    command::run(&mut perf).context("the rate of Reads cannot be measured")?;
    println!("{}", file.display());
    Ok(())
}

fn draw_hang(workspace: &Workspace) -> Result<()> {
    let words = ["xtask", "own-driver", CONSUMER, "--keyword", "CompletionMode=0", "--keyword", "LimitsProfile=0"];
    let mut cargo = Command::new("cargo");
    let ended = cargo.args(words).current_dir(workspace.root()).output().context("cargo cannot be started")?;
    let report = String::from_utf8_lossy(&ended.stderr).into_owned();
    let lines = shown(&report);
    if lines.is_empty() {
        bail!("{CONSUMER} ended ({}) without the report of a hang:\n{report}", ended.status);
    }
    let file = workspace.path("docs/pictures/hang.svg");
    fs::write(&file, terminal(&lines)).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{}", file.display());
    Ok(())
}

/// The lines of the report in a text that are shown; none if a part is not there.
fn shown(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    for (begin, count) in PARTS {
        let part: Vec<_> = text.lines().skip_while(|line| !line.starts_with(begin)).take(count).collect();
        if part.is_empty() {
            return part;
        }
        if !lines.is_empty() {
            lines.push("***   …");
        }
        lines.extend(part);
    }
    lines
}

/// Lines of text as a terminal shows them.
fn terminal(lines: &[&str]) -> String {
    const ADVANCE: usize = 8;
    const HEIGHT: usize = 19;
    const MARGIN: usize = 14;
    let (width, height) = (COLUMNS * ADVANCE + 2 * MARGIN, lines.len() * HEIGHT + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#1b1f24\"/>\n\
         <g font-family=\"ui-monospace, Consolas, Menlo, monospace\" font-size=\"13\" xml:space=\"preserve\">\n"
    );
    for (number, line) in (1..).zip(lines) {
        let colour = if MARKED.iter().any(|mark| line.contains(mark)) { "#ffcf66" } else { "#c9d1d9" };
        let text = escaped(&cut(line));
        let y = MARGIN + number * HEIGHT - 5;
        let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{colour}\">{text}</text>");
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// A line that fits.
fn cut(line: &str) -> String {
    if line.chars().count() <= COLUMNS {
        line.to_owned()
    } else {
        line.chars().take(COLUMNS - 1).chain(['…']).collect()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, shown, terminal};

    #[test]
    fn a_picture_has_parts_of_the_report() {
        let head = "*** STOP: 0x1 A&B\n*** the close of X waits for the close of Y\n3\n4\n5\nnot shown\n";
        let report = format!("loaded\n{head}***   open NDK objects (1):\n{}\n", "<".repeat(COLUMNS + 5));
        let lines = shown(&report);
        assert_eq!(lines.len(), 8);
        let svg = terminal(&lines);
        assert!(svg.contains("A&amp;B") && svg.contains("fill=\"#ffcf66\">*** the close of X"), "{svg}");
        assert!(svg.contains(&format!("{}…<", "&lt;".repeat(COLUMNS - 1))), "{svg}");
        assert!(!svg.contains("loaded") && !svg.contains("not shown"));
        assert!(shown(head).is_empty());
    }
}
