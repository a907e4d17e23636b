//! The programs that measure: built once, started once a step with the step's processors.

use super::{
    affinity::{self, Processors},
    plan::{Measuring, StreamWork},
    reports::{self, Measurement, document, number},
    ucx,
};
use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    host_pair::{self, CLIENT, HostPair, LISTEN_AT, SERVER},
    setup::{self, Need},
    softnd, tools,
    workspace::Workspace,
};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{path::PathBuf, process::Command};

pub(super) struct Programs {
    ndkctl: PathBuf,
    /// Reads through softnd.dll.
    speed: PathBuf,
    /// What the machine takes for a cache line, and for work on two processors.
    machine: PathBuf,
    ucx: PathBuf,
    driver: PathBuf,
    dll: PathBuf,
    pub(super) lengths: Lengths,
}

/// How long things are measured.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub(super) rounds: usize,
    /// A program of a round, in milliseconds.
    milliseconds: u32,
}

/// What a program is counted for: short, so that the machine seldom takes the processor away meanwhile.
const COUNT_MILLISECONDS: u32 = 10;

impl Lengths {
    pub(super) const FULL: Self = Self { rounds: 9, milliseconds: 300 };
    pub(super) const QUICK: Self = Self { rounds: 3, milliseconds: 40 };
}

/// The release image and the programs, optimised.
pub(super) fn build(workspace: &Workspace, lengths: Lengths) -> Result<Programs> {
    setup::ensure(&[Need::Ucx])?;
    let driver = driver::build(workspace, Arch::X64, Profile::Release)?;
    let dll = softnd::build(workspace, Profile::Release)?;
    softndk_images::nd_program::build(workspace)?;
    Ok(Programs {
        ndkctl: tools::build(workspace)?,
        speed: tools::build_example(workspace, "networkdirect", "speed")?,
        machine: tools::build_example(workspace, "kernel-host", "calibrate")?,
        ucx: setup::ucx().context("UCX is not installed")?,
        driver,
        dll,
        lengths,
    })
}

impl Programs {
    /// Runs what measures a step.
    pub(super) fn measure(&self, program: &Measuring, processors: Processors) -> Result<Measurement> {
        match program {
            Measuring::UcxGet8 => Ok(Measurement { time: self.ucx_get(8)?, ..Measurement::default() }),
            Measuring::Machine(name) => {
                let value = number(&self.json(Command::new(&self.machine).arg(name), processors)?, name)?;
                Ok(Measurement { time: value, scaling: Some(value), ..Measurement::default() })
            }
            Measuring::Perf(words) => self.perf(words, processors),
            Measuring::Scaling(words) => {
                let one = self.perf(&format!("{words} --processors 1"), Processors::One)?;
                let two = self.perf(&format!("{words} --processors 2"), processors)?;
                Ok(Measurement { scaling: Some(two.rate / (2.0 * one.rate)), ..two })
            }
            Measuring::Stream(work) => affinity::on(processors, || self.stream(work)),
            Measuring::Speed(words) => reports::speed(&self.json(Command::new(&self.speed).args(words), processors)?),
        }
    }

    /// `ndkctl perf`, one round of its own.
    pub(super) fn perf(&self, words: &str, processors: Processors) -> Result<Measurement> {
        self.perf_in("measure", self.lengths.milliseconds, words, processors)
    }

    /// `ndkctl perf` several times where the kernel host counts: the times of its paths in all of them.
    pub(super) fn count(&self, words: &str, processors: Processors, times: usize) -> Result<Measurement> {
        let mut all = Measurement::default();
        for _ in 0..times {
            let counted = self.perf_in("count", COUNT_MILLISECONDS, words, processors)?;
            all.dpc_paths.add(counted.dpc_paths);
            all.dispatch_paths.add(counted.dispatch_paths);
        }
        Ok(all)
    }

    fn perf_in(&self, mode: &str, milliseconds: u32, words: &str, processors: Processors) -> Result<Measurement> {
        let mut command = Command::new(&self.ndkctl);
        command.args(["--json", "--quiet", "perf", "--mode", mode, "--rounds", "1"]);
        command.args(["--time", &milliseconds.to_string()]).args(words.split_whitespace());
        reports::perf(&self.json(&mut command, processors)?).with_context(|| format!("ndkctl perf {words}"))
    }

    /// `ndkctl nd perf` of two kernel hosts.
    fn stream(&self, work: &StreamWork) -> Result<Measurement> {
        let options: &[&str] = if work.has_crc { &[] } else { &["--keyword", "StreamCrc=0"] };
        let pair = HostPair { ndkctl: &self.ndkctl, image: &self.driver, options };
        let count = (f64::from(self.lengths.milliseconds) * 1e6 / work.about).ceil();
        let perf = |machine, role, address: &str| {
            // TCP waits for its bytes in the system; so do both ends of the queue pair.
            let mut command = pair.command(machine, &["nd", "perf", "--notify", "--beside-tcp", role, address]);
            command.args(["--op", work.operation, "--size", work.size, "--depth", work.depth]);
            command.args(["--count", &count.to_string(), "--dll"]).arg(&self.dll);
            command
        };
        let mut server = perf(SERVER, "--server", LISTEN_AT);
        let [_, measured] = host_pair::run(&mut server, |address| Ok(perf(CLIENT, "--client", address)))?;
        reports::stream(&measured)
    }

    /// Nanoseconds of a get of so many bytes by UCX.
    pub(super) fn ucx_get(&self, size: u32) -> Result<f64> {
        // Small gets take some tens of nanoseconds, large ones what the copy takes.
        let about = 60.0 + f64::from(size) / 15.0;
        let iterations = f64::from(self.lengths.milliseconds) * 1e6 / about;
        affinity::on(Processors::One, || ucx::get(&self.ucx, size, iterations as u64))
    }

    fn json(&self, command: &mut Command, processors: Processors) -> Result<Value> {
        command.env("SOFTNDK_IMAGE", &self.driver);
        document(&affinity::on(processors, || command::output(command))?)
    }
}

#[cfg(all(test, unix))]
impl Programs {
    /// Scripts in a folder of the test's in place of the programs.
    pub(super) fn scripts(folder: &std::path::Path, ndkctl: &str) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        // Written by another process: a file that is open for writing, here or in a child of another test, cannot be started.
        let script = |name: &str, text: &str| {
            let file = folder.join(name);
            let mut shell = Command::new("sh");
            shell.args(["-c", "printf '%s\\n' '#!/bin/sh' \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", text]).arg(&file);
            command::output(&mut shell).unwrap();
            file
        };
        Self {
            ndkctl: script("ndkctl", ndkctl),
            speed: script(
                "speed",
                r#"echo '{"nanoseconds": 90.0, "memcpy": 90.0, "memcpy_again": 90.0, "system_calls": 0.0}'"#,
            ),
            machine: script("machine", r#"echo '{"cache_line_round_trip": 20.0, "two_loops": 0.5}'"#),
            ucx: script("ucx", "echo iterations,overall_mr; echo 100,25000000"),
            driver: PathBuf::new(),
            dll: PathBuf::new(),
            lengths: Lengths::QUICK,
        }
    }
}
