//! Two kernel hosts in two processes, one of which goes before the work is done, or is not the one that the other waits for.

use super::machines::{Server, client, network};
use super::{command, failure, report};
use serde_json::Value;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// How often the test looks whether a server has noticed that its client has gone, before it takes it that the client had not come.
const LOOKS: u32 = 1000;

/// Starts clients and kills each, later and later, until one has come to the server: that one ends it.
#[track_caller]
fn break_off(server: &mut Server<'_>, words: &[&str]) {
    for longer in 0..6 {
        let mut client = command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        thread::sleep(Duration::from_millis(500 << longer));
        assert!(client.try_wait().expect("its state").is_none(), "{words:?} has too little to do");
        client.kill().expect("it is killed");
        client.wait().expect("it ends");
        for _ in 0..LOOKS {
            if server.child.try_wait().expect("its state").is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    panic!("{words:?} never came");
}

#[track_caller]
fn assert_broken_off(failure: &Value) {
    assert!(failure["cause"].as_str().unwrap().contains("the client broke off"), "{failure}");
    assert!(!failure["next_step"].as_str().unwrap().contains("--trace"), "{failure}");
}

#[test]
fn server_whose_client_is_killed_exits_1_whatever_it_served() {
    for (op, options) in [("read", &["-s", "8"][..]), ("write", &["-s", "1M", "-t", "4"]), ("send", &["-s", "8", "-e"])]
    {
        let network = network();
        let mut server = Server::start(&network, &["perf", "--server", "10.77.1.1:0"]);
        let at = server.at.clone();
        let words = [&["perf", "--client", &at, "-n", "4000000000", "--op", op], options].concat();
        break_off(&mut server, &client(&network, &words));
        assert_broken_off(&server.failure(1, "refused"));
    }
}

#[test]
fn server_of_messages_whose_client_is_killed_exits_1() {
    let network = network();
    let mut server = Server::start(&network, &["ping", "--server", "10.77.1.1:0"]);
    let at = server.at.clone();
    break_off(&mut server, &client(&network, &["ping", "--client", &at, "-n", "4000000000"]));
    assert_broken_off(&server.failure(1, "refused"));
}

#[test]
fn server_of_a_file_whose_client_is_killed_exits_1() {
    let folder = tempfile::tempdir().unwrap();
    let (source, dest) = (folder.path().join("source"), folder.path().join("dest"));
    File::create(&source).unwrap().set_len(1 << 40).unwrap();
    let network = network();
    let mut server =
        Server::start(&network, &["pull", "--server", "10.77.1.1:0", "--source", source.to_str().unwrap()]);
    let at = server.at.clone();
    break_off(&mut server, &client(&network, &["pull", "--client", &at, "--dest", dest.to_str().unwrap()]));
    assert_broken_off(&server.failure(1, "refused"));
}

#[test]
fn client_that_does_not_come_back_ends_the_server_and_no_other_takes_its_place() {
    let network = network();
    let mut server = Server::start(&network, &["perf", "--server", "10.77.1.1:0"]);
    let at = server.at.clone();
    // Its second row is more than its adapter takes.
    let large = failure(&client(&network, &["perf", "--client", &at, "--limits", "tiny", "-s", "8,5M"]), 1, "refused");
    assert!(large["cause"].as_str().unwrap().contains("at most"), "{large}");
    let other_client = failure(&client(&network, &["perf", "--client", &at, "-n", "10"]), 1, "refused");
    assert!(other_client["cause"].as_str().unwrap().contains("serves another client"), "{other_client}");
    assert!(server.child.try_wait().unwrap().is_none(), "it waits for its client");
    assert_broken_off(&server.failure(1, "refused"));
}

#[test]
fn ping_and_perf_do_not_serve_each_other() {
    for (serves, asks) in [("ping", "perf"), ("perf", "ping")] {
        let network = network();
        let server = Server::start(&network, &[serves, "--server", "10.77.1.1:0"]);
        let at = server.at.clone();
        let words = client(&network, &[asks, "--client", &at]);
        let refused = failure(&words, 1, "refused");
        let failed = server.failure(1, "refused");
        for failure in [&refused, &failed] {
            assert_eq!(failure["next_step"], "use the same command on both sides", "{failure}");
        }
    }
}

/// Where Linux's TCP has an address 10.77.1.1 and its port (docs/kernel-host.md).
fn stand_in(network: &str, at: &str) -> (Ipv4Addr, u16) {
    let (network, port): (u32, u16) = (network.parse().unwrap(), at.rsplit_once(':').unwrap().1.parse().unwrap());
    (Ipv4Addr::from(0x7F80_0000 | network << 9 | 1 << 4), port)
}

#[test]
fn foreign_request_is_refused_and_the_server_goes_on() {
    let network = network();
    let server = Server::start(&network, &["ping", "--server", "10.77.1.1:0"]);
    let at = server.at.clone();
    // A host of NVMe has other private data.
    let nvme = failure(&client(&network, &["nvme", &at, "--subsystem", "nqn.a"]), 1, "refused");
    assert!(nvme["cause"].as_str().unwrap().contains("is an ndkctl"), "the reason comes with the refusal: {nvme}");
    assert!(nvme["next_step"].as_str().unwrap().contains("target"), "{nvme}");
    let ping = report(&client(&network, &["ping", "--client", &at, "-n", "7"]));
    assert_eq!(ping["count"], 7);
    let (answered, errors) = server.report_and_errors();
    assert_eq!(answered["count"], 7);
    assert!(errors.contains("refused a connection request of") && errors.contains("still listening"), "{errors}");
}

#[test]
fn target_that_is_not_there_is_no_server_to_start() {
    let network = network();
    let nvme = failure(&client(&network, &["nvme", "10.77.1.1", "--subsystem", "nqn.a"]), 1, "refused");
    assert!(nvme["next_step"].as_str().unwrap().starts_with("look whether a target"), "{nvme}");
}

#[test]
fn adapter_without_streams_does_not_reach_another_machine() {
    let network = network();
    let words = client(&network, &["ping", "--client", "10.77.1.1", "--keyword", "Transport=0"]);
    let unreached = failure(&words, 1, "refused");
    assert!(unreached["next_step"].as_str().unwrap().contains("Transport 1"), "{unreached}");
}

#[test]
fn second_client_of_a_last_connection_is_refused_at_once() {
    let network = network();
    let server = Server::start(&network, &["ping", "--server", "10.77.1.1:0"]);
    let at = server.at.clone();
    let words = client(&network, &["ping", "--client", &at, "-n", "4000000000"]);
    let mut first = command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    // The listener goes when the first client has come.
    while TcpStream::connect(stand_in(&network, &at)).is_ok() {
        thread::sleep(Duration::from_millis(100));
    }
    let second = failure(&client(&network, &["ping", "--client", &at]), 1, "refused");
    assert!(second["cause"].as_str().unwrap().contains("ND_CONNECTION_REFUSED"), "{second}");
    first.kill().unwrap();
    first.wait().unwrap();
    assert_broken_off(&server.failure(1, "refused"));
}
