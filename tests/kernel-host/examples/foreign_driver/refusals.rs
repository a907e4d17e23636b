//! What was refused and why: the calls that the layer between consumer and provider saw fail, with the cause from the refusals
//! that softndk.sys keeps, and those of the provider's that no consumer of the layer saw. They are read where they lie in its
//! image: a report of a bugcheck may not call it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use kernel_host::Driver;
use kernel_host::bugcheck;
use kernel_host::image::loader;
use kernel_host::kernel::add_unload_check;
use kernel_host::ndk::mediator::refusals::{self as layer, Cause, Refused, RefusedCall, RefusedWay};
use serde_json::{Value, json};
use softndk_ioctl::{NdkCall, REFUSALS_KEPT, REFUSALS_SIGNATURE, RefusalEntry, RefusalWay};

/// The name under which the image exports them.
const SYMBOL: &str = "SoftNdkRefusals";
/// The lock in front of them is no longer than this.
const LOCK: usize = 64;
/// How many a report shows.
const SHOWN: usize = 16;

static IMAGE: OnceLock<String> = OnceLock::new();
/// What an image that is unloaded had refused, with its places: afterwards there is nothing to name them by.
static NAMED: Mutex<Vec<RefusedCall>> = Mutex::new(Vec::new());
/// Numbers of the entries that explained what the layer saw.
static EXPLAINED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Adds the provider's list to every report, and its causes to what the layer records and traces; `image` is the provider's file name.
pub fn add_to_reports(image: &str) {
    if IMAGE.set(image.to_owned()).is_ok() {
        bugcheck::add_part(part);
        layer::explain_by(explain);
        add_unload_check(keep_places);
    }
}

fn keep_places(_: &Driver) {
    let mut named = named();
    *named = with_places(layer::refused_calls().0, &named);
}

fn named() -> MutexGuard<'static, Vec<RefusedCall>> {
    NAMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same calls, with the place that each had when its image was there.
fn with_places(calls: Vec<RefusedCall>, named: &[RefusedCall]) -> Vec<RefusedCall> {
    let place = |call: &RefusedCall| {
        let is_same = |old: &&RefusedCall| (old.time, old.call, &old.object) == (call.time, call.call, &call.object);
        named.iter().find(is_same).map_or_else(|| call.place.clone(), |old| old.place.clone())
    };
    calls.into_iter().map(|call| RefusedCall { place: place(&call), ..call }).collect()
}

/// The title and a line for each, the last one last; no lines for another provider, or without a refusal.
fn part() -> (String, Vec<String>) {
    let entries = kept();
    let skipped = entries.len().saturating_sub(SHOWN);
    (PROVIDER_TITLE.to_owned(), entries.iter().skip(skipped).map(line).collect())
}

const LAYER_TITLE: &str = "NDK calls that were refused, the last one last";
const PROVIDER_TITLE: &str = "refused by the provider, the last one last";

/// A refusal, by who saw it.
pub enum Shown {
    /// The driver's call or result.
    Call(RefusedCall),
    /// Not the driver's as the layer sees it: a request of the peer's, or a program's.
    Provider(RefusalEntry),
}

/// Everything that is kept, what drivers saw first.
#[must_use]
pub fn all() -> Vec<Shown> {
    let calls = with_places(layer::refused_calls().0, &named());
    let explained = EXPLAINED.lock().unwrap_or_else(PoisonError::into_inner);
    let rest = kept().into_iter().filter(|entry| !explained.contains(&entry.number));
    calls.into_iter().map(Shown::Call).chain(rest.map(Shown::Provider)).collect()
}

/// Prints them under a title each, if there are any.
pub fn print(refused: &[Shown]) {
    let (calls, entries): (Vec<_>, Vec<_>) = refused.iter().partition(|shown| matches!(shown, Shown::Call(_)));
    for (title, list) in [(LAYER_TITLE, calls), (PROVIDER_TITLE, entries)] {
        if !list.is_empty() {
            println!("{title}:");
            for shown in list {
                println!("  {shown}");
            }
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => call.fmt(formatter),
            Self::Provider(entry) => formatter.write_str(&line(entry)),
        }
    }
}

impl Shown {
    /// Call, object, way, status, place, cause and rule.
    #[must_use]
    pub fn as_json(&self) -> Value {
        match self {
            Self::Call(RefusedCall { call, object, status, how, place, cause, .. }) => json!({
                "call": call, "object": object, "how": how, "status": kernel_host::status::text(*status), "place": place,
                "cause": cause.as_ref().map(|cause| &cause.sentence), "rule": cause.as_ref().and_then(|cause| cause.rule),
            }),
            Self::Provider(entry) => {
                let cause = cause(entry);
                json!({
                    "call": entry.call.to_string(), "object": object(entry), "how": format!("its {}", entry.way),
                    "status": kernel_host::status::text(entry.status), "place": null,
                    "cause": cause.sentence, "rule": cause.rule,
                })
            }
        }
    }
}

/// What the provider recorded of a refusal that the layer has just seen: the oldest entry that fits and that fitted no other.
fn explain(refused: &Refused) -> Option<Cause> {
    let entries = kept();
    let mut explained = EXPLAINED.lock().unwrap_or_else(PoisonError::into_inner);
    let oldest = entries.first()?.number;
    explained.retain(|number| *number >= oldest);
    let entry = entries.iter().find(|entry| fits(entry, refused) && !explained.contains(&entry.number))?;
    explained.insert(entry.number);
    Some(cause(entry))
}

fn fits(entry: &RefusalEntry, refused: &Refused) -> bool {
    let way = match refused.way {
        RefusedWay::Return => entry.way == RefusalWay::CALL,
        // An adapter that makes every call pend decides in the call.
        RefusedWay::Completion => [RefusalWay::CALL, RefusalWay::COMPLETION].contains(&entry.way),
        RefusedWay::Result => entry.way == RefusalWay::RESULT,
    };
    let call = refused.call.is_none_or(|call| {
        // The result of a SendAndInvalidate is that of a Send.
        entry.call.to_string() == call || (entry.call == NdkCall::SEND_AND_INVALIDATE && call == "NdkSend")
    });
    way && call && entry.status == refused.status
}

fn cause(entry: &RefusalEntry) -> Cause {
    let place = if entry.place.0 == 0 { String::new() } else { format!(" ({})", entry.place) };
    Cause { sentence: format!("{}{place}", entry.cause), rule: entry.cause.rule(entry.call) }
}

fn object(entry: &RefusalEntry) -> String {
    if entry.object == 0 { "no object".to_owned() } else { format!("{} #{}", entry.kind, entry.object) }
}

fn line(entry: &RefusalEntry) -> String {
    let object = if entry.object == 0 { String::new() } else { format!(" of {}", object(entry)) };
    let RefusalEntry { number, call, way, .. } = entry;
    format!("#{number} {call}{object}, by its {way}: {}: {}", entry.status(), cause(entry))
}

/// What the provider's image keeps, oldest first.
fn kept() -> Vec<RefusalEntry> {
    IMAGE.get().map_or_else(Vec::new, |image| entries(image))
}

fn entries(image: &str) -> Vec<RefusalEntry> {
    let Some(symbol) = loader::address_of(image, SYMBOL) else { return Vec::new() };
    // SAFETY: the symbol is a lock around the signature, the total and the entries, all in one variable that is longer than this.
    let word = |at: usize| unsafe { ((symbol + at) as *const u64).read_volatile() };
    let Some(start) = (0..LOCK).step_by(8).find(|at| word(*at) == REFUSALS_SIGNATURE) else { return Vec::new() };
    let first = (symbol + start + 16) as *const RefusalEntry;
    // SAFETY: so many entries follow signature and total. One that is written now may be read half: a report shows what there is.
    let read = |index: usize| unsafe { first.wrapping_add(index).read_volatile() };
    let mut entries: Vec<RefusalEntry> = (0..REFUSALS_KEPT).map(read).filter(|entry| entry.number != 0).collect();
    entries.sort_by_key(|entry| entry.number);
    entries
}
