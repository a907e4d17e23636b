//! What is loaded with mutants in it: the driver, or the provider's DLL.

use crate::{
    arch::Arch,
    command,
    driver::{self, Profile},
    seeded_bugs::{
        proof::{self, ImageBuilder},
        tree::Tree,
    },
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

    /// Builds it from a copy of the tree. What the rules of the finished image say of it is no matter.
    pub fn build(self, tree: &Tree, images: &ImageBuilder) -> Result<PathBuf> {
        match self {
            Self::Driver => images.build(tree).map(|()| proof::image(tree)),
            Self::Provider => {
                command::output(&mut self.cargo(tree)?)?;
                Ok(softnd::made(&Workspace::at(tree.root()), Profile::Debug))
            }
        }
    }
}
