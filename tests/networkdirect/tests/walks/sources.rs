//! The source files of the product that a call enters, in their order, from its single steps.
//!
//! A file counts as entered when an instruction belongs to a function that the file defines, inlined or not. Functions that a derive or
//! a library's macro makes have no text in the file and do not count.

use kernel_host::image::symbols::Location;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Recording, Walk};

/// The images whose steps are looked at.
const IMAGES: [&str; 2] = ["softnd.dll", "softndk.sys"];

/// The folders of the product.
pub const FOLDERS: [&str; 7] = ["tools/softnd", "tools/ioctl", "driver", "engine", "cells", "kernel", "ndkpi-sys"];

/// A file, by its path from the workspace's folder, and the function by which it is entered first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    pub file: String,
    pub function: String,
}

/// Files that were read, by the names that the compiler has for them.
pub struct Sources<'w> {
    workspace: &'w Path,
    known: BTreeMap<String, Option<Source>>,
}

struct Source {
    path: String,
    text: String,
}

impl<'w> Sources<'w> {
    pub fn new(workspace: &'w Path) -> Self {
        Self { workspace, known: BTreeMap::new() }
    }

    /// Finds the files of a recording.
    pub fn walk(&mut self, calls: &Recording) -> Walk {
        let mut walk = Walk::new();
        for (call, steps) in calls {
            let mut entered = Vec::new();
            for functions in steps.locations(&IMAGES) {
                // The caller first.
                for found in functions.iter().rev().filter_map(|location| self.entered(location)) {
                    let mut known = walk.iter().flat_map(|(_, of_call)| of_call).chain(&entered);
                    if known.all(|known: &Entered| known.file != found.file) {
                        entered.push(found);
                    }
                }
            }
            walk.push((call, entered));
        }
        walk
    }

    /// The file that defines a function, if it is one of the product.
    fn entered(&mut self, location: &Location) -> Option<Entered> {
        let name = location.file.as_ref()?;
        let workspace = self.workspace;
        let source = self.known.entry(name.clone()).or_insert_with(|| Source::find(workspace, name)).as_ref()?;
        let function = plain_name(&location.function)?;
        let is_defined = ["(", "<"].iter().any(|behind| source.text.contains(&format!("fn {function}{behind}")));
        is_defined.then(|| Entered { file: source.path.clone(), function })
    }
}

impl Source {
    /// The compiler's names are absolute and may lead through the folder in which the driver is built.
    fn find(workspace: &Path, name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split(['/', '\\']).collect();
        let ends = (1..parts.len()).rev().map(|start| parts[start..].join("/"));
        let mut of_product = ends.filter(|end| folder_of(end).is_some() && workspace.join(end).is_file());
        let path = of_product.next()?;
        let text = fs::read_to_string(workspace.join(&path)).ok()?;
        Some(Self { path, text })
    }
}

/// The folder of the product that a file is in.
pub fn folder_of(file: &str) -> Option<&'static str> {
    FOLDERS.into_iter().find(|folder| Path::new(file).starts_with(folder))
}

/// The name of a function without its path, its types and its arguments; that of the function around a closure.
pub fn plain_name(function: &str) -> Option<String> {
    let (mut depth, mut path) = (0_u32, String::new());
    for letter in function.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => break,
            _ if depth == 0 => path.push(letter),
            _ => {}
        }
    }
    let mut parts = path.rsplit("::").filter(|part| !part.starts_with("closure$") && !part.starts_with("impl$"));
    parts.next().map(str::to_owned)
}
