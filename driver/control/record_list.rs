//! The last refusals, the last events, and the uplinks: what `ndkctl refusals`, `ndkctl events` and `ndkctl wire list` show.

use softndk_ioctl::{
    EventListReply, EventListRequest, RefusalListReply, RefusalListRequest, RequestHeader, Status, UplinkListReply,
    UplinkListRequest, list_capacity, read_request,
};
use softndk_kernel::irp::Buffer;
use zerocopy::{Immutable, IntoBytes};

use super::{request::adapters_left, uplink};
use crate::runtime::{event, records::Record, refusal};

/// IOCTL: refusal list. As many whole entries as fit, oldest first. `IRQL <= DISPATCH_LEVEL`; no lock is held between two entries.
pub fn refusals(buffer: &mut Buffer) -> Result<usize, Status> {
    let request: RefusalListRequest = read_request(buffer.input())?;
    answer(buffer, request.first, numbered(refusal::at), |returned_count, entry_size, next| RefusalListReply {
        header: RequestHeader::of::<RefusalListReply>(),
        returned_count,
        entry_size,
        next,
        total: refusal::total(),
    })
}

/// IOCTL: event list. The same.
pub fn events(buffer: &mut Buffer) -> Result<usize, Status> {
    let request: EventListRequest = read_request(buffer.input())?;
    answer(buffer, request.first, numbered(event::at), |returned_count, entry_size, next| EventListReply {
        header: RequestHeader::of::<EventListReply>(),
        returned_count,
        entry_size,
        next,
        total: event::total(),
    })
}

/// IOCTL: uplink list. The same, by the numbers of the adapters.
pub fn uplinks(buffer: &mut Buffer) -> Result<usize, Status> {
    let request: UplinkListRequest = read_request(buffer.input())?;
    answer(buffer, request.first, uplink::at, |returned_count, entry_size, next| UplinkListReply {
        header: RequestHeader::of::<UplinkListReply>(),
        returned_count,
        entry_size,
        next,
    })
}

fn numbered<Entry: Record>(at: fn(u64) -> Option<Entry>) -> impl Fn(u64) -> Option<(u64, Entry)> {
    move |number| at(number).map(|entry| (entry.number(), entry))
}

/// Fills the output with entries from a number on: `at` finds the first one from there, and its number. `reply` is given how many entries
/// there are, their size, and the number of the next one.
fn answer<Reply: IntoBytes + Immutable, Entry: IntoBytes + Immutable>(
    buffer: &mut Buffer,
    first: u64,
    at: impl Fn(u64) -> Option<(u64, Entry)>,
    reply: impl FnOnce(u32, u32, u64) -> Reply,
) -> Result<usize, Status> {
    list_capacity::<Reply, Entry>(buffer.output_length())?;
    adapters_left()?;
    let output = buffer.output();
    let (head, entries) = output.split_at_mut_checked(size_of::<Reply>()).ok_or(Status::BUFFER_TOO_SMALL)?;
    let (mut next, mut count, mut length) = (first, 0_u32, size_of::<Reply>());
    for place in entries.chunks_exact_mut(size_of::<Entry>()) {
        let Some((number, entry)) = at(next) else { break };
        place.copy_from_slice(entry.as_bytes());
        next = number.saturating_add(1);
        length = length.saturating_add(size_of::<Entry>());
        count = count.saturating_add(1);
    }
    head.copy_from_slice(reply(count, size_of::<Entry>() as u32, next).as_bytes());
    Ok(length)
}
