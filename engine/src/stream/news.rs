//! What a stream and its connector leave for one another.

use arrayvec::ArrayVec;
use softndk_iwarp::negotiation::ReadLimits;

use crate::error::{ConnectError, DisconnectReason};
use crate::object::header::Object;
use crate::platform::Platform;
use crate::private_data::PrivateData;
use crate::stream::Wishes;

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
    /// Of the peer.
    pub(super) start: Option<StartData>,
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
            start: None,
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
