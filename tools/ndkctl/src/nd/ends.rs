//! Which ends of a connection are here, at which addresses, and both of them at work.

use super::arguments::EndsArguments;
use super::peer::{Measured, Served, serve, work};
use super::proposal::Proposal;
use super::provider::Provider;
use super::stop::{Cut, Stop};
use super::system::System;
use crate::arguments::Family;
use crate::failure::{Failure, Kind};
use crate::transport::{Job, Machine, in_parallel};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What came of the ends that are here, connection by connection.
#[derive(Debug, Default)]
pub struct Outcome {
    pub ends: String,
    /// Empty where only the server is here.
    pub measured: Vec<Measured>,
    /// Empty where only the client is here.
    pub served: Vec<(Proposal, Served)>,
}

/// One address of the provider and the adapter that has it.
type Known = (IpAddr, u64);

/// Does all that is proposed, one connection after the other.
pub fn run(
    machine: &Machine,
    dll: Option<&Path>,
    arguments: &EndsArguments,
    proposals: &[Proposal],
) -> Result<Outcome, Failure> {
    check_roles(arguments)?;
    if let Some(at) = arguments.server {
        return only_server(machine, dll, at, arguments.notify);
    }
    let known = machine.in_process(dll, known_addresses)??;
    let from = client_address(&known, arguments)?;
    match arguments.client {
        Some(to) => only_client(machine, dll, (from, to), proposals, arguments.notify),
        None => both(machine, dll, (from, server_address(&known, from, arguments)), proposals, arguments.notify),
    }
}

/// Elsewhere than on Windows every ndkctl has a kernel of its own, which no other one reaches.
fn check_roles(arguments: &EndsArguments) -> Result<(), Failure> {
    if cfg!(windows) || (arguments.server.is_none() && arguments.client.is_none()) {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Usage,
        "cannot be only one end",
        "each ndkctl has a kernel host of its own here, and no other one reaches its adapters",
        "leave --server and --client out: both ends are here then, in two processes",
    ))
}

fn known_addresses(system: &System<'_>) -> Result<Vec<Known>, Failure> {
    let provider = Provider::load(system)?;
    let addresses = provider.addresses()?;
    addresses.into_iter().map(|address| Ok((address.ip(), provider.identifier_of(address)?))).collect()
}

fn client_address(known: &[Known], arguments: &EndsArguments) -> Result<IpAddr, Failure> {
    if let Some(from) = arguments.from {
        return Ok(from);
    }
    // A connection has one family.
    let peer = arguments.client.map(|address| address.ip()).or(arguments.to);
    let fits = |ip: &IpAddr| match (peer, arguments.family) {
        (Some(peer), _) => ip.is_ipv4() == peer.is_ipv4(),
        (None, Family::Any) => true,
        (None, family) => ip.is_ipv4() == (family == Family::Ipv4),
    };
    let mut fitting: Vec<IpAddr> = known.iter().map(|(ip, _)| *ip).filter(fits).collect();
    fitting.sort_by_key(IpAddr::is_ipv6);
    fitting.first().copied().ok_or_else(|| {
        Failure::new(
            Kind::Unreachable,
            "cannot choose an address",
            format!("the provider has {} addresses, and none of this family", known.len()),
            "install the driver and an adapter with an address, or choose another --family; \"ndkctl nd info\" lists them",
        )
    })
}

/// The first address of another adapter, or the client's own.
fn server_address(known: &[Known], from: IpAddr, arguments: &EndsArguments) -> IpAddr {
    let own = known.iter().find(|(ip, _)| *ip == from).map(|(_, adapter)| *adapter);
    let other = known.iter().find(|(ip, adapter)| ip.is_ipv4() == from.is_ipv4() && Some(*adapter) != own);
    arguments.to.or(other.map(|(ip, _)| *ip)).unwrap_or(from)
}

/// What one end gives, or that the other one hears of its failure.
fn tell<T>(stop: &Stop, outcome: Result<Result<T, Cut>, Failure>) -> Option<T> {
    match outcome {
        Ok(Ok(done)) => return Some(done),
        Ok(Err(Cut::Stopped)) => {}
        Ok(Err(Cut::Failed(failure))) | Err(failure) => stop.fail(failure),
    }
    None
}

fn both(
    machine: &Machine,
    dll: Option<&Path>,
    (from, to): (IpAddr, IpAddr),
    proposals: &[Proposal],
    notify: bool,
) -> Result<Outcome, Failure> {
    let stop = Stop::default();
    let (measured, served) = (Mutex::default(), Mutex::new(Vec::new()));
    let server_job = || {
        let each = |proposal: &Proposal, one| lock(&served).push((*proposal, one));
        tell(&stop, machine.in_process(dll, |system| serve(system, SocketAddr::new(to, 0), notify, &stop, each)));
    };
    let client_job = || {
        let outcome = machine.in_process(dll, |system| {
            let port = port_of(system, &stop)?;
            work_all(system, (from, SocketAddr::new(to, port)), proposals, notify, &stop)
        });
        *lock(&measured) = tell(&stop, outcome).unwrap_or_default();
    };
    let jobs: Vec<Job<'_>> = vec![Box::new(server_job), Box::new(client_job)];
    in_parallel(jobs);
    if let Some(failure) = stop.into_failure() {
        return Err(failure);
    }
    let inner = |error: PoisonError<_>| error.into_inner();
    let served = served.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Outcome { ends: format!("{from} to {to}"), measured: measured.into_inner().unwrap_or_else(inner), served })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the server listens.
fn port_of(system: &System<'_>, stop: &Stop) -> Result<u16, Cut> {
    loop {
        if let Some(port) = stop.port() {
            return Ok(port);
        }
        if stop.is_raised() {
            return Err(Cut::Stopped);
        }
        system.yield_now();
    }
}

fn work_all(
    system: &System<'_>,
    (from, to): (IpAddr, SocketAddr),
    proposals: &[Proposal],
    notify: bool,
    stop: &Stop,
) -> Result<Vec<Measured>, Cut> {
    let from = SocketAddr::new(from, 0);
    proposals.iter().map(|proposal| work(system, from, to, proposal, notify, stop)).collect()
}

fn only_server(machine: &Machine, dll: Option<&Path>, at: SocketAddr, notify: bool) -> Result<Outcome, Failure> {
    let stop = Stop::default();
    let mut outcome = Outcome { ends: format!("server at {at}"), ..Outcome::default() };
    let served = &mut outcome.served;
    let each = |proposal: &Proposal, one| served.push((*proposal, one));
    tell(&stop, machine.in_process(dll, |system| serve(system, at, notify, &stop, each)));
    stop.into_failure().map_or(Ok(outcome), Err)
}

fn only_client(
    machine: &Machine,
    dll: Option<&Path>,
    (from, to): (IpAddr, SocketAddr),
    proposals: &[Proposal],
    notify: bool,
) -> Result<Outcome, Failure> {
    let stop = Stop::default();
    let outcome = machine.in_process(dll, |system| work_all(system, (from, to), proposals, notify, &stop));
    let measured = tell(&stop, outcome).unwrap_or_default();
    let outcome = Outcome { ends: format!("{from} to {to}"), measured, served: Vec::new() };
    stop.into_failure().map_or(Ok(outcome), Err)
}

#[cfg(test)]
mod tests {
    use super::{EndsArguments, Known, client_address, server_address};
    use crate::arguments::Family;
    use crate::failure::Kind;
    use std::net::IpAddr;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn known() -> Vec<Known> {
        vec![(ip("fd00::1"), 1), (ip("10.0.0.1"), 1), (ip("10.0.0.2"), 2), (ip("fd00::2"), 2)]
    }

    #[test]
    fn addresses_are_of_one_family_and_of_two_adapters() {
        for (family, from, to) in [
            (Family::Any, "10.0.0.1", "10.0.0.2"),
            (Family::Ipv4, "10.0.0.1", "10.0.0.2"),
            (Family::Ipv6, "fd00::1", "fd00::2"),
        ] {
            let arguments = EndsArguments { family, ..EndsArguments::default() };
            assert_eq!(client_address(&known(), &arguments), Ok(ip(from)));
            assert_eq!(server_address(&known(), ip(from), &arguments), ip(to));
        }
    }

    #[test]
    fn one_adapter_talks_to_itself() {
        let one = vec![(ip("10.0.0.1"), 1)];
        assert_eq!(server_address(&one, ip("10.0.0.1"), &EndsArguments::default()), ip("10.0.0.1"));
    }

    #[test]
    fn what_is_given_is_taken_and_decides_the_family() {
        let to = EndsArguments { to: Some(ip("fd00::2")), ..EndsArguments::default() };
        assert_eq!(client_address(&known(), &to), Ok(ip("fd00::1")));
        let client = EndsArguments { client: Some("[fd00::9]:7".parse().unwrap()), ..EndsArguments::default() };
        assert_eq!(client_address(&known(), &client), Ok(ip("fd00::1")));
        let from = EndsArguments { from: Some(ip("10.9.9.9")), ..EndsArguments::default() };
        assert_eq!(client_address(&known(), &from), Ok(ip("10.9.9.9")));
    }

    #[test]
    fn no_address_is_a_failure_with_a_next_step() {
        let failure = client_address(&[], &EndsArguments::default()).unwrap_err();
        assert_eq!(failure.kind, Kind::Unreachable);
        assert!(failure.next_step.contains("nd info"), "{failure}");
    }
}
