//! Progress on standard error, never mixed into the report: bars on a terminal, and of a long run a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two lines of a long run where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

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

    /// Says how far a run of minutes is.
    #[must_use]
    pub fn long_run(self) -> LongRun {
        let bar = if self.shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        LongRun { bar, lines: self.shown && !io::stderr().is_terminal(), last: None }
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

/// Of [`Progress::long_run`].
#[derive(Debug)]
pub struct LongRun {
    bar: ProgressBar,
    lines: bool,
    last: Option<Instant>,
}

impl LongRun {
    /// Shows the state; elsewhere than on a terminal the first one, and no more than one in half a minute.
    pub fn say(&mut self, state: &str) {
        self.bar.set_message(state.to_owned());
        self.bar.tick();
        if self.lines && self.last.is_none_or(|last| last.elapsed() >= BETWEEN_LINES) {
            self.last = Some(Instant::now());
            // The run goes on when its progress cannot be shown.
            let _ = writeln!(io::stderr(), "{state}");
        }
    }
}

impl Drop for LongRun {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
