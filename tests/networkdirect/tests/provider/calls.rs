//! Which methods a case has called and what came of it: at once by what they returned, and later by the end of the overlapped request
//! or work request that they began. `methods` compares that with xtask/lists/networkdirect-methods.md.

use softnd_interfaces::{Interface, v1, v2};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

const PENDING: u32 = 0x103;
/// GetOverlappedResult of both versions.
const OVERLAPPED_RESULT: usize = 4;

/// An interface and a slot of it.
pub type Method = (&'static str, usize);

#[derive(Default)]
struct Calls {
    /// Method, whether by completion, status.
    seen: BTreeSet<(Method, bool, u32)>,
    /// Every OVERLAPPED, and what began the request that uses it.
    begun: BTreeMap<u64, Option<Method>>,
}

static CALLS: Mutex<Calls> = Mutex::new(Calls { seen: BTreeSet::new(), begun: BTreeMap::new() });

fn with<R>(act: impl FnOnce(&mut Calls) -> R) -> R {
    act(&mut CALLS.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// All interfaces.
pub fn interfaces() -> impl Iterator<Item = &'static Interface> {
    v2::INTERFACES.iter().chain(v1::INTERFACES)
}

/// The name of the interface with an identifier; version 2's where both have it.
pub fn interface(iid: &str) -> &'static str {
    interfaces().find(|it| format!("{:?}", it.iid) == iid).map_or("", |it| it.name)
}

/// The identifiers that objects with an interface answer to.
pub fn identifiers(name: &str) -> Vec<String> {
    let version = if name.starts_with("IND2") { "IND2Overlapped" } else { "INDOverlapped" };
    let own = interfaces().find(|it| it.name == name).expect("a known interface");
    let of_slot = |slot: usize| slot == 5 || name == "IND2ManaCompletionQueue";
    let is_overlapped = own.methods.first().is_some_and(|(_, slot)| of_slot(*slot));
    let base = interfaces().find(|it| it.name == version && is_overlapped);
    let identifiers = [Some(own), base].into_iter().flatten().map(|it| format!("{:?}", it.iid));
    identifiers.chain(["00000000-0000-0000-C000-000000000046".to_owned()]).collect()
}

pub fn overlapped_made(address: u64) {
    with(|calls| calls.begun.insert(address, None));
}

/// A method has returned.
pub fn returned(method: Method, arguments: &[u64], answer: u32) {
    with(|calls| {
        calls.seen.insert((method, false, answer));
        if method.1 == OVERLAPPED_RESULT {
            let begun = arguments.first().and_then(|address| calls.begun.get(address).copied().flatten());
            if let Some(begun) = begun.filter(|_| answer != PENDING) {
                calls.seen.insert((begun, true, answer));
            }
        } else if answer == PENDING {
            let used = arguments.iter().find(|address| calls.begun.contains_key(address));
            if let Some(used) = used {
                calls.begun.insert(*used, Some(method));
            }
        }
    });
}

/// What began a request has ended, as its OVERLAPPED says.
pub fn overlapped_ended(address: u64, status: u32) {
    with(|calls| {
        if let Some(Some(method)) = calls.begun.get(&address) {
            calls.seen.insert((*method, true, status));
        }
    });
}

/// A work request has completed.
pub fn completed(method: Method, status: u32) {
    with(|calls| calls.seen.insert((method, true, status)));
}

/// A line for each thing that was seen.
pub fn lines() -> Vec<String> {
    with(|calls| {
        let known = calls.seen.iter().filter(|((interface, _), ..)| !interface.is_empty());
        known.map(|((interface, slot), later, status)| format!("{interface} {slot} {later} {status:08X}")).collect()
    })
}
