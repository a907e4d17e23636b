//! What a terminal shows while something runs. Hidden where standard error is no terminal.

use anyhow::Result;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::time::Duration;

pub(crate) fn spinner(message: String) -> Result<ProgressBar> {
    styled(ProgressBar::new_spinner().with_message(message))
}

/// One of several that are shown at once.
pub(crate) fn spinner_of(all: &MultiProgress, message: String) -> Result<ProgressBar> {
    styled(all.add(ProgressBar::new_spinner().with_message(message)))
}

fn styled(spinner: ProgressBar) -> Result<ProgressBar> {
    spinner.set_style(ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}")?);
    spinner.enable_steady_tick(Duration::from_millis(120));
    Ok(spinner)
}
