//! `ndkctl connect`: the ways in which a connection is established, refused and ended; and how many can be made in a second.
//!
//! Each case is a replay script: ndktest.sys runs it through the provider's dispatch tables and compares every status and every event. A
//! case that goes well is shown as its time line, what was called and what happened then. The rate is that of pairs: two opens,
//! all objects, one connection, and all of it taken down again.

use crate::arguments::ConnectArguments;
use crate::client::Client;
use crate::failure::{Failure, Kind};
use crate::pair::{PairSize, ends, with_pair};
use crate::progress::Progress;
use crate::replay;
use crate::script;
use crate::transport::Device;
use crate::units;
use clap::ValueEnum;
use serde::Serialize;
use softndk_ioctl::AdapterEntry;
use std::fmt;
use std::time::{Duration, Instant};

/// A way a connection can go.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// Connect, accept, complete; both ends disconnect.
    Accept,
    /// The listener's side rejects.
    Reject,
    /// No listener at the port.
    Refused,
    /// The listener is paused, and then not.
    Paused,
    /// Private data of the greatest length, and one byte more.
    PrivateData,
    /// Several connections from one shared endpoint.
    SharedEndpoint,
    /// The connecting side gives up before it is answered.
    Abandoned,
    /// One end closes its connector without a disconnect.
    Abort,
    /// The listener is closed; its connection goes on.
    ListenerClosed,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectReport {
    pub cases: Vec<CaseReport>,
    pub rate: Option<RateReport>,
}

/// A case that passed.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    pub case: Case,
    /// Steps of its script.
    pub steps: usize,
    /// Its calls on connections, and what happened after each.
    pub time_line: Vec<String>,
}

/// Connections made and taken down one after the other. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct RateReport {
    pub count: u32,
    pub ends: String,
    pub per_second: f64,
    pub shortest: u64,
    pub median: u64,
    pub longest: u64,
}

/// Runs the cases, then the count.
pub fn run<D: Device>(
    client: &Client<D>,
    arguments: &ConnectArguments,
    progress: Progress,
) -> Result<ConnectReport, Failure> {
    let adapters = client.adapters()?;
    let data = |index| {
        let entry = adapters.iter().find(|entry: &&AdapterEntry| entry.index == index);
        entry.map_or((0, 0), |entry| (entry.limits.max_caller_data, entry.limits.max_callee_data))
    };
    let lengths = (data(arguments.pair.client).0, data(arguments.pair.server).1);
    let wanted: &[Case] = if arguments.case.is_empty() { Case::value_variants() } else { &arguments.case };
    let mut cases = Vec::new();
    for case in wanted {
        cases.push(run_case(client, *case, (arguments.pair.client, arguments.pair.server), lengths)?);
    }
    let rate = if arguments.count == 0 { None } else { Some(measure(client, arguments, progress)?) };
    Ok(ConnectReport { cases, rate })
}

/// Runs one case from a client adapter to a server adapter; `lengths` are the greatest private data of both.
pub(crate) fn run_case<D: Device>(
    client: &Client<D>,
    case: Case,
    adapters: (u32, u32),
    lengths: (u32, u32),
) -> Result<CaseReport, Failure> {
    let text = case.text(adapters.0, adapters.1, lengths);
    let name =
        format!("connect {}", case.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned()));
    let lines = script::parse(&text).map_err(|error| {
        Failure::new(
            Kind::Refused,
            format!("cannot run {name}"),
            error.to_string(),
            "this is a fault of ndkctl; please report it",
        )
    })?;
    replay::run_script(client, std::path::Path::new(&name), &text, &lines)?;
    Ok(CaseReport { case, steps: lines.len(), time_line: time_line(&text) })
}

/// The lines of a case that are about its connection.
fn time_line(text: &str) -> Vec<String> {
    const WORDS: [&str; 14] = [
        "listen ",
        "connect ",
        "connect-shared ",
        "arrive ",
        "accept ",
        "reject ",
        "complete ",
        "disconnect ",
        "close K",
        "close L",
        "pause ",
        "limits ",
        "events ",
        "endpoint ",
    ];
    let lines = text.lines().filter(|line| WORDS.iter().any(|word| line.starts_with(word)));
    lines.filter(|line| *line != "events -> []").map(str::to_owned).collect()
}

const LISTEN: &str =
    "listener L0 adapter=A1 -> SUCCESS\nlisten L0 port=0 -> SUCCESS\nconnector K0 adapter=A0 -> SUCCESS\n";
const CONNECT: &str = "connect K0 qp=Q0 to=L0 host=none port=0 source=0 inbound=2 outbound=2 data=0\n";
const ACCEPT: &str = "\
arrive K1 at=L0 -> SUCCESS
accept K1 qp=Q1 inbound=2 outbound=2 data=0
events -> [arrived L0 SUCCESS, connect K0 SUCCESS]
complete K0
events -> [complete K0 SUCCESS, accept K1 SUCCESS]
limits K0 inbound=2 outbound=2 -> SUCCESS
";
const FAREWELL: &str = "\
disconnect K0
events -> [gone K1 SUCCESS]
disconnect K1
events -> [disconnect K0 SUCCESS, disconnect K1 SUCCESS]
";

/// Two opens and queue pairs for as many connections.
fn objects(client: u32, server: u32, connections: u32) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (end, index) in [(0, client), (1, server)] {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "open A{end} adapter={index} -> SUCCESS\npd P{end} adapter=A{end} -> SUCCESS\ncq C{end} adapter=A{end} depth=16 -> SUCCESS\n"
        );
    }
    for pair in 0..connections * 2 {
        let end = pair % 2;
        let _ = writeln!(
            text,
            "qp Q{pair} domain=P{end} receive=C{end} initiator=C{end} receive-depth=2 initiator-depth=2 receive-elements=1 initiator-elements=1 inline=0 -> SUCCESS"
        );
    }
    text
}

impl Case {
    /// The script of a case; `lengths` are the greatest private data of the calling and the answering side.
    fn text(self, client: u32, server: u32, (calling, answering): (u32, u32)) -> String {
        let start = objects(client, server, 2);
        let steps = match self {
            Self::Accept => format!("{LISTEN}{CONNECT}{ACCEPT}{FAREWELL}"),
            Self::Reject => format!(
                "{LISTEN}{CONNECT}arrive K1 at=L0 -> SUCCESS\nreject K1 data={answering} -> SUCCESS\n\
                 events -> [arrived L0 SUCCESS, connect K0 CONNECTION_REFUSED]\n"
            ),
            Self::Refused => "connector K0 adapter=A0 -> SUCCESS\n\
                 connect K0 qp=Q0 to=none host=A1 port=9 source=0 inbound=2 outbound=2 data=0\n\
                 events -> [connect K0 CONNECTION_REFUSED]\n"
                .to_owned(),
            Self::Paused => format!(
                "{LISTEN}pause L0 pause=1\n{CONNECT}events -> [connect K0 CONNECTION_REFUSED]\n\
                 pause L0 pause=0\n{CONNECT}{ACCEPT}"
            ),
            Self::PrivateData => format!(
                "{LISTEN}connect K0 qp=Q0 to=L0 host=none port=0 source=0 inbound=2 outbound=2 data={}\n\
                 events -> [connect K0 INVALID_BUFFER_SIZE]\n\
                 connect K0 qp=Q0 to=L0 host=none port=0 source=0 inbound=2 outbound=2 data={calling}\n\
                 arrive K1 at=L0 -> SUCCESS\n\
                 accept K1 qp=Q1 inbound=2 outbound=2 data={}\n\
                 events -> [arrived L0 SUCCESS, accept K1 INVALID_BUFFER_SIZE]\n\
                 accept K1 qp=Q1 inbound=2 outbound=2 data={answering}\n\
                 events -> [connect K0 SUCCESS]\ncomplete K0\n\
                 events -> [complete K0 SUCCESS, accept K1 SUCCESS]\n{FAREWELL}",
                calling + 1,
                answering + 1
            ),
            Self::SharedEndpoint => format!(
                "{LISTEN}endpoint E0 adapter=A0 port=0 -> SUCCESS\n\
                 connect-shared K0 qp=Q0 endpoint=E0 to=L0 host=none port=0 inbound=2 outbound=2 data=0\n{ACCEPT}\
                 listener L1 adapter=A1 -> SUCCESS\nlisten L1 port=0 -> SUCCESS\nconnector K2 adapter=A0 -> SUCCESS\n\
                 connect-shared K2 qp=Q2 endpoint=E0 to=L1 host=none port=0 inbound=2 outbound=2 data=0\n\
                 arrive K3 at=L1 -> SUCCESS\naccept K3 qp=Q3 inbound=2 outbound=2 data=0\n\
                 events -> [arrived L1 SUCCESS, connect K2 SUCCESS]\ncomplete K2\n\
                 events -> [complete K2 SUCCESS, accept K3 SUCCESS]\n{FAREWELL}"
            ),
            Self::Abandoned => format!(
                "{LISTEN}{CONNECT}arrive K1 at=L0 -> SUCCESS\nclose K0\n\
                 events -> [arrived L0 SUCCESS, connect K0 CONNECTION_ABORTED, closed K0 SUCCESS]\n\
                 accept K1 qp=Q1 inbound=2 outbound=2 data=0\nevents -> [accept K1 CONNECTION_ABORTED]\n"
            ),
            Self::Abort => {
                format!("{LISTEN}{CONNECT}{ACCEPT}close K1\nevents -> [closed K1 SUCCESS, gone K0 SUCCESS]\n")
            }
            Self::ListenerClosed => format!(
                "{LISTEN}{CONNECT}{ACCEPT}close L0\nevents -> []\n{FAREWELL}close K1\n\
                 events -> [closed K1 SUCCESS, closed L0 SUCCESS]\n"
            ),
        };
        start + &steps
    }
}

fn measure<D: Device>(
    client: &Client<D>,
    arguments: &ConnectArguments,
    progress: Progress,
) -> Result<RateReport, Failure> {
    let bar = progress.operations(u64::from(arguments.count), "connections");
    let started = Instant::now();
    let (mut times, mut addresses) = (Vec::new(), String::new());
    for _ in 0..arguments.count {
        let begin = Instant::now();
        with_pair(client, &arguments.pair, PairSize { depth: 1, sge: 1, shared: false }, |pair| {
            times.push(begin.elapsed());
            addresses = ends(pair);
            Ok(())
        })?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let whole = started.elapsed().as_secs_f64();
    times.sort_unstable();
    let nanoseconds =
        |time: Option<&Duration>| time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    Ok(RateReport {
        count: arguments.count,
        ends: addresses,
        per_second: if whole > 0.0 { f64::from(arguments.count) / whole } else { 0.0 },
        shortest: nanoseconds(times.first()),
        median: nanoseconds(times.get(times.len() / 2)),
        longest: nanoseconds(times.last()),
    })
}

impl fmt::Display for ConnectReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for case in &self.cases {
            let name = case.case.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            writeln!(formatter, "{name}: as it must be, {} steps", case.steps)?;
            for line in &case.time_line {
                writeln!(formatter, "    {line}")?;
            }
        }
        if let Some(rate) = &self.rate {
            let time = |nanoseconds: u64| units::duration(nanoseconds as f64);
            writeln!(
                formatter,
                "{} connections, the last one {}: {:.0} a second; made in {} to {}, median {}",
                units::count(u64::from(rate.count)),
                rate.ends,
                rate.per_second,
                time(rate.shortest),
                time(rate.longest),
                time(rate.median)
            )?;
        }
        write!(formatter, "{} cases, 0 differences", self.cases.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Case, time_line};
    use crate::script::{encode, parse};
    use clap::ValueEnum;
    use softndk_ioctl::SCRIPT_LENGTH_MAX;

    #[test]
    fn every_case_is_a_script_with_a_time_line() {
        for case in Case::value_variants() {
            let text = case.text(0, 1, (56, 148));
            let lines = parse(&text).unwrap_or_else(|error| panic!("{case:?}: {error}\n{text}"));
            assert!(encode(&lines).len() < SCRIPT_LENGTH_MAX as usize);
            assert!(time_line(&text).len() > 1, "{case:?}");
        }
    }
}
