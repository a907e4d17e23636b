//! Refusals: every call of a consumer that fails passes [`refuse_by`], with its error, and the last ones are kept for the
//! tools.
//!
//! A [`Refusal`] is an error with its status, and the status comes out of it here only, so a dispatch function cannot fail
//! without a trace. `IRQL <= DISPATCH_LEVEL` everywhere; nothing is allocated; a call that succeeds does nothing here.

use ndkpi_sys::nt::{
    NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_ADDRESS,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED,
};
use softndk_engine::{
    CompletionQueue, Connector, Hold, Listener, MemoryRegion, MemoryWindow, ObjectKind as Kind, Open, Platform,
    ProtectionDomain, QueuePair, SharedEndpoint, SharedReceiveQueue,
};
use softndk_ioctl::{
    NdkCall, ObjectKind, REFUSALS_KEPT, REFUSALS_SIGNATURE, RefusalCause, RefusalEntry, RefusalPlace, RefusalWay,
};
use softndk_kernel::irql;

use super::{
    errors::{EngineError, Failure},
    event,
    records::{Records, record},
};

/// The error of a call, and its status.
#[derive(Clone, Copy)]
#[must_use]
pub struct Refusal {
    cause: RefusalCause,
    status: NTSTATUS,
    /// At whose memory or receive; none where that was not the reason.
    place: RefusalPlace,
}

impl Refusal {
    pub const NO_OBJECT: Self = Self::new(RefusalCause::NO_OBJECT, STATUS_INVALID_PARAMETER);
    pub const NO_CALLBACK: Self = Self::new(RefusalCause::NO_CALLBACK, STATUS_INVALID_PARAMETER);
    pub const NO_PLACE: Self = Self::new(RefusalCause::NO_PLACE, STATUS_INVALID_PARAMETER);
    pub const NO_LIST: Self = Self::new(RefusalCause::NO_LIST, STATUS_INVALID_PARAMETER);
    pub const UNKNOWN_FLAGS: Self = Self::new(RefusalCause::UNKNOWN_FLAGS, STATUS_INVALID_PARAMETER);
    pub const NO_LENGTH: Self = Self::new(RefusalCause::NO_LENGTH, STATUS_INVALID_PARAMETER);
    pub const BAD_ADDRESS: Self = Self::new(RefusalCause::BAD_ADDRESS_ARGUMENT, STATUS_INVALID_PARAMETER);
    pub const UNKNOWN_FAMILY: Self = Self::new(RefusalCause::UNKNOWN_FAMILY, STATUS_INVALID_ADDRESS);
    pub const NO_PRIVATE_DATA: Self = Self::new(RefusalCause::NO_PRIVATE_DATA, STATUS_INVALID_PARAMETER);
    pub const SMALL_BUFFER: Self = Self::new(RefusalCause::SMALL_BUFFER, STATUS_BUFFER_TOO_SMALL);
    pub const NO_EXTENSION: Self = Self::new(RefusalCause::NO_EXTENSION, STATUS_NOT_SUPPORTED);
    pub const NO_ADDRESS_YET: Self = Self::new(RefusalCause::NO_ADDRESS_YET, STATUS_INVALID_DEVICE_STATE);
    pub const NO_MEMORY: Self = Self::new(RefusalCause::NO_MEMORY, STATUS_INSUFFICIENT_RESOURCES);
    pub const FAST_REGISTER_REGION: Self = Self::new(RefusalCause::FAST_REGISTER_REGION, STATUS_INVALID_DEVICE_REQUEST);

    pub const fn new(cause: RefusalCause, status: NTSTATUS) -> Self {
        Self { cause, status, place: RefusalPlace(0) }
    }

    /// The same cause with the status that another interface has for it.
    pub const fn with_status(self, status: NTSTATUS) -> Self {
        Self { status, ..self }
    }

    /// With what was wrong, and at whose memory or receive.
    pub const fn because(self, cause: RefusalCause, place: RefusalPlace) -> Self {
        Self { cause, place, ..self }
    }
}

impl<E: EngineError> From<E> for Refusal {
    fn from(error: E) -> Self {
        let Failure { cause, ndk, nd: _ } = error.into();
        Self::new(cause, ndk)
    }
}

/// What a refused call was made on, as the object list has it: kind and number.
pub trait Subject {
    fn subject(&self) -> (ObjectKind, u64);
}

/// A call on no object of this driver.
pub struct Nothing;

impl Subject for Nothing {
    fn subject(&self) -> (ObjectKind, u64) {
        (ObjectKind::default(), 0)
    }
}

impl Subject for (Kind, u64) {
    fn subject(&self) -> (ObjectKind, u64) {
        (listed_kind(self.0), self.1)
    }
}

impl<P: Platform> Subject for Hold<P> {
    fn subject(&self) -> (ObjectKind, u64) {
        self.object().subject()
    }
}

impl<T: Subject> Subject for Option<&T> {
    fn subject(&self) -> (ObjectKind, u64) {
        self.map_or_else(|| Nothing.subject(), Subject::subject)
    }
}

macro_rules! subjects {
    ($($Handle:ident)+) => {
        $(impl<P: Platform> Subject for $Handle<P> {
            fn subject(&self) -> (ObjectKind, u64) {
                self.hold().subject()
            }
        })+
    };
}

subjects! {
    Open CompletionQueue ProtectionDomain MemoryRegion MemoryWindow SharedReceiveQueue QueuePair Listener Connector
    SharedEndpoint
}

/// A kind in the ABI's form.
pub fn listed_kind(kind: Kind) -> ObjectKind {
    match kind {
        Kind::Open => ObjectKind::ADAPTER,
        Kind::CompletionQueue => ObjectKind::COMPLETION_QUEUE,
        Kind::ProtectionDomain => ObjectKind::PROTECTION_DOMAIN,
        Kind::MemoryRegion => ObjectKind::MEMORY_REGION,
        Kind::MemoryWindow => ObjectKind::MEMORY_WINDOW,
        Kind::SharedReceiveQueue => ObjectKind::SHARED_RECEIVE_QUEUE,
        Kind::QueuePair => ObjectKind::QUEUE_PAIR,
        Kind::Listener => ObjectKind::LISTENER,
        Kind::Connector => ObjectKind::CONNECTOR,
        Kind::SharedEndpoint => ObjectKind::SHARED_ENDPOINT,
    }
}

/// Refuses a call: returns its status.
pub fn refuse(call: NdkCall, object: &impl Subject, refusal: impl Into<Refusal>) -> NTSTATUS {
    refuse_by(RefusalWay::CALL, call, object, refusal)
}

/// As [`refuse`], for any way of reporting to the consumer. Every refusal passes here.
#[cold]
#[inline(never)]
pub fn refuse_by(way: RefusalWay, call: NdkCall, object: &impl Subject, refusal: impl Into<Refusal>) -> NTSTATUS {
    let Refusal { cause, status, place } = refusal.into();
    let (kind, object) = object.subject();
    let entry = RefusalEntry {
        number: 0,
        age: 0,
        object,
        kind,
        call,
        status,
        cause,
        way,
        irql: u32::from(irql::current()),
        processor: irql::processor(),
        place,
    };
    KEPT.keep(entry);
    event::refused(&entry);
    status
}

/// The last refusals. A debugger, or a host that reports a bugcheck, reads them where they lie: the image exports the lock around them,
/// and what it guards begins with [`REFUSALS_SIGNATURE`].
// SAFETY: no other symbol of the image has the name.
#[unsafe(export_name = "SoftNdkRefusals")]
static KEPT: Records<RefusalEntry, REFUSALS_KEPT> = Records::new(
    REFUSALS_SIGNATURE,
    RefusalEntry {
        number: 0,
        age: 0,
        object: 0,
        kind: ObjectKind(0),
        call: NdkCall(0),
        status: 0,
        cause: RefusalCause(0),
        way: RefusalWay(0),
        irql: 0,
        processor: 0,
        place: RefusalPlace(0),
    },
);

record!(RefusalEntry);

/// Refusals so far; the newest has this number.
pub fn total() -> u64 {
    KEPT.total()
}

/// The refusal with this number, or the oldest that is kept if it is gone; `None` behind the newest.
pub fn at(number: u64) -> Option<RefusalEntry> {
    KEPT.get(number)
}
