//! Every refusal leaves its cause: after each call, completion and result that fails, the driver's own list of refusals
//! (`docs/ioctl.md`, refusal list) must have an entry with that call and status that no other failure has been matched with.
//!
//! The list is read through the control device, by a handle that is open while a [`Machine`](crate::machine::Machine) is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel_host::io::{Caller, File, GENERIC_READ, GENERIC_WRITE, Opener, file};
use ndkpi_sys::nt::{NTSTATUS, STATUS_CANCELLED};
use softndk_ioctl::{
    NdkCall, RefusalEntry, RefusalListReply, RefusalListRequest, RefusalWay, Request, RequestHeader, Status,
    WIN32_DEVICE_NAME,
};
use zerocopy::{FromBytes, IntoBytes};

/// More than the refusals between two failures that are checked.
const CAPACITY: usize = 64;
/// Unmatched refusals that are kept: sessions of the driver itself have some, too.
const REMEMBERED: usize = 4096;

struct Seen {
    device: Option<Arc<File>>,
    /// The number of the newest refusal read.
    newest: u64,
    unmatched: BTreeMap<u64, RefusalEntry>,
    matched: Option<RefusalEntry>,
}

static SEEN: Mutex<Seen> = Mutex::new(Seen { device: None, newest: 0, unmatched: BTreeMap::new(), matched: None });

fn seen() -> MutexGuard<'static, Seen> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on refusals are checked. The driver is loaded and has an adapter.
pub fn watch() {
    let opener = Opener { caller: Caller::Kernel, ..Opener::default() };
    let device = file::open(WIN32_DEVICE_NAME, GENERIC_READ | GENERIC_WRITE, opener).expect("the control device opens");
    *seen() = Seen { device: Some(Arc::new(device)), newest: 0, unmatched: BTreeMap::new(), matched: None };
}

/// Refusals are not checked any more. Before the driver is unloaded.
pub fn stop() {
    let device = seen().device.take();
    drop(device);
}

/// The refusals since `first`, as many as fit; none when the driver has no adapter any more and cannot be asked.
fn read(device: &File, first: u64) -> Option<Vec<RefusalEntry>> {
    let request = RefusalListRequest { header: RequestHeader::of::<RefusalListRequest>(), first };
    let mut output = vec![0; size_of::<RefusalListReply>() + CAPACITY * size_of::<RefusalEntry>()];
    let answer = device.ioctl(RefusalListRequest::CODE, request.as_bytes(), &mut output);
    if Status(answer.status) != Status::SUCCESS {
        return None;
    }
    let entries = output[size_of::<RefusalListReply>()..answer.information].chunks_exact(size_of::<RefusalEntry>());
    Some(entries.map(|entry| RefusalEntry::read_from_bytes(entry).expect("an entry")).collect())
}

/// Reads what is new; false when nothing could be asked.
fn catch_up() -> bool {
    loop {
        // No lock of a test is held while the driver runs.
        let (device, newest) = {
            let seen = seen();
            let Some(device) = &seen.device else { return false };
            (Arc::clone(device), seen.newest)
        };
        let Some(entries) = read(&device, newest + 1) else { return false };
        let mut seen = seen();
        for entry in &entries {
            if entry.number > seen.newest {
                seen.newest = entry.number;
                seen.unmatched.insert(entry.number, *entry);
            }
        }
        while seen.unmatched.len() > REMEMBERED {
            seen.unmatched.pop_first();
        }
        if entries.len() < CAPACITY {
            return true;
        }
    }
}

/// `NDK_FN_CREATE_QP` and `NdkCreateQp` are the same call. Closing is one call for all kinds of objects.
fn is_call(entry: &RefusalEntry, function: &str) -> bool {
    let plain = |name: &str| name.replace('_', "").to_uppercase();
    let wanted = plain(function.trim_start_matches("NDK_FN_"));
    let wanted = match wanted.as_str() {
        "GETLISTENERLOCALADDRESS" | "GETSHAREDENDPOINTLOCALADDRESS" => "GETLOCALADDRESS",
        "QUERYEXTENSIONINTERFACE" => "QUERYEXTENSION",
        "CLOSEOBJECT" => "CLOSE",
        other => other,
    };
    entry.call.name().is_some_and(|name| plain(name.trim_start_matches("Ndk")) == wanted)
}

/// A call or completion of this name ended so: a failure must have left a refusal.
#[track_caller]
pub fn expect(function: &str, status: NTSTATUS) {
    if status < 0 {
        expect_one(function, status, |entry| is_call(entry, function));
    }
}

/// A result ended so.
#[track_caller]
pub fn expect_result(status: NTSTATUS) {
    if status != 0 && status != STATUS_CANCELLED {
        expect_one("a result", status, |entry| entry.way == RefusalWay::RESULT);
    }
}

#[track_caller]
fn expect_one(what: &str, status: NTSTATUS, is_it: impl Fn(&RefusalEntry) -> bool) {
    if !catch_up() {
        return;
    }
    let mut seen = seen();
    let found = seen.unmatched.iter().rev().find(|(_, entry)| entry.status == status && is_it(entry));
    let found = found.map(|(number, entry)| (*number, *entry));
    let Some((number, entry)) = found else {
        let last = seen.unmatched.values().rev().take(8).collect::<Vec<_>>();
        panic!("{what} ended with {status:#010x}, and no refusal says why; the last: {last:#?}");
    };
    assert!(entry.cause.name().is_some(), "a refusal without a cause: {entry:?}");
    assert_eq!(entry.kind.0 == 0, entry.object == 0, "kind and number go together: {entry:?}");
    seen.unmatched.remove(&number);
    seen.matched = Some(entry);
}

/// Checks what a call of an image returned if it is a status; other values are ignored.
pub trait Returned {
    fn check_status(&self, function: &str);
}

impl Returned for NTSTATUS {
    #[track_caller]
    fn check_status(&self, function: &str) {
        expect(function, *self);
    }
}

impl Returned for u32 {
    fn check_status(&self, _: &str) {}
}

impl Returned for () {
    fn check_status(&self, _: &str) {}
}

/// As `kernel_host::call_image`, for functions of the provider: a refusal must be on its list.
macro_rules! call_provider {
    ($context:expr, $target:expr => $result:ty; $($argument:expr),* $(,)?) => {{
        let context = $context;
        let returned = kernel_host::call_image!(context, $target => $result; $($argument),*);
        $crate::consumer::refusals::Returned::check_status(&returned, context.name);
        returned
    }};
}
pub(crate) use call_provider;

/// The refusal that the last failure left.
pub fn matched() -> Option<RefusalEntry> {
    seen().matched
}

/// The last refusals, a line each, for a trial that fails.
pub fn last() -> String {
    catch_up();
    let seen = seen();
    let lines = seen.unmatched.values().rev().take(16).map(|entry| {
        let cause = entry.cause.name().unwrap_or("an unknown cause");
        format!("  #{} {} on {} #{}: {}: {cause}\n", entry.number, entry.call, entry.kind, entry.object, entry.status())
    });
    lines.collect()
}

/// The newest Terminate that is on the list: whether it was the peer's, then layer, type and code.
pub fn newest_terminate() -> Option<(bool, [u8; 3])> {
    catch_up();
    let seen = seen();
    let newest = seen.unmatched.values().rev().find(|entry| entry.call == NdkCall::STREAM)?;
    Some((newest.way == RefusalWay::PEER_TERMINATE, newest.cause.terminate()?))
}
