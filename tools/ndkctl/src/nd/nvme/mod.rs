//! `ndkctl nd nvme`: a host of NVMe over RDMA, as small as one can be: it connects to a target, says what is there, and reads from it.
//!
//! `capsule` has the bytes that are sent, `queue` the commands under way. The target reads and writes this end's memory by RDMA.

mod capsule;
mod queue;

use super::arguments::NdNvmeArguments;
use super::connection::{self, Route};
use super::end::{End, EndWay};
use super::ends;
use super::memory::Pattern;
use super::ping::Latency;
use super::stop::Cut;
use super::system::System;
use crate::failure::{Failure, Kind};
use crate::transport::Machine;
use crate::units;
use capsule::{ANY_CONTROLLER, Blocks, Controller, MOST_LENGTH, Memory, Namespace, NvmeCommand, PAGE};
use queue::{Queue, Shape, wrong};
use serde::Serialize;
use softnd_interfaces::Status;
use softndk_ioctl::Histogram;
use std::fmt;
use std::time::Instant;

/// Commands under way in the queue of the controller itself.
const ADMIN: Shape = Shape { depth: 1, size: PAGE as u32 };

/// How often a controller is asked whether it is ready.
const LOOKS: u32 = 10_000;

/// Differs from what a new disk has.
const PATTERN: u64 = 0x30_0000_0000;

/// What `nd nvme` found and moved.
#[derive(Clone, Debug, Serialize)]
pub struct NdNvmeReport {
    pub ends: String,
    pub subsystem: String,
    pub controller: Controller,
    pub namespace: Namespace,
    /// Null where it was not asked for.
    pub written: Option<Moved>,
    pub read: Moved,
    /// Bytes that were written, read back and compared.
    pub bytes_compared: u64,
}

/// Bytes that commands of one kind have moved.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Moved {
    pub bytes: u64,
    pub commands: u64,
    /// Nanoseconds.
    pub elapsed: u64,
    /// 10⁶ bytes per second.
    pub rate: Option<f64>,
    /// From a command to its answer.
    pub latency: Option<Latency>,
}

/// The status of a connection that was refused, and what helps where the other end is a target.
const REFUSED: u32 = Status::CONNECTION_REFUSED.0.cast_unsigned();
const NO_TARGET: &str =
    "look whether a target of NVMe over RDMA listens at this address and port, and what it says: it may have refused";

/// Connects, looks, and moves.
pub fn run(machine: &Machine, arguments: &NdNvmeArguments) -> Result<NdNvmeReport, Failure> {
    let client = |system: &System<'_>, route: Route, way: EndWay<'_>| NvmeHost { system, route, way, arguments }.run();
    let done = ends::only_client(machine, arguments.provider.dll.as_deref(), &arguments.ends(), client);
    let (ends, found) = done.map_err(|failure| Failure {
        next_step: if failure.status == Some(REFUSED) { NO_TARGET.to_owned() } else { failure.next_step },
        ..failure
    })?;
    Ok(NdNvmeReport { ends, subsystem: arguments.subsystem.clone(), ..found })
}

/// Blocks that are moved, so many of them with each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    first: u64,
    count: u64,
    each: u16,
    block_size: u32,
}

impl Extent {
    /// The arguments in blocks of the namespace.
    fn of(arguments: &NdNvmeArguments, namespace: Namespace, controller: &Controller) -> Result<Self, Failure> {
        let block = u64::from(namespace.block_size);
        let usage =
            |what: &str, cause: String, next: &str| Failure::new(Kind::Usage, format!("cannot {what}"), cause, next);
        for (name, bytes) in
            [("--size", u64::from(arguments.size)), ("--offset", arguments.offset), ("--bytes", arguments.bytes)]
        {
            if !bytes.is_multiple_of(block) || (bytes == 0 && name != "--offset") {
                let cause = format!("{bytes} bytes are no blocks of {block}");
                return Err(usage(&format!("use this {name}"), cause, "give a multiple of the namespace's block size"));
            }
        }
        let most = controller.most_bytes.unwrap_or(u64::MAX).min(MOST_LENGTH.into());
        if u64::from(arguments.size) > most {
            let cause = format!("a command takes at most {most} bytes here");
            return Err(usage("use this --size", cause, "give a smaller one"));
        }
        let (first, count) = (arguments.offset / block, arguments.bytes / block);
        if first.checked_add(count).is_none_or(|end| end > namespace.blocks) {
            let cause = format!("the namespace ends at byte {}", namespace.blocks.saturating_mul(block));
            return Err(usage("move these bytes", cause, "choose a smaller --offset or --bytes"));
        }
        let each = u16::try_from(u64::from(arguments.size) / block).unwrap_or(u16::MAX);
        Ok(Self { first, count, each, block_size: namespace.block_size })
    }

    const fn commands(&self) -> u64 {
        self.count.div_ceil(self.each as u64)
    }

    /// Those of a command.
    fn blocks(&self, number: u64) -> Blocks {
        let before = number * u64::from(self.each);
        let count = u64::from(self.each).min(self.count - before);
        Blocks { first: self.first + before, count: count as u16 }
    }

    const fn bytes(&self, blocks: Blocks) -> usize {
        blocks.count as usize * self.block_size as usize
    }

    fn moved(&self, elapsed: u128, latency: &Histogram) -> Moved {
        let bytes = self.count * u64::from(self.block_size);
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let rate = units::megabytes_per_second(bytes, elapsed);
        Moved { bytes, commands: self.commands(), elapsed, rate, latency: Latency::of(latency) }
    }
}

/// This end.
#[derive(Clone, Copy)]
struct NvmeHost<'a> {
    system: &'a System<'a>,
    route: Route,
    way: EndWay<'a>,
    arguments: &'a NdNvmeArguments,
}

impl NvmeHost<'_> {
    /// Makes a connection a queue, and works with it.
    fn with_queue<T>(
        self,
        (number, controller): (u16, u16),
        shape: Shape,
        work: impl FnOnce(&mut Queue<'_, '_>, u16) -> Result<T, Cut>,
    ) -> Result<T, Cut> {
        // One entry of a queue stays empty.
        let depth = shape.depth + 1;
        let data = capsule::private_data(number, depth, controller);
        let prepare = |end: &End<'_>| shape.prepare(end);
        connection::connect(self.system, self.route, (&data, shape.end()), self.way, prepare, |end, _| {
            let mut queue = Queue::new(end, self.way.stop, shape);
            let names = capsule::connect_data(controller, &self.arguments.subsystem, &self.arguments.host);
            queue.end.region.pages().write(shape.data(0), &names);
            let command = NvmeCommand::connect(number, depth, queue.memory(0, names.len()));
            let controller = queue.run("connect to the subsystem", command)? as u16;
            work(&mut queue, controller)
        })
    }

    fn run(self) -> Result<NdNvmeReport, Cut> {
        self.with_queue((0, ANY_CONTROLLER), ADMIN, |admin, number| {
            enable(admin)?;
            let page = identify(admin, NvmeCommand::identify_controller)?;
            let controller = Controller::of(&page);
            let namespace = self.arguments.namespace;
            let page = identify(admin, |memory| NvmeCommand::identify_namespace(namespace, memory))?;
            let namespace = Namespace::of(&page).ok_or_else(|| {
                let cause = format!("the controller has no namespace {namespace} with blocks of 512 bytes to 64 KiB");
                Failure::new(Kind::Usage, "cannot use the namespace", cause, "choose another one with --namespace")
            })?;
            let extent = Extent::of(self.arguments, namespace, &controller)?;
            let shape = Shape { depth: self.arguments.depth, size: self.arguments.size.max(PAGE as u32) };
            let (written, read, bytes_compared) =
                self.with_queue((1, number), shape, |queue, _| self.transfer(queue, shape, extent))?;
            admin.run("shut the controller down", NvmeCommand::set_configuration(capsule::SHUT_DOWN))?;
            let (ends, subsystem) = (String::new(), String::new());
            Ok(NdNvmeReport { ends, subsystem, controller, namespace, written, read, bytes_compared })
        })
    }

    /// Reads; before that it overwrites, if it may.
    fn transfer(
        self,
        queue: &mut Queue<'_, '_>,
        shape: Shape,
        extent: Extent,
    ) -> Result<(Option<Moved>, Moved, u64), Cut> {
        let namespace = self.arguments.namespace;
        let place = |slot| shape.data(slot);
        let pattern = |number| Pattern(PATTERN + number);
        let mut written = None;
        if self.arguments.overwrite {
            let begun = Instant::now();
            let make = |queue: &Queue<'_, '_>, number, slot| {
                let blocks = extent.blocks(number);
                queue.end.region.pages().fill(place(slot), extent.bytes(blocks), pattern(number));
                Ok(NvmeCommand::write(namespace, blocks, queue.memory(slot, extent.bytes(blocks))))
            };
            let latency = queue.run_all("write", extent.commands(), make, |_, _, _| Ok(()))?;
            written = Some(extent.moved(begun.elapsed().as_nanos(), &latency));
        }
        let begun = Instant::now();
        let make = |queue: &Queue<'_, '_>, number, slot| {
            let blocks = extent.blocks(number);
            Ok(NvmeCommand::read(namespace, blocks, queue.memory(slot, extent.bytes(blocks))))
        };
        let mut compared = 0;
        let latency = queue.run_all("read", extent.commands(), make, |queue, (number, slot), _| {
            if written.is_none() {
                return Ok(());
            }
            let length = extent.bytes(extent.blocks(number));
            compared += length as u64;
            match queue.end.region.pages().differs(place(slot), length, pattern(number)) {
                None => Ok(()),
                Some(at) => Err(differs(extent, number, at).into()),
            }
        })?;
        Ok((written, extent.moved(begun.elapsed().as_nanos(), &latency), compared))
    }
}

fn differs(extent: Extent, number: u64, at: usize) -> Failure {
    let byte = extent.blocks(number).first * u64::from(extent.block_size) + at as u64;
    Failure::new(
        Kind::Corrupt,
        "the bytes that were read are not those that were written",
        format!("the first difference is at byte {byte} of the namespace"),
        "look whether another host writes there; if not, please report it",
    )
}

/// Enables the controller, and waits until it is ready.
fn enable(admin: &mut Queue<'_, '_>) -> Result<(), Cut> {
    admin.run("enable the controller", NvmeCommand::set_configuration(capsule::ENABLED))?;
    for _ in 0..LOOKS {
        let status = admin.run("ask for the controller's status", NvmeCommand::get_status())?;
        if status & capsule::FATAL != 0 {
            return Err(wrong("enable the controller", "it has failed").into());
        }
        if status & capsule::READY != 0 {
            return Ok(());
        }
    }
    Err(wrong("enable the controller", "it does not become ready").into())
}

fn identify(admin: &mut Queue<'_, '_>, command: impl FnOnce(Memory) -> NvmeCommand) -> Result<Box<[u8; PAGE]>, Cut> {
    admin.run("identify", command(admin.memory(0, PAGE)))?;
    let mut page = Box::new([0; PAGE]);
    admin.end.region.pages().read(ADMIN.data(0), &mut page[..]);
    Ok(page)
}

impl Moved {
    fn line(&self, formatter: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        let rate = self.rate.map_or_else(String::new, |rate| format!(", {} MB/s", units::count(rate.round() as u64)));
        let median = self.latency.map_or_else(String::new, |latency| {
            format!("; a command takes {}", units::duration(latency.median as f64))
        });
        let (bytes, commands) = (units::size(self.bytes), units::count(self.commands));
        write!(
            formatter,
            "\n{what} {bytes} with {commands} commands in {}{rate}{median}",
            units::duration(self.elapsed as f64)
        )
    }
}

impl fmt::Display for NdNvmeReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Controller { model, serial, firmware, .. } = &self.controller;
        let Namespace { blocks, block_size } = self.namespace;
        let size = units::size(blocks.saturating_mul(block_size.into()));
        writeln!(formatter, "{}, {}", self.ends, self.subsystem)?;
        writeln!(formatter, "controller {model}, serial number {serial}, firmware {firmware}")?;
        write!(formatter, "namespace of {size} in {} blocks of {block_size} bytes", units::count(blocks))?;
        if let Some(written) = &self.written {
            written.line(formatter, "wrote")?;
        }
        self.read.line(formatter, "read")?;
        if self.bytes_compared != 0 {
            write!(formatter, "\n{} bytes are as they were written", units::count(self.bytes_compared))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Blocks, Controller, Extent, Namespace, NdNvmeArguments};
    use crate::arguments::{Arguments, Command};
    use crate::nd::arguments::NdCommand;
    use clap::Parser;

    const NAMESPACE: Namespace = Namespace { blocks: 100, block_size: 4096 };

    fn arguments(words: &str) -> NdNvmeArguments {
        let line = format!("ndkctl nd nvme 10.77.0.20 --subsystem a {words}");
        let Command::Nd(nd) = Arguments::try_parse_from(line.split_whitespace()).unwrap().command else {
            panic!("not nd")
        };
        let NdCommand::Nvme(nvme) = nd.command else { panic!("no nvme") };
        nvme
    }

    fn extent(words: &str, most_bytes: Option<u64>) -> Result<Extent, String> {
        let controller =
            Controller { model: String::new(), serial: String::new(), firmware: String::new(), most_bytes };
        Extent::of(&arguments(words), NAMESPACE, &controller).map_err(|failure| failure.to_string())
    }

    #[test]
    fn last_command_has_the_rest() {
        let extent = extent("--offset 40K --bytes 28K --size 12K", None).unwrap();
        assert_eq!((extent.first, extent.count, extent.commands()), (10, 7, 3));
        let blocks: Vec<_> = (0..3).map(|number| extent.blocks(number)).collect();
        let expected = [(10, 3), (13, 3), (16, 1)].map(|(first, count)| Blocks { first, count });
        assert_eq!(blocks, expected);
        assert_eq!(extent.bytes(blocks[2]), 4096);
    }

    #[test]
    fn what_is_no_block_or_not_there_is_refused() {
        assert!(extent("--bytes 400K --size 4K", Some(4096)).is_ok());
        for (words, most, said) in [
            ("--bytes 5000", None, "--bytes"),
            ("--size 512", None, "--size"),
            ("--offset 1", None, "--offset"),
            ("--bytes 0", None, "--bytes"),
            ("--bytes 404K", None, "ends at byte 409600"),
            ("--offset 400K --bytes 4K", None, "ends at byte"),
            ("--bytes 64K --size 64K", Some(4096), "at most 4096 bytes"),
            ("--size 16M", None, "at most 16777215 bytes"),
        ] {
            let failure = extent(words, most).unwrap_err();
            assert!(failure.contains(said), "{words}: {failure}");
        }
    }
}
