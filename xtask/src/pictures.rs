//! `cargo xtask pictures`: the README's pictures, made anew from what the project's commands say.
//!
//! `hang.svg` is the beginning of the report of a run of `tests/own-drivers/wrong-close-order.c`, which forgets a close. The figures of speed are
//! those of `cargo xtask bench --svg`, which wants a quiet machine, and are not made here.

use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::{fmt::Write as _, fs, process::Command};

/// The consumer whose report is shown.
const CONSUMER: &str = "tests/own-drivers/wrong-close-order.c";
/// Lines of the report that are shown, and how long one is at most.
const LINES: usize = 14;
const COLUMNS: usize = 112;
/// A line that has one of these stands out.
const MARKED: [&str; 2] = ["waits for the close of", "look here first"];

/// Draw the README's picture of a hang report anew
#[derive(clap::Args)]
pub struct PicturesArguments {}

pub fn run(_: &PicturesArguments) -> Result<()> {
    let workspace = Workspace::find()?;
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

/// The first lines of the report in a text.
fn shown(text: &str) -> Vec<&str> {
    text.lines().skip_while(|line| !line.starts_with("*** STOP:")).take(LINES).collect()
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
    use super::{COLUMNS, LINES, shown, terminal};

    #[test]
    fn a_picture_has_the_lines_of_the_report() {
        let report = format!(
            "loaded\n*** STOP: 0x1 A&B\n*** the close of X waits for the close of Y\n{}\n",
            "<".repeat(COLUMNS + 5)
        );
        let lines = shown(&report);
        assert_eq!(lines.len(), 3);
        let svg = terminal(&lines);
        assert!(svg.contains("A&amp;B") && svg.contains("fill=\"#ffcf66\">*** the close of X"), "{svg}");
        assert!(svg.contains(&format!("{}…<", "&lt;".repeat(COLUMNS - 1))), "{svg}");
        assert!(!svg.contains("loaded"));
        assert!(shown("nothing").is_empty() && LINES > 3);
    }
}
