//! The places where an image can panic. A panic in the kernel is a bugcheck, so every place is listed with the reason why no
//! input from outside can cause it.
//!
//! The standard library panics through `core::panicking` and through its own functions that do nothing but fail
//! (`core::option::unwrap_failed`, `core::slice::index::slice_index_fail`, …). A *site* is a branch into one of those
//! from anything else; it is named after the innermost function there that is not the standard library's, so that the
//! list does not change with what the optimiser inlines.

use super::{
    allocation::is_handler,
    code::{Branch, Code},
    symbols::Symbols,
};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};

/// A function that can panic, and the way it does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub function: String,
    pub panic: String,
}

/// Every site, with how many branches make it up.
pub fn sites(code: &Code, symbols: &Symbols) -> Result<BTreeMap<Site, usize>> {
    let failing = failing_functions(code, symbols);
    // Allocations that end the system have a rule of their own.
    let is_site = |branch: &&Branch| {
        failing.contains(&branch.to) && !failing.contains(&branch.from) && !is_handler(&name(symbols, branch.to))
    };
    let branches = code.branches.iter().filter(is_site).collect::<Vec<_>>();
    let frames = symbols.frames(&branches.iter().map(|branch| branch.at).collect::<Vec<_>>())?;
    let mut sites = BTreeMap::new();
    for (branch, frames) in branches.iter().zip(frames) {
        let site = Site { function: own_function(frames, branch.from, symbols), panic: name(symbols, branch.to) };
        *sites.entry(site).or_default() += 1;
    }
    Ok(sites)
}

/// The innermost function of an inline chain that is not the library's; the image's own function where all are.
pub fn own_function(frames: Vec<String>, of_image: usize, symbols: &Symbols) -> String {
    frames.into_iter().find(|frame| !is_library(frame)).unwrap_or_else(|| name(symbols, of_image))
}

/// `core::panicking` and the library functions that never return and end there.
pub fn failing_functions(code: &Code, symbols: &Symbols) -> BTreeSet<usize> {
    let mut failing = (0..symbols.functions.len())
        .filter(|index| name(symbols, *index).starts_with("core::panicking::"))
        .collect::<BTreeSet<_>>();
    loop {
        let before = failing.len();
        for branch in &code.branches {
            if failing.contains(&branch.to)
                && !code.returning.contains(&branch.from)
                && is_library(&name(symbols, branch.from))
            {
                failing.insert(branch.from);
            }
        }
        if failing.len() == before {
            return failing;
        }
    }
}

/// Whether a function belongs to the standard library. What has no name in the symbols is glue that the compiler made.
pub fn is_library(name: &str) -> bool {
    name.is_empty()
        || ["core::", "alloc::", "compiler_builtins::", "__rustc::"].iter().any(|library| name.starts_with(library))
}

/// The name of the function with this index.
pub fn name(symbols: &Symbols, index: usize) -> String {
    symbols.functions.get(index).map(|function| function.name.clone()).unwrap_or_default()
}
