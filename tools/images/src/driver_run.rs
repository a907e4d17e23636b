//! What a run of an NDK consumer in the kernel host is asked for: the options that `cargo xtask own-driver` and the example
//! `foreign_driver` of the kernel host have in common.

use clap::Args;
use std::{net::IpAddr, path::PathBuf};

/// Of the kernel's time: most tests of a driver are over long before.
const SECONDS: u64 = 10;

/// How a driver is run.
#[derive(Args, Clone, Debug)]
pub struct DriverRun {
    /// An adapter of softndk with this interface index and these addresses; as often as you like [default: 11=10.0.0.1 and 12=10.0.0.2]
    #[arg(long = "adapter", value_name = "INDEX=ADDRESS[,ADDRESS…]", value_parser = adapter)]
    pub adapters: Vec<RunAdapter>,

    /// A registry keyword of every adapter (docs/registry.md); CompletionMode and LimitsProfile are tried with all their values otherwise
    #[arg(long = "keyword", value_name = "NAME=VALUE", value_parser = pair)]
    pub keywords: Vec<(String, String)>,

    /// A value below Parameters of the driver's service key; a number becomes a REG_DWORD
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = pair)]
    pub parameters: Vec<(String, String)>,

    /// How long the driver runs before it is unloaded, in the kernel's time; waiting costs no real time
    #[arg(long, default_value_t = SECONDS)]
    pub seconds: u64,

    /// Text that the driver's debug output must contain in every run without a fault; as often as you like
    #[arg(long, value_name = "TEXT")]
    pub expect: Vec<String>,

    /// Run each case once for each of these seeds, which choose the order of threads: 1..20 (both included), 3, 1,5,9
    #[arg(long, value_name = "SEEDS", value_delimiter = ',', value_parser = seeds)]
    pub schedule: Vec<Seeds>,

    /// After that, fail each call of the driver that may lack memory: one a run, at the first, second and last time it is made
    #[arg(long)]
    pub faults: bool,

    /// Run once with one call failing, by the number that a failed run of --faults names
    #[arg(long, value_name = "SITE:HIT", value_parser = fault, conflicts_with = "faults")]
    pub fault: Option<(u64, u64)>,

    /// Write a line for each NDK call and callback to standard error
    #[arg(long, value_name = "WHAT", value_parser = ["ndk"])]
    pub trace: Option<String>,

    /// Run in this process, for a debugger: one case, of which everything is written as it happens
    #[arg(long, conflicts_with = "faults")]
    pub in_process: bool,

    /// One line of JSON for a program instead of the text
    #[arg(long)]
    pub json: bool,

    /// Write the results as JUnit, too
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// An adapter of softndk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAdapter {
    pub index: u32,
    pub addresses: Vec<IpAddr>,
}

/// Seeds from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl DriverRun {
    /// The adapters, the two of the default when none is named.
    #[must_use]
    pub fn adapters(&self) -> Vec<RunAdapter> {
        if !self.adapters.is_empty() {
            return self.adapters.clone();
        }
        let address = |last| vec![IpAddr::from([10, 0, 0, last])];
        vec![RunAdapter { index: 11, addresses: address(1) }, RunAdapter { index: 12, addresses: address(2) }]
    }

    /// All seeds, in order.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + '_ {
        self.schedule.iter().flat_map(|seeds| seeds.first..=seeds.last)
    }

    /// The value of a keyword that is to have one value only; the last one counts.
    #[must_use]
    pub fn pinned(&self, keyword: &str) -> Option<&str> {
        let named = self.keywords.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(keyword));
        named.map(|(_, value)| value.as_str())
    }

    /// The words that ask for the same machine and driver, without the cases and the form of the results.
    #[must_use]
    pub fn machine_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for RunAdapter { index, addresses } in &self.adapters {
            let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            words.extend(["--adapter".to_owned(), format!("{index}={addresses}")]);
        }
        for (option, pairs) in [("--keyword", &self.keywords), ("--parameter", &self.parameters)] {
            for (name, value) in pairs {
                words.extend([option.to_owned(), format!("{name}={value}")]);
            }
        }
        if self.seconds != SECONDS {
            words.extend(["--seconds".to_owned(), self.seconds.to_string()]);
        }
        words.extend(self.expect.iter().flat_map(|text| ["--expect".to_owned(), text.clone()]));
        words.extend(self.trace.iter().flat_map(|what| ["--trace".to_owned(), what.clone()]));
        words
    }

    /// All words.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = self.machine_words();
        for Seeds { first, last } in &self.schedule {
            words.extend(["--schedule".to_owned(), format!("{first}..{last}")]);
        }
        words.extend(self.fault.iter().flat_map(|fault| ["--fault".to_owned(), fault_word(*fault)]));
        let flags = [(self.faults, "--faults"), (self.in_process, "--in-process"), (self.json, "--json")];
        words.extend(flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned()));
        words.extend(self.junit.iter().flat_map(|file| ["--junit".to_owned(), file.display().to_string()]));
        words
    }
}

/// As [`DriverRun::fault`] is written.
#[must_use]
pub fn fault_word((site, hit): (u64, u64)) -> String {
    format!("{site:#018x}:{hit}")
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is not NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn adapter(text: &str) -> Result<RunAdapter, String> {
    let (index, addresses) = text.split_once('=').ok_or("it is not INDEX=ADDRESS")?;
    let index = index.parse().map_err(|_| format!("{index} is no interface index"))?;
    let addresses =
        addresses.split(',').map(|address| address.parse().map_err(|_| format!("{address} is no IP address")));
    Ok(RunAdapter { index, addresses: addresses.collect::<Result<_, _>>()? })
}

fn seeds(text: &str) -> Result<Seeds, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no seed, which is a number"));
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
    if first > last {
        return Err(format!("there is no seed from {first} to {last}"));
    }
    Ok(Seeds { first, last })
}

fn fault(text: &str) -> Result<(u64, u64), String> {
    let (site, hit) = text.split_once(':').ok_or("it is not SITE:HIT")?;
    let site = u64::from_str_radix(site.trim_start_matches("0x"), 16).map_err(|_| format!("{site} is no site"))?;
    let hit = hit.parse().map_err(|_| format!("{hit} is no number of a hit"))?;
    Ok((site, hit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: DriverRun,
    }

    fn parse(words: &[&str]) -> Result<DriverRun, clap::Error> {
        Line::try_parse_from([&["driver"], words].concat()).map(|line| line.run)
    }

    #[test]
    fn words_ask_for_what_was_asked_for() {
        let words = [
            "--adapter",
            "21=10.0.0.1,fd00::1",
            "--keyword",
            "CompletionMode=1",
            "--parameter",
            "Depth=16",
            "--seconds",
            "3",
            "--expect",
            "all is well",
            "--schedule",
            "1..20",
            "--schedule",
            "99..99",
            "--faults",
            "--json",
            "--junit",
            "a.xml",
        ];
        assert_eq!(parse(&words).unwrap().words(), words);
    }

    #[test]
    fn seeds_are_ranges_and_lists() {
        let run = parse(&["--schedule", "3..5,9"]).unwrap();
        assert_eq!(run.seeds().collect::<Vec<_>>(), [3, 4, 5, 9]);
        for wrong in ["5..3", "x", "1..", "-1"] {
            assert!(parse(&["--schedule", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_value_of_a_keyword_counts() {
        let run = parse(&["--keyword", "CompletionMode=1", "--keyword", "completionmode=2"]).unwrap();
        assert_eq!((run.pinned("CompletionMode"), run.pinned("LimitsProfile")), (Some("2"), None));
    }

    #[test]
    fn a_fault_is_read_as_it_is_written() {
        let fault = (0xAB_CDEF, 3);
        assert_eq!(parse(&["--fault", &fault_word(fault)]).unwrap().fault, Some(fault));
    }

    #[test]
    fn two_adapters_are_there_unless_others_are_named() {
        assert_eq!(parse(&[]).unwrap().adapters().iter().map(|adapter| adapter.index).collect::<Vec<_>>(), [11, 12]);
        assert_eq!(parse(&["--adapter", "7=10.0.0.9"]).unwrap().adapters().len(), 1);
    }
}
