//! What is open and what is under way, for the report of a hang: first what the hang comes from, as far as the layer sees it, then all
//! objects. What is alike is one line with a count.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::callbacks;
use super::object::{self, NdkObject};
use crate::ndk::object_check::NdkObjectKind;

/// How many of several objects are named.
const NAMED: usize = 3;

/// `QueuePair#2`, or `QueuePair#2, #3, #4 and 510 more (513)`.
pub(super) fn names(objects: &[Arc<NdkObject>]) -> String {
    let [first, others @ ..] = objects else { return "nothing".to_owned() };
    let mut text = first.name();
    for other in others.iter().take(NAMED - 1) {
        let _ = write!(text, ", {}", if other.kind == first.kind { other.number() } else { other.name() });
    }
    if objects.len() > NAMED {
        let _ = write!(text, " and {} more ({})", objects.len() - NAMED, objects.len());
    }
    text
}

/// Objects with something in common, in the order in which the first of each came.
pub(super) struct Groups<K>(pub Vec<(K, Vec<Arc<NdkObject>>)>);

impl<K: PartialEq> Groups<K> {
    pub(super) fn of<'o>(
        objects: impl IntoIterator<Item = &'o Arc<NdkObject>>,
        key: impl Fn(&Arc<NdkObject>) -> K,
    ) -> Self {
        let mut groups: Vec<(K, Vec<Arc<NdkObject>>)> = Vec::new();
        for object in objects {
            let key = key(object);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, members)) => members.push(Arc::clone(object)),
                None => groups.push((key, vec![Arc::clone(object)])),
            }
        }
        Self(groups)
    }
}

/// A line for each kind and place, with the place in the consumer where they were made.
pub(super) fn origins<'o>(objects: impl IntoIterator<Item = &'o Arc<NdkObject>>, indent: &str) -> String {
    let mut text = String::new();
    for (_, members) in Groups::of(objects, |object| (object.kind, object.made_key())).0 {
        let _ = write!(text, "\n***{indent}{}{}", names(&members), origin(&members));
    }
    text
}

/// ` at 0x…, made by NdkCreateQp` and the place in the consumer.
fn origin(members: &[Arc<NdkObject>]) -> String {
    let [first, others @ ..] = members else { return String::new() };
    let address = if others.is_empty() { format!(" at {:#x}", first.address) } else { String::new() };
    format!("{address}, {}", first.made())
}

/// Everything that the layer knows, in one look.
pub(crate) struct Pending {
    open: Vec<Arc<NdkObject>>,
    closing: Vec<Arc<NdkObject>>,
    requests: Vec<(Arc<NdkObject>, &'static str)>,
}

impl Pending {
    pub(crate) fn look() -> Self {
        let (open, closing) = object::live();
        Self { open, closing, requests: callbacks::outstanding() }
    }

    /// What the hang comes from: closes that were not called, requests without a completion, queues that were not armed again.
    pub(crate) fn describe_answer(&self, text: &mut String) {
        let mut lines = Vec::new();
        for (_, members) in Groups::of(self.closing.iter(), |object| self.causes(object, true)).0 {
            let Some(first) = members.first() else { continue };
            for cause in self.causes(first, true) {
                lines.push(format!("the close of {} waits for {cause}", names(&members)));
            }
        }
        let unarmed = self.open.iter().filter(|object| object.is_unarmed());
        let unarmed: Vec<Arc<NdkObject>> = unarmed.map(Arc::clone).collect();
        if !unarmed.is_empty() {
            lines.push(format!("{} was notified and not armed since", names(&unarmed)));
        }
        lines.extend(self.requests_without_close());
        if lines.is_empty() {
            return;
        }
        text.push_str("\n***   look here first:");
        for line in lines {
            let _ = write!(text, "\n***     {line}");
        }
    }

    fn requests_without_close(&self) -> Vec<String> {
        let mut functions: Vec<(&'static str, Vec<Arc<NdkObject>>)> = Vec::new();
        for (object, function) in &self.requests {
            if self.closing.iter().any(|closed| Arc::ptr_eq(closed, object)) {
                continue;
            }
            match functions.iter_mut().find(|(known, _)| known == function) {
                Some((_, objects)) => objects.push(Arc::clone(object)),
                None => functions.push((*function, vec![Arc::clone(object)])),
            }
        }
        let line = |(function, objects): &(_, Vec<_>)| format!("{function} of {} has not completed", names(objects));
        functions.iter().map(line).collect()
    }

    /// The open objects, and for each close that has not completed what it waits for.
    pub(crate) fn describe_objects(&self, text: &mut String) {
        if !self.open.is_empty() {
            let _ = write!(text, "\n***   open NDK objects ({}):", self.open.len());
            text.push_str(&origins(&self.open, "     "));
        }
        let key = |object: &Arc<NdkObject>| (object.kind, object.close_key(), self.causes(object, false));
        for ((.., causes), members) in Groups::of(&self.closing, key).0 {
            let place = members.first().map_or_else(String::new, |first| first.place_of_close());
            let closed = if members.len() == 1 { "it was called" } else { "they were called" };
            let _ = write!(text, "\n***   the close of {} has not completed; {closed}{place}", names(&members));
            for cause in causes {
                let _ = write!(text, "\n***     waits for {cause}");
            }
        }
    }

    /// What the close of an object waits for, as far as the layer sees it; only what nothing else has to come before, or everything.
    fn causes(&self, object: &Arc<NdkObject>, only_first: bool) -> Vec<String> {
        let mut causes = Vec::new();
        let belongs = |other: &&Arc<NdkObject>| {
            let of_adapter = object.kind == NdkObjectKind::Adapter && Arc::ptr_eq(&other.family, &object.family);
            !Arc::ptr_eq(other, object) && (other.holds(object) || of_adapter)
        };
        for (_, members) in Groups::of(self.open.iter().filter(belongs), |other| other.kind).0 {
            causes.push(format!("the close of {}, which the consumer has not called", names(&members)));
        }
        let behind = Groups::of(self.closing.iter().filter(belongs), |other| other.kind).0;
        let waits_for_others = !behind.is_empty();
        for (_, members) in behind.iter().filter(|_| !only_first) {
            causes.push(format!("the close of {}, which has not completed either", names(members)));
        }
        let own = |(other, name): &&(Arc<NdkObject>, &str)| Arc::ptr_eq(other, object) && !name.contains("NdkClose");
        for (_, function) in self.requests.iter().filter(own) {
            causes.push(format!("the completion of {function}, which has not come"));
        }
        let running = object.telling.load(Ordering::SeqCst);
        if running != 0 {
            causes.push(format!("{running} callbacks of it that have not returned"));
        }
        if causes.is_empty() && !waits_for_others {
            causes.push("nothing of the consumer's that the layer knows of: the provider has it".to_owned());
        }
        causes
    }
}
