//! Stack depth below the functions that are called from outside: frames added up along direct calls.
//!
//! Calls through pointers (a consumer's callback, an imported function) are not followed: what they take is not ours. Those from
//! one object of the engine to another through its table are, by the names in [`TABLE_CALLS`]. Ways that end the system are not.
//! A recursion counts once.

use super::{code::Code, symbols::Symbols};
use std::collections::{BTreeMap, BTreeSet};

/// Calls through the table of an object that happen below another function's frame: the caller and what it reaches. (What a
/// service pass calls through tables is measured by itself.)
pub const TABLE_CALLS: [(&str, &str); 2] = [
    ("softndk_engine::queue_pair::pair::end_connection", "softndk_engine::connection::connector::impl::tied_failed"),
    ("softndk_engine::queue_pair::pair::update_end", "softndk_engine::connection::connector::impl::tied_drained"),
];

/// The calls of [`TABLE_CALLS`] as indices of functions; the names of those of which only one end is in the image.
pub fn table_calls(symbols: &Symbols) -> (Vec<(usize, usize)>, Vec<&'static str>) {
    let index = |name: &str| symbols.functions.iter().position(|function| function.name == name);
    let (mut calls, mut lost) = (Vec::new(), Vec::new());
    for (caller, callee) in TABLE_CALLS {
        match (index(caller), index(callee)) {
            (Some(from), Some(to)) => calls.push((from, to)),
            (Some(_), None) => lost.push(callee),
            (None, Some(_)) => lost.push(caller),
            (None, None) => {}
        }
    }
    (calls, lost)
}

/// A call pushes the return address.
const RETURN_ADDRESS: u32 = 8;

/// The deepest way down from one function.
#[derive(Clone)]
struct Way {
    bytes: u32,
    /// The function called next on it.
    next: Option<usize>,
}

/// For each function whose address is taken: the bytes below its caller's frame, and the functions on the way.
pub fn below_entries(
    frames: &BTreeMap<u32, u32>,
    code: &Code,
    symbols: &Symbols,
    ignored: &BTreeSet<usize>,
) -> Vec<(u32, Vec<usize>)> {
    let mut callees = BTreeMap::<usize, BTreeSet<usize>>::new();
    let direct = code.branches.iter().map(|branch| (branch.from, branch.to));
    for (from, to) in direct.chain(table_calls(symbols).0).filter(|(_, to)| !ignored.contains(to)) {
        callees.entry(from).or_default().insert(to);
    }
    let own = |index: usize| {
        let frame = symbols.functions.get(index).and_then(|function| frames.get(&function.start));
        RETURN_ADDRESS + frame.copied().unwrap_or_default()
    };
    let mut ways = BTreeMap::new();
    let mut depths = Vec::new();
    for root in code.address_taken.difference(ignored) {
        let bytes = deepest(*root, &callees, &own, &mut ways, &mut BTreeSet::new());
        let mut path = vec![*root];
        while let Some(next) = path.last().and_then(|last| ways.get(last)).and_then(|way: &Way| way.next) {
            path.push(next);
        }
        depths.push((bytes, path));
    }
    depths.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    depths
}

fn deepest(
    from: usize,
    callees: &BTreeMap<usize, BTreeSet<usize>>,
    own: &impl Fn(usize) -> u32,
    ways: &mut BTreeMap<usize, Way>,
    above: &mut BTreeSet<usize>,
) -> u32 {
    if let Some(way) = ways.get(&from) {
        return way.bytes;
    }
    above.insert(from);
    let mut below = (0, None);
    for callee in callees.get(&from).into_iter().flatten() {
        if !above.contains(callee) {
            let bytes = deepest(*callee, callees, own, ways, above);
            if bytes > below.0 {
                below = (bytes, Some(*callee));
            }
        }
    }
    above.remove(&from);
    let bytes = own(from) + below.0;
    ways.insert(from, Way { bytes, next: below.1 });
    bytes
}
