//! A connection from its request to its end, whatever the two do with it: the client's side, and the server's, which listens.

use super::end::{End, EndShape, EndWay, broke_off};
use super::proposal::{Proposal, Refusal, Work};
use super::provider::{AdapterFile, Connector, Listener, OpenAdapter, Provider};
use super::stop::Cut;
use super::system::System;
use crate::failure::{Failure, Kind};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a client may stay away that has said that another connection follows.
const LONGEST_ABSENCE: Duration = Duration::from_secs(30);

/// The client's address and the server's.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

/// Where and how a server listens.
#[derive(Clone, Copy)]
pub struct Listening<'a> {
    pub at: SocketAddr,
    pub way: EndWay<'a>,
    /// Is given the address, with its port, once clients can connect.
    pub listens: &'a dyn Fn(SocketAddr),
}

/// The way to an adapter by one of its addresses.
fn open<'s>(system: &'s System<'s>, address: SocketAddr) -> Result<OpenAdapter<'s>, Failure> {
    let provider = Provider::load(system)?;
    provider.open(provider.identifier_of(address)?)
}

/// Connects with private data, works with the server's, and disconnects. `prepare` posts the receives that have to be there before.
pub fn connect<T>(
    system: &System<'_>,
    route: Route,
    (data, shape): (&[u8], EndShape),
    way: EndWay<'_>,
    prepare: impl FnOnce(&End<'_>) -> Result<(), Cut>,
    work: impl FnOnce(&mut End<'_>, [u8; 16]) -> Result<T, Cut>,
) -> Result<T, Cut> {
    let adapter = open(system, route.from)?;
    let file = adapter.file()?;
    let connector = adapter.connector(&file)?;
    let mut end = End::new(system, &adapter, &file, connector, shape, way)?;
    prepare(&end)?;
    let answer = end.connector.connect(&end.pair, route.from, route.to, data, way.stop)?;
    let done = work(&mut end, answer)?;
    end.connector.disconnect(way.stop)?;
    Ok(done)
}

/// Listens and serves the connections of one client until it says that none follows. `serves` says which work; `serve` accepts each
/// connection and stays until its end. During the last one no other client is heard, and so refused at once.
pub fn listen(
    system: &System<'_>,
    listening: Listening<'_>,
    serves: impl Fn(Work) -> bool,
    mut serve: impl FnMut(&mut End<'_>, &Proposal) -> Result<(), Cut>,
) -> Result<(), Cut> {
    let adapter = open(system, listening.at)?;
    let file = adapter.file()?;
    let mut source =
        Some(ClientSource { listener: adapter.listener(&file, listening.at)?, adapter: &adapter, file: &file });
    (listening.listens)(source.as_ref().map_or(Ok(listening.at), |source| source.listener.address())?);
    let mut session = None;
    while let Some(open) = &source {
        let (connector, proposal) = open.next(session, &serves, listening.way)?;
        session = Some(proposal.session);
        if !proposal.more {
            source = None;
        }
        let mut end = End::new(system, &adapter, &file, connector, proposal.shape(), listening.way)?;
        serve(&mut end, &proposal).map_err(|cut| match cut {
            Cut::Gone(failure) if failure.status.is_some() => Cut::Gone(broke_off(&failure.cause)),
            other => other,
        })?;
    }
    Ok(())
}

/// The listener from which connection requests are taken, and what their connections are made with.
struct ClientSource<'a, 's> {
    listener: Listener<'s>,
    adapter: &'a OpenAdapter<'s>,
    file: &'a AdapterFile<'s>,
}

impl<'s> ClientSource<'_, 's> {
    /// The next connection request of the client with this session, or of any where there is none yet. Others are refused meanwhile.
    fn next(
        &self,
        session: Option<u16>,
        serves: &impl Fn(Work) -> bool,
        way: EndWay<'_>,
    ) -> Result<(Connector<'s>, Proposal), Cut> {
        let until = session.map(|_| Instant::now() + LONGEST_ABSENCE);
        loop {
            let connector = self.adapter.connector(self.file)?;
            if !self.listener.take_request(&connector, until, way.stop)? {
                let how = format!("its next connection did not come within {} s", LONGEST_ABSENCE.as_secs());
                return Err(Cut::Gone(broke_off(&how)));
            }
            // A client that has gone meanwhile says nothing.
            let said = connector.private_data().unwrap_or([0; Proposal::LENGTH]);
            let refusal = match judge(said, session, serves) {
                Ok(proposal) => return Ok((connector, proposal)),
                Err(refusal) => refusal,
            };
            connector.reject(refusal);
            if refusal == Refusal::OtherWork {
                let next_step = refusal.of_server().1;
                return Err(Failure::new(Kind::Refused, CANNOT_SERVE, refusal.of_client(), next_step).into());
            }
            print_refusal(connector.peer(), refusal);
        }
    }
}

const CANNOT_SERVE: &str = "cannot serve this client";

/// Whether a request is the one that is waited for.
fn judge(
    said: [u8; Proposal::LENGTH],
    session: Option<u16>,
    serves: impl Fn(Work) -> bool,
) -> Result<Proposal, Refusal> {
    let proposal = Proposal::decode(said).ok_or(Refusal::OtherVersion)?;
    if session.is_some_and(|session| session != proposal.session) {
        return Err(Refusal::Busy);
    }
    if serves(proposal.work) { Ok(proposal) } else { Err(Refusal::OtherWork) }
}

/// A server that goes on tells its user of whom it has refused.
fn print_refusal(peer: Option<SocketAddr>, refusal: Refusal) {
    let peer = peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
    // The server works also when no context reads its output.
    let _ = writeln!(io::stderr(), "refused a connection request of {peer}: {}; still listening", refusal.of_client());
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::nd::proposal::{Proposal, Refusal, Work};
    use softndk_ioctl::Operation;

    #[test]
    fn only_the_client_that_is_served_may_come_again() {
        let proposal = Proposal { work: Work::PingPong, size: 1, depth: 2, count: 3, more: true, session: 7 };
        let judge = |proposal: Proposal, session| {
            judge(proposal.encode(), session, |work| work == Work::PingPong).map(|proposal| proposal.session)
        };
        assert_eq!(judge(proposal, None), Ok(7));
        assert_eq!(judge(proposal, Some(7)), Ok(7));
        assert_eq!(judge(proposal, Some(8)), Err(Refusal::Busy));
        let other = Proposal { work: Work::Stream(Operation::READ), ..proposal };
        assert_eq!(judge(other, None), Err(Refusal::OtherWork));
        assert_eq!(judge(other, Some(8)), Err(Refusal::Busy), "another client does not end the server");
        assert_eq!(super::judge([0; Proposal::LENGTH], None, |_| true), Err(Refusal::OtherVersion));
    }
}
