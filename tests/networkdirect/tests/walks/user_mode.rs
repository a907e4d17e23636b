//! A Read of user-mode NetworkDirect, from the method of softnd.dll to its result.

use kernel_host::Mode;
use kernel_host::step;
use networkdirect::machine::{Machine, MachineSetup, address, pass};

use super::client::{Program, SUCCESS};
use super::ends::{DEPTH, End, QUEUE_RESULTS, READ, connect};
use super::{Recording, Walk, stable};

const READ_CALL: &str = "`IND2QueuePair::Read`";
const POLLER: &str = "The poller's thread";
const RESULTS_CALL: &str = "`IND2CompletionQueue::GetResults`";
/// The driver's threads.
const THREAD: &str = "system thread";
/// The function of the poller that takes what a process has put into its rings.
const TAKES: &str = "PollSlot::take";
/// Reads until the driver polls.
const READS: usize = 100_000;

/// Records between two connected ends of one process.
fn between(setup: &MachineSetup<'_>, record: impl Fn(&Reader<'_>) -> Option<Recording>) -> Walk {
    let machine = Machine::of(setup);
    let program = Program::start(&machine);
    let (active, passive) = (End::new(&program, 1), End::new(&program, 2));
    connect(&active, &passive, address(2, 7000));
    let reader = Reader::new(&active, &passive);
    // More than once round the completion queue, which is four times as deep and has some slack: the first round goes another way.
    for _ in 0..8 * DEPTH {
        reader.post();
        reader.wait();
    }
    let walk = stable(|| record(&reader));
    drop((active, passive));
    drop(program);
    machine.finish();
    walk
}

/// The Read, with its arguments in the memory of the process.
struct Reader<'p> {
    end: &'p End<'p>,
    arguments: [u64; 6],
    results: u64,
}

impl<'p> Reader<'p> {
    fn new(active: &'p End<'p>, passive: &End<'_>) -> Self {
        let arguments = [1, active.sges(&[(0, 8)]), 1, passive.buffer, passive.remote_token(), 0];
        Self { end: active, arguments, results: active.program.zeroed(32) }
    }

    /// Whether the driver was called.
    fn post(&self) -> bool {
        let process = &self.end.program.process;
        let before = process.system_calls();
        self.end.pair.expects(READ, &self.arguments, SUCCESS);
        process.system_calls() != before
    }

    /// Whether the result was there.
    fn take(&self) -> bool {
        let count = self.end.queue.call(QUEUE_RESULTS, &[self.results, 1]);
        assert!(count == 0 || self.end.program.u32_at(self.results) == SUCCESS, "a Read fails");
        count == 1
    }

    fn wait(&self) {
        while !self.take() {
            pass(1);
        }
    }
}

/// Two processors are too few for the poller.
pub fn read_by_doorbell() -> Walk {
    let setup = MachineSetup { mode: Mode::Fast, processors: 2, ..MachineSetup::default() };
    between(&setup, |reader| {
        let post = step::count(|| assert!(reader.post(), "a doorbell is a system call"));
        let results = step::count(|| assert!(reader.take(), "the doorbell has moved the bytes"));
        Some(vec![(READ_CALL, post), (RESULTS_CALL, results)])
    })
}

pub fn read_by_the_poller() -> Walk {
    let keywords = [("NetworkDirectPollUs", "1000000")];
    let setup = MachineSetup { mode: Mode::Fast, processors: 3, keywords: &keywords, ..MachineSetup::default() };
    between(&setup, |reader| {
        let is_polled = (0..READS).any(|_| {
            let rang = reader.post();
            reader.wait();
            !rang
        });
        assert!(is_polled, "the driver does not poll");
        let mut rang = false;
        let (post, poller) = step::count_beside(THREAD, || {
            rang = reader.post();
            pass(30);
        });
        let mut is_there = false;
        let results = step::count(|| is_there = reader.take());
        if !is_there {
            reader.wait();
        }
        // The poller may have let the queue go meanwhile, or not have come to it.
        let poller = poller.within("softndk.sys", |function| function.contains(TAKES));
        (is_there && !rang && poller.all() != 0)
            .then(|| vec![(READ_CALL, post), (POLLER, poller), (RESULTS_CALL, results)])
    })
}
