//! Which ends of a connection are here, at which addresses, and both of them at work.

use super::arguments::EndsArguments;
use super::connection::{Listening, Route};
use super::end::EndWay;
use super::peer::{Measured, Served, serve, work};
use super::proposal::{Proposal, Work};
use super::provider::Provider;
use super::stop::{Cut, Stop};
use super::system::System;
use crate::arguments::Family;
use crate::failure::{Failure, Kind};
use crate::transport::{Job, Machine, in_parallel};
use std::cell::Cell;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What came of the ends that are here.
#[derive(Debug)]
pub struct Ends<C, S> {
    pub ends: String,
    /// Nothing where only the server is here.
    pub client: Option<C>,
    /// Nothing where only the client is here.
    pub server: Option<S>,
}

/// What came of a measurement, connection by connection.
#[derive(Debug, Default)]
pub struct Measurement {
    pub ends: String,
    /// Empty where only the server is here.
    pub measured: Vec<Measured>,
    /// Empty where only the client is here.
    pub served: Vec<(Proposal, Served)>,
}

/// Where the ends are, and by which provider.
#[derive(Clone, Copy)]
struct Host<'a> {
    machine: &'a Machine,
    dll: Option<&'a Path>,
    notify: bool,
}

/// One address of the provider and the adapter that has it.
type Known = (IpAddr, u64);

/// Does all that is proposed, one connection after the other; `takes` says which work a server does.
pub fn measure(
    machine: &Machine,
    dll: Option<&Path>,
    arguments: &EndsArguments,
    (proposals, takes): (&[Proposal], fn(Work) -> bool),
) -> Result<Measurement, Failure> {
    let client = |system: &System<'_>, route: Route, way: EndWay<'_>| {
        proposals.iter().map(|proposal| work(machine, system, route, proposal, way)).collect()
    };
    let server = |system: &System<'_>, listening: Listening<'_>| serve(machine, system, listening, takes);
    let Ends { ends, client, server } = run(machine, dll, arguments, client, server)?;
    Ok(Measurement { ends, measured: client.unwrap_or_default(), served: server.unwrap_or_default() })
}

/// Runs a client whose server is no ndkctl; the addresses, and what it gives.
pub fn only_client<C: Send>(
    machine: &Machine,
    dll: Option<&Path>,
    arguments: &EndsArguments,
    client: impl FnOnce(&System<'_>, Route, EndWay<'_>) -> Result<C, Cut> + Send,
) -> Result<(String, C), Failure> {
    if !machine.reaches_others() {
        return Err(Failure::new(
            Kind::Usage,
            "cannot reach another machine",
            "this kernel host is alone",
            "give it a number among others, as --machine 2",
        ));
    }
    let server = |_: &System<'_>, _: Listening<'_>| Err::<(), _>(Cut::Stopped);
    let Ends { ends, client, .. } = run(machine, dll, arguments, client, server)?;
    let done =
        client.ok_or_else(|| Failure::new(Kind::Refused, "cannot run the client", "it was stopped", "run it again"))?;
    Ok((ends, done))
}

/// Runs the ends that are here, each in a process of its own.
pub fn run<C: Send, S: Send>(
    machine: &Machine,
    dll: Option<&Path>,
    arguments: &EndsArguments,
    client: impl FnOnce(&System<'_>, Route, EndWay<'_>) -> Result<C, Cut> + Send,
    server: impl FnOnce(&System<'_>, Listening<'_>) -> Result<S, Cut> + Send,
) -> Result<Ends<C, S>, Failure> {
    check_roles(arguments, machine.reaches_others())?;
    let host = Host { machine, dll, notify: arguments.notify };
    if let Some(at) = arguments.server {
        return host.only_server(at, server);
    }
    let known = machine.in_process(dll, known_addresses)??;
    let from = client_address(&known, arguments)?;
    match arguments.client {
        Some(to) => host.only_client(Route { from: SocketAddr::new(from, 0), to }, client),
        None => host.both((from, server_address(&known, from, arguments)), client, server),
    }
}

/// A kernel host that is none of several is reached by no other one.
fn check_roles(arguments: &EndsArguments, reaches_others: bool) -> Result<(), Failure> {
    if reaches_others || (arguments.server.is_none() && arguments.client.is_none()) {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Usage,
        "cannot be only one end",
        "each ndkctl has a kernel host of its own here, and this one reaches no other",
        "give the two machines numbers, --machine 1 and --machine 2, or leave --server and --client out: both ends are here then",
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

/// What one end gives; its failure stops the other one.
fn report_failure<T>(stop: &Stop, outcome: Result<Result<T, Cut>, Failure>) -> Option<T> {
    match outcome {
        Ok(Ok(done)) => return Some(done),
        Ok(Err(Cut::Stopped)) => {}
        Ok(Err(Cut::Gone(failure))) => stop.fail_by_other(failure),
        Ok(Err(Cut::Failed(failure))) | Err(failure) => stop.fail(failure),
    }
    None
}

impl Host<'_> {
    const fn way<'s>(&self, stop: &'s Stop) -> EndWay<'s> {
        EndWay { notify: self.notify, stop }
    }

    fn both<C: Send, S: Send>(
        self,
        (from, to): (IpAddr, IpAddr),
        client: impl FnOnce(&System<'_>, Route, EndWay<'_>) -> Result<C, Cut> + Send,
        server: impl FnOnce(&System<'_>, Listening<'_>) -> Result<S, Cut> + Send,
    ) -> Result<Ends<C, S>, Failure> {
        let stop = Stop::default();
        let way = self.way(&stop);
        let (client_done, server_done) = (Mutex::new(None), Mutex::new(None));
        let server_job = || {
            let listens = |at: SocketAddr| stop.listens_at(at.port());
            let listening = Listening { at: SocketAddr::new(to, 0), way, listens: &listens };
            let outcome = self.machine.in_process(self.dll, |system| server(system, listening));
            *lock(&server_done) = report_failure(&stop, outcome);
        };
        let client_job = || {
            let outcome = self.machine.in_process(self.dll, |system| {
                let to = SocketAddr::new(to, port_of(system, &stop)?);
                client(system, Route { from: SocketAddr::new(from, 0), to }, way)
            });
            *lock(&client_done) = report_failure(&stop, outcome);
        };
        let jobs: Vec<Job<'_>> = vec![Box::new(server_job), Box::new(client_job)];
        in_parallel(jobs);
        if let Some(failure) = stop.into_failure() {
            return Err(failure);
        }
        Ok(Ends { ends: format!("{from} to {to}"), client: taken(client_done), server: taken(server_done) })
    }

    fn only_server<C, S>(
        self,
        at: SocketAddr,
        server: impl FnOnce(&System<'_>, Listening<'_>) -> Result<S, Cut>,
    ) -> Result<Ends<C, S>, Failure> {
        let stop = Stop::default();
        let bound = Cell::new(at);
        let listens = |at| {
            bound.set(at);
            print_address(at);
        };
        let listening = Listening { at, way: self.way(&stop), listens: &listens };
        let outcome = self.machine.in_process(self.dll, |system| server(system, listening));
        let server = report_failure(&stop, outcome);
        let done = Ends { ends: format!("server at {}", bound.get()), client: None, server };
        stop.into_failure().map_or(Ok(done), Err)
    }

    fn only_client<C, S>(
        self,
        route: Route,
        client: impl FnOnce(&System<'_>, Route, EndWay<'_>) -> Result<C, Cut>,
    ) -> Result<Ends<C, S>, Failure> {
        let stop = Stop::default();
        let outcome = self.machine.in_process(self.dll, |system| client(system, route, self.way(&stop)));
        let client = report_failure(&stop, outcome);
        let done = Ends { ends: format!("{} to {}", route.from.ip(), route.to), client, server: None };
        stop.into_failure().map_or(Ok(done), Err)
    }
}

/// Writes the line by which the program that starts the client learns that the server listens, and at which port.
fn print_address(at: SocketAddr) {
    // The server works also when no context reads its output.
    let _ = writeln!(io::stderr(), "listens at {at}");
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn taken<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::{EndsArguments, Known, check_roles, client_address, server_address};
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
    fn only_one_end_needs_others_that_can_be_reached() {
        let both = EndsArguments::default();
        let server = EndsArguments { server: Some("10.0.0.1:7".parse().unwrap()), ..both.clone() };
        let client = EndsArguments { client: server.server, ..both.clone() };
        assert_eq!(check_roles(&both, false), Ok(()));
        for one in [server, client] {
            assert_eq!(check_roles(&one, true), Ok(()));
            let failure = check_roles(&one, false).unwrap_err();
            assert_eq!(failure.kind, Kind::Usage);
            assert!(failure.next_step.contains("--machine 1") && failure.next_step.contains("both ends"), "{failure}");
        }
    }

    #[test]
    fn no_address_is_a_failure_with_a_next_step() {
        let failure = client_address(&[], &EndsArguments::default()).unwrap_err();
        assert_eq!(failure.kind, Kind::Unreachable);
        assert!(failure.next_step.contains("nd info"), "{failure}");
    }
}
