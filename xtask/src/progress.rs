//! What a terminal shows while something runs. Hidden where standard error is no terminal.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

pub(crate) fn spinner(message: String) -> Result<ProgressBar> {
    let spinner = ProgressBar::new_spinner().with_message(message);
    spinner.set_style(ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}")?);
    spinner.enable_steady_tick(Duration::from_millis(120));
    Ok(spinner)
}
