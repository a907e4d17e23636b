//! A script, and the child process with the machine that it is connected to.
//!
//! The script runs in the test; it asks the child's consumer for what it is to do by lines, and says the rest on the wire. Nothing
//! waits for time: what comes next is a line or bytes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;

use super::connection::PeerConnection;
use crate::outcome::Outcome;
use crate::trial;
use crate::two_machines::{SAYS, stand_ins, start_machine};

/// What a script has.
pub struct Stage<'a> {
    input: ChildStdin,
    lines: Receiver<String>,
    has_ended: &'a AtomicBool,
    stand_ins: [Ipv4Addr; 2],
}

/// Where the machine of the child connects to.
pub struct PeerListener<'a> {
    socket: TcpListener,
    has_ended: &'a AtomicBool,
}

impl PeerListener<'_> {
    pub fn port(&self) -> u16 {
        self.socket.local_addr().expect("a bound socket").port()
    }

    /// The next connection.
    pub fn accept(&self) -> PeerConnection {
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(false).expect("a socket");
                    return PeerConnection::new(socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(!self.has_ended.load(Ordering::Acquire), "the child has ended and not connected");
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("no connection: {error}"),
            }
        }
    }
}

impl<'a> Stage<'a> {
    /// Has the consumer do something that is done at once or begins at once.
    pub fn order(&mut self, words: &str) {
        writeln!(self.input, "{words}").expect("the child reads");
    }

    /// The consumer's next line.
    pub fn answer(&self) -> String {
        self.lines.recv().expect("the child has ended without an answer")
    }

    /// An order and its answer.
    pub fn ask(&mut self, words: &str) -> String {
        self.order(words);
        self.answer()
    }

    /// An order that answers this.
    #[track_caller]
    pub fn expect(&mut self, words: &str, answer: &str) {
        let got = self.ask(words);
        assert_eq!(got, answer, "{words}");
    }

    /// Listens at the address of the second machine.
    pub fn listen(&self) -> PeerListener<'a> {
        let socket = TcpListener::bind((self.stand_ins[1], 0)).expect("the address is free");
        socket.set_nonblocking(true).expect("a socket");
        PeerListener { socket, has_ended: self.has_ended }
    }

    /// Connects from the address of the second machine to a port of the first.
    pub fn connect(&self, port: u16) -> PeerConnection {
        let [first, second] = self.stand_ins;
        PeerConnection::connect(SocketAddrV4::new(second, 0), SocketAddrV4::new(first, port))
    }
}

/// Passes the child's lines on; returns its other output.
fn sort_lines(output: impl Read, lines: &Sender<String>) -> String {
    let mut text = String::new();
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        match line.strip_prefix(SAYS) {
            // The script may be over.
            Some(line) => drop(lines.send(line.to_owned())),
            None => text.extend([line.as_str(), "\n"]),
        }
    }
    text
}

/// Starts this binary as a child with the first machine, plays a script to it, and has it end: it must be clean then.
pub fn play(role: &str, keywords: &str, script: impl FnOnce(&mut Stage<'_>)) -> Result<(), Failed> {
    let stand_ins = stand_ins();
    let mut child = start_machine("1", role, &stand_ins, keywords)?;
    let errors = trial::collect(child.stderr.take());
    let (Some(output), Some(input)) = (child.stdout.take(), child.stdin.take()) else {
        return Err("the child has no pipes".into());
    };
    let (sender, lines) = channel();
    let (has_ended, is_given_up) = (AtomicBool::new(false), AtomicBool::new(false));
    let addresses = stand_ins.split(',').map(|address| address.parse().expect("an address of IPv4"));
    let stand_ins: [Ipv4Addr; 2] = addresses.collect::<Vec<_>>().try_into().expect("two addresses");
    thread::scope(|scope| {
        let sorting = scope.spawn(move || sort_lines(output, &sender));
        let waiting = scope.spawn(|| wait(&mut child, &has_ended, &is_given_up));
        let mut stage = Stage { input, lines, has_ended: &has_ended, stand_ins };
        let played = catch_unwind(AssertUnwindSafe(|| script(&mut stage)));
        is_given_up.store(played.is_err(), Ordering::Release);
        // The end of its input is the end of what the child has to do.
        drop(stage);
        let status = waiting.join().unwrap_or(None);
        let text = sorting.join().unwrap_or_default() + &errors.join().unwrap_or_default();
        match (played, status) {
            (Err(panic), _) => Err(format!("the script failed: {}; the child:\n{text}", words_of(&*panic)).into()),
            (Ok(()), Some(status)) => Outcome::new(status, text).expect_success(),
            (Ok(()), None) => Err(format!("the child does not end; its output:\n{text}").into()),
        }
    })
}

fn wait(child: &mut Child, has_ended: &AtomicBool, is_given_up: &AtomicBool) -> Option<std::process::ExitStatus> {
    let status = trial::wait_or_kill(child, || is_given_up.load(Ordering::Acquire)).unwrap_or(None);
    has_ended.store(true, Ordering::Release);
    status
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}
