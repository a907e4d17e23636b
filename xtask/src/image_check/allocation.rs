//! Allocations that cannot fail: `Box::new`, `Vec::push` and the like end the system when memory is short.
//!
//! They end in a few handler functions of `alloc`. Only the entry point may reach those: it runs once, at load, with
//! nobody to hurt. So whatever reaches a handler by direct branches must itself be reached by direct branches from
//! `DriverEntry` alone; a function whose address is taken (a callback, a dispatch-table slot, a thread) may not.

use super::{Rule, Violation, code::Code, image::Image, symbols::Symbols};
use std::collections::{BTreeMap, BTreeSet};

const HANDLERS: &[&str] =
    &["alloc::alloc::handle_alloc_error", "alloc::raw_vec::handle_error", "alloc::raw_vec::capacity_overflow"];

pub fn check(image: &Image, code: &Code, symbols: &Symbols) -> Vec<Violation> {
    let handlers = symbols
        .functions
        .iter()
        .enumerate()
        .filter(|(_, function)| HANDLERS.iter().any(|handler| function.name.starts_with(handler)))
        .map(|(index, _)| index)
        .collect::<BTreeSet<_>>();
    let entry = symbols.holding(image.entry);
    let next = steps_towards(&handlers, entry, code);
    let reaching = next.keys().copied().filter(|index| Some(*index) != entry && code.address_taken.contains(index));
    reaching.map(|index| Rule::InfallibleAllocation.broken(path(index, &next, symbols))).collect()
}

/// For each function from which a handler can be reached, the next function on the way. Nothing passes through `entry`.
fn steps_towards(handlers: &BTreeSet<usize>, entry: Option<usize>, code: &Code) -> BTreeMap<usize, usize> {
    let mut next = BTreeMap::new();
    let mut open = handlers.iter().copied().collect::<Vec<_>>();
    while let Some(target) = open.pop() {
        for branch in code.branches.iter().filter(|branch| branch.to == target && Some(branch.from) != entry) {
            if !handlers.contains(&branch.from) && !next.contains_key(&branch.from) {
                next.insert(branch.from, target);
                open.push(branch.from);
            }
        }
    }
    next
}

fn path(from: usize, next: &BTreeMap<usize, usize>, symbols: &Symbols) -> String {
    let mut names = Vec::new();
    let mut at = Some(from);
    while let Some(index) = at {
        names.push(symbols.functions.get(index).map_or("?", |function| function.name.as_str()));
        at = next.get(&index).copied();
    }
    names.join(" -> ")
}
