//! What two sides agree on before the first frame: CRC, read limits, and who sends first (RFC 5044 7.1, RFC 6581 4 and 9).
//!
//! The initiator makes a Request and settles what its Reply says; the responder looks at a Request and answers it. A responder sends
//! nothing before the initiator's first frame.
//!
//! Rules: markers are neither asked for nor sent. An initiator offers an empty Write and an empty Read as its ready-to-receive frame,
//! because cards take one of them and siw either, and never an empty frame, which siw takes for garbage. Each read limit stays below
//! the number that means "unknown".

use crate::start::{Enhanced, LIMIT_UNKNOWN, StartFlags, StartFrame, StartKind};
use crate::terminate::Code;

/// The first frame of an initiator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadyToReceive {
    /// Write of no bytes.
    Write,
    /// Read of no bytes, which is answered like any Read.
    Read,
}

/// Reads that one side lets in and sends out at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadLimits {
    pub inbound: u16,
    pub outbound: u16,
}

/// Why a Request cannot be answered with an acceptance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The initiator wants markers: the Reply rejects.
    Markers,
    /// Revision 0, which precedes the standard: the stream is closed without an answer.
    Revision,
}

/// What holds for the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Agreement {
    pub crc: bool,
    /// As this side sees them.
    pub limits: ReadLimits,
    /// The frame that the initiator sends first. Without one an initiator that has something to send begins with that, and the
    /// responder waits for it as well.
    pub ready: Option<ReadyToReceive>,
}

/// The largest limit that is a number.
const MOST_LIMIT: u16 = LIMIT_UNKNOWN - 1;

/// The largest limit that a Reply may have: siw as initiator does not survive more.
pub const MOST_ANSWERED: u16 = 128;

/// The Request of an initiator with such limits. A ready-to-receive frame may be a Read, so each limit is one at least.
#[must_use]
pub fn request(limits: ReadLimits, crc: bool, private_data: &[u8]) -> StartFrame<'_> {
    let enhanced = Enhanced {
        is_peer_to_peer: true,
        empty_frame: false,
        write: true,
        read: true,
        inbound_reads: limits.inbound.clamp(1, MOST_LIMIT),
        outbound_reads: limits.outbound.clamp(1, MOST_LIMIT),
    };
    frame(StartKind::Request, crc, Some(enhanced), private_data)
}

/// The Request for peers that know revision 1 only. It exchanges no limits.
#[must_use]
pub fn request_of_revision_1(crc: bool, private_data: &[u8]) -> StartFrame<'_> {
    frame(StartKind::Request, crc, None, private_data)
}

/// What a Request offers, as this side sees it: the limits that hold unless this side lowers them.
pub fn offer(request: &StartFrame<'_>, own: ReadLimits) -> Result<ReadLimits, Refusal> {
    if request.flags.contains(StartFlags::MARKERS) {
        return Err(Refusal::Markers);
    }
    if request.revision == 0 {
        return Err(Refusal::Revision);
    }
    Ok(request.enhanced.map_or(own, |theirs| against(own, theirs)))
}

/// Accepts a Request with limits of this side: the Reply, and what then holds.
pub fn accept<'d>(
    request: &StartFrame<'_>,
    limits: ReadLimits,
    wants_crc: bool,
    private_data: &'d [u8],
) -> Result<(StartFrame<'d>, Agreement), Refusal> {
    let ReadLimits { inbound, outbound } = offer(request, limits)?;
    let limits = ReadLimits { inbound: inbound.min(MOST_ANSWERED), outbound: outbound.min(MOST_ANSWERED) };
    let crc = wants_crc || request.flags.contains(StartFlags::CRC);
    let ready = request.enhanced.filter(|theirs| theirs.is_peer_to_peer).map(|theirs| {
        // As siw: a Write unless only a Read is offered.
        if theirs.read && !theirs.write { ReadyToReceive::Read } else { ReadyToReceive::Write }
    });
    let enhanced = request.enhanced.map(|_| Enhanced {
        is_peer_to_peer: ready.is_some(),
        empty_frame: false,
        write: ready == Some(ReadyToReceive::Write),
        read: ready == Some(ReadyToReceive::Read),
        // A Read as the first frame takes a slot, whatever the consumer lets in.
        inbound_reads: limits.inbound.max(u16::from(ready == Some(ReadyToReceive::Read))),
        outbound_reads: limits.outbound,
    });
    let reply = StartFrame { revision: request.revision, ..frame(StartKind::Reply, crc, enhanced, private_data) };
    Ok((reply, Agreement { crc, limits, ready }))
}

/// Refuses a Request.
#[must_use]
pub fn reject<'d>(request: &StartFrame<'_>, private_data: &'d [u8]) -> StartFrame<'d> {
    // siw demands the enhanced data where it asked for it, in a refusal as well.
    let enhanced = request.enhanced.map(|_| Enhanced::NONE);
    let crc = request.flags.contains(StartFlags::CRC);
    let mut reply = StartFrame { revision: request.revision, ..frame(StartKind::Reply, crc, enhanced, private_data) };
    reply.flags.insert(StartFlags::REJECT);
    reply
}

/// How an initiator understands a Reply that does not reject: what holds, or why it ends the stream.
pub fn settle(request: &StartFrame<'_>, own: ReadLimits, reply: &StartFrame<'_>) -> Result<Agreement, Code> {
    if reply.flags.contains(StartFlags::MARKERS) || reply.revision != request.revision {
        return Err(Code::START_FRAME);
    }
    let crc = request.flags.union(reply.flags).contains(StartFlags::CRC);
    let (Some(offered), Some(theirs)) = (request.enhanced, reply.enhanced) else {
        // Revision 1, or a Reply of revision 2 that leaves out what was asked for.
        let is_old = request.enhanced.is_none() && reply.enhanced.is_none();
        return if is_old { Ok(Agreement { crc, limits: own, ready: None }) } else { Err(Code::START_FRAME) };
    };
    let ready = match (theirs.is_peer_to_peer, theirs.write && offered.write, theirs.read && offered.read) {
        (false, ..) => None,
        (true, true, _) => Some(ReadyToReceive::Write),
        (true, false, true) => Some(ReadyToReceive::Read),
        (true, false, false) => return Err(Code::NO_MATCHING_RTR),
    };
    // Both numbers are final. Its Reads may not exceed what was offered.
    if theirs.outbound_reads != LIMIT_UNKNOWN && theirs.outbound_reads > offered.inbound_reads {
        return Err(Code::INSUFFICIENT_IRD);
    }
    Ok(Agreement { crc, limits: against(own, theirs), ready })
}

/// The limits of this side beside those that the other sent: its outbound Reads are the inbound ones here.
fn against(own: ReadLimits, theirs: Enhanced) -> ReadLimits {
    let least = |own: u16, theirs: u16| if theirs == LIMIT_UNKNOWN { own } else { own.min(theirs) };
    ReadLimits {
        inbound: least(own.inbound, theirs.outbound_reads),
        outbound: least(own.outbound, theirs.inbound_reads),
    }
}

fn frame(kind: StartKind, crc: bool, enhanced: Option<Enhanced>, private_data: &[u8]) -> StartFrame<'_> {
    let mut flags = StartFlags::empty();
    flags.set(StartFlags::CRC, crc);
    flags.set(StartFlags::ENHANCED, enhanced.is_some());
    let revision = if enhanced.is_some() { 2 } else { 1 };
    StartFrame { kind, flags, revision, enhanced, private_data }
}
