//! What a process keeps for the program that it was started with: how it ended, what it has written, and what it was given.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::address_waits::AddressWaits;
use super::libraries::Libraries;
use super::process::ProcessState;
use super::start::ProgramSetup;
use crate::dispatcher::Event;

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// By `ExitProcess`, or with its last thread; the exit code.
    Exited(u32),
    /// It did what no process survives; what that was, and where.
    Failed(String),
    /// Its time was over; where its threads were.
    TimedOut(String),
}

pub(super) struct ProgramState {
    /// What it does wrong ends the process and not the host.
    contained: AtomicBool,
    end: Mutex<Option<ProgramEnd>>,
    pub ended: Event,
    /// Threads that have not ended.
    threads: AtomicUsize,
    output: Mutex<Vec<u8>>,
    environment_block: AtomicUsize,
    setup: OnceLock<ProgramSetup>,
    command_line: OnceLock<[usize; 2]>,
    pub libraries: Libraries,
    pub address_waits: AddressWaits,
    /// Which slots of TlsAlloc are taken.
    pub slots: Mutex<Vec<bool>>,
}

impl Default for ProgramState {
    fn default() -> Self {
        Self {
            contained: AtomicBool::new(false),
            end: Mutex::new(None),
            ended: Event::notification(),
            threads: AtomicUsize::new(0),
            output: Mutex::new(Vec::new()),
            environment_block: AtomicUsize::new(0),
            setup: OnceLock::new(),
            command_line: OnceLock::new(),
            libraries: Libraries::default(),
            address_waits: AddressWaits::default(),
            slots: Mutex::new(Vec::new()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProgramState {
    /// The process is that of a program from now on. `command_line`: the addresses of the text, in bytes and in UTF-16.
    pub fn prepare(&self, setup: ProgramSetup, environment_block: usize, command_line: [usize; 2]) {
        self.environment_block.store(environment_block, Ordering::SeqCst);
        let _ = self.command_line.set(command_line);
        let _ = self.setup.set(setup);
        self.contained.store(true, Ordering::SeqCst);
    }

    pub fn is_contained(&self) -> bool {
        self.contained.load(Ordering::SeqCst)
    }

    pub fn setup(&self) -> Option<&ProgramSetup> {
        self.setup.get()
    }

    pub fn environment_block(&self) -> usize {
        self.environment_block.load(Ordering::Relaxed)
    }

    pub fn command_line(&self) -> [usize; 2] {
        self.command_line.get().copied().unwrap_or_default()
    }

    /// Adds to the output, and shows what are whole lines now.
    pub fn write(&self, bytes: &[u8]) {
        let mut output = lock(&self.output);
        let shown = output.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        output.extend_from_slice(bytes);
        let Some(show) = self.setup().and_then(|setup| setup.show.as_ref()) else { return };
        let whole = output.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in output[shown.min(whole)..whole].split_inclusive(|byte| *byte == b'\n') {
            show(String::from_utf8_lossy(line).trim_end_matches(['\r', '\n']));
        }
    }

    pub fn output(&self) -> String {
        String::from_utf8_lossy(&lock(&self.output)).into_owned()
    }

    pub fn thread_begins(&self) {
        self.threads.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether it was the last one.
    pub fn thread_ends(&self) -> bool {
        self.threads.fetch_sub(1, Ordering::SeqCst) == 1
    }

    pub fn end(&self) -> Option<ProgramEnd> {
        lock(&self.end).clone()
    }
}

impl ProcessState {
    /// The process ends; the first end counts. Its threads leave its code at their next system call.
    pub fn ends(&self, end: ProgramEnd) {
        let mut known = lock(&self.program.end);
        if known.is_none() {
            *known = Some(end);
        }
        drop(known);
        self.die();
        self.program.ended.set();
    }

    /// As [`Self::ends`], for a program that did something wrong, with the stack of the calling thread.
    pub fn fails(&self, what: &str) {
        let mut report = what.to_owned();
        for frame in crate::image::stack_trace::of_current_thread() {
            report.extend(["\n  ".to_owned(), frame.to_string()]);
        }
        self.ends(ProgramEnd::Failed(report));
    }
}
