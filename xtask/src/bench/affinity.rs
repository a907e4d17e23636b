//! Processors for what is measured: a child inherits those of the thread that starts it.

use anyhow::Result;

/// How many processors a program is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processors {
    /// One, always the same.
    One,
    /// The two that what works on two is measured on.
    Two,
    /// All that there are.
    All,
}

/// Does something that starts programs, in a thread with these processors.
pub(super) fn on<T: Send>(processors: Processors, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            bind(processors)?;
            act()
        });
        thread.join().expect("what it does fails without a panic")
    })
}

#[cfg(target_os = "linux")]
fn bind(processors: Processors) -> Result<()> {
    use anyhow::{Context, ensure};
    use nix::{
        sched::{CpuSet, sched_getaffinity, sched_setaffinity},
        unistd::Pid,
    };
    let count = match processors {
        Processors::One => 1,
        Processors::Two => 2,
        Processors::All => return Ok(()),
    };
    let this = Pid::from_raw(0);
    let ours = sched_getaffinity(this)?;
    // The last ones: the first is where a system has its interrupts.
    let all: Vec<usize> = (0..CpuSet::count()).filter(|number| ours.is_set(*number).unwrap_or(false)).collect();
    ensure!(all.len() >= count, "this needs {count} processors, and there are {}", all.len());
    let mut chosen = CpuSet::new();
    for number in all.iter().rev().take(count) {
        chosen.set(*number)?;
    }
    sched_setaffinity(this, &chosen).context("the processors cannot be chosen")
}

/// The kernel host, and so what is measured, is for Linux.
#[cfg(not(target_os = "linux"))]
fn bind(_: Processors) -> Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::command;
    use std::process::Command;

    #[test]
    fn a_child_has_the_processors_of_the_thread_that_starts_it() {
        let count = |processors| on(processors, || command::output(&mut Command::new("nproc")));
        assert_eq!(count(Processors::One).unwrap().trim(), "1");
        let all: usize = count(Processors::All).unwrap().trim().parse().unwrap();
        match count(Processors::Two) {
            Ok(two) => assert_eq!(two.trim(), "2"),
            Err(_) => assert_eq!(all, 1),
        }
    }
}
