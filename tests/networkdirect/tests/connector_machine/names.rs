//! Names in the places of pointers and requests, and the states and events that are made of them.

use crate::{
    effects::ConnectorEffects,
    machine::{AttemptRequest, ConnectorEvent, ConnectorMachine},
    state::{ConnectorState, MachineTypes, PendedRequest},
};
use ndkpi_sys::nt::*;
use std::cell::Cell;

thread_local! {
    /// How many things have been dropped.
    static DROPPED: Cell<usize> = const { Cell::new(0) };
}

pub fn dropped() -> usize {
    DROPPED.get()
}

/// A pointer of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thing(pub &'static str);

impl Drop for Thing {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
    }
}

/// A request that pends. There is one of it.
#[derive(Debug)]
pub struct Waiting {
    pub name: &'static str,
    pub is_cancelled: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
    }
}

impl PendedRequest for Waiting {
    fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }
}

pub struct Names;

impl MachineTypes for Names {
    type Engine = Thing;
    type QueuePair = Thing;
    type Endpoint = Thing;
    type Request = Waiting;
}

pub type State = ConnectorState<Names>;
pub type Machine = ConnectorMachine<Names>;
pub type Effects = ConnectorEffects<Names>;
pub type Event = ConnectorEvent<Names>;

/// The number of the attempt, of one before it, and of a request that comes now.
pub const PRESENT: u64 = 7;
pub const BEFORE: u64 = 6;
pub const NEXT: u64 = 8;

/// With which a call fails in the engine, and with which a connector is closed. No other status is one of these.
pub const FAILURE: NTSTATUS = STATUS_CONNECTION_REFUSED;
pub const CLOSING: NTSTATUS = STATUS_DEVICE_REMOVED;

pub fn engine() -> Thing {
    Thing("engine's connector")
}

pub fn pair() -> Thing {
    Thing("queue pair")
}

pub fn endpoint() -> Thing {
    Thing("endpoint")
}

pub fn request(name: &'static str) -> Waiting {
    Waiting { name, is_cancelled: false }
}

fn attempt(name: &'static str) -> AttemptRequest<Names> {
    AttemptRequest { number: NEXT, pair: Thing("next queue pair"), request: request(name) }
}

/// A row of the tables: its name, whether the connector is bound, and the state.
pub type Row = (&'static str, bool, fn() -> State);

const NUMBER: u64 = PRESENT;

pub const ROWS: [Row; 14] = [
    ("Idle", false, || State::Idle { engine: None }),
    ("Idle, bound", true, || State::Idle { engine: None }),
    ("Idle, bound, with the engine's connector", true, || State::Idle { engine: Some(engine()) }),
    ("Requesting", true, || State::Requesting { number: NUMBER, pair: pair(), request: request("Connect") }),
    ("Connecting", true, || State::Connecting {
        number: NUMBER,
        pair: pair(),
        request: request("Connect"),
        engine: engine(),
    }),
    ("Answered", true, || State::Answered { number: NUMBER, pair: pair(), engine: engine() }),
    ("Reserved", false, || State::Reserved),
    ("Arrived", false, || State::Arrived { engine: engine() }),
    ("Accepting", false, || State::Accepting {
        number: NUMBER,
        pair: pair(),
        request: request("Accept"),
        engine: engine(),
    }),
    ("Connected", true, || State::Connected { number: NUMBER, pair: pair(), engine: engine() }),
    ("PeerGone", true, || State::PeerGone { pair: pair(), engine: engine() }),
    ("Disconnecting", true, || State::Disconnecting {
        number: NUMBER,
        pair: pair(),
        request: request("Disconnect"),
        engine: engine(),
    }),
    ("Disconnected", true, || State::Disconnected { pair: pair(), engine: engine() }),
    ("Closed", false, || State::Closed),
];

/// A machine in the state of a row.
pub fn machine(row: Row) -> Machine {
    let (_, is_bound, state) = row;
    Machine::new(state(), is_bound.then(endpoint))
}

/// A column of the tables; a late event has the number of an attempt.
pub type Column = (&'static str, fn(u64) -> Event);

pub const CALLS: [Column; 7] = [
    ("Bind", |_| Event::Bind { endpoint: endpoint() }),
    ("GetConnectionRequest", |_| Event::Reserve),
    ("Connect", |_| Event::Connect(attempt("Connect"))),
    ("CompleteConnect", |_| Event::CompleteConnect),
    ("Accept", |_| Event::Accept(attempt("Accept"))),
    ("Reject", |_| Event::Reject),
    ("Disconnect", |_| Event::Disconnect { number: NEXT, request: Some(request("Disconnect")) }),
];

/// The events that come late to an attempt.
pub const LATE: [Column; 6] = [
    ("engine's connector made", |number| Event::EngineMade { number, engine: Thing("new connector") }),
    ("succeeded", |number| Event::Succeeded { number }),
    ("failed", |number| Event::Failed { number, status: FAILURE }),
    ("CompleteConnect failed", |number| Event::CompleteConnectFailed { number }),
    ("rejected", |number| Event::Rejected { number }),
    ("peer's end", |number| Event::PeerEnded { number }),
];

pub const OTHERS: [Column; 5] = [
    ("arrival", |_| Event::Arrive { engine: Thing("new connector") }),
    ("request withdrawn", |_| Event::Unreserve),
    ("cancellation", |_| Event::Cancel),
    ("memory leaves", |_| Event::MemoryLeaves),
    ("close", |_| Event::Close { status: CLOSING }),
];

pub fn columns() -> impl Iterator<Item = Column> {
    CALLS.into_iter().chain(LATE).chain(OTHERS)
}

/// The name of a status without its beginning.
pub fn status(status: NTSTATUS) -> &'static str {
    match status {
        STATUS_SUCCESS => "SUCCESS",
        STATUS_ADDRESS_ALREADY_ASSOCIATED => "ADDRESS_ALREADY_ASSOCIATED",
        STATUS_ADDRESS_NOT_ASSOCIATED => "ADDRESS_NOT_ASSOCIATED",
        STATUS_CANCELLED => "CANCELLED",
        STATUS_CONNECTION_ACTIVE => "CONNECTION_ACTIVE",
        STATUS_CONNECTION_DISCONNECTED => "CONNECTION_DISCONNECTED",
        STATUS_CONNECTION_INVALID => "CONNECTION_INVALID",
        STATUS_INVALID_DEVICE_STATE => "INVALID_DEVICE_STATE",
        FAILURE => "REFUSED",
        CLOSING => "REMOVED",
        other => panic!("{other:#x} is no answer of a connector"),
    }
}
