//! The thread that waits for sockets of Linux, as a network card does for packets: what has come is brought to the lanes by DPCs.

use std::io::PipeWriter;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use super::network::{Happenings, MachineAddress};
use super::{delivery, socket};
use crate::thread::{self, Thread};
use crate::{dispatcher, kernel, schedule};

/// Names the end of the pipe: no socket has it.
const STOP: u64 = 0;

/// How many milliseconds without a happening end a stall.
const STALL: i32 = 2;

struct Poller {
    handle: std::thread::JoinHandle<()>,
    /// Its end stops the thread.
    running: PipeWriter,
}

static POLLER: Mutex<Option<Poller>> = Mutex::new(None);

/// Begins to reach the addresses of other hosts, if there are any.
///
/// # Panics
///
/// When verifying: virtual time would jump while bytes are on their way through Linux.
pub(crate) fn start(machines: &[MachineAddress]) {
    if machines.is_empty() {
        return;
    }
    let in_real_time = !kernel::is_verifying() && !schedule::is_on();
    assert!(in_real_time, "a table of machines needs Mode::Fast and no schedule: virtual time passes Linux by");
    assert!(
        machines.iter().all(|machine| Ipv4Addr::is_loopback(&machine.stand_in)),
        "the stand-ins of machines are addresses of 127.0.0.0/8"
    );
    let poller = begin(machines).unwrap_or_else(|error| panic!("cannot wait for sockets of Linux: {error}"));
    *POLLER.lock().unwrap_or_else(PoisonError::into_inner) = Some(poller);
}

fn begin(machines: &[MachineAddress]) -> std::io::Result<Poller> {
    let happenings = Arc::new(Happenings::new()?);
    let (end, running) = std::io::pipe()?;
    happenings.add_source(&end, STOP)?;
    socket::stack().network.open(machines, Arc::clone(&happenings));
    dispatcher::thread_starting();
    let handle = std::thread::Builder::new().name("sockets".to_owned()).stack_size(1 << 20).spawn(move || {
        let attachment = thread::attach("sockets");
        // It does not count: it runs only when there is something to bring.
        dispatcher::processor_thread_started(Thread::current());
        poll(&happenings);
        drop(end);
        dispatcher::thread_starting();
        drop(attachment);
    })?;
    Ok(Poller { handle, running })
}

fn poll(happenings: &Happenings) {
    let mut has_stalled = false;
    loop {
        let numbers = happenings.wait_for(if has_stalled { STALL } else { -1 });
        if numbers.contains(&STOP) {
            return;
        }
        let mut stack = socket::stack();
        if numbers.is_empty() {
            stack.network.go_on();
        }
        for number in numbers {
            stack.network.happened(number);
        }
        has_stalled = stack.network.has_stalled();
        let lanes = stack.woken();
        drop(stack);
        delivery::interrupt(lanes);
    }
}

/// Ends the thread. What is still connected breaks.
pub(crate) fn stop() {
    let Some(Poller { handle, running }) = POLLER.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return;
    };
    drop(running);
    // A panic of it has been printed.
    let _ = handle.join();
    socket::stack().network.shut();
}
