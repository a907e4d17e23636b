//! Sequences from bytes, as a fuzzer makes them: decisions of the generator, and between them lines that no consumer would
//! write: any length, offset, token, flag, any number of scatter/gather elements, objects of the wrong kind.
//!
//! [`run`] returns whether all is well, or what is wrong. *Beside the model* every line that has an answer is compared. *Alone* the
//! engine does them all, with partial service passes between them, and must neither panic nor keep anything. Wrong addresses of the
//! consumer's own memory are left out: a kernel provider cannot detect them.

use ndkctl::script::{Line, Tail};
use softndk_ioctl::{ScriptCode as Do, ScriptForm, ScriptKind as Of, ScriptName, ScriptSge};

use crate::account::CLOSING_ORDER;
use crate::compare::{self, line};
use crate::engine::Engine;
use crate::generate::{Features, Generator, Random};
use crate::model::Column;

/// Lines of one sequence.
const LONGEST: usize = 300;
const INLINE: u64 = 0x40;

/// Boundary values. Values between them would only make queues large.
const ENDS: [u64; 28] = [
    0,
    1,
    2,
    3,
    31,
    32,
    33,
    56,
    57,
    148,
    149,
    256,
    257,
    512,
    513,
    4095,
    4096,
    4097,
    8192,
    16_352,
    4_194_304,
    1 << 30,
    (1 << 30) + 1,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    u64::MAX - 4095,
    u64::MAX,
];

/// One sequence, on an engine of the column that the bytes ask for. An engine that failed is not used again.
pub fn run(bytes: &[u8], engines: &mut [Engine; 2]) -> Result<(), String> {
    let Some((way, decisions)) = bytes.split_first() else { return Ok(()) };
    let (column, engine) = match way & 1 {
        0 => (Column::Ndk, &mut engines[0]),
        _ => (Column::Nd, &mut engines[1]),
    };
    let mut generator = Generator::new(Random::of_bytes(decisions.to_vec()), column, Features::ALL);
    generator.prologue();
    if way & 2 == 0 { beside_the_model(generator, column, engine) } else { alone(generator, engine) }
}

/// An engine for each column.
pub fn engines() -> [Engine; 2] {
    [Engine::new(Column::Ndk), Engine::new(Column::Nd)]
}

fn beside_the_model(mut generator: Generator, column: Column, engine: &mut Engine) -> Result<(), String> {
    while generator.random.left() > 0 && generator.lines.len() < LONGEST {
        if generator.random.one_in(4) {
            let line = wild(&mut generator);
            generator.put(line);
        } else {
            generator.something();
        }
    }
    compare::run(&generator.lines, column, engine).map_err(|difference| difference.to_string())?;
    engine.leftovers().map_or(Ok(()), Err)
}

fn alone(mut generator: Generator, engine: &mut Engine) -> Result<(), String> {
    let mut done = 0;
    loop {
        for line in generator.lines.get(done..).unwrap_or_default() {
            act(engine, line, None);
        }
        done = generator.lines.len();
        if generator.random.left() == 0 || done >= LONGEST {
            break;
        }
        if generator.random.one_in(2) {
            generator.something();
            continue;
        }
        let passes = generator.random.below(8) as u32;
        let line = wild(&mut generator);
        let meant = generator.put(line.clone());
        if !meant && !needs_consent(&line) {
            act(engine, &line, (passes < 7).then_some(passes));
        }
    }
    engine.lazy = None;
    for kind in CLOSING_ORDER {
        for name in engine.names(kind) {
            engine.apply(&line(Do::Close, name, &[]));
        }
    }
    engine.leftovers().map_or(Ok(()), Err)
}

/// Does a line, unless the slot that it fills is taken: what was in there would be forgotten and not closed.
fn act(engine: &mut Engine, line: &Line, passes: Option<u32>) {
    let makes = Do::from_number(line.step.code).is_some_and(|code| code.verb().makes);
    if !makes || !engine.has(line.step.object) {
        engine.lazy = passes;
        engine.apply(line);
    }
}

/// Lines about the consumer's own memory are done only if the model finds them sound.
fn needs_consent(line: &Line) -> bool {
    let flags = line.step.arguments[1];
    match Do::from_number(line.step.code) {
        Some(Do::CreateBuffer | Do::Fill | Do::Bytes) | None => true,
        Some(Do::Send | Do::SendAndInvalidate | Do::Read | Do::Write) => flags & INLINE != 0,
        Some(_) => false,
    }
}

/// Any operation with any arguments.
fn wild(generator: &mut Generator) -> Line {
    let code = generator.random.pick(Do::ALL).unwrap_or(Do::Events);
    let verb = code.verb();
    let kind = verb.object.unwrap_or_else(|| any_kind(&mut generator.random));
    let object = match verb.makes {
        true => ScriptName::new(kind, generator.random.below(16) as u16),
        false if code == Do::Events => ScriptName::NONE,
        false => named(generator, kind),
    };
    let mut arguments = Vec::new();
    for (name, form) in verb.arguments {
        let value = argument(generator, name, *form);
        arguments.push(value);
        if *form == ScriptForm::Remote {
            let offset = number(&mut generator.random);
            arguments.push(if code == Do::SendAndInvalidate { 0 } else { offset });
        }
    }
    let mut line = line(code, object, &arguments);
    if verb.sges {
        let count = generator.random.pick(&[0, 1, 1, 1, 2, 5, 32, 33]).unwrap_or(0);
        let list: Vec<_> = (0..count).map(|_| sge(generator)).collect();
        line.step.tail = count;
        line.tail = if list.is_empty() { Tail::Nothing } else { Tail::Sges(list) };
    }
    line
}

fn argument(generator: &mut Generator, name: &str, form: ScriptForm) -> u64 {
    match form {
        ScriptForm::Object => {
            let usual = kind_of(name);
            let kind = if generator.random.one_in(16) { any_kind(&mut generator.random) } else { usual };
            u64::from(named(generator, kind).0)
        }
        ScriptForm::Flags => generator.random.word() & 0x3FF | (generator.random.below(16) / 15) << 31,
        ScriptForm::Rights | ScriptForm::Arm => generator.random.below(17),
        ScriptForm::Remote => {
            let kind = generator.random.pick(&[Of::Region, Of::Region, Of::Window, Of::Token, Of::Buffer]);
            let name = kind.map_or(ScriptName::NONE, |kind| named(generator, kind));
            let raw = if name == ScriptName::NONE { generator.random.word() << 32 } else { 0 };
            u64::from(name.0) | raw
        }
        // As much as a consumer has.
        ScriptForm::Number if name == "data" => number(&mut generator.random) % 4097,
        ScriptForm::Number | ScriptForm::Digest => number(&mut generator.random),
    }
}

/// What an argument of this name usually names.
fn kind_of(argument: &str) -> Of {
    match argument {
        "adapter" | "host" => Of::Adapter,
        "domain" => Of::Domain,
        "receive" | "initiator" => Of::CompletionQueue,
        "shared" => Of::SharedReceiveQueue,
        "buffer" => Of::Buffer,
        "window" => Of::Window,
        "qp" => Of::QueuePair,
        "endpoint" => Of::Endpoint,
        "to" | "at" => Of::Listener,
        _ => Of::Region,
    }
}

fn sge(generator: &mut Generator) -> ScriptSge {
    let kinds = [Of::Region, Of::Buffer, Of::Region, Of::Buffer, Of::Window];
    let [base, token] = [0, 1].map(|_| {
        let kind = generator.random.pick(&kinds).unwrap_or(Of::Region);
        named(generator, kind)
    });
    let token = if generator.random.one_in(4) { token } else { base };
    let raw_token = if token == ScriptName::NONE { generator.random.word() as u32 } else { 0 };
    let [length, offset] = [0, 1].map(|_| number(&mut generator.random));
    ScriptSge { base, token, raw_token, length: length as u32, offset, reserved: 0 }
}

/// An object of that kind that is there, or now and then none.
fn named(generator: &mut Generator, kind: Of) -> ScriptName {
    let names: Vec<ScriptName> = generator.model.all(kind).map(|(name, _)| name).collect();
    let one = generator.random.below(names.len() as u64 * 4 + 1) as usize;
    names.get(one % (names.len() + 1)).copied().unwrap_or(ScriptName::NONE)
}

fn any_kind(random: &mut Random) -> Of {
    random.pick(&Of::ALL).map_or(Of::Adapter, |(kind, _)| kind)
}

fn number(random: &mut Random) -> u64 {
    let word = random.word();
    // Half of them at an end.
    if word & 1 == 0 { ENDS[(word >> 1) as usize % ENDS.len()] } else { (word >> 1) % 0x2000 }
}

#[cfg(test)]
mod tests {
    use super::{Do, ENDS, Features, Generator, Random, engines, needs_consent, number, run, wild};
    use crate::model::{Column, Expected};

    /// Bytes from a seed.
    fn bytes(seed: u64, length: usize) -> Vec<u8> {
        let mut random = Random::new(seed);
        (0..length).map(|_| random.word() as u8).collect()
    }

    #[test]
    fn random_bytes_find_nothing() {
        let mut engines = engines();
        for seed in 0..600 {
            if let Err(found) = run(&bytes(seed, 1 + seed as usize * 3), &mut engines) {
                panic!("seed {seed}:\n{found}");
            }
        }
    }

    #[test]
    fn wild_lines_are_of_every_code_and_some_have_answers() {
        let mut generator = Generator::new(Random::of_bytes(bytes(7, 1 << 20)), Column::Ndk, Features::ALL);
        generator.prologue();
        let (mut seen, mut meant) = (std::collections::HashSet::new(), std::collections::HashSet::new());
        for _ in 0..20_000 {
            let line = wild(&mut generator);
            seen.insert(line.step.code);
            if generator.model.apply(&line) != Expected::Skip {
                meant.insert(line.step.code);
            }
        }
        assert_eq!(seen.len(), Do::ALL.len());
        assert!(meant.len() * 2 > Do::ALL.len(), "{meant:?}");
    }

    #[test]
    fn numbers_are_at_ends_and_between_them() {
        let mut random = Random::of_bytes(bytes(1, 1 << 14));
        let numbers: Vec<u64> = (0..1 << 13).map(|_| number(&mut random)).collect();
        assert!(ENDS.iter().all(|end| numbers.contains(end)));
        assert!(numbers.iter().any(|number| !ENDS.contains(number)));
    }

    #[test]
    fn only_lines_about_the_consumers_memory_need_consent() {
        let mut generator = Generator::new(Random::of_bytes(bytes(3, 1 << 16)), Column::Ndk, Features::ALL);
        generator.prologue();
        let lines: Vec<_> = (0..500).map(|_| wild(&mut generator)).collect();
        assert!(lines.iter().any(needs_consent) && lines.iter().any(|line| !needs_consent(line)));
    }
}
