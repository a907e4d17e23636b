//! The control devices' ABI: every request, reply and buffer layout that crosses `\\.\SoftNdk` and `\\.\NdkTest`, shared by both drivers
//! and their tools so that none can drift from the others.
//!
//! It holds numbers and layouts and the arithmetic both sides must agree on (buffer layout, strides, histogram buckets). It
//! does no I/O and depends on neither NDIS nor NDK.
//!
//! Rules kept here:
//! - every input starts with a [`RequestHeader`]: ABI version and size of the whole input;
//! - fields are fixed-width and padding-free (`IntoBytes` proves it), so 32-bit and 64-bit callers share one layout;
//! - no pointer and no kernel address crosses the border; pairs are numbers that mean something for one file only;
//! - numbers from the other side are open: an unknown enumerator or flag is data that gets a status, never a panic;
//! - reserved fields are zero, and a request in which one is not is refused, so that they can be given a meaning.
//!
//! The statuses of each request are documented on its type and in `docs/ioctl.md`.
#![no_std]

mod adapter;
mod build;
mod check;
mod event;
mod header;
mod histogram;
mod measurement;
mod names;
pub mod nd;
mod object_list;
mod objects;
mod outcome;
mod pair;
mod pair_limits;
mod refusal;
mod refusal_rule;
mod script;
mod status;
mod transfer;
mod uplink;
mod version;

pub use adapter::{
    ADAPTER_ADDRESS_MAX, AdapterAddress, AdapterCounters, AdapterEntry, AdapterFlags, AdapterLimits, AdapterListReply,
    AdapterListRequest, AddressFamily, CompletionModeInForce, LimitsProfileInForce, ProcessLimits, Technology,
};
pub use build::{BuildMark, COMMIT, COMMIT_FIELD, COMMIT_LENGTH, COMMIT_UNKNOWN, text_of};
pub use check::{list_capacity, read_request, read_request_of_any_version};
pub use event::{ConnectionEnd, EVENTS_KEPT, EventEntry, EventKind, EventListReply, EventListRequest};
pub use header::{
    ABI_VERSION, DEVICE_NAME, DEVICE_TYPE, Method, Request, RequestHeader, SYMBOLIC_LINK_NAME, TEST_DEVICE_NAME,
    TEST_SYMBOLIC_LINK_NAME, TEST_WIN32_DEVICE_NAME, WIN32_DEVICE_NAME, control_code,
};
pub use histogram::{HISTOGRAM_BUCKETS, Histogram};
pub use measurement::{
    MEASURED_CONNECTIONS_MAX, MEASURED_DEPTH_MAX, MEASURED_PROCESSORS_MAX, MEASURED_SGES_MAX, MeasureFlags,
    MeasureRequest, MeasureResult, MeasuredOperation, scattered_page,
};
pub use object_list::{
    OBJECT_ANTECEDENT_MAX, ObjectEntry, ObjectKind, ObjectListReply, ObjectListRequest, ObjectPosition, ObjectState,
};
pub use objects::{ObjectSummaryReply, ObjectSummaryRequest};
pub use outcome::Outcome;
pub use pair::{PairCloseRequest, PairCreateReply, PairCreateRequest, PairEndpoint, PairFlags, PairModerationRequest};
pub use pair_limits::PairLimits;
pub use refusal::{
    NdkCall, REFUSALS_KEPT, REFUSALS_SIGNATURE, RefusalCause, RefusalEntry, RefusalListReply, RefusalListRequest,
    RefusalPlace, RefusalWay,
};
pub use script::{
    SCRIPT_ARGUMENTS, SCRIPT_BUFFER_MAX, SCRIPT_LENGTH_MAX, SCRIPT_SLOTS, SCRIPT_TAIL_MAX, ScriptAnswer, ScriptCode,
    ScriptEvent, ScriptForm, ScriptItem, ScriptKind, ScriptName, ScriptOccurrence, ScriptReply, ScriptRequest,
    ScriptResult, ScriptSge, ScriptStep, ScriptVerb, next_script_step, script_byte, script_digest,
};
pub use status::Status;
pub use transfer::{
    BUFFER_ALIGNMENT, BufferLayout, EndReason, MemcpyRequest, Operation, REGION_LENGTH_MAX, RESULT_LENGTH, RegionKind,
    STATUS_COUNTS, StatusCount, Stride, TransferFlags, TransferRequest, TransferResult, segment, stride, stride_count,
};
pub use uplink::{UPLINK_PEER_MAX, UplinkDrops, UplinkEntry, UplinkListReply, UplinkListRequest, UplinkPeer};
pub use version::{VersionFlags, VersionReply, VersionRequest};
