//! Progress bars on standard error: only on a terminal, never mixed into the report.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Whether and how progress is shown.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub shown: bool,
}

impl Progress {
    /// A bar that counts bytes.
    #[must_use]
    pub fn bytes(self, total: u64, what: &str) -> ProgressBar {
        self.bar(total, what, "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}")
    }

    /// A bar that counts operations.
    #[must_use]
    pub fn operations(self, total: u64, what: &str) -> ProgressBar {
        self.bar(total, what, "{msg} {wide_bar} {human_pos}/{human_len}")
    }

    fn bar(self, total: u64, what: &str, template: &str) -> ProgressBar {
        // indicatif draws nothing when standard error is no terminal.
        let bar = if self.shown { ProgressBar::new(total) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }
}
