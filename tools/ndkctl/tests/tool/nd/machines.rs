//! Two kernel hosts in two processes: a server and a client that reach each other by Linux's TCP.

use super::{command, failure, failure_of, read_document, report, report_of, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of a network that no other test has, nor another run of these at the same time.
pub fn network() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id().wrapping_mul(16).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
    (number % 16_384).to_string()
}

/// A server that listens. It is ended with the test.
pub struct Server<'w> {
    words: Vec<&'w str>,
    pub child: Child,
    errors: BufReader<ChildStderr>,
    /// Address and port.
    pub at: String,
}

impl<'w> Server<'w> {
    /// Starts the first machine and waits until it listens.
    pub fn start(network: &'w str, words: &[&'w str]) -> Self {
        let words = [words, &["--machine", "1", "--network", network, "--json"]].concat();
        let mut child = command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a line");
        let at = line.trim_end().strip_prefix("listens at ").unwrap_or_else(|| panic!("{words:?}: {line}")).to_owned();
        Self { words, child, errors, at }
    }

    /// Waits for its end: its words, exit code and document, and what it wrote to standard error after the first line.
    fn wait(mut self) -> (Vec<&'w str>, (i32, Value), String) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.child.stdout.take().expect("a pipe").read_to_end(&mut stdout).expect("its report");
        self.errors.read_to_end(&mut stderr).expect("its errors");
        let status = self.child.wait().expect("it ends");
        let output = Output { status, stdout, stderr };
        (self.words.clone(), read_document(&self.words, &output), text(&output.stderr))
    }

    #[track_caller]
    pub fn report(self) -> Value {
        self.report_and_errors().0
    }

    #[track_caller]
    pub fn report_and_errors(self) -> (Value, String) {
        let (words, document, errors) = self.wait();
        (report_of(&words, document), errors)
    }

    #[track_caller]
    pub fn failure(self, code: i32, kind: &str) -> Value {
        let (words, document, _) = self.wait();
        failure_of(&words, document, (code, kind))
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // It has ended, or its test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The words of a client on the second machine.
pub fn client<'a>(network: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [words, &["--machine", "2", "--network", network]].concat()
}

#[test]
fn machine_has_the_addresses_of_its_number() {
    let report = report(&["info", "--machine", "3", "--network", &network()]);
    let addresses = report["adapters"][1]["addresses"].as_array().unwrap();
    assert_eq!(addresses[..], ["10.77.3.2", "fd00:736f:6674:6e64::3:2"]);
}

#[test]
fn pings_of_another_process_are_answered() {
    let network = network();
    for (address, from) in [("10.77.1.2:0", "10.77.2.1"), ("[fd00:736f:6674:6e64::1:1]:0", "fd00:736f:6674:6e64::2:1")]
    {
        let server = Server::start(&network, &["ping", "--server", address, "-n", "1"]);
        let at = server.at.clone();
        let ping = report(&client(&network, &["ping", "--client", &at, "-n", "40", "-s", "300"]));
        assert_eq!((&ping["ends"], &ping["count"]), (&format!("{from} to {at}").into(), &40.into()));
        assert_eq!(ping["bytes_compared"], 40 * 300);
        let answered = server.report();
        assert_eq!(
            (&answered["count"], &answered["size"], &answered["bytes_compared"]),
            (&40.into(), &300.into(), &12_000.into())
        );
        assert_eq!((&answered["latency"], &answered["ends"]), (&Value::Null, &format!("server at {at}").into()));
    }
}

#[test]
fn perf_has_its_rows_at_both_processes() {
    let network = network();
    let server = Server::start(&network, &["perf", "--server", "10.77.1.1"]);
    assert_eq!(server.at, "10.77.1.1:18515", "the port without one");
    let words = ["perf", "--client", "10.77.1.1", "-n", "30", "-s", "5000", "-t", "4", "--notify"];
    let rows = |report: &Value| report["rows"].as_array().unwrap().clone();
    let (client, server) = (rows(&report(&client(&network, &words))), rows(&server.report()));
    assert_eq!((client.len(), server.len()), (3, 3));
    for (client, server) in client.iter().zip(&server) {
        assert_eq!(client["operation"], server["operation"]);
        let compared = |row: &Value| row["bytes_compared"].as_u64().unwrap();
        assert_eq!(compared(client) + compared(server), 4 * 5000, "{client} {server}");
        assert!(client["rate"].as_f64().unwrap() > 0.0 && server["rate"].is_null());
    }
}

#[test]
fn perf_beside_tcp_has_a_share_of_reads_and_writes() {
    let network = network();
    let options = ["-n", "30", "-s", "5000,0", "-t", "1,4", "--beside-tcp"];
    let server = Server::start(&network, &["perf", "--server", "10.77.1.1:0"]);
    let at = server.at.clone();
    let words = [&["perf", "--client", &at][..], &options].concat();
    let (client, server) = (report(&client(&network, &words)), server.report());
    let [client, server] = [client, server].map(|report| report["rows"].as_array().unwrap().clone());
    assert_eq!((client.len(), server.len()), (12, 12), "what goes by TCP has no row of its own");
    for row in client {
        let is_measured = row["operation"] != "send" && row["size"] != 0;
        assert_eq!(row["tcp"]["share"].as_f64().is_some_and(|share| share > 0.0), is_measured, "{row}");
    }
    assert!(server.iter().all(|row| row["tcp"].is_null()), "a server has no times");
}

#[test]
fn file_is_pulled_from_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let (source, dest) = (folder.path().join("source"), folder.path().join("dest"));
    let (from, to) = (source.to_str().unwrap(), dest.to_str().unwrap());
    let network = network();
    for (size, options) in
        [((6 << 20) + 4321, &[][..]), (0, &[]), (300_001, &["--notify", "-t", "3", "--request-size", "7000"])]
    {
        let mut bytes = vec![0; size];
        fastrand::Rng::with_seed(size as u64).fill(&mut bytes);
        fs::write(&source, &bytes).unwrap();
        let server = Server::start(&network, &["pull", "--server", "10.77.1.1:0", "--source", from]);
        let at = server.at.clone();
        let words = [&["pull", "--client", &at, "--dest", to], options].concat();
        let (pulled, given) = (report(&client(&network, &words)), server.report());
        assert!(fs::read(&dest).unwrap() == bytes, "the file of {size} bytes");
        for report in [&pulled, &given] {
            assert_eq!(report["bytes"], size);
            assert_eq!(report["source_sha256"], pulled["dest_sha256"]);
            assert_eq!(report["windows"], pulled["windows"]);
        }
        assert_eq!((&pulled["source"], &given["dest"], &given["reads"]), (&Value::Null, &Value::Null, &Value::Null));
    }
}

#[test]
fn file_that_does_not_keep_its_length_is_refused_at_both_processes() {
    let folder = tempfile::tempdir().unwrap();
    let dest = folder.path().join("dest");
    let network = network();
    // It says that it has no bytes, and has some.
    let server = Server::start(&network, &["pull", "--server", "10.77.1.1:0", "--source", "/proc/version"]);
    let at = server.at.clone();
    let words = client(&network, &["pull", "--client", &at, "--dest", dest.to_str().unwrap()]);
    let at_client = failure(&words, 6, "file");
    assert!(at_client["what"].as_str().unwrap().contains("the server's file"), "{at_client}");
    let at_server = server.failure(6, "file");
    assert!(at_server["what"].as_str().unwrap().contains("/proc/version"), "{at_server}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of the copy");
}

#[test]
fn server_whose_file_is_missing_exits_6_before_it_listens() {
    let network = network();
    let words =
        ["pull", "--server", "10.77.1.1:0", "--source", "/no/such/file", "--machine", "1", "--network", &network];
    let missing = failure(&words, 6, "file");
    assert_eq!(missing["what"], "cannot read /no/such/file");
}

#[test]
fn client_of_no_server_is_refused() {
    let network = network();
    let folder = tempfile::tempdir().unwrap();
    let dest = folder.path().join("dest");
    for words in [&["ping"][..], &["pull", "--dest", dest.to_str().unwrap()]] {
        let words = client(&network, &[words, &["--client", "10.77.1.1:7000"]].concat());
        let refused = failure(&words, 1, "refused");
        assert!(refused["cause"].as_str().unwrap().contains("ND_CONNECTION_REFUSED"), "{refused}");
        assert!(refused["next_step"].as_str().unwrap().contains("start the server first"), "{refused}");
    }
    assert!(!dest.exists());
}

#[test]
fn client_that_wants_something_else_is_refused_at_both_processes() {
    let network = network();
    let server =
        Server::start(&network, &["pull", "--server", "10.77.1.1:0", "--source", env!("CARGO_BIN_EXE_ndkctl")]);
    let at = server.at.clone();
    failure(&client(&network, &["ping", "--client", &at]), 1, "refused");
    let refused = server.failure(1, "refused");
    assert_eq!(refused["what"], "cannot serve this client");
}

#[test]
fn machines_go_with_real_time_only() {
    for words in ["ping --machine 1 --mode verify", "ping --machine 1 --mode measure", "ping --network 7"] {
        let words: Vec<_> = words.split(' ').collect();
        let refused = failure(&words, 2, "usage");
        assert_eq!(refused["what"], "cannot be one of several machines");
    }
}
