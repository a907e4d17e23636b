//! An event of the kernel host that trials wait for, with a limit in the host's time: when nothing can happen any more,
//! virtual time jumps there at once.

use std::time::Duration;

use kernel_host::dispatcher::Event;

const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Signal(Event);

impl Signal {
    pub fn new() -> Self {
        Self(Event::notification())
    }

    pub fn set(&self) {
        self.0.set();
    }

    pub fn clear(&self) {
        self.0.reset();
    }

    /// Waits; false when the limit has passed.
    pub fn wait(&self) -> bool {
        self.0.wait(Some(LIMIT))
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}
