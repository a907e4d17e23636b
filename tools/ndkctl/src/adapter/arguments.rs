//! The command line of `ndkctl adapter`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args, Debug, Clone)]
pub struct AdapterArguments {
    #[command(subcommand)]
    pub command: AdapterCommand,
}

#[derive(Subcommand, Debug, Clone)]
pub enum AdapterCommand {
    /// Make adapters until there are as many as are wanted (as administrator). Twice is once.
    ///
    /// A device that gets no driver is removed again, and so are those that the same command has made before it. Exit code 3010: done, but
    /// Windows must be restarted.
    Add(AdapterAddArguments),
    /// Remove one adapter, or all (as administrator). Exit code 3010: Windows must be restarted to finish.
    Remove(AdapterRemoveArguments),
    /// List the devices: instance id, alias, state.
    List(AdapterListArguments),
}

impl AdapterCommand {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "adapter add",
            Self::Remove(_) => "adapter remove",
            Self::List(_) => "adapter list",
        }
    }
}

#[derive(Args, Debug, Clone)]
pub struct AdapterAddArguments {
    /// How many adapters there are to be in all. More are left as they are.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub count: u32,
    /// The INF of the package [default: softndk.inf beside ndkctl.exe; without one, the package in the driver store].
    #[arg(long, value_name = "PATH")]
    pub inf: Option<PathBuf>,
}

#[derive(Args, Debug, Clone)]
pub struct AdapterRemoveArguments {
    /// The device, as "adapter list" shows it: ROOT\SOFTNDK\0000.
    #[arg(value_name = "INSTANCE", required_unless_present = "all")]
    pub instance: Option<String>,
    /// Every adapter of softndk.
    #[arg(long, conflicts_with = "instance")]
    pub all: bool,
}

#[derive(Args, Debug, Clone, Default)]
pub struct AdapterListArguments {}

#[cfg(test)]
mod tests {
    use super::AdapterCommand;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<AdapterCommand, clap::Error> {
        let arguments = Arguments::try_parse_from(["ndkctl", "adapter"].into_iter().chain(line.split_whitespace()))?;
        let Command::Adapter(adapter) = arguments.command else { panic!("another command") };
        Ok(adapter.command)
    }

    #[test]
    fn remove_takes_an_instance_or_all() {
        let removed = |line| match parse(line) {
            Ok(AdapterCommand::Remove(remove)) => Some((remove.instance, remove.all)),
            _ => None,
        };
        assert_eq!(removed(r"remove ROOT\SOFTNDK\0000"), Some((Some(r"ROOT\SOFTNDK\0000".to_owned()), false)));
        assert_eq!(removed("remove --all"), Some((None, true)));
        assert_eq!(removed("remove"), None);
        assert_eq!(removed("remove x --all"), None);
    }

    #[test]
    fn there_are_between_one_and_as_many_adapters_as_the_driver_serves() {
        let count = |line| match parse(line) {
            Ok(AdapterCommand::Add(add)) => Some(add.count),
            _ => None,
        };
        assert_eq!((count("add"), count("add --count 32")), (Some(2), Some(32)));
        assert_eq!((count("add --count 0"), count("add --count 33")), (None, None));
    }
}
