//! The two architectures that the driver is built for, and their names in each tool.

use ar_archive_writer::MachineTypes;
use std::str::FromStr;

/// A Windows architecture, by the name the driver kit uses for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    X64,
    Arm64,
}

impl Arch {
    /// The name in our folders and on our command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::X64 => "x64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name of its library folder in the driver kit.
    pub fn kit_folder(self) -> &'static str {
        match self {
            Self::X64 => "x64",
            Self::Arm64 => "ARM64",
        }
    }

    /// The Rust target of the driver.
    pub fn triple(self) -> &'static str {
        match self {
            Self::X64 => "x86_64-pc-windows-msvc",
            Self::Arm64 => "aarch64-pc-windows-msvc",
        }
    }

    /// The variable by which cargo learns the target's linker.
    pub fn linker_variable(self) -> String {
        format!("CARGO_TARGET_{}_LINKER", self.triple().to_uppercase().replace('-', "_"))
    }

    /// The machine field of import libraries.
    pub fn machine(self) -> MachineTypes {
        match self {
            Self::X64 => MachineTypes::AMD64,
            Self::Arm64 => MachineTypes::ARM64,
        }
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = [Self::X64, Self::Arm64].into_iter().find(|arch| arch.name() == name);
        found.ok_or_else(|| format!("{name:?} is neither x64 nor arm64"))
    }
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn is_read_by_its_name() {
        assert_eq!(("x64".parse(), "arm64".parse()), (Ok(Arch::X64), Ok(Arch::Arm64)));
        assert!("x86".parse::<Arch>().is_err());
    }
}
