//! Causes of the engine as codes of a Terminate, and back.

use softndk_iwarp::stream::End;
use softndk_iwarp::terminate::Code;

use crate::change::Terminate;
use crate::error::{AccessFault, Outcome};
use crate::flags::Operation;
use crate::object::snapshot::ObjectKind;
use crate::platform::Platform;
use crate::queue_pair::message::Failure;
use crate::queue_pair::pair::QueuePairObject;

/// The front end records what has ended a stream.
#[cold]
pub(super) fn record<P: Platform>(pair: &QueuePairObject<P>, end: End) {
    let (is_of_peer, code) = match end {
        End::Fault(code) => (false, code),
        End::Terminated(Some(code)) => (true, code),
        End::Terminated(None) | End::Start(_) | End::Rejected => return,
    };
    let Code { layer, kind, code } = code;
    let object = (ObjectKind::QueuePair, pair.core.number);
    pair.core.scheduler.platform().stream_terminated(object, Terminate { is_of_peer, layer, kind, code });
}

/// A Read of the peer was refused.
pub(super) const fn of_read(fault: AccessFault) -> Code {
    match fault {
        AccessFault::Domain | AccessFault::QueuePair => Code::REMOTE_DOMAIN,
        AccessFault::Rights => Code::REMOTE_ACCESS,
        AccessFault::Bounds => Code::REMOTE_BOUNDS,
        _ => Code::REMOTE_INVALID_STAG,
    }
}

/// So was a Write.
pub(super) const fn of_write(fault: AccessFault) -> Code {
    match fault {
        AccessFault::Domain | AccessFault::QueuePair => Code::TAGGED_DOMAIN,
        AccessFault::Rights => Code::REMOTE_ACCESS,
        AccessFault::Bounds => Code::TAGGED_BOUNDS,
        _ => Code::TAGGED_INVALID_STAG,
    }
}

/// A receive has failed that a Send of the peer went into.
pub(super) fn of_receive(failure: Failure) -> Code {
    match failure.outcome {
        Outcome::ReceiveTooSmall => Code::MESSAGE_TOO_LONG,
        _ => Code::DDP_CATASTROPHIC,
    }
}

/// How the oldest request fails when the peer has ended the stream with a code that can be its own.
pub(super) fn failure_of<P: Platform>(
    pair: &QueuePairObject<P>,
    operation: Operation,
    code: Option<Code>,
) -> Option<Failure> {
    let code = code?;
    let semantics = pair.domain.open.semantics;
    let access = Failure { fault: fault_of(code), ..semantics.remote_access.into() };
    let failure = match (operation, code.layer, code.kind) {
        (Operation::Read, 0, 1) | (Operation::Write, 1, 1) => Some(access),
        (Operation::Write, ..) if code == Code::REMOTE_ACCESS => Some(access),
        (Operation::Send | Operation::SendAndInvalidate, 1, 2) if code == Code::MESSAGE_TOO_LONG => {
            Some(Failure::of(semantics.receiver_too_small, AccessFault::ReceiveTooSmall))
        }
        (Operation::Send | Operation::SendAndInvalidate, 1, 2) if code == Code::NO_BUFFER => {
            Some(Outcome::NotReady.into())
        }
        (Operation::Send | Operation::SendAndInvalidate, 1, 0 | 2) => Some(Outcome::RemoteError.into()),
        (Operation::SendAndInvalidate, 0, _) if code.code == Code::NOT_INVALIDATED.code => {
            Some(Failure::of(Outcome::RemoteError, AccessFault::NotInvalidated))
        }
        _ => None,
    };
    failure.map(|failure| failure.by(code))
}

fn fault_of(code: Code) -> Option<AccessFault> {
    match code {
        Code::REMOTE_INVALID_STAG | Code::TAGGED_INVALID_STAG => Some(AccessFault::NoToken),
        Code::REMOTE_BOUNDS | Code::TAGGED_BOUNDS => Some(AccessFault::Bounds),
        Code::REMOTE_ACCESS => Some(AccessFault::Rights),
        Code::REMOTE_DOMAIN | Code::TAGGED_DOMAIN => Some(AccessFault::Domain),
        _ => None,
    }
}
