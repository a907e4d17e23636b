//! The table of `docs/connections.md`, what each call answers in each state of a connector, beside the engine.

use softndk_engine::{Accept, Adapter, Connect, ConnectError, Connector, ObjectState, ReadLimits, Requested, Source};
use softndk_engine_kit::{A, ACCEPT, B, CLOSE, CONNECT, DISCONNECT, Depths, FIRST, Harness, Pair, SECOND, Side, World};
use std::net::SocketAddr;

const PAGE: &str = include_str!("../../../docs/connections.md");
const CALLS: [&str; 7] =
    ["Connect", "CompleteConnect", "Accept", "Reject", "Disconnect", "GetConnectionData", "addresses"];

/// Which side's connector is in the state.
#[derive(Clone, Copy)]
enum Who {
    Active,
    Passive,
}

/// A way into a state: the row that it belongs to, whose connector is in it, and the steps.
type Way = (&'static str, Who, fn(&mut Pair));

const WAYS: [Way; 14] = [
    ("Idle", Who::Active, |_| {}),
    ("Connecting", Who::Active, requested),
    ("Answered", Who::Active, answered),
    ("Arrived", Who::Passive, requested),
    ("Accepting", Who::Passive, answered),
    ("Connected", Who::Active, Pair::connect),
    ("Connected", Who::Passive, Pair::connect),
    ("Connected, Disconnect pends", Who::Active, |pair| {
        pair.connect();
        pair.a.connector.disconnect(A + DISCONNECT).unwrap();
    }),
    ("Idle, after the peer refused", Who::Active, rejected),
    ("Ended: rejected or given up by this side", Who::Passive, rejected),
    ("Ended: rejected or given up by this side", Who::Active, |pair| {
        answered(pair);
        pair.a.connector.reject(&[]).unwrap();
    }),
    ("Ended: the peer gave up before the connection was established", Who::Passive, |pair| {
        requested(pair);
        drop(pair.a.connector.close(A + CLOSE));
    }),
    ("Ended: aborted by the peer, address or adapter gone", Who::Active, |pair| {
        pair.connect();
        drop(pair.b.connector.close(B + CLOSE));
    }),
    ("Ended: disconnected", Who::Active, |pair| {
        pair.connect();
        pair.a.connector.disconnect(A + DISCONNECT).unwrap();
        pair.world.run();
        pair.b.connector.disconnect(B + DISCONNECT).unwrap();
    }),
];

fn requested(pair: &mut Pair) {
    pair.connect_request().unwrap();
    pair.world.run();
    pair.take_arrived();
}

fn answered(pair: &mut Pair) {
    requested(pair);
    pair.accept().unwrap();
    pair.world.deliver_messages();
}

fn rejected(pair: &mut Pair) {
    requested(pair);
    pair.b.connector.reject(b"no").unwrap();
}

/// The rows of the page: the state, and the answer to each call.
fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let table = PAGE.lines().skip_while(|line| !line.starts_with("| state |"));
    let mut table = table.take_while(|line| line.starts_with('|'));
    assert_eq!(cells(table.next().unwrap())[1..], CALLS);
    table.skip(1).map(|line| (cells(line)[0], cells(line)[1..].to_vec())).collect()
}

fn answer<T>(answer: Result<T, ConnectError>, success: impl FnOnce(T) -> &'static str) -> &'static str {
    match answer {
        Ok(value) => success(value),
        Err(ConnectError::InvalidState) => "INVALID",
        Err(ConnectError::AlreadyConnected) => "ACTIVE",
        Err(ConnectError::Aborted) => "ABORTED",
        Err(other) => panic!("{other:?} is not in the table"),
    }
}

fn of_request(requested: Requested) -> &'static str {
    match requested {
        Requested::Pending => "pend",
        Requested::Done => "–",
    }
}

/// Makes a call, with a queue pair that no connector has used.
fn call(name: &str, connector: &Connector<Harness>, from: SocketAddr, to: SocketAddr, spare: &Side) -> &'static str {
    let (queue_pair, limits) = (&spare.pair, ReadLimits::default());
    match name {
        "Connect" => {
            let (source, destination) = (Source::Address(from), to);
            let request = Connect { queue_pair, source, destination, limits, private_data: &[], callback: CONNECT };
            answer(connector.connect(request), of_request)
        }
        "CompleteConnect" => answer(connector.complete_connect(None, ACCEPT), of_request),
        "Accept" => {
            let request = Accept { queue_pair, limits, private_data: &[], disconnect: None, callback: ACCEPT };
            answer(connector.accept(request), of_request)
        }
        "Reject" => answer(connector.reject(&[]), |()| "–"),
        "Disconnect" => answer(connector.disconnect(DISCONNECT), of_request),
        "GetConnectionData" => answer(connector.connection_data(&mut []), |_| "–"),
        "addresses" if connector.local_address().is_some() => "–",
        "addresses" => "INVALID_DEVICE_STATE",
        other => panic!("{other} is no call"),
    }
}

/// The state of a connector as it is listed.
fn state_of(adapter: &Adapter<Harness>, connector: &Connector<Harness>) -> ObjectState {
    let (_, number) = connector.hold().object();
    let mut state = None;
    adapter.objects(&mut |object| state = state.or((object.number == number).then_some(object.state)));
    state.unwrap()
}

#[test]
fn every_call_answers_in_every_state_what_the_page_says() {
    let rows = rows();
    for (state, _) in &rows {
        assert!(WAYS.iter().any(|(row, ..)| row == state), "no way leads to {state:?}");
    }
    for (state, who, reach) in WAYS {
        let (_, answers) = rows.iter().find(|(row, _)| *row == state).unwrap_or_else(|| panic!("no row {state:?}"));
        for (name, expected) in CALLS.iter().zip(answers) {
            let mut pair = Pair::unconnected(World::new(), softndk_engine::Semantics::NDK, Depths::default());
            reach(&mut pair);
            pair.world.run();
            let (connector, adapter, side) = match who {
                Who::Active => (&pair.a.connector, &pair.world.first, &pair.a),
                Who::Passive => (&pair.b.connector, &pair.world.second, &pair.b),
            };
            let (from, to) = match who {
                Who::Active => (SocketAddr::new(FIRST, 0), SocketAddr::new(SECOND, 445)),
                Who::Passive => (SocketAddr::new(SECOND, 0), SocketAddr::new(SECOND, 445)),
            };
            let before = state_of(adapter, connector);
            assert_eq!(state.split([',', ':']).next(), Some(format!("{before:?}").as_str()), "the name of {state:?}");
            let spare = Side::beside(&pair.world, side, 300);
            let given = call(name, connector, from, to, &spare);
            assert_eq!(given, expected.split(' ').next().unwrap(), "{name} in {state:?}");
            if !["pend", "–"].contains(&given) {
                assert_eq!(state_of(adapter, connector), before, "{name} was refused in {state:?}");
            }
            pair.close_other_side(&spare);
            pair.world.run();
        }
    }
}
