//! One command from start to end: machine up, client connected, command run, machine down, report printed.

use crate::arguments::{Arguments, Command};
use crate::client::Client;
use crate::failure::{Failure, Kind};
#[cfg(not(windows))]
use crate::nd::arguments::{NdArguments, NdCommand};
use crate::output::{self, Printed};
use crate::progress::Progress;
use crate::stream::Stream;
use crate::transport::{Machine, SystemDevice};
use crate::{adapter, connect, copy, doctor, info, nd, objects, perf, ping, refusals, replay, stream, stress, wire};
use clap::Parser;
use serde::Serialize;
use softndk_ioctl::{VersionFlags, VersionReply};
use std::fmt::Display;
use std::io;

/// Reads the command line, runs the command and prints what came of it.
pub fn from_command_line() -> i32 {
    match Arguments::try_parse() {
        Ok(arguments) => run(&arguments),
        Err(answer) => refuse(&answer),
    }
}

/// Prints what clap answers: help and version, whose place is standard output, or what is wrong with the line.
fn refuse(answer: &clap::Error) -> i32 {
    let code = answer.exit_code();
    match output::flushed(answer.print(), &mut io::stdout()) {
        Err(failure) if code == 0 => {
            eprintln!("ndkctl: {failure}");
            failure.exit_code()
        }
        _ => code,
    }
}

/// Runs the command and prints what came of it.
pub fn run(arguments: &Arguments) -> i32 {
    let (name, outcome) = (arguments.command.name(), command(arguments));
    output::print(name, arguments.global.json, &outcome, &mut io::stdout(), &mut io::stderr())
}

fn command(arguments: &Arguments) -> Result<Printed, Failure> {
    let progress = Progress { shown: !arguments.global.quiet && !arguments.global.json };
    #[cfg(not(windows))]
    if is_measurement(&arguments.command) {
        perf::check_mode(arguments.global.machine.mode)?;
    }
    #[cfg(not(windows))]
    if let Command::Demo(demo) = &arguments.command {
        let announce = !arguments.global.json && !arguments.global.quiet;
        return printed(crate::demo::run(&arguments.global.machine, demo, announce, progress)?);
    }
    if let Command::Doctor(_) = &arguments.command {
        return doctor::run(&arguments.global.machine);
    }
    if let Command::Adapter(command) = &arguments.command {
        return adapter::run(&command.command);
    }
    if let Command::Nd(nd) = &arguments.command
        && nd::is_of_catalog(&nd.command)
    {
        return nd::on_catalog(&nd.command);
    }
    let machine = Machine::start(&arguments.global.machine)?;
    let outcome = on_machine(&machine, arguments, progress);
    // The failure of the command comes first; leftovers of a successful one are a failure too, beside its report.
    let finished = machine.finish();
    let mut report = outcome?;
    report.failure = report.failure.or(finished.err());
    Ok(report)
}

/// Whether a command means nothing without real time.
#[cfg(not(windows))]
fn is_measurement(command: &Command) -> bool {
    let measures = |nd: &NdArguments| matches!(nd.command, NdCommand::Perf(_));
    matches!(command, Command::Perf(_) | Command::Demo(_)) || matches!(command, Command::Nd(nd) if measures(nd))
}

fn on_machine(machine: &Machine, arguments: &Arguments, progress: Progress) -> Result<Printed, Failure> {
    let consumer = || machine.open().and_then(Client::connect).map(|(client, _)| client);
    match &arguments.command {
        // What only the provider knows.
        Command::Objects(arguments) => {
            let (provider, _) = Client::connect(machine.open_provider()?)?;
            printed(objects::run(&provider, consumer, arguments)?)
        }
        Command::Refusals(arguments) => {
            let (provider, _) = Client::connect(machine.open_provider()?)?;
            printed(refusals::run(&provider, consumer, arguments)?)
        }
        Command::Events(events) => {
            let (provider, _) = Client::connect(machine.open_provider()?)?;
            crate::events::run(&provider, consumer, events, arguments.global.json)
        }
        Command::Info(arguments) => {
            let provider = machine.open_provider().and_then(Client::connect);
            let dll = machine.provider_dll();
            printed(info::collect(provider, machine.open().and_then(Client::connect), dll.as_deref(), arguments)?)
        }
        Command::Nd(nd) => nd::run(machine, &nd.command, progress),
        Command::Wire(command) => wire::on_machine(machine, &command.command),
        Command::Stress(arguments) => {
            let report = stress::run(machine, arguments, progress)?;
            let failure = report.check().err();
            Ok(Printed { failure, ..printed(report)? })
        }
        command => {
            let (client, version) = Client::connect(machine.open()?)?;
            dispatch(&client, &version, command, progress)
        }
    }
}

fn dispatch(
    client: &Client<SystemDevice>,
    version: &VersionReply,
    command: &Command,
    progress: Progress,
) -> Result<Printed, Failure> {
    match command {
        Command::Ping(arguments) => printed(ping::run(client, arguments, progress)?),
        Command::Copy(arguments) => printed(copy::run(client, arguments, progress)?),
        Command::Perf(arguments) => {
            let debug_build = version.flags.contains(VersionFlags::DEBUG_BUILD);
            let report = perf::run(client, arguments, debug_build, progress)?;
            let failure = report.without_picture.clone();
            Ok(Printed { failure, ..printed(report)? })
        }
        Command::Replay(arguments) => printed(replay::run(client, arguments)?),
        Command::Send(arguments) => printed(stream::run(client, &Stream::send(arguments), progress)?),
        Command::Read(arguments) => printed(stream::run(client, &Stream::read(arguments), progress)?),
        Command::Write(arguments) => printed(stream::run(client, &Stream::write(arguments), progress)?),
        Command::Connect(arguments) => printed(connect::run(client, arguments, progress)?),
        Command::Wire(_) | Command::Info(_) | Command::Objects(_) | Command::Refusals(_) | Command::Events(_) => {
            unreachable!("these ask the provider")
        }
        Command::Nd(_) => unreachable!("these are clients of a DLL"),
        Command::Adapter(_) | Command::Doctor(_) => unreachable!("these have their own ways"),
        Command::Stress(_) => unreachable!("the stress run opens its own handles"),
        #[cfg(not(windows))]
        Command::Demo(_) => unreachable!("the demonstration has its own way"),
    }
}

pub(crate) fn printed(report: impl Serialize + Display) -> Result<Printed, Failure> {
    let json = serde_json::to_value(&report).map_err(|error| {
        Failure::new(
            Kind::Refused,
            "cannot print the report",
            error.to_string(),
            "this is a fault of ndkctl; please report it",
        )
    })?;
    Ok(Printed { text: report.to_string(), json, exit_code: 0, failure: None })
}
