//! Flags of work requests and registrations, and the table of what each operation takes.
//!
//! The front end translates the consumer's bits, NDK_OP_FLAG_* and NDK_MR_FLAG_* (whose values overlap), into these, one bit a
//! meaning.

use bitflags::bitflags;

bitflags! {
    /// Flags of a work request, with the values of NDK_OP_FLAG_*: a front end translates them without looking at each.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct RequestFlags: u16 {
        /// A success leaves no completion (a failure does).
        const SILENT_SUCCESS = 1;
        /// Starts only when all earlier Reads of this queue pair are complete.
        const READ_FENCE = 1 << 1;
        /// The receiver's completion satisfies a solicited arm.
        const SOLICIT = 1 << 2;
        /// The data is copied during the post; SGEs hold real addresses.
        const INLINE = 1 << 6;
        /// Processing may wait for the next request without this flag.
        const DEFER = 1 << 9;
        /// Read: the token of the first SGE is invalidated before the completion.
        const LOCAL_INVALIDATE = 1 << 8;
    }
}

bitflags! {
    /// What a region, a fast registration or a window grants. Local read is always granted.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Rights: u8 {
        const LOCAL_WRITE = 1;
        const REMOTE_READ = 1 << 1;
        /// Granted together with [`Rights::LOCAL_WRITE`] only.
        const REMOTE_WRITE = 1 << 2;
    }
}

/// The kinds of requests and of completions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum Operation {
    #[default]
    Receive,
    /// A receive whose message invalidated a token, see [`Completion::output`](crate::Completion::output).
    ReceiveAndInvalidate,
    /// A receive whose message brought immediate data, see there, too.
    ReceiveImmediate,
    /// A receive that was taken by a Write with immediate data: nothing is in its memory, and its bytes are those of the Write.
    ReceiveWriteImmediate,
    Send,
    /// Completes as [`Operation::Send`].
    SendAndInvalidate,
    /// Completes as [`Operation::Send`].
    SendImmediate,
    Read,
    Write,
    /// Takes a receive of the peer once its bytes are in place. Completes as [`Operation::Write`].
    WriteImmediate,
    Bind,
    FastRegister,
    Invalidate,
}

impl Operation {
    /// Whether it is a receive of any kind.
    pub const fn is_receive(self) -> bool {
        matches!(
            self,
            Self::Receive | Self::ReceiveAndInvalidate | Self::ReceiveImmediate | Self::ReceiveWriteImmediate
        )
    }

    /// What it completes as: what a request brings along is of interest to the peer only.
    pub(crate) const fn completes_as(self) -> Self {
        match self {
            Self::SendAndInvalidate | Self::SendImmediate => Self::Send,
            Self::WriteImmediate => Self::Write,
            other => other,
        }
    }

    /// The flags this operation takes; others are refused.
    pub const fn accepts(self) -> RequestFlags {
        const ANY: RequestFlags =
            RequestFlags::SILENT_SUCCESS.union(RequestFlags::READ_FENCE).union(RequestFlags::DEFER);
        match self {
            Self::Receive | Self::ReceiveAndInvalidate | Self::ReceiveImmediate | Self::ReceiveWriteImmediate => {
                RequestFlags::empty()
            }
            Self::Send | Self::SendAndInvalidate | Self::SendImmediate | Self::WriteImmediate => {
                ANY.union(RequestFlags::SOLICIT).union(RequestFlags::INLINE)
            }
            Self::Read => ANY.union(RequestFlags::LOCAL_INVALIDATE),
            Self::Write => ANY.union(RequestFlags::INLINE),
            Self::Bind | Self::FastRegister | Self::Invalidate => ANY,
        }
    }
}

/// What an object is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ObjectKind {
    Open,
    CompletionQueue,
    ProtectionDomain,
    MemoryRegion,
    MemoryWindow,
    SharedReceiveQueue,
    QueuePair,
    Listener,
    Connector,
    SharedEndpoint,
}
