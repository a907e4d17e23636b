//! The suites through which each border is crossed.

use std::{fmt, path::PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BorderSuite {
    /// The dispatch tables.
    Contract,
    /// The methods of both versions of NetworkDirect.
    Provider,
    /// The control requests and rings of `\\.\SoftNd`.
    Driver,
    /// The control requests of both control devices.
    ControlDevice,
}

impl BorderSuite {
    pub const ALL: [Self; 4] = [Self::Contract, Self::Provider, Self::Driver, Self::ControlDevice];

    /// Package and test file.
    pub const fn test_file(self) -> (&'static str, &'static str) {
        match self {
            Self::Contract => ("conformance", "contract"),
            Self::Provider => ("networkdirect", "provider"),
            Self::Driver => ("networkdirect", "driver"),
            Self::ControlDevice => ("ndkctl", "control_device"),
        }
    }

    /// Where its sources are.
    pub fn folder(self) -> PathBuf {
        let (package, file) = self.test_file();
        let parent = if self == Self::ControlDevice { "tools" } else { "tests" };
        [parent, package, "tests", file].iter().collect()
    }

    /// The folder in which its binary runs.
    pub fn package_folder(self) -> PathBuf {
        let (package, _) = self.test_file();
        [if self == Self::ControlDevice { "tools" } else { "tests" }, package].iter().collect()
    }

    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.test_file().1 == word)
    }

    /// By which a process of the suite becomes one test, and that test's name there.
    pub fn child(self, test: &str) -> (&'static str, String) {
        let full = format!("{self}::trials::{test}");
        match self {
            Self::Contract => ("SOFTNDK_TRIAL", test.to_owned()),
            Self::Provider | Self::Driver => ("SOFTNDK_NETWORKDIRECT_CASE", full),
            Self::ControlDevice => ("SOFTNDK_CONTROL_CASE", full),
        }
    }

    /// What a test is called by its own log, without what all of the suite have in front.
    pub fn shown(logged: &str) -> &str {
        logged.split_once("::trials::").map_or(logged, |(_, shown)| shown)
    }
}

impl fmt::Display for BorderSuite {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.test_file().1)
    }
}
