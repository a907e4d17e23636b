//! The client of a pull: it reads a window while the server fills the other one, and writes what it has read.

use super::mailbox::{Mailbox, not_understood};
use super::message::{Broken, HASH, Message};
use crate::copy::UNWRITTEN;
use crate::failure::{Failure, Kind};
use crate::nd::connection::{self, Route};
use crate::nd::end::{End, EndWay, posted};
use crate::nd::proposal::{Proposal, RemoteMemory};
use crate::nd::stop::{Cut, Stop};
use crate::nd::system::System;
use indicatif::ProgressBar;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes written at a time.
const CHUNK: usize = 1 << 18;

/// What a client has pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled {
    pub bytes: u64,
    pub reads: u64,
    pub windows: u64,
    /// From the connection to the last byte in the file.
    pub elapsed: Duration,
    /// What the server says that the file has.
    pub sha256: [u8; HASH],
}

/// Where the bytes go, and who sees how far they are.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub file: &'a File,
    pub path: &'a Path,
    pub bar: &'a ProgressBar,
}

/// Connects, and pulls the server's file into this one.
pub fn pull(
    system: &System<'_>,
    route: Route,
    proposal: &Proposal,
    way: EndWay<'_>,
    target: Target<'_>,
) -> Result<Pulled, Cut> {
    let mailbox = Cell::new(None);
    let prepare = |end: &End<'_>| {
        mailbox.set(Some(Mailbox::open(end, proposal)?));
        Ok(())
    };
    connection::connect(system, route, (&proposal.encode(), proposal.shape()), way, prepare, |end, answer| {
        let memory = RemoteMemory::decode(answer);
        let mailbox = mailbox.take().ok_or(Cut::Stopped)?;
        Pull::new(end, mailbox, proposal, memory, target).run(way.stop)
    })
}

/// A window whose bytes are being read.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Where it is, at both ends.
    start: usize,
    length: u32,
    /// Bytes whose Reads are posted.
    posted: u32,
    /// Reads that are posted and have not ended.
    under_way: u64,
}

impl Window {
    const fn is_read(&self) -> bool {
        self.posted == self.length && self.under_way == 0
    }
}

/// A pull on its way.
struct Pull<'a, 's> {
    end: &'a mut End<'s>,
    mailbox: Mailbox,
    proposal: &'a Proposal,
    memory: RemoteMemory,
    target: Target<'a>,
    /// Lengths of the windows that the server has filled and that are not begun.
    filled: VecDeque<u32>,
    window: Option<Window>,
    /// Windows that were begun.
    windows: u64,
    reads: u64,
    /// Bytes in the file.
    written: u64,
    /// What the server has said at the end.
    end_of_file: Option<(u64, [u8; HASH])>,
    chunk: Vec<u8>,
}

impl<'a, 's> Pull<'a, 's> {
    fn new(
        end: &'a mut End<'s>,
        mailbox: Mailbox,
        proposal: &'a Proposal,
        memory: RemoteMemory,
        target: Target<'a>,
    ) -> Self {
        Self {
            end,
            mailbox,
            proposal,
            memory,
            target,
            filled: VecDeque::new(),
            window: None,
            windows: 0,
            reads: 0,
            written: 0,
            end_of_file: None,
            chunk: vec![0; CHUNK],
        }
    }

    fn run(mut self, stop: &Stop) -> Result<Pulled, Cut> {
        let begun = Instant::now();
        // Both windows are free.
        self.mailbox.send(self.end, Message::Request)?;
        self.mailbox.send(self.end, Message::Request)?;
        loop {
            self.read_on()?;
            if let (None, Some((total, sha256))) = (self.window, self.end_of_file) {
                let bytes = self.all_of(total)?;
                let elapsed = begun.elapsed();
                self.mailbox.send(self.end, Message::Done)?;
                self.mailbox.finish(self.end, stop)?;
                return Ok(Pulled { bytes, reads: self.reads, windows: self.windows, elapsed, sha256 });
            }
            self.mailbox.wait(self.end, stop)?;
            self.take_messages()?;
            self.take_reads()?;
        }
    }

    /// Begins the next window when there is none, and keeps the queue full of its Reads.
    fn read_on(&mut self) -> Result<(), Cut> {
        if self.window.is_none() {
            self.window = self.filled.pop_front().map(|length| self.begin(length));
        }
        let Some(window) = &mut self.window else { return Ok(()) };
        while window.posted < window.length && window.under_way < u64::from(self.proposal.depth) {
            let length = self.proposal.size.min(window.length - window.posted);
            let place = window.start + window.posted as usize;
            let remote = self.memory.address.wrapping_add(place as u64);
            posted("Read", self.end.pair.read(self.end.region.sge(place, length), remote, self.memory.token))?;
            window.posted += length;
            window.under_way += 1;
            self.reads += 1;
        }
        Ok(())
    }

    fn begin(&mut self, length: u32) -> Window {
        let start = (self.windows % 2) as usize * self.proposal.window() as usize;
        self.windows += 1;
        // Bytes that no Read wrote show in the hash.
        self.end.region.pages().set(start, length as usize, UNWRITTEN);
        Window { start, length, posted: 0, under_way: 0 }
    }

    fn take_messages(&mut self) -> Result<(), Cut> {
        while let Some(message) = self.mailbox.next() {
            match message {
                Message::Filled { length, total } if (1..=self.proposal.window()).contains(&length) => {
                    self.target.bar.set_length(total);
                    self.filled.push_back(length);
                }
                Message::End { total, sha256 } => self.end_of_file = Some((total, sha256)),
                Message::Broken(broken) => return Err(broken_at_the_server(broken).into()),
                Message::Filled { .. } | Message::Request | Message::Done => return Err(not_understood().into()),
            }
        }
        Ok(())
    }

    /// When the window is read the server may fill it again; the next one is read while this one is written.
    fn take_reads(&mut self) -> Result<(), Cut> {
        let ended = self.mailbox.take_reads_ended();
        let Some(window) = &mut self.window else { return Ok(()) };
        window.under_way = window.under_way.saturating_sub(ended);
        if !window.is_read() {
            return Ok(());
        }
        let read = *window;
        self.window = None;
        self.mailbox.send(self.end, Message::Request)?;
        self.read_on()?;
        Ok(self.write(read)?)
    }

    fn write(&mut self, window: Window) -> Result<(), Failure> {
        let mut file = self.target.file;
        let end = window.start + window.length as usize;
        for start in (window.start..end).step_by(CHUNK) {
            let part = &mut self.chunk[..CHUNK.min(end - start)];
            self.end.region.pages().read(start, part);
            file.write_all(part).map_err(|error| Failure::file("write", self.target.path, &error))?;
        }
        self.written += u64::from(window.length);
        self.target.bar.set_position(self.written);
        Ok(())
    }

    /// The bytes of the file, when they are as many as the server says.
    fn all_of(&self, total: u64) -> Result<u64, Cut> {
        if self.written == total && self.filled.is_empty() {
            return Ok(total);
        }
        let cause = format!("the file has {total} bytes, {} came", self.written);
        let next = "this is a fault of the provider; please report it";
        Err(Failure::new(Kind::Corrupt, "cannot trust the pull", cause, next).into())
    }
}

fn broken_at_the_server(broken: Broken) -> Failure {
    let cause = match broken {
        Broken::Shorter => "it has become shorter since the client came",
        Broken::Longer => "it has become longer since the client came",
        Broken::Unreadable => "the server cannot read it",
    };
    let next = "look at the server's message, and pull the file when no program writes it";
    Failure::new(Kind::File, "cannot pull the server's file to its end", cause, next)
}
