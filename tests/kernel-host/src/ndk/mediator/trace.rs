//! `--trace ndk`: a line for each call of a dispatch table and each callback, with object, arguments, level, status and caller.
//!
//! The text of a line is put together before the call is made, because the consumer's lists and addresses may be gone when it returns; names of functions are looked up, and the line is written, by a
//! thread of its own, because reading symbols would take longer than a DPC may run.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use ndkpi_sys::ndkpi::NDK_SGE;

use super::object;
use crate::callout;
use crate::dispatcher::{self, UNITS_PER_SECOND};
use crate::image::{self, stack_trace};
use crate::irql;
use crate::thread::Thread;

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Begins to trace.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let started = std::thread::Builder::new().name("trace".to_owned()).spawn(write_lines);
        assert!(started.is_ok(), "cannot start the thread that writes the trace");
    });
    ON.store(true, Ordering::Relaxed);
}

pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The number of a new call, by which its completion names it.
pub(super) fn next_call() -> u64 {
    if is_on() { CALLS.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 }
}

enum TracePart {
    Text(String),
    /// An address of code, written as the function's name.
    Code(u64),
}

/// One line as it is put together.
pub(super) struct TraceLine(Vec<TracePart>);

impl TraceLine {
    /// Time, thread, processor and level.
    pub(super) fn begin() -> Self {
        let now = dispatcher::now();
        let (seconds, micros) = (now / UNITS_PER_SECOND, now % UNITS_PER_SECOND / 10);
        let thread = Thread::current();
        let level = irql::name(thread.irql()).trim_end_matches("_LEVEL");
        Self(vec![TracePart::Text(format!(
            "ndk {seconds:4}.{micros:06} thread {} cpu {} {level:<8} ",
            thread.identifier(),
            thread.processor()
        ))])
    }

    pub(super) fn text(mut self, text: impl Into<String>) -> Self {
        self.0.push(TracePart::Text(text.into()));
        self
    }

    pub(super) fn code(mut self, address: u64) -> Self {
        self.0.push(TracePart::Code(address));
        self
    }

    /// The arguments of a call without the object itself.
    pub(super) fn arguments(mut self, names: &[&str], values: &[u64]) -> Self {
        self = self.text("(");
        for (index, (name, value)) in names.iter().zip(values).enumerate().skip(1) {
            self = self.text(format!("{}{name}=", if index == 1 { "" } else { ", " }));
            self = self.argument(name, *value, values.get(index + 1).copied().unwrap_or(0));
        }
        self.text(")")
    }

    fn argument(self, name: &str, value: u64, next: u64) -> Self {
        if value == 0 {
            return self.text(if is_pointer(name) { "NULL" } else { "0" });
        }
        match name {
            "pSgl" => self.text(sges(value, next)),
            "pSrcAddress" | "pDestAddress" | "pAddress" => self.text(socket_address(value, next)),
            _ if name.ends_with("Completion") || name.ends_with("Event") || name.ends_with("Notification") => {
                self.code(value + 1)
            }
            _ => self.text(object::name_at(value as usize).unwrap_or_else(|| number(name, value))),
        }
    }

    /// The caller, which the running export or callback returns to.
    pub(super) fn end(self) {
        let caller = callout::caller_address(Thread::current());
        let line = if caller == 0 { self } else { self.text("  by ").code(caller) };
        let mut queue = queue();
        queue.lines.push_back(line);
        WORK.notify_one();
    }
}

fn is_pointer(name: &str) -> bool {
    let subject = name.trim_start_matches('p');
    (subject.len() < name.len() && subject.starts_with(|letter: char| letter.is_ascii_uppercase()))
        || ["Completion", "Event", "Notification", "Context", "Affinity", "Mdl"].iter().any(|end| name.ends_with(end))
}

fn number(name: &str, value: u64) -> String {
    // The upper half of a register or stack slot that holds a ULONG means nothing; of a BOOLEAN all but a byte.
    let value = match name {
        "FastRegister" | "RemoteAccess" | "Pause" => value & 0xFF,
        "Length" | "RemoteAddress" => value,
        _ if is_pointer(name) || name.ends_with("ID") => value,
        _ => value & 0xFFFF_FFFF,
    };
    if value < 0x1_0000 && !is_pointer(name) && !name.contains("Token") && name != "Flags" {
        value.to_string()
    } else {
        format!("{value:#x}")
    }
}

/// The first SGEs of a scatter/gather list.
fn sges(list: u64, count: u64) -> String {
    let mut text = "[".to_owned();
    for index in 0..(count as u32).min(2) as usize {
        // SAFETY: the consumer's list of so many SGEs.
        let sge = unsafe { (list as *const NDK_SGE).add(index).read_unaligned() };
        // SAFETY: the union's members have the same size.
        let address = unsafe { sge.Address.VirtualAddress } as u64;
        let _ = write!(
            text,
            "{}{address:#x}+{} token {:#x}",
            if index == 0 { "" } else { ", " },
            sge.Length,
            sge.MemoryRegionToken
        );
    }
    text.push_str(if count as u32 > 2 { ", …]" } else { "]" });
    text
}

fn socket_address(address: u64, length: u64) -> String {
    let bytes = |offset: usize, count: usize| {
        // SAFETY: inside the consumer's address, whose length the caller has compared.
        unsafe { std::slice::from_raw_parts((address as usize + offset) as *const u8, count) }
    };
    // An out parameter's length is a pointer; what it will hold is not known yet.
    let length = if u64::from(length as u32) < 0x1000 { length as u32 as usize } else { 0 };
    if length < 16 {
        return format!("{address:#x}");
    }
    let port = u16::from_be_bytes([bytes(2, 2)[0], bytes(2, 2)[1]]);
    match u16::from_le_bytes([bytes(0, 2)[0], bytes(0, 2)[1]]) {
        2 => {
            let octets: [u8; 4] = std::array::from_fn(|index| bytes(4, 4)[index]);
            SocketAddr::new(IpAddr::V4(Ipv4Addr::from(octets)), port).to_string()
        }
        23 if length >= 28 => {
            let octets: [u8; 16] = std::array::from_fn(|index| bytes(8, 16)[index]);
            SocketAddr::new(IpAddr::V6(Ipv6Addr::from(octets)), port).to_string()
        }
        family => format!("{address:#x} (family {family})"),
    }
}

#[derive(Default)]
struct TraceQueue {
    lines: VecDeque<TraceLine>,
    /// The writer is writing lines.
    writing: bool,
}

static QUEUE: Mutex<Option<TraceQueue>> = Mutex::new(None);
static WORK: Condvar = Condvar::new();
static DONE: Condvar = Condvar::new();

struct LockedTraceQueue(MutexGuard<'static, Option<TraceQueue>>);

impl std::ops::Deref for LockedTraceQueue {
    type Target = TraceQueue;

    fn deref(&self) -> &TraceQueue {
        match &*self.0 {
            Some(queue) => queue,
            None => unreachable!("made when it was locked"),
        }
    }
}

impl std::ops::DerefMut for LockedTraceQueue {
    fn deref_mut(&mut self) -> &mut TraceQueue {
        self.0.get_or_insert_default()
    }
}

fn queue() -> LockedTraceQueue {
    let mut guard = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_default();
    LockedTraceQueue(guard)
}

/// Waits until everything that was traced is written; a report comes after it.
pub(crate) fn flush() {
    const LONGEST: Duration = Duration::from_secs(30);
    if !is_on() {
        return;
    }
    let began = Instant::now();
    let mut queue = queue();
    while (queue.writing || !queue.lines.is_empty()) && began.elapsed() < LONGEST {
        let short = Duration::from_millis(100);
        queue = LockedTraceQueue(DONE.wait_timeout(queue.0, short).unwrap_or_else(PoisonError::into_inner).0);
    }
}

fn write_lines() {
    let mut names = HashMap::new();
    let mut queue = queue();
    loop {
        let lines = std::mem::take(&mut queue.lines);
        queue.writing = !lines.is_empty();
        if lines.is_empty() {
            DONE.notify_all();
            queue = LockedTraceQueue(WORK.wait(queue.0).unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        drop(queue);
        write(&lines, &mut names);
        queue = self::queue();
    }
}

fn write(lines: &VecDeque<TraceLine>, names: &mut HashMap<u64, String>) {
    let mut new: Vec<u64> = Vec::new();
    for part in lines.iter().flat_map(|line| &line.0) {
        if let TracePart::Code(address) = part
            && !names.contains_key(address)
            && !new.contains(address)
        {
            new.push(*address);
        }
    }
    // Symbols of an image are read once for all of its addresses.
    for frame in stack_trace::name(&new) {
        let name = if image::containing(frame.address as usize).is_some() {
            frame.to_string()
        } else {
            format!("{:#x}", frame.address - 1)
        };
        names.entry(frame.address).or_insert(name);
    }
    let mut text = String::new();
    for line in lines {
        for part in &line.0 {
            text.push_str(match part {
                TracePart::Text(text) => text,
                TracePart::Code(address) => names.get(address).map_or("unknown", String::as_str),
            });
        }
        text.push('\n');
    }
    eprint!("{text}");
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn pointers_are_written_whole_and_what_is_above_a_number_is_left_out() {
        for name in ["pNdkQp", "ppNdkPd", "RequestContext"] {
            assert_eq!(number(name, 0x6BF7_B989_13E0), "0x6bf7b98913e0", "{name}");
        }
        assert_eq!(number("nSge", 0xFFFF_0000_0000_0002), "2");
    }
}
