//! What a stream and its connector leave for one another.

use arrayvec::ArrayVec;
use softndk_iwarp::negotiation::ReadLimits;
use softndk_iwarp::stream::End;
use softndk_iwarp::terminate::Code;

use crate::error::{ConnectError, DisconnectReason};
use crate::object::header::Object;
use crate::platform::Platform;
use crate::private_data::PrivateData;
use crate::stream::Wishes;
use crate::stream::wire::OpenMemory;

/// What has happened on a stream, for its connector. Each at most once in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum News {
    /// Passive end: the Request is there.
    Requested,
    /// Active end: the Reply accepts.
    Accepted,
    Rejected,
    /// Active end: the stream has ended before a Reply.
    Refused(ConnectError),
    /// Passive end: it has ended before the first frame.
    Abandoned,
    /// Passive end: the first frame is there.
    Ready,
    /// The peer sends nothing more.
    Notice,
    Ended(DisconnectReason),
}

/// What a consumer hears of the end of an open stream.
pub(crate) fn reason_of(end: End) -> DisconnectReason {
    match end {
        End::Fault(code) => reason_of_fault(code),
        End::Terminated(code) => reason_of_terminate(code),
        End::Start(_) | End::Rejected => DisconnectReason::StreamLost,
    }
}

/// What the consumer of this end hears when the stream has ended with a code of this end.
fn reason_of_fault(code: Code) -> DisconnectReason {
    // Accesses and receives; all else says that the bytes are not those of a peer that keeps to the protocol.
    let is_request = matches!((code.layer, code.kind), (0, 1) | (1, 0 | 1)) && code != Code::TAGGED_VERSION
        || [Code::NOT_INVALIDATED, Code::NO_BUFFER, Code::MESSAGE_TOO_LONG].contains(&code);
    if is_request { DisconnectReason::PeerFailed } else { DisconnectReason::StreamLost }
}

/// And with one of the peer.
fn reason_of_terminate(code: Option<Code>) -> DisconnectReason {
    match code {
        Some(Code::LOCAL_CATASTROPHIC) => DisconnectReason::PeerFailed,
        _ => DisconnectReason::RefusedByPeer,
    }
}

/// The most of these that come one after the other: three steps, and an end of two.
const MOST_NEWS: usize = 5;

/// What goes into a start-up frame, or has come in one.
pub(crate) struct StartData {
    pub(crate) limits: ReadLimits,
    pub(crate) private_data: PrivateData,
}

/// What others leave for the context that has the wire, and what it leaves for them.
pub(super) struct Mail<P: Platform> {
    pub(super) connector: Option<Object<P>>,
    pub(super) queue_pair: Option<Object<P>>,
    /// The queue pair, if it found the wire with another context.
    pub(super) waiting: Option<Object<P>>,
    pub(super) wishes: Wishes,
    /// For the Reply that is wished for.
    pub(super) answer: Option<StartData>,
    /// For the stream that is accepted.
    pub(super) memory: Option<OpenMemory<P>>,
    /// Of the peer.
    pub(super) start: Option<StartData>,
    /// The Request of a stream that has come has been taken.
    pub(super) has_made_connector: bool,
    news: ArrayVec<News, MOST_NEWS>,
}

impl<P: Platform> Mail<P> {
    pub(super) fn new() -> Self {
        Self {
            connector: None,
            queue_pair: None,
            waiting: None,
            wishes: Wishes::empty(),
            answer: None,
            memory: None,
            start: None,
            has_made_connector: false,
            news: ArrayVec::new(),
        }
    }

    pub(super) fn add(&mut self, news: News) {
        let added = self.news.try_push(news);
        debug_assert!(added.is_ok(), "more happens on a stream than can");
    }

    pub(super) fn take_news(&mut self) -> Option<News> {
        self.news.pop_at(0)
    }
}
