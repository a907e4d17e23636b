//! The last refusals: what `ndkctl refusals` shows.

use softndk_ioctl::{RefusalEntry, RefusalListReply, RefusalListRequest, RequestHeader, Status, read_request};
use zerocopy::IntoBytes;

use super::request::adapters_left;
use crate::refusal;
use softndk_kernel::irp::Buffer;

/// IOCTL: refusal list. As many whole entries as fit, oldest first. `IRQL <= DISPATCH_LEVEL`; no lock is held between two entries.
pub fn answer(buffer: &mut Buffer) -> Result<usize, Status> {
    let request: RefusalListRequest = read_request(buffer.input())?;
    RefusalListRequest::capacity(buffer.output_length())?;
    adapters_left()?;
    let output = buffer.output();
    let (head, entries) = output.split_at_mut_checked(size_of::<RefusalListReply>()).ok_or(Status::BUFFER_TOO_SMALL)?;
    let mut next = request.first;
    let mut length = size_of::<RefusalListReply>();
    let mut returned = 0_u32;
    for place in entries.chunks_exact_mut(size_of::<RefusalEntry>()) {
        let Some(entry) = refusal::at(next) else { break };
        place.copy_from_slice(entry.as_bytes());
        next = entry.number.saturating_add(1);
        length = length.saturating_add(size_of::<RefusalEntry>());
        returned = returned.saturating_add(1);
    }
    let reply = RefusalListReply {
        header: RequestHeader::of::<RefusalListReply>(),
        returned_count: returned,
        entry_size: size_of::<RefusalEntry>() as u32,
        next,
        total: refusal::total(),
    };
    head.copy_from_slice(reply.as_bytes());
    Ok(length)
}
