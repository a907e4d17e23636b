//! A queue of a controller: a connection, over which commands are sent and answered, several at a time.

use super::capsule::{ANSWER, COMMAND, Memory, NvmeAnswer, NvmeCommand};
use crate::failure::{Failure, Kind};
use crate::nd::end::{End, EndShape, check, posted};
use crate::nd::stop::{Cut, Stop};
use softnd_interfaces::constants::request_type;
use softndk_ioctl::Histogram;
use std::time::Instant;

/// How many commands are under way at most, and the bytes that each has for its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub depth: u16,
    pub size: u32,
}

impl Shape {
    /// Memory has the data of every slot, then their commands, then their answers.
    fn offset(self, slot: u16, before: usize, each: usize) -> usize {
        usize::from(self.depth) * before + usize::from(slot) * each
    }

    pub fn data(self, slot: u16) -> usize {
        self.offset(slot, 0, self.size as usize)
    }

    fn command(self, slot: u16) -> usize {
        self.offset(slot, self.size as usize, COMMAND)
    }

    fn answer(self, slot: u16) -> usize {
        self.offset(slot, self.size as usize + COMMAND, ANSWER)
    }

    /// The end that it needs: a command may be answered before its Send has a result.
    pub fn end(self) -> EndShape {
        EndShape {
            depth: u32::from(self.depth) * 2,
            request: COMMAND as u32,
            memory: self.command(self.depth) + usize::from(self.depth) * ANSWER,
        }
    }

    /// Posts the receives of all answers, before the connection is there.
    pub fn prepare(self, end: &End<'_>) -> Result<(), Cut> {
        (0..self.depth).try_for_each(|slot| self.expect(end, slot))
    }

    fn expect(self, end: &End<'_>, slot: u16) -> Result<(), Cut> {
        posted("Receive", end.pair.receive(end.region.sge(self.answer(slot), ANSWER as u32)))
    }
}

pub struct Queue<'e, 's> {
    pub end: &'e mut End<'s>,
    stop: &'e Stop,
    shape: Shape,
    /// Answers so far: each took the next receive.
    answers: u64,
}

impl<'e, 's> Queue<'e, 's> {
    pub const fn new(end: &'e mut End<'s>, stop: &'e Stop, shape: Shape) -> Self {
        Self { end, stop, shape, answers: 0 }
    }

    /// A slot's memory, as the controller reaches it.
    pub fn memory(&self, slot: u16, length: usize) -> Memory {
        let address = self.end.region.pages().address() as u64 + self.shape.data(slot) as u64;
        Memory { address, length: length as u32, token: self.end.region.remote_token() }
    }

    /// Runs a command in the first slot; the value of its answer.
    pub fn run(&mut self, what: &str, command: NvmeCommand) -> Result<u32, Cut> {
        let mut value = 0;
        self.run_all(
            what,
            1,
            |_, _, _| Ok(command),
            |_, _, answer| {
                value = answer.value;
                Ok(())
            },
        )?;
        Ok(value)
    }

    /// Runs so many commands, as many at a time as there are slots, and times them. `make` and `done` get the queue, the number and the
    /// slot of each.
    pub fn run_all(
        &mut self,
        what: &str,
        count: u64,
        mut make: impl FnMut(&Self, u64, u16) -> Result<NvmeCommand, Cut>,
        mut done: impl FnMut(&Self, (u64, u16), NvmeAnswer) -> Result<(), Cut>,
    ) -> Result<Box<Histogram>, Cut> {
        let mut latency = Box::new(Histogram::EMPTY);
        let mut under_way: Vec<Option<(u64, Instant)>> = vec![None; self.shape.depth.into()];
        let (mut begun, mut ended) = (0, 0);
        while ended < count {
            for slot in 0..self.shape.depth {
                let free = &mut under_way[usize::from(slot)];
                if free.is_none() && begun < count {
                    let command = make(self, begun, slot)?;
                    *free = Some((begun, Instant::now()));
                    self.send(slot, command)?;
                    begun += 1;
                }
            }
            for answer in self.answers()? {
                let slot = under_way.get_mut(usize::from(answer.number)).and_then(Option::take);
                let (number, since) = slot.ok_or_else(|| wrong(what, "it answers a command that is not under way"))?;
                if answer.status != 0 {
                    return Err(refused(what, answer.status).into());
                }
                latency.record(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
                done(self, (number, answer.number), answer)?;
                ended += 1;
            }
        }
        Ok(latency)
    }

    /// Commands have the numbers of their slots.
    fn send(&self, slot: u16, command: NvmeCommand) -> Result<(), Cut> {
        let place = self.shape.command(slot);
        self.end.region.pages().write(place, &command.numbered(slot));
        posted("Send", self.end.pair.send(self.end.region.sge(place, COMMAND as u32)))
    }

    /// Waits for results; the answers among them.
    fn answers(&mut self) -> Result<Vec<NvmeAnswer>, Cut> {
        let mut came = 0;
        for result in self.end.results(self.stop)? {
            check(result)?;
            if result.request_type == request_type::RECEIVE {
                if result.bytes_transferred as usize != ANSWER {
                    return Err(wrong("use a queue", "it answers with a message of another length").into());
                }
                came += 1;
            }
        }
        let depth = u64::from(self.shape.depth);
        let first = self.answers;
        self.answers += came;
        (first..first + came)
            .map(|number| {
                let slot = (number % depth) as u16;
                let mut bytes = [0; ANSWER];
                self.end.region.pages().read(self.shape.answer(slot), &mut bytes);
                self.shape.expect(self.end, slot)?;
                Ok(NvmeAnswer::of(&bytes))
            })
            .collect()
    }
}

/// The controller does what NVMe does not allow.
pub fn wrong(what: &str, cause: &str) -> Failure {
    let next = "look at the target's log; if it is fine, please report this";
    Failure::new(Kind::Corrupt, format!("cannot {what}"), cause, next)
}

/// The controller refuses a command.
fn refused(what: &str, status: u16) -> Failure {
    let (cause, next_step) = match status {
        0x00B => ("the namespace is not there", "choose another one with --namespace"),
        0x080 => ("blocks beyond the end of the namespace", "choose a smaller --offset or --bytes"),
        0x120 => ("the namespace is write-protected", "leave --overwrite out"),
        0x182 => (
            "the target has no such subsystem, or does not let this host use it",
            "check --subsystem and --host; a target of Linux lists its subsystems in /sys/kernel/config/nvmet/ports",
        ),
        0x183 | 0x184 => ("the target restricts its hosts", "allow this host there, or name another one with --host"),
        _ => ("it answers with an error", "look at the target's log"),
    };
    let cause = format!("{cause} (NVMe status type {}, code {:#04x})", status >> 8, status & 0xFF);
    Failure::new(Kind::Refused, format!("cannot {what}"), cause, next_step)
}

#[cfg(test)]
mod tests {
    use super::{ANSWER, COMMAND, Shape, refused};

    #[test]
    fn slots_have_memory_of_their_own_and_the_end_has_all_of_it() {
        let shape = Shape { depth: 3, size: 512 };
        let mut parts = Vec::new();
        for slot in 0..3 {
            parts.extend([(shape.data(slot), 512), (shape.command(slot), COMMAND), (shape.answer(slot), ANSWER)]);
        }
        parts.sort_unstable();
        let mut end = 0;
        for (start, length) in parts {
            assert_eq!(start, end, "neither a gap nor an overlap");
            end = start + length;
        }
        assert_eq!((shape.end().memory, shape.end().depth), (end, 6));
    }

    #[test]
    fn refusal_names_cause_and_next_step() {
        let failure = refused("connect", 0x182);
        assert!(failure.cause.contains("subsystem") && failure.cause.contains("type 1, code 0x82"), "{failure}");
        assert!(refused("read", 0x281).cause.contains("type 2, code 0x81"));
    }
}
