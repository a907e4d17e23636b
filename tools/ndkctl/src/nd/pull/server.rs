//! The server of a pull: it fills a window for each request of the client, until its file has ended.

use super::mailbox::{Mailbox, not_understood};
use super::message::{HASH, Message};
use super::offer::Offer;
use crate::nd::connection::{self, Listening};
use crate::nd::end::{End, ended_before_done};
use crate::nd::proposal::{Proposal, RemoteMemory, Work};
use crate::nd::stop::{Cut, Stop};
use crate::nd::system::System;

/// What a server has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub bytes: u64,
    pub windows: u64,
    pub sha256: [u8; HASH],
}

/// Listens, and gives the file to the first client.
pub fn give(system: &System<'_>, listening: Listening<'_>, offer: &mut Offer) -> Result<Given, Cut> {
    let mut given = None;
    connection::listen(
        system,
        listening,
        |work| work == Work::Pull,
        |end, proposal| {
            given = Some(give_to(end, proposal, offer, listening.way.stop)?);
            Ok(())
        },
    )?;
    given.ok_or(Cut::Stopped)
}

fn give_to(end: &mut End<'_>, proposal: &Proposal, offer: &mut Offer, stop: &Stop) -> Result<Given, Cut> {
    offer.begin()?;
    let mut mailbox = Mailbox::open(end, proposal)?;
    let memory = RemoteMemory { address: end.region.pages().address() as u64, token: end.region.remote_token() };
    end.connector.accept(&end.pair, &memory.encode(), stop)?;
    let mut windows = 0;
    loop {
        while let Some(message) = mailbox.next() {
            if message != Message::Request {
                return Err(not_understood().into());
            }
            let filled = fill(end, proposal, offer, windows);
            let answer = match &filled {
                Ok(0) => Message::End { total: offer.length(), sha256: offer.sha256() },
                Ok(length) => Message::Filled { length: *length, total: offer.length() },
                Err(ended) => Message::Broken(ended.broken),
            };
            mailbox.send(end, answer)?;
            match filled {
                Ok(0) => {
                    wait_for_done(end, &mut mailbox, stop)?;
                    return Ok(Given { bytes: offer.length(), windows, sha256: offer.sha256() });
                }
                Ok(_) => windows += 1,
                Err(ended) => {
                    end.connector.wait_for_end(stop)?;
                    return Err(ended.failure.into());
                }
            }
        }
        mailbox.wait(end, stop)?;
    }
}

/// Waits until the client ends the connection. Fails where it has not said before that it has the whole file.
fn wait_for_done(end: &mut End<'_>, mailbox: &mut Mailbox, stop: &Stop) -> Result<(), Cut> {
    end.connector.wait_for_end(stop)?;
    mailbox.take_last(end)?;
    // Requests that came meanwhile have no answer.
    while let Some(message) = mailbox.next() {
        if message == Message::Done {
            return Ok(());
        }
    }
    Err(ended_before_done())
}

/// Fills the window with this number, which is one of two places.
fn fill(end: &End<'_>, proposal: &Proposal, offer: &mut Offer, number: u64) -> Result<u32, super::offer::Ended> {
    let start = (number % 2) as usize * proposal.window() as usize;
    offer.fill(proposal.window(), |at, bytes| end.region.pages().write(start + at, bytes))
}
