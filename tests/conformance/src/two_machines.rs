//! Two machines in two processes that reach each other by TCP of Linux: what a trial needs in the parent and in the children.
//!
//! The parent passes lines from the output of each child to the input of the other. A child may ask to be killed
//! instead. Both hosts run in fast mode; nothing here depends on how long something takes.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use kernel_host::inf::InterfaceAddress;
use kernel_host::netio::card;
use kernel_host::wsk::MachineAddress;
use kernel_host::{HaltAction, KernelConfig, Mode, dispatcher};
use libtest_mimic::Failed;

use crate::machine::{AdapterSetup, Setup};
use crate::outcome::Outcome;
use crate::trial;

/// The addresses of Linux at which the two machines are reached, for their children.
const STAND_INS: &str = "SOFTNDK_STAND_INS";

/// The number of the child's machine, for a role that both have.
const NUMBER: &str = "SOFTNDK_MACHINE";

/// Keywords of a child's adapter beside `Transport`: `NAME=VALUE`, with commas between them.
const KEYWORDS: &str = "SOFTNDK_MACHINE_KEYWORDS";

/// The prefix of a line for the other machine.
pub(crate) const SAYS: &str = "@ ";
/// The line with which a child asks to be killed.
const KILL: &str = "@kill";

/// The address of the only adapter of a machine, 1 or 2.
pub fn address_of(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 77, 0, number).into()
}

/// What a machine, 1 or 2, boots: fast, and one adapter whose peers are reached by memory or, if they are not here, by streams.
pub fn setup(number: u8) -> Setup {
    let stand_ins = env::var(STAND_INS).expect("the parent has named the stand-ins");
    let machines = (1..).zip(stand_ins.split(',')).map(|(number, stand_in)| MachineAddress {
        address: address_of(number),
        stand_in: stand_in.parse().expect("an address of IPv4"),
    });
    let kernel =
        KernelConfig { mode: Mode::Fast, schedule: None, machines: machines.collect(), ..Setup::default().kernel };
    let mut keywords = vec![("Transport", "1")];
    // As long as the process, whose only machine it is.
    let given = env::var(KEYWORDS).unwrap_or_default().leak();
    keywords.extend(given.split(',').filter_map(|keyword| keyword.split_once('=')));
    let adapter = AdapterSetup { addresses: vec![address_of(number)], keywords };
    Setup { kernel, adapters: vec![adapter] }
}

/// The address of a machine's real network card.
fn card_of(number: u8) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, number).into()
}

/// As [`setup`], where the adapters reach each other by their uplinks: what Linux carries are datagrams between the real cards.
pub fn setup_with_uplink(number: u8) -> Setup {
    let mut setup = setup(number);
    for (number, machine) in (1..).zip(&mut setup.kernel.machines) {
        machine.address = card_of(number);
    }
    // As long as the process, whose only machine it is.
    let peer: &'static str = card_of(3 - number).to_string().leak();
    setup.adapters[0].keywords.extend([("WireNumber", "9"), ("UplinkPeers", peer)]);
    setup
}

/// Gives the machine its real card and starts the adapter anew, so that the socket of its uplink is bound to what there is.
pub fn open_uplink(number: u8, adapter: &kernel_host::Adapter) {
    assert!(card::add_address(InterfaceAddress { address: card_of(number), prefix_length: 24 }), "a card");
    adapter.halt(HaltAction::DeviceDisabled).expect("a halt");
    adapter.start().unwrap_or_else(|error| panic!("starting again: {error}"));
}

/// Whether this child is the first machine or the second.
pub fn own_number() -> u8 {
    env::var(NUMBER).ok().and_then(|number| number.parse().ok()).expect("the parent has numbered its children")
}

/// Says a line to the other machine.
pub fn send_line(line: &str) {
    println!("{SAYS}{line}");
}

/// Waits for the next line of the other machine.
pub fn receive_line() -> String {
    next_line().expect("the other machine has not ended")
}

/// The next line, or nothing when there will be none.
pub fn next_line() -> Option<String> {
    let mut line = String::new();
    let count = dispatcher::while_blocked(|| io::stdin().read_line(&mut line)).expect("a line");
    (count != 0).then(|| line.trim_end().to_owned())
}

/// Has the process killed.
pub fn be_killed() -> ! {
    println!("{KILL}");
    dispatcher::while_blocked(|| {
        loop {
            thread::park();
        }
    })
}

/// Addresses that no other pair of machines has: by the number of the process, and of the pair within it.
pub(crate) fn stand_ins() -> String {
    static PAIRS: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let first = 1 + 2 * PAIRS.fetch_add(1, Ordering::Relaxed);
    format!("127.{high}.{low}.{first},127.{high}.{low}.{}", first + 1)
}

/// What the parent has of a child beside its process.
struct MachineSide {
    /// Its input.
    ears: Mutex<Option<ChildStdin>>,
    is_to_be_killed: AtomicBool,
}

impl MachineSide {
    fn of(child: &mut Child) -> Self {
        Self { ears: Mutex::new(child.stdin.take()), is_to_be_killed: AtomicBool::new(false) }
    }

    fn ears(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the child's lines on until its output ends; returns its other output.
    fn serve(&self, output: impl Read, other: &Self) -> String {
        let mut text = String::new();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(said) = line.strip_prefix(SAYS) {
                // The other child may have ended.
                let _ = other.ears().as_mut().map(|ears| writeln!(ears, "{said}"));
            } else if line == KILL {
                self.is_to_be_killed.store(true, Ordering::Release);
            } else {
                text.push_str(&line);
                text.push('\n');
            }
        }
        drop(other.ears().take());
        text
    }

    fn wait(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        trial::wait_or_kill(child, || self.is_to_be_killed.load(Ordering::Acquire))
    }
}

/// Starts this binary as the child of a role.
pub(crate) fn start_machine(number: &str, role: &str, stand_ins: &str, keywords: &str) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.env(trial::CHILD, role).env(STAND_INS, stand_ins).env(NUMBER, number).env(KEYWORDS, keywords);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Starts this binary twice, as the children of these names, and waits for both.
pub fn play(roles: [&str; 2]) -> Result<[Outcome; 2], Failed> {
    let stand_ins = stand_ins();
    let (mut first, mut second) =
        (start_machine("1", roles[0], &stand_ins, "")?, start_machine("2", roles[1], &stand_ins, "")?);
    let errors = [&mut first, &mut second].map(|child| trial::collect(child.stderr.take()));
    let outputs = [&mut first, &mut second].map(|child| child.stdout.take());
    let sides = [MachineSide::of(&mut first), MachineSide::of(&mut second)];
    let ([Some(one), Some(other)], [left, right]) = (outputs, &sides) else {
        return Err("the children have no output".into());
    };
    thread::scope(|scope| {
        let serving = [scope.spawn(|| left.serve(one, right)), scope.spawn(|| right.serve(other, left))];
        let waiting = scope.spawn(|| left.wait(&mut first));
        let second_end = right.wait(&mut second);
        let ends = [waiting.join().unwrap_or(Ok(None)), second_end];
        let texts = serving.map(|serving| serving.join().unwrap_or_default());
        let [one, other] = errors.map(|errors| errors.join().unwrap_or_default());
        let [first, second] = texts;
        match ends {
            [Ok(Some(left)), Ok(Some(right))] => {
                Ok([Outcome::new(left, first + &one), Outcome::new(right, second + &other)])
            }
            ends => Err(format!(
                "no end of both, {ends:?}; output of the first:\n{first}{one}\nof the second:\n{second}{other}"
            )
            .into()),
        }
    })
}
