//! The two architectures the driver is built for, and what each is called by whom.

use ar_archive_writer::MachineTypes;
use clap::ValueEnum;

/// A Windows architecture, by the name the driver kit uses for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
