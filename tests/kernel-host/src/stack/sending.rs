//! Frames as TCP/IP hands them to a miniport: headers in MDLs of their own, cuts at odd places, several buffers in a list and
//! several lists in a chain, at either level.

use std::sync::Arc;

use super::HEADER;
use crate::irql;
use crate::kernel::is_verifying;
use crate::ndis::data_path::Frame;
use crate::ndis::miniport::Miniport;
use crate::wsk::chance;

/// Bytes of an Ethernet and an IPv4 header, and of TCP's behind them.
const HEADERS: [usize; 3] = [HEADER, 20, 20];
/// Lists in one call at most.
const MOST_LISTS: usize = 32;
/// Buffers in one list at most.
const MOST_BUFFERS: usize = 4;
/// Unused bytes in front of a frame at most.
const MOST_UNUSED: usize = 64;

/// Cuts a frame at these places; each piece has a byte at least.
fn cut(frame: &[u8], places: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
    let mut places: Vec<usize> = places.into_iter().filter(|place| (1..frame.len()).contains(place)).collect();
    places.sort_unstable();
    places.dedup();
    let ends = places.iter().copied().chain(Some(frame.len()));
    let begins = Some(0).into_iter().chain(places.iter().copied());
    begins.zip(ends).map(|(begin, end)| frame[begin..end].to_vec()).collect()
}

/// A frame in the pieces that the seed chooses.
fn in_pieces(bytes: Vec<u8>) -> Frame {
    let between_headers = HEADERS.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    // The header and the data, where nothing is checked.
    let shape = if is_verifying() { chance::below(4) } else { 2 };
    let mut pieces = match shape {
        0 => vec![bytes],
        1 => cut(&bytes, between_headers),
        2 => cut(&bytes, Some(HEADERS.iter().sum())),
        _ => cut(&bytes, (0..4).map(|_| chance::below(bytes.len())).collect::<Vec<_>>()),
    };
    let unused = if chance::once_in(3) { 1 + chance::below(MOST_UNUSED) } else { 0 };
    if let Some(first) = pieces.first_mut() {
        first.splice(0..0, std::iter::repeat_n(0xEE, unused));
    }
    Frame { pieces, unused, ..Frame::default() }
}

/// Puts frames into lists, in their order.
fn in_lists(frames: Vec<Vec<u8>>) -> Vec<Frame> {
    let mut frames = frames.into_iter();
    let mut lists = Vec::new();
    while let Some(first) = frames.next() {
        let mut list = in_pieces(first);
        if chance::once_in(4) {
            list.following = frames.by_ref().take(chance::below(MOST_BUFFERS)).collect();
        }
        lists.push(list);
    }
    lists
}

/// Sends frames in order. They are lost while the miniport is not running.
pub(super) fn send(miniport: &Arc<Miniport>, frames: Vec<Vec<u8>>) {
    let mut lists = in_lists(frames);
    while !lists.is_empty() {
        let most = if is_verifying() { 1 + chance::below(MOST_LISTS) } else { MOST_LISTS };
        let rest = lists.split_off(lists.len().min(most));
        let raised = (irql::current() < irql::DISPATCH && chance::once_in(2)).then(|| irql::raise(irql::DISPATCH));
        // Their completion is checked by the data path, and how they fared is TCP's to find out.
        drop(miniport.data.send(miniport, std::mem::replace(&mut lists, rest)));
        if let Some(level) = raised {
            irql::lower(level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_frame_and_none_is_empty() {
        let frame: Vec<u8> = (0..100).collect();
        for places in [vec![], vec![0], vec![100, 200], vec![14, 34, 54], vec![99, 1, 1, 50]] {
            let pieces = cut(&frame, places.clone());
            assert_eq!(pieces.concat(), frame, "{places:?}");
            assert!(pieces.iter().all(|piece| !piece.is_empty()), "{places:?}");
        }
        assert_eq!(cut(&frame, [99, 1, 1, 50]).len(), 4);
    }

    #[test]
    fn lists_keep_all_frames_in_order() {
        let frames: Vec<Vec<u8>> = (1..60).map(|length| vec![length as u8; length]).collect();
        let lists = in_lists(frames.clone());
        let data = |list: &Frame| {
            let first = list.pieces.concat()[list.unused..].to_vec();
            Some(first).into_iter().chain(list.following.clone()).collect::<Vec<_>>()
        };
        assert_eq!(lists.iter().flat_map(data).collect::<Vec<_>>(), frames);
    }
}
