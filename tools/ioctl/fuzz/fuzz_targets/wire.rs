//! What crosses the control device as bytes: requests with their headers, steps of scripts, and the arithmetic of buffers that driver
//! and tools must agree on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ndkctl::script::{decode, encode, parse};
use softndk_ioctl::{
    ABI_VERSION, AdapterListRequest, BufferLayout, EventListRequest, Histogram, MeasureRequest, MemcpyRequest, ObjectListRequest, ObjectSummaryRequest,
    PairCloseRequest, PairCreateRequest, PairModerationRequest, RefusalListRequest, Request, RequestHeader, ScriptRequest, Status,
    TransferRequest, UplinkListRequest, VersionRequest, read_request, segment, stride, stride_count,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

#[path = "../../../../tests/conformance/fuzz/fuzz_targets/seeds.rs"]
mod seeds;

fuzz_target!(init: seeds::write(seeds()), |bytes: &[u8]| {
    let Some((what, bytes)) = bytes.split_first() else { return };
    match what % 17 {
        0 => steps(bytes),
        1 => request::<VersionRequest>(bytes),
        2 => request::<AdapterListRequest>(bytes),
        3 => request::<ObjectSummaryRequest>(bytes),
        4 => request::<ObjectListRequest>(bytes),
        5 => request::<PairCreateRequest>(bytes),
        6 => request::<PairCloseRequest>(bytes),
        7 => request::<PairModerationRequest>(bytes),
        8 => request::<MemcpyRequest>(bytes),
        9 => request::<ScriptRequest>(bytes),
        10 => transfer(bytes),
        11 => histogram(bytes),
        12 => measurement(bytes),
        13 => request::<RefusalListRequest>(bytes),
        14 => request::<EventListRequest>(bytes),
        15 => request::<UplinkListRequest>(bytes),
        _ => steps(bytes),
    }
});

/// Steps as bytes are the same bytes again, and have a text; what is read of it is read of it again.
fn steps(bytes: &[u8]) {
    let Ok(lines) = decode(bytes) else { return };
    assert_eq!(encode(&lines), bytes);
    let write = |lines: &[_]| -> String { lines.iter().map(|line| format!("{line}\n")).collect() };
    let text = write(&lines);
    // Unknown numbers have no words and unknown slots no names: such a text cannot be read, or holds less.
    if let Ok(again) = parse(&text) {
        assert_eq!(parse(&write(&again)), Ok(again));
    }
}

/// A request is taken exactly if its header is correct, and is then equal to the input.
fn request<R: Request + FromBytes + IntoBytes + Immutable>(bytes: &[u8]) {
    let word = |at: usize| bytes.get(at..at + 4).map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")));
    let expected = match (word(0), word(4)) {
        (Some(version), Some(_)) if version != ABI_VERSION => Err(Status::REVISION_MISMATCH),
        (Some(_), Some(size)) if size as usize == bytes.len() && bytes.len() == size_of::<R>() => Ok(()),
        _ => Err(Status::INFO_LENGTH_MISMATCH),
    };
    let read = read_request::<R>(bytes);
    assert_eq!(read.as_ref().map(|_| ()).map_err(|status| *status), expected);
    if let Ok(read) = read {
        assert_eq!(read.as_bytes(), bytes);
    }
}

/// The strides of a transfer fill its region without a gap, and the segments of a request the request.
fn transfer(bytes: &[u8]) {
    request::<TransferRequest>(bytes);
    let Ok((asked, _)) = TransferRequest::read_from_prefix(bytes) else { return };
    let Ok(layout) = BufferLayout::new(asked.region_length) else { return };
    assert!(layout.source < layout.destination || asked.region_length == 0);
    assert!(layout.destination >= layout.source + layout.region_length);
    assert_eq!(layout.total, layout.destination + layout.region_length);
    let count = stride_count(asked.region_length, asked.request_length);
    let mut next = 0;
    for number in 0..count.min(1000) {
        let part = stride(asked.region_length, asked.request_length, number);
        assert_eq!(part.offset, next);
        assert_eq!(stride(asked.region_length, asked.request_length, number + count), part);
        next += u64::from(part.length);
    }
    assert!(next <= asked.region_length);
    if count <= 1000 && asked.request_length > 0 {
        assert_eq!(next, asked.region_length);
    }
    let mut covered = 0;
    for sge in 0..asked.sge_count.min(100) {
        let part = segment(asked.request_length, asked.sge_count, sge).expect("an element there is");
        assert_eq!(part.offset, covered);
        covered += u64::from(part.length);
    }
    if (1..=100).contains(&asked.sge_count) {
        assert_eq!(covered, u64::from(asked.request_length));
    }
    assert!(segment(asked.request_length, asked.sge_count, asked.sge_count).is_none());
}

/// A measurement that passes has parts that lie in its buffer, whole pages apart.
fn measurement(bytes: &[u8]) {
    request::<MeasureRequest>(bytes);
    let Ok((asked, _)) = MeasureRequest::read_from_prefix(bytes) else { return };
    let Ok(layout) = asked.check_fields() else { return };
    let mut end = 0;
    for processor in 0..asked.processor_count {
        let begin = asked.part(processor);
        assert!(begin >= end && begin.is_multiple_of(4096));
        end = begin + asked.region_length;
    }
    assert!(end <= layout.region_length);
    assert!(asked.request_count.is_multiple_of(u64::from(asked.chain_length)));
}

/// An arbitrary histogram with arbitrary samples: no quantile lies outside of what was seen, whatever the counters say.
fn histogram(bytes: &[u8]) {
    let mut own = Histogram::EMPTY;
    let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    words.for_each(|sample| own.record(sample));
    let quantiles: Vec<u64> = [0, 1, 500, 999, 1000, u32::MAX].iter().filter_map(|rank| own.quantile(*rank)).collect();
    assert!(quantiles.is_sorted());
    assert!(quantiles.iter().all(|found| (own.min..=own.max).contains(found)));
    assert!(own.mean().is_none_or(|mean| mean <= own.max));
    let mut foreign = Histogram::EMPTY;
    let length = bytes.len().min(size_of::<Histogram>());
    foreign.as_mut_bytes()[..length].copy_from_slice(&bytes[..length]);
    let _ = (foreign.quantile(500), foreign.mean());
    foreign.merge(&own);
    own.merge(&foreign);
    let _ = own.quantile(990);
}

/// A good request of each kind, and the steps of a script, a few at a time.
fn seeds() -> Vec<Vec<u8>> {
    fn good<R: Request + FromZeros + IntoBytes + Immutable>(kind: u8) -> Vec<u8> {
        let mut bytes = R::new_zeroed().as_bytes().to_vec();
        bytes[..8].copy_from_slice(RequestHeader::of::<R>().as_bytes());
        [vec![kind], bytes].concat()
    }
    let mut transfer = good::<TransferRequest>(10);
    // A region, a request length and some elements.
    transfer[1 + 24..1 + 32].copy_from_slice(&10_000_u64.to_ne_bytes());
    transfer[1 + 40..1 + 48].copy_from_slice(&[0xE8, 3, 0, 0, 3, 0, 0, 0]);
    let mut measurement = good::<MeasureRequest>(12);
    // One Read of a page.
    for (offset, value) in [(20, 1_u32), (24, 1), (32, 4096), (40, 1), (48, 4096), (52, 1), (56, 1), (60, 1), (64, 1), (68, 1)] {
        measurement[1 + offset..5 + offset].copy_from_slice(&value.to_ne_bytes());
    }
    let mut seeds = vec![
        measurement,
        good::<VersionRequest>(1),
        good::<AdapterListRequest>(2),
        good::<ObjectSummaryRequest>(3),
        good::<ObjectListRequest>(4),
        good::<PairCreateRequest>(5),
        good::<PairCloseRequest>(6),
        good::<PairModerationRequest>(7),
        good::<MemcpyRequest>(8),
        good::<ScriptRequest>(9),
        transfer,
        [vec![11], (0..64_u64).flat_map(|sample| (1_u64 << (sample % 60)).to_ne_bytes()).collect()].concat(),
    ];
    let lines = parse(include_str!("../../../ndkctl/tests/scripts/transfers.ndk")).expect("a script");
    seeds.extend(lines.chunks(8).map(|lines| [vec![0], encode(lines)].concat()));
    seeds
}
