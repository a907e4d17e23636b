//! Replay: scripts that check themselves, scripts that are wrong, random scripts, and the objects that a script leaves open.

use super::handles::File;
use super::machine::{Machine, ORDINARY, send};
use super::pairs::objects;
use super::{Case, cases};
use ndkctl::script::{Line, Tail, encode, parse};
use softndk_ioctl::{
    Request, RequestHeader, SCRIPT_LENGTH_MAX, SCRIPT_SLOTS, ScriptCode, ScriptForm, ScriptKind, ScriptName,
    ScriptReply, ScriptRequest, ScriptSge, ScriptStep, Status,
};
use std::fmt::Write as _;
use zerocopy::{FromBytes, IntoBytes};

pub const CASES: &[Case] = cases![
    scripts_run_to_their_end,
    an_event_that_is_expected_is_waited_for,
    a_difference_stops_the_script_and_is_shown,
    steps_that_make_no_sense_break_the_script,
    bytes_that_are_no_script_are_refused,
    what_a_script_leaves_open_is_closed,
    random_scripts_do_no_harm,
    a_script_without_its_adapter_ends,
    objects_in_slots_of_another_kind_are_refused,
    an_adapter_without_a_place_to_wait_in_stays_open,
    a_script_without_an_adapter_outlives_the_last_one_and_is_cancelled,
];

pub const TRANSFERS: &str = include_str!("../scripts/transfers.ndk");

pub fn input(steps: &[u8]) -> Vec<u8> {
    let size = (size_of::<ScriptRequest>() + steps.len()) as u32;
    let header = RequestHeader { size, ..RequestHeader::of::<ScriptRequest>() };
    [ScriptRequest { header, length: steps.len() as u32, reserved: 0 }.as_bytes(), steps].concat()
}

/// Runs steps; the status, the reply and its entries.
pub fn replay(file: &File, steps: &[u8]) -> Result<(ScriptReply, Vec<u8>), Status> {
    let (status, output) = send(file, ScriptRequest::CODE, &input(steps), 16 << 10);
    if status != Status::SUCCESS {
        assert!(output.is_empty());
        return Err(status);
    }
    let (reply, entries) = ScriptReply::read_from_prefix(&output).expect("a reply");
    assert_eq!(reply.header.size as usize, output.len());
    assert_eq!(entries.len(), reply.seen as usize * 32);
    Ok((reply, entries.to_vec()))
}

fn text(file: &File, text: &str) -> ScriptReply {
    replay(file, &encode(&parse(text).expect("a script"))).expect("it runs").0
}

fn with_file(work: impl FnOnce(&Machine, &File)) {
    let machine = Machine::start();
    let file = machine.open();
    work(&machine, &file);
    assert_eq!(objects(&file).ndk_adapters, 0, "everything a script made is closed");
    file.close();
    machine.finish();
}

fn scripts_run_to_their_end() {
    with_file(|_, file| {
        for _ in 0..2 {
            let reply = text(file, TRANSFERS);
            assert_eq!((reply.differs, reply.steps as usize), (0, parse(TRANSFERS).unwrap().len()), "{reply:?}");
        }
        assert_eq!(text(file, ""), ScriptReply { header: text(file, "").header, ..ScriptReply::default() });
    });
}

/// An event that comes long after everything else is at rest: so it looks when a context that makes it happen has no processor.
fn an_event_that_is_expected_is_waited_for() {
    let machine =
        Machine::with_changed(&[ORDINARY, ORDINARY], |_, config| config.with_keyword("ConnectTimeoutMs", "700"));
    let file = machine.open();
    let connect = "listener L0 adapter=A0 -> SUCCESS\nlisten L0 port=0 -> SUCCESS\nconnector K0 adapter=A0 -> SUCCESS\n\
                   connect K0 qp=Q0 to=L0 host=none port=0 source=0 inbound=1 outbound=1 data=0\n";
    let waited = format!("{START}{connect}events -> [arrived L0 SUCCESS, connect K0 IO_TIMEOUT]\n");
    let reply = text(&file, &waited);
    assert_eq!(reply.differs, 0, "{reply:?}");
    let reply = text(&file, &format!("{START}{connect}events -> [arrived L0 SUCCESS]\n"));
    assert_eq!(reply.differs, 0, "what is not expected is not waited for: {reply:?}");
    file.close();
    machine.finish();
}

const START: &str = "\
open A0 adapter=0 -> SUCCESS
pd P0 adapter=A0 -> SUCCESS
cq C0 adapter=A0 depth=8 -> SUCCESS
qp Q0 domain=P0 receive=C0 initiator=C0 receive-depth=4 initiator-depth=4 receive-elements=1 initiator-elements=1 inline=0 -> SUCCESS
buffer B0 adapter=A0 length=100 seed=3 -> SUCCESS
mr M0 domain=P0 -> SUCCESS
";

fn a_difference_stops_the_script_and_is_shown() {
    with_file(|_, file| {
        // A status, a digest, a result too many, an event too few.
        let reply = text(file, &format!("{START}send Q0 -> SUCCESS\nclose Q0"));
        assert_eq!((reply.differs, reply.steps), (ScriptReply::DIFFERS, 7));
        assert_eq!(Status(reply.status), Status::CONNECTION_INVALID);
        let reply = text(file, &format!("{START}bytes B0 offset=0 length=100 digest=0x1"));
        assert_eq!((reply.differs, reply.steps), (ScriptReply::DIFFERS, 7));
        let digest = reply.values[0];
        assert_eq!(text(file, &format!("{START}bytes B0 offset=0 length=100 digest={digest:#x}")).differs, 0);
        let flushed = format!("{START}receive Q0 context=5 [B0+0:8] -> SUCCESS\nflush Q0\n");
        let reply = text(file, &format!("{flushed}poll C0 -> []"));
        assert_eq!((reply.differs, reply.seen), (ScriptReply::DIFFERS, 1));
        assert_eq!(text(file, &format!("{flushed}poll C0 -> [Q0 5 receive CANCELLED 0]")).differs, 0);
        assert_eq!(text(file, &format!("{flushed}poll C0 -> [Q0 6 receive CANCELLED 0]")).differs, 1);
        assert_eq!(text(file, &format!("{START}close M0\nevents -> []")).differs, 1);
        assert_eq!(
            text(file, &format!("{START}close M0\nevents -> [closed M0 SUCCESS, closed M0 SUCCESS]")).differs,
            1
        );
    });
}

fn steps_that_make_no_sense_break_the_script() {
    with_file(|_, file| {
        for broken in [
            "pd P0 adapter=A0 -> SUCCESS",
            "pd P1 adapter=A1 -> SUCCESS",
            "pd P1 adapter=P0 -> SUCCESS",
            "close Q1",
            "flush Q1",
            "cq C1 adapter=A0 depth=0x100000000 -> SUCCESS",
            "buffer B1 adapter=A0 length=0 seed=0 -> SUCCESS",
            "buffer B1 adapter=A0 length=0x100001 seed=0 -> SUCCESS",
            "fill B0 offset=90 length=11 seed=1",
            "fill B0 offset=0xffffffffffffffff length=2 seed=1",
            "bytes B0 offset=1 length=100 digest=0x0",
            "register M0 buffer=B0 offset=100 length=1 rights=local-write -> SUCCESS",
            "fast-register Q0 context=0 flags=0x0 region=M0 buffer=B0 page=0 pages=2 first-byte=0 length=8 base=0 -> SUCCESS",
            "fast-register Q0 context=0 flags=0x0 region=M0 buffer=B0 page=0xffffffff pages=0xffffffff first-byte=0 length=8 base=0 -> SUCCESS",
            "send Q0 context=1 flags=inline [0x1000:8@0x0] -> SUCCESS",
            "send Q0 context=1 flags=inline [B0+96:8] -> SUCCESS",
            "send Q0 context=1 flags=inline [B0+0:0xffffffff] -> SUCCESS",
            "send Q0 context=1 flags=inline [M0+0:8] -> SUCCESS",
            "remember T0 of=P0",
            "arrive K0 at=L0 -> SUCCESS",
        ] {
            let reply = text(file, &format!("{START}{broken}\nclose A0"));
            assert_eq!((reply.differs, reply.steps), (ScriptReply::BROKEN, 7), "{broken}");
        }
    });
}

fn bytes_that_are_no_script_are_refused() {
    with_file(|_, file| {
        let good = encode(&parse(START).unwrap());
        let whole = input(&good);
        for length in [0, 7, 8, 15, whole.len() - 1] {
            let (status, _) = send(file, ScriptRequest::CODE, &whole[..length], 4096);
            assert_eq!(status, Status::INFO_LENGTH_MISMATCH, "{length}");
        }
        let refuse = |change: &dyn Fn(&mut Vec<u8>), expected| {
            let mut bytes = whole.clone();
            change(&mut bytes);
            assert_eq!(send(file, ScriptRequest::CODE, &bytes, 4096).0, expected);
        };
        refuse(&|bytes| bytes[0] += 1, Status::REVISION_MISMATCH);
        refuse(&|bytes| bytes[8] ^= 1, Status::INFO_LENGTH_MISMATCH);
        refuse(&|bytes| bytes[12] = 1, Status::INVALID_PARAMETER);
        // Code, tail, reserved and a superfluous argument of the first step.
        for place in [17, 18, 28, 16 + 24] {
            refuse(&|bytes| bytes[place] = 0x77, Status::INVALID_PARAMETER);
        }
        assert_eq!(send(file, ScriptRequest::CODE, &whole, 39).0, Status::BUFFER_TOO_SMALL);
        let long = vec![0; SCRIPT_LENGTH_MAX as usize + 96];
        assert_eq!(replay(file, &long).unwrap_err(), Status::INVALID_PARAMETER);
        assert_eq!(text(file, "open A0 adapter=0 -> SUCCESS").differs, 0);
        let absent = encode(&parse("open A0 adapter=9 -> SUCCESS").unwrap());
        assert_eq!(replay(file, &absent).unwrap_err(), Status::DEVICE_DOES_NOT_EXIST);
    });
}

fn what_a_script_leaves_open_is_closed() {
    with_file(|_, file| {
        // Cut anywhere, connections and requests under way included.
        let lines = parse(TRANSFERS).unwrap();
        for length in 1..lines.len() {
            let (reply, _) = replay(file, &encode(&lines[..length])).unwrap();
            assert_eq!((reply.differs, reply.steps as usize), (0, length), "{}", lines[length - 1]);
            let left = objects(file);
            assert_eq!((left.ndk_adapters, left.queue_pairs, left.logical_mappings), (0, 0, 0), "after {length}");
        }
    });
}

/// A generator of numbers, so that a failing script can be had again.
struct Chance(u64);

impl Chance {
    fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    fn name(&mut self, kind: Option<ScriptKind>) -> ScriptName {
        let any = ScriptKind::ALL[self.below(12) as usize].0;
        let kind = if self.below(20) == 0 { any } else { kind.unwrap_or(any) };
        let number = if self.below(50) == 0 { self.below(u64::from(SCRIPT_SLOTS) + 2) } else { self.below(2) };
        ScriptName::new(kind, number as u16)
    }

    /// Small mostly, now and then at an edge.
    fn argument(&mut self) -> u64 {
        match self.below(12) {
            0 => 0,
            1 => [u64::from(u32::MAX), u64::MAX, 1 << 31, 4095, 4096, 4097][self.below(6) as usize],
            2 => self.number(),
            _ => self.below(9),
        }
    }

    fn sge(&mut self) -> ScriptSge {
        let kinds = [ScriptKind::Region, ScriptKind::Buffer, ScriptKind::Token];
        let kind = kinds[self.below(3) as usize];
        let base = self.name(Some(kind));
        let token = if self.below(8) == 0 { ScriptName::NONE } else { base };
        let (raw_token, length) = (self.argument() as u32, self.argument() as u32);
        ScriptSge { base, token, raw_token, length, offset: self.argument(), reserved: 0 }
    }

    fn line(&mut self) -> Line {
        let code = ScriptCode::ALL[self.below(ScriptCode::ALL.len() as u64) as usize];
        let verb = code.verb();
        // A slot of another kind would make the whole script one that is refused.
        let own = |name: ScriptName| verb.object.is_none_or(|kind| name.parts().is_some_and(|(slot, _)| slot == kind));
        let object = loop {
            let name = self.name(verb.object);
            if own(name) {
                break name;
            }
        };
        let mut step = ScriptStep { code: code as u16, object, ..ScriptStep::default() };
        let mut place = 0;
        for (name, form) in verb.arguments {
            step.arguments[place] = match form {
                ScriptForm::Object => {
                    let kind = match *name {
                        "adapter" | "host" => ScriptKind::Adapter,
                        "domain" => ScriptKind::Domain,
                        "receive" | "initiator" => ScriptKind::CompletionQueue,
                        "shared" => ScriptKind::SharedReceiveQueue,
                        "qp" => ScriptKind::QueuePair,
                        "buffer" => ScriptKind::Buffer,
                        "region" | "target" | "of" => ScriptKind::Region,
                        "window" => ScriptKind::Window,
                        "endpoint" => ScriptKind::Endpoint,
                        _ => ScriptKind::Listener,
                    };
                    u64::from(self.name(Some(kind)).0)
                }
                ScriptForm::Remote => u64::from(self.name(Some(ScriptKind::Region)).0) | self.number() << 32,
                ScriptForm::Flags => self.number() & self.number() & 0x3FF,
                ScriptForm::Rights => self.below(16),
                _ if *name == "adapter" => self.below(2),
                _ if matches!(*name, "length" | "pages") => self.argument().max(1),
                _ => self.argument(),
            };
            place += 1;
            if *form == ScriptForm::Remote {
                step.arguments[place] = self.argument();
                place += 1;
            }
        }
        let sges = if verb.sges { self.below(4) } else { 0 };
        let tail = match sges {
            0 => Tail::Nothing,
            count => Tail::Sges((0..count).map(|_| self.sge()).collect()),
        };
        Line { step, tail }
    }
}

/// Scripts of lines made by chance behind one that makes a connection. Nothing is expected of what they give, so a line that
/// differs or is broken is taken out, and the rest tried again: in the end every line of a script is one that ran.
fn random_scripts_do_no_harm() {
    let seed = std::env::var("SOFTNDK_CHANCE").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5EED);
    let start: Vec<Line> = parse(TRANSFERS).unwrap().into_iter().take(26).collect();
    with_file(|_, file| {
        let mut chance = Chance(seed);
        let (mut ran, mut refused) = (0, 0);
        for round in 0..60 {
            let mut lines = start.clone();
            let first = if round % 4 == 0 { 0 } else { lines.len() };
            lines.truncate(first);
            lines.extend((0..60).map(|_| chance.line()));
            while lines.len() > first {
                match replay(file, &encode(&lines)) {
                    Ok((reply, _)) if reply.differs == 0 => {
                        ran += lines.len() - first;
                        break;
                    }
                    Ok((reply, _)) => {
                        let at = reply.steps as usize - 1;
                        assert!(at >= first, "the start of the script is right: {reply:?}");
                        if reply.differs == ScriptReply::DIFFERS && lines[at].step.status != reply.status {
                            lines[at].step.status = reply.status;
                        } else {
                            lines.remove(at);
                            refused += 1;
                        }
                    }
                    Err(Status::INSUFFICIENT_RESOURCES | Status::DEVICE_DOES_NOT_EXIST) => {
                        lines.pop();
                    }
                    Err(status) => {
                        panic!("{status} of {}", lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
                    }
                }
            }
            assert_eq!(objects(file).ndk_adapters, 0);
        }
        println!("{ran} lines ran, {refused} made no sense");
        assert!(ran > 500, "{ran} lines ran");
    });
}

fn a_script_without_its_adapter_ends() {
    let mut machine = Machine::start();
    let file = machine.open();
    assert_eq!(text(&file, TRANSFERS).differs, 0);
    machine.adapters.remove(1).remove();
    let steps = encode(&parse(TRANSFERS).unwrap());
    assert_eq!(replay(&file, &steps).unwrap_err(), Status::DEVICE_DOES_NOT_EXIST);
    machine.adapters.remove(0).remove();
    assert_eq!(replay(&file, &steps).unwrap_err(), Status::DEVICE_DOES_NOT_EXIST);
    file.close();
    machine.finish();
}

fn objects_in_slots_of_another_kind_are_refused() {
    with_file(|_, file| {
        // Each would hold up what is closed before it: it could not be found by its kind.
        for (line, kind) in [
            ("pd P1 adapter=A0 -> SUCCESS", ScriptKind::Token),
            (
                "qp Q1 domain=P0 receive=C0 initiator=C0 receive-depth=4 initiator-depth=4 receive-elements=1 \
                 initiator-elements=1 inline=0 -> SUCCESS",
                ScriptKind::Token,
            ),
            ("buffer B1 adapter=A0 length=8 seed=0 -> SUCCESS", ScriptKind::Connector),
            ("cq C1 adapter=A0 depth=4 -> SUCCESS", ScriptKind::Adapter),
            ("remember T1 of=M0", ScriptKind::Window),
        ] {
            let mut lines = parse(&format!("{START}{line}")).unwrap();
            lines.last_mut().unwrap().step.object = ScriptName::new(kind, 1);
            assert_eq!(replay(file, &encode(&lines)).unwrap_err(), Status::INVALID_PARAMETER, "{line}");
        }
    });
}

fn an_adapter_without_a_place_to_wait_in_stays_open() {
    with_file(|_, file| {
        // Every adapter waits for what was made from it, and for the last one there is no slot.
        let mut script = String::new();
        for number in 0..65 {
            let made = if number < 64 { format!("pd P{number}") } else { "listener L0".into() };
            writeln!(script, "open A0 adapter=0 -> SUCCESS\n{made} adapter=A0 -> SUCCESS\nclose A0").unwrap();
        }
        let lines = parse(&script).unwrap();
        assert_eq!(replay(file, &encode(&lines)).unwrap_err(), Status::INSUFFICIENT_RESOURCES);
        assert_eq!(replay(file, &encode(&lines[..64 * 3])).unwrap().0.differs, 0);
    });
}

/// It holds no adapter up and none holds it up; its owner ends it.
fn a_script_without_an_adapter_outlives_the_last_one_and_is_cancelled() {
    let mut machine = Machine::start();
    let file = machine.open();
    // Each observation waits ten milliseconds: some forty seconds.
    let steps = encode(&parse(&"events -> []\n".repeat(4000)).unwrap());
    let begun = kernel_host::dispatcher::now();
    let running = file.start_ioctl(ScriptRequest::CODE, &input(&steps), 4096).expect("the I/O manager takes it");
    kernel_host::dispatcher::delay(-2_000_000);
    while let Some(adapter) = machine.adapters.pop() {
        adapter.remove();
    }
    assert!(!running.is_completed(), "a script ends with an adapter that it does not use");
    assert!(running.cancel());
    assert_eq!(Status(running.wait().status), Status::CANCELLED);
    let passed = kernel_host::dispatcher::now() - begun;
    assert!(passed < 20 * kernel_host::dispatcher::UNITS_PER_SECOND, "{passed}");
    file.close();
    machine.finish();
}
