//! What is loaded with mutants in it: the driver, or the provider's DLL.

use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    seeded_bugs::tree::Tree,
    softnd,
    workspace::Workspace,
};
use anyhow::Result;
use std::{path::PathBuf, process::Command};

#[derive(Clone, Copy)]
pub enum Subject {
    /// `softndk.sys`.
    Driver,
    /// `softnd.dll`.
    Provider,
}

impl Subject {
    /// As cargo calls it.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Driver => "softndk",
            Self::Provider => "softnd",
        }
    }

    /// The file in which its modules are named.
    pub const fn root(self) -> &'static str {
        match self {
            Self::Driver => "driver/lib.rs",
            Self::Provider => "tools/softnd/src/lib.rs",
        }
    }

    pub const fn file(self) -> &'static str {
        match self {
            Self::Driver => "softndk.sys",
            Self::Provider => "softnd.dll",
        }
    }

    /// By which the suites learn which file to load.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Driver => "SOFTNDK_IMAGE",
            Self::Provider => "SOFTNDK_DLL",
        }
    }

    /// A build that says what does not compile.
    pub fn cargo(self, tree: &Tree) -> Result<Command> {
        let workspace = Workspace::at(tree.root());
        match self {
            Self::Driver => driver::cargo(&workspace, "build", Arch::X64),
            Self::Provider => softnd::cargo(&workspace, "build"),
        }
    }

    /// Builds it from a copy of the tree. The rules of the finished image are not asked.
    pub fn build(self, tree: &Tree) -> Result<PathBuf> {
        command::output(&mut self.cargo(tree)?)?;
        let workspace = Workspace::at(tree.root());
        Ok(match self {
            Self::Driver => driver::made(&workspace, Arch::X64, Profile::Debug).join("softndk.dll"),
            Self::Provider => softnd::made(&workspace, Profile::Debug),
        })
    }
}
