//! Messages of one end of a pull, in the memory behind its two windows, and the count of its Reads that have ended.

use super::message::{Bytes, Message};
use crate::failure::{Failure, Kind};
use crate::nd::end::{End, check, posted};
use crate::nd::proposal::{MESSAGE_LENGTH, MESSAGES, Proposal};
use crate::nd::stop::{Cut, Stop};
use softnd_interfaces::constants::request_type;
use std::collections::VecDeque;

/// The client has no more requests for a window unanswered than there are windows, and the last message may follow them: so many may come
/// at once.
const RECEIVES: u64 = 3;

/// Messages that are sent have the rest of the memory. One is used again when its answer has come: then its Send has ended.
const SENDS: u64 = MESSAGES as u64 - RECEIVES;

/// The messages of an end.
pub struct Mailbox {
    /// Where the memory of messages begins.
    base: usize,
    sent: u64,
    /// Sends that have ended.
    sends_ended: u64,
    /// Receives that have ended.
    received: u64,
    arrived: VecDeque<Message>,
    reads_ended: u64,
}

impl Mailbox {
    /// Posts the receives; to be called before the peer can send.
    pub fn open(end: &End<'_>, proposal: &Proposal) -> Result<Self, Cut> {
        let base = 2 * proposal.window() as usize;
        let mailbox = Self { base, sent: 0, sends_ended: 0, received: 0, arrived: VecDeque::new(), reads_ended: 0 };
        for number in 0..RECEIVES {
            mailbox.receive(end, number)?;
        }
        Ok(mailbox)
    }

    fn place(&self, slot: u64) -> usize {
        self.base + slot as usize * MESSAGE_LENGTH as usize
    }

    fn receive(&self, end: &End<'_>, number: u64) -> Result<(), Cut> {
        posted("Receive", end.pair.receive(end.region.sge(self.place(number % RECEIVES), MESSAGE_LENGTH)))
    }

    pub fn send(&mut self, end: &End<'_>, message: Message) -> Result<(), Cut> {
        let place = self.place(RECEIVES + self.sent % SENDS);
        end.region.pages().write(place, &message.encode());
        self.sent += 1;
        posted("Send", end.pair.send(end.region.sge(place, MESSAGE_LENGTH)))
    }

    /// Waits until all that was sent has left.
    pub fn finish(&mut self, end: &mut End<'_>, stop: &Stop) -> Result<(), Cut> {
        while self.sends_ended < self.sent {
            self.wait(end, stop)?;
        }
        Ok(())
    }

    /// Waits for results: of messages, of Reads, or of Sends.
    pub fn wait(&mut self, end: &mut End<'_>, stop: &Stop) -> Result<(), Cut> {
        let mut received = 0;
        for result in end.results(stop)? {
            check(result)?;
            match result.request_type {
                request_type::RECEIVE if result.bytes_transferred == MESSAGE_LENGTH => received += 1,
                request_type::RECEIVE => return Err(not_understood().into()),
                request_type::READ => self.reads_ended += 1,
                _ => self.sends_ended += 1,
            }
        }
        for _ in 0..received {
            self.take_message(end)?;
            self.receive(end, self.received - 1)?;
        }
        Ok(())
    }

    /// Takes what came before the end of the connection.
    pub fn take_last(&mut self, end: &mut End<'_>) -> Result<(), Cut> {
        for _ in 0..end.last_receives(RECEIVES) {
            self.take_message(end)?;
        }
        Ok(())
    }

    fn take_message(&mut self, end: &End<'_>) -> Result<(), Cut> {
        let mut bytes: Bytes = [0; MESSAGE_LENGTH as usize];
        end.region.pages().read(self.place(self.received % RECEIVES), &mut bytes);
        self.arrived.push_back(Message::decode(&bytes).ok_or_else(not_understood)?);
        self.received += 1;
        Ok(())
    }

    /// The oldest message that was not taken.
    pub fn next(&mut self) -> Option<Message> {
        self.arrived.pop_front()
    }

    /// Reads that have ended since this was asked last.
    pub fn take_reads_ended(&mut self) -> u64 {
        std::mem::take(&mut self.reads_ended)
    }
}

/// A peer that says what no ndkctl of this version says.
pub fn not_understood() -> Failure {
    Failure::new(
        Kind::Corrupt,
        "cannot understand the other end",
        "it says what no ndkctl of this version says",
        "use the same ndkctl on both sides",
    )
}
