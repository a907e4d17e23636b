//! Completion queues: entries, arming, moderation, notifications.
//!
//! May use `memory`, `adapter`, `object` and the ground. A queue that has failed marks itself and puts the objects that depend
//! on it on the run queue; it knows none of their kinds.

pub(crate) mod arming;
pub(crate) mod completion_queue;
pub(crate) mod rings;
