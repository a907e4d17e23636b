//! What the driver refused, asked through the tools' device: requests of programs, their failed results, quotas.

use kernel_host::io::file::{self, Opener};
use kernel_host::io::{GENERIC_READ, GENERIC_WRITE};
use softndk_ioctl::{RefusalEntry, RefusalListReply, RefusalListRequest, Request, RequestHeader, WIN32_DEVICE_NAME};
use zerocopy::{FromBytes, IntoBytes};

/// The refusals that the driver keeps, oldest first. It has an adapter.
///
/// # Panics
///
/// If the control device does not open, or answers something else than a list.
#[must_use]
pub fn kept() -> Vec<RefusalEntry> {
    let file = file::open(WIN32_DEVICE_NAME, GENERIC_READ | GENERIC_WRITE, Opener::default())
        .expect("the control device opens");
    let (mut first, mut refusals) = (0, Vec::new());
    loop {
        let mut output = vec![0; 4096];
        let asked = RefusalListRequest { header: RequestHeader::of::<RefusalListRequest>(), first };
        let answer = file.ioctl(RefusalListRequest::CODE, asked.as_bytes(), &mut output);
        output.truncate(answer.information);
        let (head, entries) = RefusalListReply::read_from_prefix(&output).expect("a list");
        if head.returned_count == 0 {
            file.close();
            return refusals;
        }
        let entries = entries.chunks_exact(size_of::<RefusalEntry>());
        refusals.extend(entries.map(|entry| RefusalEntry::read_from_bytes(entry).expect("an entry")));
        first = head.next;
    }
}

/// A refusal in a sentence.
#[must_use]
pub fn sentence(entry: &RefusalEntry) -> String {
    let of = match (entry.kind.name(), entry.object) {
        (_, 0) => String::new(),
        (Some(kind), number) => format!(" of {kind} #{number}"),
        (None, process) => format!(" of process {process}"),
    };
    let place = entry.place.name().map_or_else(String::new, |place| format!(" ({place})"));
    format!("{}{of}, by its {}: {}: {}{place}", entry.call, entry.way, entry.status(), entry.cause)
}
