//! Finds allocations that end the system when they fail: `Box::new`, `Vec::push` and the like end the system when memory is short.
//!
//! They end in a few handler functions of `alloc`. Only the entry point may reach those: it runs once, at load, with
//! no consumer yet. Everything else starts at a function whose address is taken (a callback, a slot of a dispatch
//! table, a thread); from those no direct branch may lead to a handler. A branch that the optimiser cannot prove dead
//! counts, even where the code before it has reserved capacity: use a call that cannot grow.

use super::{
    ImageRule, Violation,
    code::{Branch, Code},
    image::Image,
    panics::{is_library, name, own_function},
    symbols::Symbols,
};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};

const HANDLERS: &[&str] =
    &["alloc::alloc::handle_alloc_error", "alloc::raw_vec::handle_error", "alloc::raw_vec::capacity_overflow"];

/// Whether a function is where allocations end that cannot fail.
pub fn is_handler(name: &str) -> bool {
    HANDLERS.iter().any(|handler| name.starts_with(handler))
}

pub fn check(image: &Image, code: &Code, symbols: &Symbols) -> Result<Vec<Violation>> {
    let growing = growing_functions(code, symbols);
    let roots = reached_from(image, code, symbols);
    let is_site = |branch: &&Branch| growing.contains(&branch.to) && !growing.contains(&branch.from);
    let sites =
        code.branches.iter().filter(is_site).filter(|branch| roots.contains_key(&branch.from)).collect::<Vec<_>>();
    let frames = symbols.frames(&sites.iter().map(|branch| branch.at).collect::<Vec<_>>())?;
    let mut found = BTreeMap::new();
    for (branch, frames) in sites.into_iter().zip(frames) {
        let site = format!("{} -> {}", own_function(frames, branch.from, symbols), name(symbols, branch.to));
        found
            .entry(site)
            .or_insert_with(|| roots.get(&branch.from).map_or_else(String::new, |root| name(symbols, *root)));
    }
    let shown = found
        .into_iter()
        .map(|(site, root)| ImageRule::InfallibleAllocation.broken(format!("{site}, for example from {root}")));
    Ok(shown.collect())
}

/// The handlers, and the functions of the library that call them.
fn growing_functions(code: &Code, symbols: &Symbols) -> BTreeSet<usize> {
    let mut growing =
        (0..symbols.functions.len()).filter(|index| is_handler(&name(symbols, *index))).collect::<BTreeSet<_>>();
    loop {
        let before = growing.len();
        for branch in &code.branches {
            if growing.contains(&branch.to) && is_library(&name(symbols, branch.from)) {
                growing.insert(branch.from);
            }
        }
        if growing.len() == before {
            return growing;
        }
    }
}

/// Every function that direct branches reach from one whose address is held, and one such. `DriverEntry` is none.
fn reached_from(image: &Image, code: &Code, symbols: &Symbols) -> BTreeMap<usize, usize> {
    let entry = symbols.holding(image.entry);
    let mut roots = BTreeMap::new();
    let mut open = Vec::new();
    for root in code.address_taken.iter().filter(|root| Some(**root) != entry) {
        roots.insert(*root, *root);
        open.push(*root);
    }
    while let Some(from) = open.pop() {
        let root = roots.get(&from).copied().unwrap_or(from);
        for branch in code.branches.iter().filter(|branch| branch.from == from) {
            roots.entry(branch.to).or_insert_with(|| {
                open.push(branch.to);
                root
            });
        }
    }
    roots
}
