//! The order in which spin locks and mutexes are taken: an edge from each lock that a thread holds to the lock that it takes
//! next. An edge that closes a circle is a deadlock that only waits for its timing, so it is a bugcheck at once, whether or not
//! a thread spins. Locks are distinguished by address; what is recorded for an address is dropped when the lock is initialised
//! again or its memory is freed. An attempt that gives up (`KeTryToAcquireSpinLockAtDpcLevel`) waits for no holder and adds no
//! edge to its lock. Kept when verifying only.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::bugcheck::{BugCheck, bugcheck};
use crate::image::stack_trace;
use crate::memory::address_space::{self, Zone};
use crate::thread::Thread;

/// A lock that a thread holds, and where it took it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLock {
    pub lock: usize,
    pub from: u64,
    /// A mutex: held below DISPATCH_LEVEL, so that a DPC may come in between.
    pub sleeps: bool,
}

/// A thread held the first lock and took the second.
#[derive(Clone, Copy)]
struct Edge {
    first: HeldLock,
    second: HeldLock,
}

/// Edges by the addresses of their locks.
type Edges = BTreeMap<usize, BTreeMap<usize, Edge>>;

static EDGES: Mutex<Edges> = Mutex::new(BTreeMap::new());
static ANY: AtomicBool = AtomicBool::new(false);

fn with<T>(body: impl FnOnce(&mut Edges) -> T) -> T {
    body(&mut EDGES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A thread that holds `held` is about to take a lock, for as long as that needs.
pub(crate) fn taking(held: &[HeldLock], second: HeldLock) {
    for first in held.iter().filter(|first| first.lock != second.lock) {
        if is_on_a_stack(first.lock) || is_on_a_stack(second.lock) {
            continue;
        }
        let edge = Edge { first: *first, second };
        if let Some(path) = with(|edges| add(edges, edge)) {
            out_of_order(edge, &path);
        }
    }
}

/// A thread gives a lock back; in any order, as locking hand over hand does. A level that falls with the wrong one is seen elsewhere.
pub(crate) fn released(thread: &Thread, lock: usize) {
    let mut held = thread.held_locks.borrow_mut();
    if let Some(index) = held.iter().rposition(|held| held.lock == lock) {
        held.remove(index);
    }
}

/// Stack memory serves one lock after the other without any call in between.
fn is_on_a_stack(lock: usize) -> bool {
    address_space::zone_of(lock) == Some(Zone::Stacks)
}

/// Adds an edge that is not known; the way back from its second lock to its first, if there is one.
fn add(edges: &mut Edges, edge: Edge) -> Option<Vec<Edge>> {
    let known = edges.get(&edge.first.lock).is_some_and(|from| from.contains_key(&edge.second.lock));
    if known {
        return None;
    }
    let path = way(edges, edge.second.lock, edge.first.lock);
    edges.entry(edge.first.lock).or_default().insert(edge.second.lock, edge);
    ANY.store(true, Ordering::Relaxed);
    path
}

/// A shortest way from one lock to another.
fn way(edges: &Edges, start: usize, end: usize) -> Option<Vec<Edge>> {
    let mut reached: BTreeMap<usize, Edge> = BTreeMap::new();
    let mut next = std::collections::VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        for (lock, edge) in edges.get(&at).into_iter().flatten() {
            if *lock != start && !reached.contains_key(lock) {
                reached.insert(*lock, *edge);
                next.push_back(*lock);
            }
        }
    }
    let mut path = Vec::new();
    let mut at = end;
    while at != start {
        let edge = reached.get(&at)?;
        path.push(*edge);
        at = edge.first.lock;
    }
    path.reverse();
    Some(path)
}

/// Drops the locks in a range of addresses.
pub(crate) fn forget(range: &Range<usize>) {
    if !ANY.load(Ordering::Relaxed) {
        return;
    }
    with(|edges| {
        edges.retain(|lock, _| !range.contains(lock));
        for seconds in edges.values_mut() {
            seconds.retain(|lock, _| !range.contains(lock));
        }
    });
}

#[cold]
fn out_of_order(edge: Edge, path: &[Edge]) -> ! {
    let mut rule = format!(
        "{} are taken out of order: {:#x} ({}) is taken while {:#x} ({}) is held",
        if edge.first.sleeps || edge.second.sleeps { "mutexes or locks" } else { "spin locks" },
        edge.second.lock,
        place(edge.second.from),
        edge.first.lock,
        place(edge.first.from)
    );
    for other in path {
        let _ = write!(
            rule,
            "; before, {:#x} ({}) was taken while {:#x} ({}) was held",
            other.second.lock,
            place(other.second.from),
            other.first.lock,
            place(other.first.from)
        );
    }
    bugcheck(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        [0x1030, edge.second.lock as u64, edge.first.lock as u64, path.len() as u64],
        rule,
    )
}

/// The name of the code that took a lock.
pub(crate) fn place(from: u64) -> String {
    match stack_trace::name(&[from]).first() {
        Some(frame) => frame.to_string(),
        None => "the host".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(first: usize, second: usize) -> Edge {
        let held = |lock| HeldLock { lock, from: 0, sleeps: false };
        Edge { first: held(first), second: held(second) }
    }

    fn circle(edges: &[(usize, usize)]) -> Option<Vec<usize>> {
        let mut known = Edges::new();
        edges.iter().find_map(|(first, second)| {
            let path = add(&mut known, edge(*first, *second))?;
            Some(path.iter().map(|edge| edge.first.lock).collect())
        })
    }

    #[test]
    fn orders_without_a_circle_are_fine() {
        assert_eq!(circle(&[(1, 2), (2, 3), (1, 3), (1, 2), (4, 3), (2, 4)]), None);
    }

    #[test]
    fn two_locks_taken_both_ways_round_are_a_circle() {
        assert_eq!(circle(&[(1, 2), (2, 1)]), Some(vec![1]));
    }

    #[test]
    fn circle_of_three_names_the_shortest_way_back() {
        assert_eq!(circle(&[(1, 2), (2, 3), (2, 5), (5, 3), (3, 1)]), Some(vec![1, 2]));
    }
}
