//! Start-up: frames in any cut, faults, and what two sides agree on, with the habits of siw and of cards.

use softndk_iwarp::negotiation::{
    Agreement, ReadLimits, ReadyToReceive, Refusal, accept, offer, reject, request, request_of_revision_1, settle,
};
use softndk_iwarp::start::{
    Enhanced, HEADER, LIMIT_UNKNOWN, MOST_DATA, StartFault, StartFlags, StartFrame, StartKind, StartReader,
};
use softndk_iwarp::terminate::Code;

const OWN: ReadLimits = ReadLimits { inbound: 16, outbound: 8 };

fn encoded(frame: &StartFrame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER + MOST_DATA];
    let length = frame.encode(&mut bytes).expect("it fits");
    bytes.truncate(length);
    bytes
}

/// The Request of siw: no first frame, no CRC.
fn of_siw() -> StartFrame<'static> {
    let enhanced = Enhanced { inbound_reads: 4, outbound_reads: 4, ..Enhanced::NONE };
    let flags = StartFlags::ENHANCED;
    StartFrame { kind: StartKind::Request, flags, revision: 2, enhanced: Some(enhanced), private_data: b"siw" }
}

#[test]
fn a_frame_in_any_cut_takes_its_own_bytes_only() {
    for data in [&b""[..], b"x", &[7; 248]] {
        for frame in [request(OWN, true, data), request_of_revision_1(false, data)] {
            let bytes = [encoded(&frame), b"behind".to_vec()].concat();
            for at in 0..=bytes.len() {
                let mut reader = StartReader::try_new(StartKind::Request).unwrap();
                let (mut first, mut second) = bytes.split_at(at);
                let is_whole = at >= bytes.len() - 6;
                assert_eq!(reader.read(&mut first), Ok(is_whole.then_some(frame)), "{at}");
                if !is_whole {
                    assert!(first.is_empty());
                    assert_eq!(reader.read(&mut second), Ok(Some(frame)), "{at}");
                    assert_eq!(second, b"behind");
                }
            }
        }
    }
}

#[test]
fn faults_show_as_soon_as_they_can() {
    let good = encoded(&request(OWN, true, b"data"));
    let read = |bytes: &[u8]| {
        StartReader::try_new(StartKind::Request).unwrap().read(&mut &*bytes).map(|frame| frame.is_some())
    };
    for at in 0..16 {
        let mut wrong = good.clone();
        wrong[at] ^= 0x20;
        assert_eq!(read(&wrong[..=at]), Err(StartFault::Key), "byte {at}");
    }
    let reply = encoded(&StartFrame { kind: StartKind::Reply, ..request(OWN, true, b"") });
    assert_eq!(read(&reply), Err(StartFault::Key));
    for (at, value, fault) in [
        (17, 3, StartFault::Revision),
        (18, 2, StartFault::Length),
        (19, 3, StartFault::Length),
        (19, 0, StartFault::Length),
    ] {
        let mut wrong = good.clone();
        wrong[at] = value;
        if at == 18 {
            wrong[19] = 1;
        }
        assert_eq!(read(&wrong), Err(fault), "byte {at}");
    }
    let longest = StartFrame { private_data: &[1; MOST_DATA - 4], ..request(OWN, true, b"") };
    assert_eq!(read(&encoded(&longest)), Ok(true));
    let longer = StartFrame { private_data: &[1; MOST_DATA - 3], ..longest };
    assert_eq!(longer.encode(&mut [0; 2000]), None);
}

#[test]
fn any_start_of_any_bytes_is_no_panic() {
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..20_000 {
        let mut bytes = encoded(&request(OWN, random.bool(), &vec![0; random.usize(..300)]));
        for _ in 0..random.usize(..4) {
            let at = random.usize(16..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(..=bytes.len()));
        let mut reader = StartReader::try_new(StartKind::Request).unwrap();
        let mut input = bytes.as_slice();
        if let Ok(Some(frame)) = reader.read(&mut input) {
            let _ = (offer(&frame, OWN), accept(&frame, OWN, true, b"").map(|(reply, _)| encoded(&reply)));
        }
    }
}

/// Two of ours.
#[test]
fn both_ends_agree() {
    for (own, theirs) in [(OWN, OWN), (ReadLimits { inbound: 3, outbound: 99 }, ReadLimits { inbound: 7, outbound: 2 })]
    {
        for (ours_crc, their_crc) in [(false, false), (true, false), (false, true)] {
            let asked = request(own, ours_crc, b"");
            let (reply, passive) = accept(&asked, theirs, their_crc, b"").unwrap();
            let active = settle(&asked, own, &reply).unwrap();
            assert_eq!(
                active.limits,
                ReadLimits { inbound: passive.limits.outbound, outbound: passive.limits.inbound }
            );
            assert_eq!((active.crc, passive.crc), (ours_crc || their_crc, ours_crc || their_crc));
            assert_eq!((active.ready, passive.ready), (Some(ReadyToReceive::Write), Some(ReadyToReceive::Write)));
        }
    }
    let (reply, passive) =
        accept(&request(ReadLimits { inbound: 3, outbound: 99 }, true, b""), OWN, true, b"").unwrap();
    assert_eq!(passive.limits, ReadLimits { inbound: 16, outbound: 3 });
    let said = reply.enhanced.unwrap();
    assert_eq!((said.inbound_reads, said.outbound_reads), (16, 3));
}

#[test]
fn a_request_of_siw_is_accepted_without_a_first_frame() {
    let (reply, agreement) = accept(&of_siw(), OWN, false, b"").unwrap();
    assert_eq!(agreement, Agreement { crc: false, limits: ReadLimits { inbound: 4, outbound: 4 }, ready: None });
    let said = reply.enhanced.expect("siw demands it");
    assert_eq!((said.is_peer_to_peer, said.write, said.read), (false, false, false));
    assert!(accept(&of_siw(), OWN, true, b"").unwrap().0.flags.contains(StartFlags::CRC));
}

/// Chelsio's cards offer a Read only, Intel's both.
#[test]
fn cards_get_the_first_frame_that_they_offer() {
    for (write, read, chosen) in
        [(false, true, ReadyToReceive::Read), (true, true, ReadyToReceive::Write), (true, false, ReadyToReceive::Write)]
    {
        let enhanced = Enhanced { is_peer_to_peer: true, write, read, ..Enhanced::NONE };
        let asked = StartFrame { enhanced: Some(enhanced), ..of_siw() };
        let (reply, agreement) = accept(&asked, OWN, true, b"").unwrap();
        let said = reply.enhanced.unwrap();
        assert_eq!(agreement.ready, Some(chosen));
        assert_eq!((said.write, said.read), (chosen == ReadyToReceive::Write, chosen == ReadyToReceive::Read));
        // A Read takes a slot although this peer wants none.
        assert_eq!(said.inbound_reads, u16::from(chosen == ReadyToReceive::Read));
    }
}

#[test]
fn markers_and_revision_0_are_refused() {
    let flags = StartFlags::ENHANCED | StartFlags::MARKERS;
    let asked = StartFrame { flags, ..of_siw() };
    assert_eq!(accept(&asked, OWN, true, b"").map(|_| ()), Err(Refusal::Markers));
    let old = StartFrame { revision: 0, enhanced: None, flags: StartFlags::empty(), ..of_siw() };
    assert_eq!(offer(&old, OWN), Err(Refusal::Revision));
    let refusal = reject(&asked, b"no");
    assert!(refusal.flags.contains(StartFlags::REJECT) && !refusal.flags.contains(StartFlags::MARKERS));
    assert_eq!((refusal.enhanced, refusal.private_data), (Some(Enhanced::NONE), &b"no"[..]));
    let bytes = encoded(&refusal);
    assert_eq!(StartReader::try_new(StartKind::Reply).unwrap().read(&mut &bytes[..]), Ok(Some(refusal)));
}

#[test]
fn a_refusal_of_siw_has_the_flag_and_no_data() {
    let mut bytes = encoded(&StartFrame { kind: StartKind::Reply, enhanced: None, ..of_siw() });
    bytes.truncate(HEADER);
    bytes[16] = 0x30;
    bytes[19] = 0;
    let mut reader = StartReader::try_new(StartKind::Reply).unwrap();
    let frame = reader.read(&mut &bytes[..]).unwrap().unwrap();
    assert!(frame.flags.contains(StartFlags::REJECT) && frame.enhanced.is_none());
}

#[test]
fn replies_that_do_not_fit_the_request_are_refused() {
    let asked = request(OWN, true, b"");
    let (good, _) = accept(&asked, OWN, true, b"").unwrap();
    let said = good.enhanced.unwrap();
    for (reply, code) in [
        (StartFrame { flags: good.flags | StartFlags::MARKERS, ..good }, Code::START_FRAME),
        (StartFrame { revision: 1, ..good }, Code::START_FRAME),
        (StartFrame { enhanced: None, ..good }, Code::START_FRAME),
        (StartFrame { enhanced: Some(Enhanced { write: false, ..said }), ..good }, Code::NO_MATCHING_RTR),
        (
            StartFrame { enhanced: Some(Enhanced { write: false, empty_frame: true, ..said }), ..good },
            Code::NO_MATCHING_RTR,
        ),
        (StartFrame { enhanced: Some(Enhanced { outbound_reads: 17, ..said }), ..good }, Code::INSUFFICIENT_IRD),
    ] {
        assert_eq!(settle(&asked, OWN, &reply), Err(code), "{reply:?}");
    }
    let unknown = Enhanced { outbound_reads: LIMIT_UNKNOWN, inbound_reads: LIMIT_UNKNOWN, ..said };
    let agreed = settle(&asked, OWN, &StartFrame { enhanced: Some(unknown), ..good }).unwrap();
    assert_eq!(agreed.limits, OWN);
    let old = request_of_revision_1(true, b"");
    let (reply, passive) = accept(&old, OWN, false, b"").unwrap();
    assert_eq!((reply.revision, reply.enhanced, passive.limits, passive.ready), (1, None, OWN, None));
    assert_eq!(settle(&old, OWN, &reply).unwrap(), Agreement { crc: true, limits: OWN, ready: None });
}

#[test]
fn limits_stay_below_the_number_that_means_unknown() {
    let all = ReadLimits { inbound: u16::MAX, outbound: u16::MAX };
    let said = request(all, true, b"").enhanced.unwrap();
    assert_eq!((said.inbound_reads, said.outbound_reads), (LIMIT_UNKNOWN - 1, LIMIT_UNKNOWN - 1));
    let (reply, agreed) = accept(&request(all, true, b""), all, true, b"").unwrap();
    let said = reply.enhanced.unwrap();
    assert_eq!((said.inbound_reads, said.outbound_reads), (128, 128), "siw does not survive more");
    assert_eq!(agreed.limits, ReadLimits { inbound: 128, outbound: 128 });
    for limit in [1, 2, 3, 5, 100, 127, 128] {
        let own = ReadLimits { inbound: limit, outbound: 1 };
        assert_eq!(request(own, true, b"").enhanced.unwrap().inbound_reads, limit);
        assert_eq!(accept(&request(all, true, b""), own, true, b"").unwrap().1.limits.inbound, limit);
    }
    let none = request(ReadLimits { inbound: 0, outbound: 0 }, true, b"").enhanced.unwrap();
    assert_eq!((none.inbound_reads, none.outbound_reads), (1, 1));
}
