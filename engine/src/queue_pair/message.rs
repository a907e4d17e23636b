//! What one end of a connection says to the other: the memory that a Read or Write names, a message, and how these fail.
//!
//! Nothing here points to an object: it could cross a network.

use softndk_iwarp::terminate::Code;

use crate::completion::completion_queue::{Completion, TERMINATED};
use crate::error::{AccessFault, Outcome};
use crate::flags::{Operation, RequestFlags};
use crate::platform::Platform;
use crate::queue_pair::request::Request;
use crate::token::MemoryToken;

/// How a request or a receive fails: its outcome, and what was wrong where that has a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) outcome: Outcome,
    pub(crate) fault: Option<AccessFault>,
    /// What has ended the stream under it.
    pub(crate) terminate: Option<Code>,
}

impl Failure {
    pub(crate) const fn of(outcome: Outcome, fault: AccessFault) -> Self {
        Self { outcome, fault: Some(fault), terminate: None }
    }

    pub(crate) fn by(self, terminate: Code) -> Self {
        Self { terminate: Some(terminate), ..self }
    }

    /// Puts what is known of the failure into its completion.
    pub(crate) fn describe(self, completion: &mut Completion) {
        completion.fault = self.fault;
        completion.output = self.terminate.map_or(0, |code| TERMINATED | u32::from(code.word()));
    }
}

impl From<Outcome> for Failure {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, fault: None, terminate: None }
    }
}

/// Which side refused an access, and what was wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    Local(AccessFault),
    Remote(AccessFault),
}

/// The peer's memory that a Read or Write names.
#[derive(Clone, Copy)]
pub(crate) struct RemoteBuffer {
    pub(crate) token: MemoryToken,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl RemoteBuffer {
    pub(crate) fn of<P: Platform>(request: &Request<P>) -> Self {
        Self { token: request.token, address: request.address, length: request.length }
    }
}

/// What a message brings beside its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Extra {
    Nothing,
    /// The peer's token that it invalidates.
    Invalidates(MemoryToken),
    /// Immediate data.
    Immediate(u32),
    /// Immediate data of a Write, which has put its bytes elsewhere.
    WriteImmediate(u32),
}

/// A message, as the other end has to know it.
#[derive(Clone, Copy)]
pub(crate) struct SendMessage {
    pub(crate) length: u64,
    pub(crate) solicited: bool,
    pub(crate) extra: Extra,
}

impl SendMessage {
    pub(crate) fn of<P: Platform>(request: &Request<P>) -> Self {
        Self {
            length: request.length,
            solicited: request.flags.contains(RequestFlags::SOLICIT),
            extra: match request.operation {
                Operation::SendAndInvalidate => Extra::Invalidates(request.token),
                Operation::SendImmediate => Extra::Immediate(request.immediate),
                Operation::WriteImmediate => Extra::WriteImmediate(request.immediate),
                _ => Extra::Nothing,
            },
        }
    }

    /// The peer's token that it invalidates.
    pub(crate) fn invalidates(&self) -> Option<MemoryToken> {
        if let Extra::Invalidates(token) = self.extra { Some(token) } else { None }
    }

    /// Bytes that go into the receive.
    pub(crate) fn received_length(&self) -> u64 {
        if let Extra::WriteImmediate(_) = self.extra { 0 } else { self.length }
    }
}

/// How a message found the other end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Begun {
    /// It has its receive.
    Found,
    /// The waiter is scheduled when there is one. `unlimited`: the receives are shared, and the message waits without limit.
    NoReceive { unlimited: bool },
    /// The token to invalidate is not in use; no receive was touched, and the other end has failed.
    UnknownToken,
    /// The receive fails with this, and with it the other end.
    Failed(Failure),
}
