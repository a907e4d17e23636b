//! The loaded image as the system under test: the same sequences as scripts, which the driver's replay session runs.
//!
//! It boots a kernel host with the driver and two adapters and sends one request a sequence. It cannot act between two lines; so the
//! model's expectations are in the script, with an `events` line after every line, which makes the session wait until the system is
//! at rest.

use std::path::Path;

use ndkctl::arguments::{CompletionMode, HostMode, MachineArguments};
use ndkctl::client::Client;
use ndkctl::failure::Failure;
use ndkctl::script::{Line, Tail, encode};
use ndkctl::transport::Machine;
use softndk_ioctl::ScriptName;

use crate::compare::script_of;
use crate::generate::{Features, sequence};
use crate::model::Column;

/// How it went: operations done, and the first script that differed, up to the line that did.
pub struct Outcome {
    pub operations: u64,
    pub difference: Option<Vec<Line>>,
}

/// Runs sequences until so many operations are done or one differs.
pub fn run(
    image: &Path,
    completion_mode: CompletionMode,
    operations: u64,
    seed: u64,
    length: usize,
) -> Result<Outcome, Failure> {
    let machine = Machine::start(&MachineArguments {
        image: Some(image.to_owned()),
        adapters: 2,
        mode: HostMode::Verify,
        completion_mode,
        ..MachineArguments::default()
    })?;
    let (client, _) = Client::connect(machine.open()?)?;
    let (mut done, mut episode, mut difference) = (0, seed.wrapping_mul(0x0001_0000_0000), None);
    while done < operations && difference.is_none() {
        let lines = sequence(episode, Column::Ndk, length, Features::IMAGE);
        let script: Vec<Line> = script_of(&lines, Column::Ndk).iter().map(without_lost_names).collect();
        let (reply, _) = client.replay(&encode(&script))?;
        if reply.differs != 0 {
            difference = Some(script.into_iter().take(reply.steps as usize).collect());
        }
        done += u64::from(reply.steps);
        episode += 1;
    }
    drop(client);
    machine.finish()?;
    Ok(Outcome { operations: done, difference })
}

/// The session finds an invalidated token's name by the token that the object has when it is polled: windows have others by then.
fn without_lost_names(line: &Line) -> Line {
    let mut line = line.clone();
    if let Tail::Results(results) = &mut line.tail {
        for result in results {
            result.invalidated = ScriptName::NONE;
        }
    }
    line
}
