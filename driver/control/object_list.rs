//! The list of live objects: what `ndkctl objects` shows.
//!
//! It is read part by part, each part no longer than the caller's buffer, and no lock is held between two objects.

use softndk_engine::{ANTECEDENTS, ObjectSnapshot, ObjectState as State, Platform};
use softndk_ioctl::{
    OBJECT_ANTECEDENT_MAX, ObjectEntry, ObjectListReply, ObjectListRequest, ObjectPosition, ObjectState, RequestHeader,
    Status, list_capacity, read_request,
};
use zerocopy::IntoBytes;

use super::request::adapters_left;
use crate::{
    driver::{ADAPTER_MAX, Driver},
    runtime::refusal::listed_kind,
};
use softndk_kernel::irp::Buffer;

const _: () = assert!(ANTECEDENTS == OBJECT_ANTECEDENT_MAX);

/// IOCTL: object list. As many whole entries as fit, from the position that the request names.
pub fn answer(buffer: &mut Buffer) -> Result<usize, Status> {
    let request: ObjectListRequest = read_request(buffer.input())?;
    list_capacity::<ObjectListReply, ObjectEntry>(buffer.output_length())?;
    adapters_left()?;
    let driver = Driver::get().ok_or(Status::DEVICE_REMOVED)?;
    let output = buffer.output();
    let (head, entries) = output.split_at_mut_checked(size_of::<ObjectListReply>()).ok_or(Status::BUFFER_TOO_SMALL)?;
    let mut places = entries.chunks_exact_mut(size_of::<ObjectEntry>());
    let mut returned = 0_u32;
    let now = driver.engine.fabric.platform().now();
    let first = (request.position.adapter as usize).min(ADAPTER_MAX);
    let mut next = None;
    for index in first..ADAPTER_MAX {
        let Some(adapter) = driver.adapter(index) else { continue };
        let start = if index == first { request.position.object as usize } else { 0 };
        let rest = adapter.provider.engine().objects_from(start, &mut |object| {
            let Some(place) = places.next() else { return false };
            place.copy_from_slice(entry(&object, index as u32, now).as_bytes());
            returned = returned.saturating_add(1);
            true
        });
        if let Some(object) = rest {
            next = Some(ObjectPosition { adapter: index as u32, object: u32::try_from(object).unwrap_or(u32::MAX) });
            break;
        }
    }
    let reply = ObjectListReply {
        header: RequestHeader::of::<ObjectListReply>(),
        returned_count: returned,
        entry_size: size_of::<ObjectEntry>() as u32,
        next: next.unwrap_or_default(),
        more: if next.is_some() { ObjectListReply::MORE } else { 0 },
        reserved: 0,
    };
    head.copy_from_slice(reply.as_bytes());
    // Within the output, whose length is a u32.
    Ok(size_of::<ObjectListReply>() + returned as usize * size_of::<ObjectEntry>())
}

fn entry(object: &ObjectSnapshot, adapter: u32, now: u64) -> ObjectEntry {
    let [sent, received] = object.traffic;
    ObjectEntry {
        number: object.number,
        age: now.saturating_sub(object.made),
        antecedents: object.antecedents,
        kind: listed_kind(object.kind),
        state: state(object.state),
        holds: object.holds,
        dependants: object.dependants,
        adapter,
        session: object.label as u32,
        sent,
        received,
    }
}

fn state(state: State) -> ObjectState {
    match state {
        State::Idle => ObjectState::IDLE,
        State::Open => ObjectState::OPEN,
        State::Listening => ObjectState::LISTENING,
        State::Silent => ObjectState::SILENT,
        State::Connecting => ObjectState::CONNECTING,
        State::Answered => ObjectState::ANSWERED,
        State::Arrived => ObjectState::ARRIVED,
        State::Accepting => ObjectState::ACCEPTING,
        State::Claimed => ObjectState::CLAIMED,
        State::Connected => ObjectState::CONNECTED,
        State::Ended => ObjectState::ENDED,
        State::Registered => ObjectState::REGISTERED,
        State::Initialized => ObjectState::INITIALIZED,
        State::Leaving => ObjectState::LEAVING,
        State::Closing => ObjectState::CLOSING,
    }
}
