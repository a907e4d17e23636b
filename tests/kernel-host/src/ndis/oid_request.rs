//! OID requests: the serial path (`MiniportOidRequest`, one at a time), the direct path (any number at once), their completion
//! and cancellation, and the checks that NDIS can make of a result.
//!
//! The request and its buffer are lent to the miniport and freed at completion, so that a late access to either faults.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ndkpi_sys::ndis::{NDIS_OBJECT_HEADER, NDIS_OID_REQUEST};

use super::loan::{Loan, LoanedBytes};
use super::miniport::{Miniport, lock, miniport};
use super::pnp_event::OidHandlerScope;
use super::rendezvous::{self, Mismatch, Rendezvous};
use super::rule::{Group, broken};
use super::{NdisStatus, oid, status};
use crate::bugcheck::{BugCheck, bugcheck};
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::dispatcher::Event;

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidAnswer {
    pub status: NdisStatus,
    /// The bytes that the miniport reports as written (query) or the whole buffer (set).
    pub data: Vec<u8>,
    /// `BytesWritten` of a query, `BytesRead` of a set.
    pub bytes_done: u32,
    pub bytes_needed: u32,
}

/// The kind of a request.
#[derive(Debug, Clone)]
pub enum OidKind {
    /// A query with a buffer of this many bytes.
    Query(usize),
    /// As a query, from the statistics path of NDIS.
    QueryStatistics(usize),
    /// A set with these bytes.
    Set(Vec<u8>),
}

impl OidKind {
    /// `NDIS_REQUEST_TYPE`.
    fn number(&self) -> i32 {
        match self {
            Self::Query(_) => 0,
            Self::Set(_) => 1,
            Self::QueryStatistics(_) => 2,
        }
    }

    fn is_set(&self) -> bool {
        matches!(self, Self::Set(_))
    }

    fn buffer(&self) -> LoanedBytes {
        match self {
            // A pattern, so that bytes that the miniport writes beyond `BytesWritten` are seen.
            Self::Query(length) | Self::QueryStatistics(length) => LoanedBytes::filled(*length, UNTOUCHED),
            Self::Set(bytes) => LoanedBytes::copy_of(bytes),
        }
    }
}

/// How long a miniport may take for a request, in kernel time, and Driver Verifier's rule about it. Real time is a busy
/// machine's as well.
fn limit() -> Duration {
    if crate::kernel::is_verifying() { Duration::from_secs(12) } else { rendezvous::LIMIT }
}
const NDIS_TIMED_OID_COMPLETE: u64 = 0x92003;

const UNTOUCHED: u8 = 0xCD;

/// The requests that a miniport has not completed.
#[derive(Default)]
pub struct OidPath {
    /// The order of requests on the serial path.
    turn: Turn,
    outstanding: Mutex<BTreeMap<usize, Arc<Outstanding>>>,
    next_id: AtomicUsize,
}

struct Outstanding {
    direct: bool,
    oid: u32,
    id: usize,
    met: Rendezvous<NdisStatus>,
}

/// One at a time, waiting in kernel time.
struct Turn {
    busy: Mutex<bool>,
    free: Event,
}

impl Default for Turn {
    fn default() -> Self {
        Self { busy: Mutex::new(false), free: Event::notification() }
    }
}

impl Turn {
    fn take(&self) {
        loop {
            let mut busy = lock(&self.busy);
            if !*busy {
                *busy = true;
                return;
            }
            self.free.reset();
            drop(busy);
            self.free.wait(None);
        }
    }

    fn give(&self) {
        *lock(&self.busy) = false;
        self.free.set();
    }

    fn wait_idle(&self) {
        self.take();
        self.give();
    }
}

impl OidPath {
    /// Waits until no request is outstanding on the serial path.
    pub fn wait_idle(&self) {
        self.turn.wait_idle();
    }

    /// Sends a request on the serial path and waits for its end.
    pub fn request(&self, miniport: &Miniport, oid: u32, kind: &OidKind) -> OidAnswer {
        self.turn.take();
        let answer = self.send(miniport, oid, kind, false);
        self.turn.give();
        answer
    }

    /// Sends a request on the direct path and waits for its end.
    pub fn direct_request(&self, miniport: &Miniport, oid: u32, kind: &OidKind) -> OidAnswer {
        self.send(miniport, oid, kind, true)
    }

    /// Calls the cancel handler with the id of every outstanding request for `oid`; returns how many there were.
    pub fn cancel(&self, miniport: &Miniport, oid: u32) -> usize {
        let matching: Vec<_> = lock(&self.outstanding).values().filter(|entry| entry.oid == oid).cloned().collect();
        for entry in &matching {
            let (name, target) = if entry.direct {
                ("MiniportCancelDirectOidRequest", miniport.driver.handlers.cancel_direct_oid_request)
            } else {
                ("MiniportCancelOidRequest", miniport.driver.handlers.cancel_oid_request)
            };
            let context = Context::new(ContextKind::MiniportEntry, name);
            // SAFETY: the registered handler, with the arguments of MINIPORT_CANCEL_OID_REQUEST.
            unsafe { call_image!(context, target => (); miniport.context(), entry.id) };
        }
        matching.len()
    }

    fn send(&self, miniport: &Miniport, oid: u32, kind: &OidKind, direct: bool) -> OidAnswer {
        let (name, target) = if direct {
            ("MiniportDirectOidRequest", miniport.driver.handlers.direct_oid_request)
        } else {
            ("MiniportOidRequest", miniport.driver.handlers.oid_request)
        };
        if target == 0 {
            return OidAnswer { status: status::NOT_SUPPORTED, data: Vec::new(), bytes_done: 0, bytes_needed: 0 };
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let buffer = kind.buffer();
        let request = build(miniport, oid, kind, id, &buffer);
        let entry = Arc::new(Outstanding { direct, oid, id, met: Rendezvous::default() });
        entry.met.begin();
        lock(&self.outstanding).insert(request.as_pointer() as usize, Arc::clone(&entry));
        let context = Context::new(ContextKind::MiniportEntry, name);
        let scope = OidHandlerScope::enter();
        // SAFETY: the registered handler, with the arguments of MINIPORT_OID_REQUEST.
        let answer = unsafe { call_image!(context, target => i32; miniport.context(), request.as_pointer()) };
        drop(scope);
        let answer = if answer == status::PENDING {
            wait_for(miniport, &entry, oid)
        } else {
            if let Err(mismatch) = entry.met.end() {
                oid_rule(
                    miniport,
                    oid,
                    &format!("returned {} and was completed as well ({mismatch:?})", status::name(answer)),
                );
            }
            answer
        };
        lock(&self.outstanding).remove(&(request.as_pointer() as usize));
        read_answer(miniport, oid, kind, answer, &request, &buffer)
    }

    fn complete(&self, miniport: &Miniport, request: *mut NDIS_OID_REQUEST, answer: NdisStatus, direct: bool) {
        let function = if direct { "NdisMDirectOidRequestComplete" } else { "NdisMOidRequestComplete" };
        let entry = lock(&self.outstanding).get(&(request as usize)).cloned();
        let Some(entry) = entry.filter(|entry| entry.direct == direct) else {
            let rule = format!("{function}: {request:p} is no outstanding request of this path (completed twice?)");
            broken(Group::Oid, miniport.handle, rule);
        };
        if answer == status::PENDING {
            oid_rule(miniport, entry.oid, &format!("is completed by {function} with NDIS_STATUS_PENDING"));
        }
        if entry.met.complete(answer).is_err() {
            oid_rule(miniport, entry.oid, &format!("is completed twice by {function}"));
        }
    }
}

fn wait_for(miniport: &Miniport, entry: &Outstanding, oid: u32) -> NdisStatus {
    if oid == oid::OID_NDK_SET_STATE {
        oid_rule(miniport, oid, "returned NDIS_STATUS_PENDING, which NDKPI forbids");
    }
    let limit = limit();
    match entry.met.wait_for(limit) {
        Ok(answer) => answer,
        Err(Mismatch::NeverCompleted) => {
            let rule = format!("{}: the request was not completed within {limit:?}", oid::name(oid));
            let parameters = [NDIS_TIMED_OID_COMPLETE, miniport.handle as u64, u64::from(oid), 0];
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, parameters, rule)
        }
        Err(other) => oid_rule(miniport, oid, &format!("was not completed rightly ({other:?})")),
    }
}

fn build(miniport: &Miniport, oid: u32, kind: &OidKind, id: usize, buffer: &LoanedBytes) -> Loan<NDIS_OID_REQUEST> {
    /// Header sizes of revision 1 and 2; the contract decides which one a miniport sees (NDIS: NDIS_OID_REQUEST).
    const REVISION_1: NDIS_OBJECT_HEADER = NDIS_OBJECT_HEADER { Type: 0x96, Revision: 1, Size: 0xEC };
    const REVISION_2: NDIS_OBJECT_HEADER = NDIS_OBJECT_HEADER { Type: 0x96, Revision: 2, Size: 0xF8 };
    let mut request = NDIS_OID_REQUEST::zeroed();
    request.Header = if miniport.driver.minor >= 50 { REVISION_2 } else { REVISION_1 };
    request.RequestType.0 = kind.number();
    request.RequestId = id as *mut c_void;
    request.RequestHandle = miniport.handle as *mut c_void;
    // QUERY_INFORMATION and SET_INFORMATION lay their fields out alike.
    request.DATA.QUERY_INFORMATION.Oid = oid;
    request.DATA.QUERY_INFORMATION.InformationBuffer = buffer.as_pointer().cast();
    request.DATA.QUERY_INFORMATION.InformationBufferLength = buffer.len() as u32;
    Loan::new(request)
}

fn read_answer(
    miniport: &Miniport,
    oid: u32,
    kind: &OidKind,
    answer: NdisStatus,
    request: &Loan<NDIS_OID_REQUEST>,
    buffer: &LoanedBytes,
) -> OidAnswer {
    let after = request.read();
    // SAFETY: the request was built with this member, and any bytes are a valid value of its integers.
    let fields = unsafe { after.DATA.QUERY_INFORMATION };
    let (done, needed, length) = (fields.BytesWritten, fields.BytesNeeded, buffer.len() as u32);
    if fields.Oid != oid || fields.InformationBufferLength != length {
        oid_rule(miniport, oid, "was changed by the miniport: Oid and InformationBufferLength are not its to write");
    }
    if done > length {
        oid_rule(miniport, oid, &format!("says {done} bytes done, the buffer has {length}"));
    }
    if matches!(answer, status::BUFFER_TOO_SHORT | status::INVALID_LENGTH | status::BUFFER_OVERFLOW) && needed == 0 {
        oid_rule(miniport, oid, &format!("fails with {} without saying BytesNeeded", status::name(answer)));
    }
    let mut data = buffer.to_vec();
    if !kind.is_set() {
        let written = if answer == status::SUCCESS { done as usize } else { 0 };
        if data.iter().skip(written).any(|byte| *byte != UNTOUCHED) {
            let rule = format!("wrote beyond the {written} bytes it reported with {}", status::name(answer));
            oid_rule(miniport, oid, &rule);
        }
        data.truncate(written);
    }
    OidAnswer { status: answer, data, bytes_done: done, bytes_needed: needed }
}

fn oid_rule(miniport: &Miniport, oid: u32, what: &str) -> ! {
    broken(Group::Oid, miniport.handle, format!("{}: the request {what}", oid::name(oid)))
}

crate::exports! {
    module "ndis.sys";

    /// Completes a request of the serial path that returned pending.
    /// Checks: the request is outstanding on that path, completed once, with a final status.
    /// Source: NDIS: NdisMOidRequestComplete
    [UP_TO_DISPATCH] fn NdisMOidRequestComplete(handle: *mut c_void, request: *mut NDIS_OID_REQUEST, answer: NdisStatus) {
        let miniport = miniport(handle, "NdisMOidRequestComplete");
        miniport.oids.complete(&miniport, request, answer, false);
    }

    /// Completes a request of the direct path that returned pending.
    /// Checks: the request is outstanding on that path, completed once, with a final status.
    /// Source: NDIS: NdisMDirectOidRequestComplete
    [UP_TO_DISPATCH] fn NdisMDirectOidRequestComplete(handle: *mut c_void, request: *mut NDIS_OID_REQUEST, answer: NdisStatus) {
        let miniport = miniport(handle, "NdisMDirectOidRequestComplete");
        miniport.oids.complete(&miniport, request, answer, true);
    }
}
