//! Replay scripts: operations on numbered objects with the status each must give, and observations with what must be seen.
//!
//! This is the one vocabulary of the oracle (which prints a failing sequence with it), of `ndkctl replay` (which reads and
//! writes its text) and of the driver (which executes it through its dispatch tables). A script is a run of [`ScriptStep`]s,
//! each followed by its [`ScriptSge`]s or [`ScriptResult`]s. It carries every expectation, so it checks itself on any system.
//! The text form is `ndkctl::script`.
//!
//! Rules: objects are kept in fixed slots, a kind and a number below [`SCRIPT_SLOTS`]; a step that makes an object into a taken
//! slot, or names an empty one, is a broken script ([`ScriptReply::BROKEN`]), not a difference; a step on a slot of another
//! kind than its code is for is invalid ([`Status::INVALID_PARAMETER`]). Every number is open: an executor checks each and
//! never trusts one. Memory is named by object and offset, never by address, and offsets may lie outside of it: an executor
//! adds them to the object's base with wrapping arithmetic.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::header::{Method, Request, RequestHeader, control_code};
use crate::status::Status;

/// Slots of one kind of object.
pub const SCRIPT_SLOTS: u16 = 64;
/// Entries that may follow one step.
pub const SCRIPT_TAIL_MAX: u16 = 256;
/// Longest script one request takes, in bytes.
pub const SCRIPT_LENGTH_MAX: u32 = 1 << 20;
/// Longest buffer a script makes.
pub const SCRIPT_BUFFER_MAX: u64 = 1 << 20;

/// What a slot holds; the letter is the text form's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum ScriptKind {
    /// An opened adapter.
    Adapter = 1,
    /// A protection domain.
    Domain = 2,
    /// A completion queue.
    CompletionQueue = 3,
    /// A shared receive queue.
    SharedReceiveQueue = 4,
    /// A queue pair; its context is its number.
    QueuePair = 5,
    /// A buffer with a logical mapping.
    Buffer = 6,
    /// A memory region of either kind.
    Region = 7,
    /// A memory window.
    Window = 8,
    /// A remembered remote token with the base address it was good for.
    Token = 9,
    /// A listener.
    Listener = 10,
    /// A connector.
    Connector = 11,
    /// A shared endpoint.
    Endpoint = 12,
}

impl ScriptKind {
    /// All kinds with their letters.
    pub const ALL: [(Self, char); 12] = [
        (Self::Adapter, 'A'),
        (Self::Domain, 'P'),
        (Self::CompletionQueue, 'C'),
        (Self::SharedReceiveQueue, 'S'),
        (Self::QueuePair, 'Q'),
        (Self::Buffer, 'B'),
        (Self::Region, 'M'),
        (Self::Window, 'W'),
        (Self::Token, 'T'),
        (Self::Listener, 'L'),
        (Self::Connector, 'K'),
        (Self::Endpoint, 'E'),
    ];
}

/// A slot: kind in the upper half, number in the lower; 0 is none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct ScriptName(pub u32);

impl ScriptName {
    /// No object.
    pub const NONE: Self = Self(0);

    /// The name of a slot.
    #[must_use]
    pub const fn new(kind: ScriptKind, number: u16) -> Self {
        Self(((kind as u32) << 16) | number as u32)
    }

    /// Kind and number, if it names a slot there is.
    #[must_use]
    pub fn parts(self) -> Option<(ScriptKind, u16)> {
        let (kind, number) = ((self.0 >> 16) as u16, self.0 as u16);
        let (kind, _) = ScriptKind::ALL.into_iter().find(|(known, _)| *known as u16 == kind)?;
        (number < SCRIPT_SLOTS).then_some((kind, number))
    }
}

/// How a step is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptAnswer {
    /// The function's own answer is compared at once.
    Inline,
    /// The function may pend; the executor waits for the final status and compares it.
    Final,
    /// The function may pend; its final status, inline or not, is an event of this kind for a following `events`. Not compared
    /// here.
    Event(ScriptEvent),
    /// Nothing to compare (a void function, or the executor's own doing, which always works).
    Nothing,
    /// An observation: after the system has come to rest, the tail is compared with what is seen.
    Observed,
}

/// What an argument means; it decides how the text form writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptForm {
    /// A number.
    Number,
    /// A [`ScriptName`] of one of these kinds, or none.
    Object,
    /// Work request flags: NDK_OP_FLAG_* as they are.
    Flags,
    /// Registration flags: NDK_MR_FLAG_* as they are.
    Rights,
    /// NDK_CQ_NOTIFY_*.
    Arm,
    /// A place in remote memory: two arguments, [`ScriptName`] in the lower and a raw token (used when the name is none) in the upper
    /// half of the first; the offset from the object's base (with no name: the address) in the second.
    Remote,
    /// A digest: [`script_digest`] of what must be there.
    Digest,
}

/// One operation of the vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct ScriptVerb {
    /// The text form's word.
    pub word: &'static str,
    /// The kind of [`ScriptStep::object`]; `None`: any kind (close) or no object (events).
    pub object: Option<ScriptKind>,
    /// Whether the step makes the object of that slot.
    pub makes: bool,
    /// Names and forms of [`ScriptStep::arguments`], in order.
    pub arguments: &'static [(&'static str, ScriptForm)],
    /// How it is judged.
    pub answer: ScriptAnswer,
    /// Whether [`ScriptSge`]s may follow.
    pub sges: bool,
}

macro_rules! verbs {
    ($($(#[$meta:meta])* $name:ident = $code:literal $word:literal $object:expr, $makes:literal, [$($argument:literal $form:ident),*], $answer:expr, $sges:literal;)*) => {
        /// What a step does. Codes are stable; unknown ones are refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum ScriptCode { $($(#[$meta])* $name = $code,)* }

        impl ScriptCode {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code with this number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($code => Some(Self::$name),)* _ => None }
            }

            /// How it is written and judged.
            #[must_use]
            pub const fn verb(self) -> ScriptVerb {
                match self {
                    $(Self::$name => ScriptVerb {
                        word: $word,
                        object: $object,
                        makes: $makes,
                        arguments: &[$(($argument, ScriptForm::$form)),*],
                        answer: $answer,
                        sges: $sges,
                    },)*
                }
            }
        }
    };
}

use ScriptAnswer::{Final, Inline, Nothing, Observed};
use ScriptKind as Of;

verbs! {
    /// Opens the adapter with this index, at version 2.1.
    Open = 1 "open" Some(Of::Adapter), true, ["adapter" Number], Final, false;
    /// Creates a protection domain.
    CreateDomain = 2 "pd" Some(Of::Domain), true, ["adapter" Object], Final, false;
    /// Creates a completion queue with a notification callback.
    CreateCompletionQueue = 3 "cq" Some(Of::CompletionQueue), true, ["adapter" Object, "depth" Number], Final, false;
    /// Creates a shared receive queue with a notification callback.
    CreateSharedReceiveQueue = 4 "srq" Some(Of::SharedReceiveQueue), true, ["domain" Object, "depth" Number, "elements" Number, "threshold" Number], Final, false;
    /// Creates a queue pair.
    CreateQueuePair = 5 "qp" Some(Of::QueuePair), true, ["domain" Object, "receive" Object, "initiator" Object, "receive-depth" Number, "initiator-depth" Number, "receive-elements" Number, "initiator-elements" Number, "inline" Number], Final, false;
    /// Creates a queue pair on a shared receive queue.
    CreateQueuePairShared = 6 "qp-shared" Some(Of::QueuePair), true, ["domain" Object, "receive" Object, "initiator" Object, "shared" Object, "initiator-depth" Number, "initiator-elements" Number, "inline" Number], Final, false;
    /// Makes a page-aligned buffer filled with [`script_byte`]s and builds its logical mapping on the adapter.
    CreateBuffer = 7 "buffer" Some(Of::Buffer), true, ["adapter" Object, "length" Number, "seed" Number], Final, false;
    /// Fills a part of a buffer anew.
    Fill = 8 "fill" Some(Of::Buffer), false, ["offset" Number, "length" Number, "seed" Number], Nothing, false;
    /// Creates a memory region for registration.
    CreateRegion = 9 "mr" Some(Of::Region), true, ["domain" Object], Final, false;
    /// Creates a memory region for fast registration.
    CreateFastRegion = 10 "mr-fast" Some(Of::Region), true, ["domain" Object], Final, false;
    /// Creates a memory window.
    CreateWindow = 11 "mw" Some(Of::Window), true, ["domain" Object], Final, false;
    /// Registers a part of a buffer; the region's base is the address of its first byte.
    Register = 12 "register" Some(Of::Region), false, ["buffer" Object, "offset" Number, "length" Number, "rights" Rights], Final, false;
    /// Takes a registration back.
    Deregister = 13 "deregister" Some(Of::Region), false, [], Final, false;
    /// Initialises a region for fast registration.
    Initialize = 14 "initialize" Some(Of::Region), false, ["pages" Number, "remote" Number], Final, false;
    /// Remembers the remote token (and base) that a region or window has now.
    Remember = 15 "remember" Some(Of::Token), true, ["of" Object], Nothing, false;
    /// Creates a listener.
    CreateListener = 16 "listener" Some(Of::Listener), true, ["adapter" Object], Final, false;
    /// Creates a connector.
    CreateConnector = 17 "connector" Some(Of::Connector), true, ["adapter" Object], Final, false;
    /// Creates a shared endpoint on the adapter's first address; port 0: any.
    CreateEndpoint = 18 "endpoint" Some(Of::Endpoint), true, ["adapter" Object, "port" Number], Final, false;

    /// NdkSend.
    Send = 32 "send" Some(Of::QueuePair), false, ["context" Number, "flags" Flags], Inline, true;
    /// NdkSendAndInvalidate: the token is that of an object, or a raw one; its offset means nothing.
    SendAndInvalidate = 33 "send-invalidate" Some(Of::QueuePair), false, ["context" Number, "flags" Flags, "token" Remote], Inline, true;
    /// NdkReceive.
    Receive = 34 "receive" Some(Of::QueuePair), false, ["context" Number], Inline, true;
    /// NdkSrqReceive.
    SharedReceive = 35 "srq-receive" Some(Of::SharedReceiveQueue), false, ["context" Number], Inline, true;
    /// NdkRead.
    Read = 36 "read" Some(Of::QueuePair), false, ["context" Number, "flags" Flags, "remote" Remote], Inline, true;
    /// NdkWrite.
    Write = 37 "write" Some(Of::QueuePair), false, ["context" Number, "flags" Flags, "remote" Remote], Inline, true;
    /// NdkFastRegister of whole pages of a buffer from page number `page`; `base` is the label of the first byte.
    FastRegister = 38 "fast-register" Some(Of::QueuePair), false, ["context" Number, "flags" Flags, "region" Object, "buffer" Object, "page" Number, "pages" Number, "first-byte" Number, "length" Number, "base" Number], Inline, false;
    /// NdkBind of a part of a region, by offset from its base.
    Bind = 39 "bind" Some(Of::QueuePair), false, ["context" Number, "flags" Flags, "region" Object, "window" Object, "offset" Number, "length" Number], Inline, false;
    /// NdkInvalidate of a region or window.
    Invalidate = 40 "invalidate" Some(Of::QueuePair), false, ["context" Number, "flags" Flags, "target" Object], Inline, false;
    /// NdkFlush.
    Flush = 41 "flush" Some(Of::QueuePair), false, [], Nothing, false;
    /// NdkArmCq.
    Arm = 42 "arm" Some(Of::CompletionQueue), false, ["type" Arm], Nothing, false;
    /// NdkResizeCq.
    Resize = 43 "resize" Some(Of::CompletionQueue), false, ["depth" Number], Final, false;
    /// NdkControlCqInterruptModeration.
    Moderate = 44 "moderate" Some(Of::CompletionQueue), false, ["interval" Number, "count" Number], Inline, false;
    /// NdkModifySrq.
    Modify = 45 "modify" Some(Of::SharedReceiveQueue), false, ["depth" Number, "threshold" Number], Final, false;

    /// NdkListen on the first address of the listener's adapter; port 0: any.
    Listen = 64 "listen" Some(Of::Listener), false, ["port" Number], Final, false;
    /// NdkControlConnectEvents.
    Pause = 65 "pause" Some(Of::Listener), false, ["pause" Number], Nothing, false;
    /// NdkConnect from the first address of the connector's adapter (port 0: any) to a listener's address, or, when that is none, to
    /// port `port` of the adapter `host`. `data` is the length of the private data, whose bytes are [`script_byte`]s of seed 0.
    Connect = 66 "connect" Some(Of::Connector), false, ["qp" Object, "to" Object, "host" Object, "port" Number, "source" Number, "inbound" Number, "outbound" Number, "data" Number], ScriptAnswer::Event(ScriptEvent::Connect), false;
    /// NdkConnectWithSharedEndpoint.
    ConnectShared = 67 "connect-shared" Some(Of::Connector), false, ["qp" Object, "endpoint" Object, "to" Object, "host" Object, "port" Number, "inbound" Number, "outbound" Number, "data" Number], ScriptAnswer::Event(ScriptEvent::Connect), false;
    /// Takes the oldest connector that arrived at a listener and was not taken; NOT_FOUND without one. Waits until the system is quiet.
    Arrive = 68 "arrive" Some(Of::Connector), true, ["at" Object], Final, false;
    /// NdkAccept with a disconnect callback.
    Accept = 69 "accept" Some(Of::Connector), false, ["qp" Object, "inbound" Number, "outbound" Number, "data" Number], ScriptAnswer::Event(ScriptEvent::Accept), false;
    /// NdkCompleteConnect with a disconnect callback.
    Complete = 70 "complete" Some(Of::Connector), false, [], ScriptAnswer::Event(ScriptEvent::Complete), false;
    /// NdkReject.
    Reject = 71 "reject" Some(Of::Connector), false, ["data" Number], Inline, false;
    /// NdkDisconnect.
    Disconnect = 72 "disconnect" Some(Of::Connector), false, [], ScriptAnswer::Event(ScriptEvent::Disconnect), false;
    /// Closes an object; the slot is empty at once. A buffer's mapping is released (only after the requests that use it are done).
    Close = 73 "close" None, false, [], ScriptAnswer::Event(ScriptEvent::Closed), false;

    /// Takes everything out of a completion queue: exactly these results, in this order.
    Poll = 96 "poll" Some(Of::CompletionQueue), false, [], Observed, false;
    /// Callbacks and ends of requests since the last `events`: exactly these, in any order.
    Events = 97 "events" None, false, [], Observed, false;
    /// The bytes of a part of a buffer.
    Bytes = 98 "bytes" Some(Of::Buffer), false, ["offset" Number, "length" Number, "digest" Digest], Observed, false;
    /// NdkGetConnectionData's read limits.
    Limits = 99 "limits" Some(Of::Connector), false, ["inbound" Number, "outbound" Number], Inline, false;
}

/// Arguments of a step.
pub const SCRIPT_ARGUMENTS: usize = 10;

/// One step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScriptStep {
    /// A [`ScriptCode`].
    pub code: u16,
    /// How many 32-byte entries follow: SGEs of a request, results of a poll, events.
    pub tail: u16,
    /// The object it acts on.
    pub object: ScriptName,
    /// The NTSTATUS it must give, where [`ScriptAnswer`] has one.
    pub status: i32,
    /// Zero.
    pub reserved: u32,
    /// As the [`ScriptVerb`] names them; unused ones are zero.
    pub arguments: [u64; SCRIPT_ARGUMENTS],
}

/// An SGE of a scatter/gather list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScriptSge {
    /// Where: a region's or remembered token's base, a buffer's logical address (with NDK_OP_FLAG_INLINE: its real one), or none: 0.
    pub base: ScriptName,
    /// The object of the local token; a buffer means the privileged token of the request's protection domain. None:
    /// `raw_token`.
    pub token: ScriptName,
    /// The token when `token` is none.
    pub raw_token: u32,
    /// Bytes.
    pub length: u32,
    /// Added to the base, wrapping.
    pub offset: u64,
    /// Zero.
    pub reserved: u64,
}

/// A result in a completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScriptResult {
    /// The request's context.
    pub context: u64,
    /// The queue pair whose context it carries.
    pub queue_pair: ScriptName,
    /// NDK_OPERATION_TYPE.
    pub operation: u32,
    /// Its NTSTATUS.
    pub status: i32,
    /// Bytes, of a successful receive; otherwise 0 and not compared.
    pub bytes: u32,
    /// The object whose token was invalidated by the message: a region, window or remembered token; none: not compared.
    pub invalidated: ScriptName,
    /// Zero.
    pub reserved: u32,
}

/// Something that happened outside of the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScriptOccurrence {
    /// A [`ScriptEvent`].
    pub event: u32,
    /// The object of the event. A closed object keeps the name of its slot.
    pub object: ScriptName,
    /// Its NTSTATUS; 0 where there is none.
    pub status: i32,
    /// Zero.
    pub reserved: [u32; 5],
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ScriptEvent {
    /// The notification callback of a completion or shared receive queue.
    Notify = 1,
    /// NdkConnect ended, inline or by its completion.
    Connect = 2,
    /// NdkAccept ended.
    Accept = 3,
    /// NdkCompleteConnect ended.
    Complete = 4,
    /// NdkDisconnect ended.
    Disconnect = 5,
    /// A close ended.
    Closed = 6,
    /// The disconnect callback of a connector.
    Gone = 7,
    /// A connector arrived at a listener (whether or not `arrive` has taken it).
    Arrived = 8,
}

impl ScriptEvent {
    /// All events with their words.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Notify, "notify"),
        (Self::Connect, "connect"),
        (Self::Accept, "accept"),
        (Self::Complete, "complete"),
        (Self::Disconnect, "disconnect"),
        (Self::Closed, "closed"),
        (Self::Gone, "gone"),
        (Self::Arrived, "arrived"),
    ];
}

/// The byte at `offset` of a buffer made (or data sent) with `seed`.
#[must_use]
pub const fn script_byte(seed: u64, offset: u64) -> u8 {
    let mixed = (seed ^ offset.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed >> 56) as u8
}

/// The digest of bytes that `bytes` compares: FNV-1a, 64 bits.
#[must_use]
pub fn script_digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Runs a script on this file. METHOD_BUFFERED; pends until the script has ended, and can be cancelled. Objects that the script
/// leaves open are closed at its end. After the request come `length` bytes of steps.
///
/// Statuses: SUCCESS (the script ran; the reply tells whether a result differed); INFO_LENGTH_MISMATCH; REVISION_MISMATCH;
/// BUFFER_TOO_SMALL (output shorter than [`ScriptReply`]); INVALID_PARAMETER (bytes that are no script: cut off, unknown code,
/// argument that is not zero where none is, tail too long, done to a slot of another kind; reserved not zero; nothing was
/// done); DEVICE_DOES_NOT_EXIST; INVALID_ADDRESS (an adapter has no address); BUFFER_OVERFLOW (more happened between two
/// observations than is kept); DEVICE_REMOVED; INSUFFICIENT_RESOURCES; IO_TIMEOUT (the system did not become idle); CANCELLED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScriptRequest {
    /// Version and size of the whole input.
    pub header: RequestHeader,
    /// Bytes of steps that follow.
    pub length: u32,
    /// Zero.
    pub reserved: u32,
}

impl Request for ScriptRequest {
    const CODE: u32 = control_code(0x830, Method::Buffered);
    type Reply = ScriptReply;
}

/// The outcome. The entries seen follow: results for a poll, occurrences for events, as many as fit, at most `seen`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScriptReply {
    /// ABI version, and the size of the whole reply.
    pub header: RequestHeader,
    /// Steps executed, the differing one included.
    pub steps: u32,
    /// 0; [`ScriptReply::DIFFERS`] or [`ScriptReply::BROKEN`] of the last step executed.
    pub differs: u32,
    /// The status that step gave; 0 where it has none.
    pub status: i32,
    /// Entries that follow.
    pub seen: u32,
    /// The digest or numbers seen (`bytes`: digest; `limits`: inbound and outbound).
    pub values: [u64; 2],
}

impl ScriptReply {
    /// The last step executed gave another result than the script.
    pub const DIFFERS: u32 = 1;
    /// The last step executed makes no sense: a slot taken, empty or of another kind, a number out of range.
    pub const BROKEN: u32 = 2;
}

/// A step with its tail still in bytes.
pub struct ScriptItem<'a> {
    /// The step, copied.
    pub step: ScriptStep,
    /// What it does.
    pub code: ScriptCode,
    tail: &'a [u8],
}

impl ScriptItem<'_> {
    /// An entry of the tail, of the type of the code's verb.
    pub fn entry<T: FromBytes>(&self, index: usize) -> Option<T> {
        let start = index.checked_mul(ENTRY)?;
        T::read_from_prefix(self.tail.get(start..)?).ok().map(|(entry, _)| entry)
    }
}

/// Bytes of an entry of a tail.
const ENTRY: usize = 32;

/// Takes the next step off the bytes of a script; `None` at its end.
///
/// # Errors
/// [`Status::INVALID_PARAMETER`]: cut off, unknown code, tail where none may be or too long, a superfluous argument, an object of
/// another kind than the code is for.
pub fn next_script_step<'a>(bytes: &mut &'a [u8]) -> Result<Option<ScriptItem<'a>>, Status> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (step, rest) = ScriptStep::read_from_prefix(bytes).map_err(|_| Status::INVALID_PARAMETER)?;
    let code = ScriptCode::from_number(step.code).ok_or(Status::INVALID_PARAMETER)?;
    let verb = code.verb();
    let listing = matches!(code, ScriptCode::Poll | ScriptCode::Events);
    let used = verb.arguments.iter().map(|(_, form)| if *form == ScriptForm::Remote { 2 } else { 1 }).sum::<usize>();
    let superfluous = step.arguments.get(used..).is_none_or(|unused| unused.iter().any(|argument| *argument != 0));
    let tail = usize::from(step.tail) * ENTRY;
    let wrong = step.tail > SCRIPT_TAIL_MAX || (step.tail > 0 && !listing && !verb.sges);
    // An object in a slot of another kind could not be found, nor closed in order, by its kind.
    let misplaced = verb.object.is_some_and(|kind| step.object.parts().is_none_or(|(slot, _)| slot != kind));
    if superfluous || wrong || misplaced || step.reserved != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    let (tail, rest) = rest.split_at_checked(tail).ok_or(Status::INVALID_PARAMETER)?;
    *bytes = rest;
    Ok(Some(ScriptItem { step, code, tail }))
}

const _: () = {
    assert!(size_of::<ScriptStep>() == 96);
    assert!(size_of::<ScriptSge>() == ENTRY);
    assert!(size_of::<ScriptResult>() == ENTRY);
    assert!(size_of::<ScriptOccurrence>() == ENTRY);
    assert!(size_of::<ScriptRequest>() == 16);
    assert!(size_of::<ScriptReply>() == 40);
};

#[cfg(test)]
mod tests {
    use super::{
        SCRIPT_SLOTS, ScriptCode, ScriptForm, ScriptKind, ScriptName, ScriptSge, ScriptStep, next_script_step,
    };
    use zerocopy::IntoBytes;

    #[test]
    fn words_and_codes_are_unique_and_arguments_fit() {
        for (index, code) in ScriptCode::ALL.iter().enumerate() {
            assert_eq!(ScriptCode::from_number(*code as u16), Some(*code));
            let words = |code: &ScriptCode| code.verb().word;
            assert!(ScriptCode::ALL[..index].iter().all(|other| words(other) != words(code)), "{}", words(code));
            let arguments = code.verb().arguments;
            let used: usize = arguments.iter().map(|(_, form)| 1 + usize::from(*form == ScriptForm::Remote)).sum();
            assert!(used <= super::SCRIPT_ARGUMENTS);
        }
    }

    #[test]
    fn a_cut_script_or_an_unknown_code_is_refused() {
        let object = ScriptName::new(ScriptKind::QueuePair, 0);
        let step = ScriptStep { code: ScriptCode::Send as u16, tail: 1, object, ..ScriptStep::default() };
        let sge = ScriptSge { length: 7, ..ScriptSge::default() };
        let bytes = [step.as_bytes(), sge.as_bytes()].concat();
        let mut rest = bytes.as_slice();
        let item = next_script_step(&mut rest).unwrap().unwrap();
        assert_eq!(item.entry::<ScriptSge>(0), Some(sge));
        assert_eq!(item.entry::<ScriptSge>(1), None);
        assert!(next_script_step(&mut rest).unwrap().is_none());
        for length in 1..bytes.len() {
            assert!(next_script_step(&mut &bytes[..length]).is_err(), "{length}");
        }
        for broken in [
            ScriptStep { code: 31, tail: 0, ..step },
            ScriptStep { reserved: 1, tail: 0, ..step },
            ScriptStep { arguments: [0, 0, 1, 0, 0, 0, 0, 0, 0, 0], tail: 0, ..step },
            ScriptStep { code: ScriptCode::Flush as u16, ..step },
            ScriptStep { object: ScriptName::NONE, ..step },
            ScriptStep { object: ScriptName::new(ScriptKind::Token, 0), ..step },
            ScriptStep { object: ScriptName::new(ScriptKind::QueuePair, SCRIPT_SLOTS), ..step },
        ] {
            let bytes = [broken.as_bytes(), sge.as_bytes()].concat();
            assert!(next_script_step(&mut bytes.as_slice()).is_err());
        }
    }

    #[test]
    fn every_code_takes_slots_of_its_own_kind_only() {
        for code in ScriptCode::ALL {
            for (kind, letter) in ScriptKind::ALL {
                let object = ScriptName::new(kind, SCRIPT_SLOTS - 1);
                let step = ScriptStep { code: *code as u16, object, ..ScriptStep::default() };
                let taken = next_script_step(&mut step.as_bytes()).is_ok();
                let verb = code.verb();
                assert_eq!(taken, verb.object.is_none_or(|own| own == kind), "{} {letter}", verb.word);
            }
        }
    }
}
