//! The programs that measure: built once, started once a step with the step's processors.

use super::{
    affinity::{self, Processors},
    plan::{Calibration, Measuring},
    reports::{self, Measurement, document, number},
    ucx,
};
use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    softnd, tools,
    workspace::Workspace,
};
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::{path::PathBuf, process::Command};

pub(super) struct Programs {
    ndkctl: PathBuf,
    /// Reads through softnd.dll.
    speed: PathBuf,
    /// What the machine takes for a lock pair, a copy, a cache line.
    calibrate: PathBuf,
    driver: PathBuf,
    /// UCX is installed.
    pub(super) has_ucx: bool,
    pub(super) lengths: Lengths,
}

/// How long things are measured.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub(super) rounds: usize,
    /// A program of a round, in milliseconds.
    pub(super) milliseconds: u32,
}

/// What a program is counted for: short, so that the machine seldom takes the processor away meanwhile.
const COUNT_MILLISECONDS: u32 = 10;

impl Lengths {
    pub(super) const FULL: Self = Self { rounds: 9, milliseconds: 300 };
    pub(super) const QUICK: Self = Self { rounds: 3, milliseconds: 40 };
}

/// The release image and the programs, optimised.
pub(super) fn build(workspace: &Workspace, lengths: Lengths) -> Result<Programs> {
    let driver = driver::build(workspace, Arch::X64, Profile::Release)?;
    softnd::build(workspace, Profile::Release)?;
    softndk_images::nd_program::build(workspace)?;
    Ok(Programs {
        ndkctl: tools::build(workspace)?,
        speed: tools::build_example(workspace, "networkdirect", "speed")?,
        calibrate: tools::build_example(workspace, "kernel-host", "calibrate")?,
        driver,
        has_ucx: ucx::is_installed(),
        lengths,
    })
}

/// A calibration, once.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    /// Without what something else took of the processor.
    pub(super) quiet: f64,
    /// With it.
    pub(super) mean: f64,
}

impl Reading {
    fn only(number: f64) -> Self {
        Self { quiet: number, mean: number }
    }

    fn with_mean(numbers: &Value, name: &str) -> Result<Self> {
        Ok(Self { quiet: number(numbers, &format!("{name}_ns"))?, mean: number(numbers, &format!("{name}_mean_ns"))? })
    }

    fn times(self, factor: f64) -> Self {
        Self { quiet: self.quiet * factor, mean: self.mean * factor }
    }
}

impl Programs {
    /// Runs what measures a step.
    pub(super) fn measure(&self, program: &Measuring, processors: Processors) -> Result<Measurement> {
        match program {
            Measuring::Perf(words) => self.perf(("measure", self.lengths.milliseconds), words, processors),
            Measuring::Scaling(words) => {
                let measure = ("measure", self.lengths.milliseconds);
                let one = self.perf(measure, &format!("{words} --processors 1"), Processors::One)?;
                let two = self.perf(measure, &format!("{words} --processors 2"), processors)?;
                Ok(Measurement { rate_of_one: Some(one.rate), ..two })
            }
            Measuring::Speed(words) => reports::speed(&self.json(Command::new(&self.speed).args(words), processors)?),
        }
    }

    /// What a step calls of the system, and how long it is at DISPATCH_LEVEL; none for a program that does not say.
    pub(super) fn count(&self, program: &Measuring, processors: Processors) -> Result<Option<Measurement>> {
        match program {
            Measuring::Perf(words) => self.perf(("count", COUNT_MILLISECONDS), words, processors).map(Some),
            Measuring::Scaling(_) | Measuring::Speed(_) => Ok(None),
        }
    }

    /// `ndkctl perf`, one round of its own that takes so many milliseconds, in a kernel host of this mode.
    pub(super) fn perf(
        &self,
        (mode, milliseconds): (&str, u32),
        words: &str,
        processors: Processors,
    ) -> Result<Measurement> {
        let mut command = Command::new(&self.ndkctl);
        command.args([
            "--json",
            "--quiet",
            "perf",
            "--mode",
            mode,
            "--rounds",
            "1",
            "--time",
            &milliseconds.to_string(),
        ]);
        command.args(words.split_whitespace());
        reports::perf(&self.json(&mut command, processors)?).with_context(|| format!("ndkctl perf {words}"))
    }

    /// Takes a calibration; none where the step measures its own.
    pub(super) fn calibrate(&self, calibration: Calibration) -> Result<Option<Reading>> {
        let taken = |name: &str, processors| self.calibrations(&[name], processors);
        let reading = match calibration {
            Calibration::OwnMemcpy => return Ok(None),
            Calibration::UcxGet8 if self.has_ucx => Reading::only(self.ucx_get(8)?),
            Calibration::UcxGet8 => {
                Reading::with_mean(&taken("lock_pair", Processors::One)?, "lock_pair")?.times(ucx::GET_8_IN_LOCK_PAIRS)
            }
            Calibration::LockPair => Reading::with_mean(&taken("lock_pair", Processors::One)?, "lock_pair")?,
            Calibration::CacheLine => {
                let name = "cache_line_round_trip";
                Reading::with_mean(&taken(name, Processors::Two)?, name)?
            }
            Calibration::TwoLoops => Reading::only(number(&taken("two_loops", Processors::Two)?, "two_loops_scaling")?),
        };
        Ok(Some(reading))
    }

    /// All that the machine is asked at the beginning of a round.
    pub(super) fn all_calibrations(&self) -> Result<Map<String, Value>> {
        let alone = self.calibrations(&["lock_pair", "memcpy"], Processors::One)?;
        // A machine with one processor says nothing of two.
        let together = self.calibrations(&["cache_line_round_trip", "two_loops"], Processors::Two).unwrap_or_default();
        let objects = [alone, together].into_iter().filter_map(|value| value.as_object().cloned());
        Ok(objects.flatten().collect())
    }

    fn calibrations(&self, names: &[&str], processors: Processors) -> Result<Value> {
        self.json(Command::new(&self.calibrate).args(names), processors)
    }

    /// Nanoseconds of a get of so many bytes by UCX.
    pub(super) fn ucx_get(&self, size: u32) -> Result<f64> {
        // Small gets take some tens of nanoseconds, large ones what the copy takes.
        let about = 60.0 + f64::from(size) / 15.0;
        let iterations = f64::from(self.lengths.milliseconds) * 1e6 / about;
        affinity::on(Processors::One, || ucx::get(size, iterations as u64))
    }

    fn json(&self, command: &mut Command, processors: Processors) -> Result<Value> {
        command.env("SOFTNDK_IMAGE", &self.driver);
        document(&affinity::on(processors, || command::output(command))?)
    }
}

#[cfg(all(test, unix))]
impl Programs {
    /// Scripts in a folder of the test's in place of the programs, without UCX.
    pub(super) fn scripts(folder: &std::path::Path, ndkctl: &str, speed: &str, calibrate: &str) -> Self {
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
            speed: script("speed", speed),
            calibrate: script("calibrate", calibrate),
            driver: PathBuf::new(),
            has_ucx: false,
            lengths: Lengths::QUICK,
        }
    }
}
