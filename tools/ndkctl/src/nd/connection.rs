//! A connection from its request to its end, whatever the two do with it: the client's side, and the server's, which listens.

use super::end::{End, EndShape, EndWay};
use super::proposal::{Proposal, Work};
use super::provider::{OpenAdapter, Provider};
use super::stop::Cut;
use super::system::System;
use crate::failure::{Failure, Kind};
use std::net::SocketAddr;

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

/// Listens and serves connections until a client says that none follows. `serves` says which work; `serve` accepts each connection and
/// stays until its end.
pub fn listen(
    system: &System<'_>,
    listening: Listening<'_>,
    serves: impl Fn(Work) -> bool,
    mut serve: impl FnMut(&mut End<'_>, &Proposal) -> Result<(), Cut>,
) -> Result<(), Cut> {
    let adapter = open(system, listening.at)?;
    let file = adapter.file()?;
    let listener = adapter.listener(&file, listening.at)?;
    (listening.listens)(listener.address()?);
    loop {
        let connector = adapter.connector(&file)?;
        listener.take_request(&connector, listening.way.stop)?;
        let proposal = Proposal::decode(connector.private_data()?);
        let Some(proposal) = proposal.filter(|proposal| serves(proposal.work)) else {
            connector.reject();
            return Err(not_for_this_server(proposal.is_some()).into());
        };
        let mut end = End::new(system, &adapter, &file, connector, proposal.shape(), listening.way)?;
        serve(&mut end, &proposal)?;
        if !proposal.more {
            return Ok(());
        }
    }
}

fn not_for_this_server(is_understood: bool) -> Failure {
    let (cause, next_step) = if is_understood {
        ("it asks for another work than this server's", "use the same command on both sides")
    } else {
        ("it does not say what an ndkctl of this version says", "use the same ndkctl on both sides")
    };
    Failure::new(Kind::Refused, "cannot serve this client", cause, next_step)
}
