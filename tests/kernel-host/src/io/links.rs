//! Symbolic links of devices below the directory of DOS devices: text that leads to text, whatever is at its end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

struct Link {
    target: String,
    /// Its own number, for the account of links.
    number: usize,
}

/// By their names, in lower case.
static LINKS: LazyLock<Mutex<HashMap<String, Link>>> = LazyLock::new(|| Mutex::new(HashMap::new()));

fn links() -> MutexGuard<'static, HashMap<String, Link>> {
    LINKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The link's name below the directory, in lower case.
fn name_of(path: &str) -> String {
    let lower = path.to_lowercase();
    let prefixes = [r"\dosdevices\global\", r"\dosdevices\", r"\global??\", r"\??\"];
    prefixes.iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower).to_owned()
}

/// Makes a link and returns its number; `None` when there is one of that name.
pub fn add(path: &str, target: &str) -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let mut all = links();
    let Entry::Vacant(place) = all.entry(name_of(path)) else { return None };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    place.insert(Link { target: target.to_owned(), number });
    Some(number)
}

/// Removes a link and returns its number; `None` when there is none.
pub fn remove(path: &str) -> Option<usize> {
    links().remove(&name_of(path)).map(|link| link.number)
}

/// Where a link leads.
#[must_use]
pub fn target(path: &str) -> Option<String> {
    links().get(&name_of(path)).map(|link| link.target.clone())
}
