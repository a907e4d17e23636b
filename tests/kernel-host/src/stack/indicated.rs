//! Indications: a stack takes the frames, and keeps the lists for a while or returns them at once, as the seed chooses. A miniport
//! whose lists are kept has few left, and lends the next ones with the RESOURCES flag.

use std::sync::Arc;
use std::time::Duration;

use super::FrameDirection;
use super::bound::TcpIpStack;
use crate::dispatcher::{self, Time};
use crate::ndis::miniport::lock;
use crate::wsk::chance;

/// How long lists are kept at most.
const KEPT_FOR: Duration = Duration::from_millis(20);
/// How many lists are kept at most, one time and another.
const FEW: usize = 16;
const MANY: usize = 400;

/// The lists that the data path keeps for a stack.
#[derive(Default)]
pub(super) struct KeptLists {
    /// So many, and until then.
    limit: Option<(usize, Time)>,
    counts: IndicationCounts,
}

/// The lists that a miniport has indicated to a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndicationCounts {
    /// Returned within the indication.
    pub returned: usize,
    /// Kept beyond it.
    pub kept: usize,
    /// Indicated with the RESOURCES flag.
    pub resources: usize,
}

impl TcpIpStack {
    /// Takes a frame of an indication.
    pub(crate) fn receive(&self, frame: &[u8]) {
        let passes = lock(&self.filter).as_mut().is_none_or(|filter| filter(FrameDirection::Received, frame));
        if passes {
            self.engine.lock().push_received(frame.to_vec());
        }
    }

    /// The frames of an indication with so many lists have been taken: they are processed later, or now when the stack is reentrant.
    /// No lock is held.
    pub(crate) fn indicated(self: &Arc<Self>, lists: usize, resources: bool, returns: bool) {
        {
            let counts = &mut lock(&self.kept).counts;
            let count = match (resources, returns) {
                (true, _) => &mut counts.resources,
                (false, true) => &mut counts.returned,
                (false, false) => &mut counts.kept,
            };
            *count += lists;
        }
        if self.config.reentrant {
            self.service();
        } else {
            self.notify();
        }
    }

    /// How the lists of all indications were taken.
    #[must_use]
    pub fn indications(&self) -> IndicationCounts {
        lock(&self.kept).counts
    }

    /// Whether the lists of an indication stay with the stack, which then has so many.
    pub(crate) fn keeps_lists(&self, held: usize) -> bool {
        let mut kept = lock(&self.kept);
        if kept.limit.is_none() && chance::once_in(4) {
            let most = if chance::once_in(4) { MANY } else { FEW };
            kept.limit = Some((most, dispatcher::now() + KEPT_FOR.as_nanos() as Time / 100));
        }
        let keeps = kept.limit.is_some_and(|(most, _)| held <= most);
        if !keeps {
            kept.limit = None;
        }
        keeps
    }

    /// Whether the time of the kept lists is over.
    pub(super) fn returns_kept(&self, now: Time) -> bool {
        lock(&self.kept).limit.take_if(|(_, until)| *until <= now).is_some()
    }

    pub(super) fn kept_due(&self) -> Option<Time> {
        lock(&self.kept).limit.map(|(_, until)| until)
    }
}
