//! Two ends of a stream, with everything between them cut into random pieces: what each asks for comes about at the other.

use fastrand::Rng;
use softndk_iwarp::frame::{self, FrameReader};
use softndk_iwarp::hold::SendPart;
use softndk_iwarp::negotiation::{ReadLimits, ReadyToReceive};
use softndk_iwarp::outbound::Outgoing;
use softndk_iwarp::segment::{Header, Segment, Send, SendKind, Tagged};
use softndk_iwarp::start::{Enhanced, MOST_PRIVATE_DATA, StartFault, StartFlags, StartFrame, StartKind};
use softndk_iwarp::stream::{End, Event, Memory, Owner, Push, Sizes, Stream, Taken};
use softndk_iwarp::terminate::{Code, Echo, Terminate};
use std::collections::VecDeque;

/// The STags of an end: memory that its peer writes, and memory that it reads.
const WRITTEN: u32 = 0x1000;
const READ: u32 = 0x2000;
const MEMORY: usize = 6000;

const SIZES: Sizes = Sizes { reads: 4, held: 0, payload: 256 };

fn memory() -> Memory<Vec<u8>> {
    Memory::try_new(vec![0; 2048], SIZES).unwrap()
}
const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 2 };

/// A queue pair as a model: memory, receives, and what has completed.
struct Model {
    written: Vec<u8>,
    readable: Vec<u8>,
    receives: usize,
    open: Option<Vec<u8>>,
    sends: Vec<(SendKind, Vec<u8>)>,
    response: Vec<u8>,
    responses: Vec<Vec<u8>>,
    /// Reads of the peer, by their lengths.
    answered: Vec<u32>,
    /// After some things that are taken the owner pauses.
    taken: usize,
}

impl Model {
    fn new(random: &mut Rng) -> Self {
        Self {
            written: vec![0; MEMORY],
            readable: (0..MEMORY).map(|_| random.u8(..)).collect(),
            receives: 0,
            open: None,
            sends: Vec::new(),
            response: Vec::new(),
            responses: Vec::new(),
            answered: Vec::new(),
            taken: 0,
        }
    }
}

impl Model {
    fn took(&mut self) -> Taken {
        self.taken += 1;
        if self.taken.is_multiple_of(5) { Taken::Pause } else { Taken::Done }
    }
}

impl Owner for Model {
    fn write(&mut self, stag: u32, offset: u64, data: &[u8], _is_last: bool) -> Result<(), Code> {
        if data.is_empty() {
            return Ok(());
        }
        if stag != WRITTEN {
            return Err(Code::TAGGED_INVALID_STAG);
        }
        let place = self.written.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..data.len()));
        place.ok_or(Code::TAGGED_BOUNDS)?.copy_from_slice(data);
        Ok(())
    }

    fn send(&mut self, part: &SendPart<'_>) -> Result<Taken, Code> {
        assert_eq!(part.is_first, self.open.is_none());
        if part.is_first {
            let Some(left) = self.receives.checked_sub(1) else { return Ok(Taken::NoReceive) };
            self.receives = left;
        }
        let open = self.open.get_or_insert_default();
        assert_eq!(open.len(), part.offset as usize);
        open.extend_from_slice(part.data);
        if part.is_last {
            self.sends.push((part.kind, self.open.take().expect("it has begun")));
        }
        Ok(self.took())
    }

    fn allow_read(&mut self, stag: u32, offset: u64, length: u32) -> Result<(), Code> {
        if stag != READ {
            return Err(Code::REMOTE_INVALID_STAG);
        }
        let all = self.readable.get(offset as usize..).and_then(|rest| rest.get(..length as usize));
        all.map(|_| ()).ok_or(Code::REMOTE_BOUNDS)
    }

    fn load(&mut self, stag: u32, offset: u64, into: &mut [u8]) -> Result<(), Code> {
        if stag != READ {
            return Err(Code::REMOTE_INVALID_STAG);
        }
        let from = self.readable.get(offset as usize..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(from.ok_or(Code::REMOTE_BOUNDS)?);
        Ok(())
    }

    fn answered(&mut self, length: u32) {
        self.answered.push(length);
    }

    fn response(&mut self, offset: u32, data: &[u8], is_last: bool) -> Result<Taken, Code> {
        assert_eq!(self.response.len(), offset as usize);
        self.response.extend_from_slice(data);
        if is_last {
            self.responses.push(std::mem::take(&mut self.response));
        }
        Ok(self.took())
    }
}

/// One end, with the bytes that have come and not been taken.
struct Side {
    stream: Stream<Vec<u8>>,
    model: Model,
    come: VecDeque<u8>,
    events: Vec<Event>,
}

impl Side {
    fn new(stream: Stream<Vec<u8>>, random: &mut Rng) -> Self {
        Self { stream, model: Model::new(random), come: VecDeque::new(), events: Vec::new() }
    }

    /// Takes a piece of what has come, and answers Reads.
    fn take(&mut self, most: usize) {
        let bytes: Vec<u8> = self.come.iter().copied().take(most).collect();
        let mut input = bytes.as_slice();
        loop {
            let event = self.stream.receive(&mut input, &mut self.model);
            if event == Event::More {
                if input.is_empty() {
                    break;
                }
                continue;
            }
            if self.events.last() != Some(&event) {
                self.events.push(event);
            }
            if matches!(event, Event::Held | Event::Paused | Event::Ended(_)) {
                break;
            }
        }
        self.come.drain(..bytes.len() - input.len());
        self.stream.serve(&mut self.model);
    }
}

struct Pair {
    sides: [Side; 2],
    random: Rng,
}

impl Pair {
    fn new(seed: u64, crc: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let active = Stream::connect(memory(), LIMITS, crc, b"to").unwrap().expect("it fits");
        let passive = Stream::listen(vec![0; 1024]).unwrap();
        let sides = [Side::new(active, &mut random), Side::new(passive, &mut random)];
        Self { sides, random }
    }

    /// Moves a random piece from one side to the other, and lets that take a random piece.
    fn step(&mut self) {
        let from = self.random.usize(..2);
        let most = if self.random.bool() { self.random.usize(..20) } else { self.random.usize(..3000) };
        let [active, passive] = &mut self.sides;
        let (from, to) = if from == 0 { (active, passive) } else { (passive, active) };
        let ring = from.stream.outgoing();
        let piece = ring.next_piece();
        let piece = &piece[..piece.len().min(most)];
        let length = piece.len();
        to.come.extend(piece);
        ring.handed_over(length);
        ring.done(length);
        let most = self.random.usize(..3000);
        to.take(most);
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }

    fn connect(&mut self) {
        self.run(200);
        assert_eq!(self.sides[1].stream.peer_frame().expect("a Request").private_data, b"to");
        let agreed = self.sides[1].stream.accept(memory(), LIMITS, false, b"back").expect("it is good");
        assert!(!self.sides[1].stream.may_send());
        self.run(200);
        assert_eq!(self.sides[0].stream.peer_frame().expect("a Reply").private_data, b"back");
        assert!(!self.sides[0].stream.may_send());
        assert_eq!(self.sides[0].stream.open(), Some(()));
        self.run(200);
        assert!(self.sides.iter().all(|side| side.stream.may_send()), "{:?}", self.sides[1].events);
        assert_eq!(agreed.ready, Some(ReadyToReceive::Write));
        let limits = ReadLimits { inbound: 2, outbound: 2 };
        assert_eq!((self.sides[0].stream.agreement().limits, agreed.limits), (limits, limits));
    }

    fn ends(&self) -> [Option<End>; 2] {
        [0, 1].map(|side| self.sides[side].stream.end())
    }
}

/// A message of a side that is being sent.
struct Request {
    message: Outgoing,
    data: Vec<u8>,
    sent: u32,
}

/// What a side has asked for, for the comparison.
#[derive(Default)]
struct Asked {
    sends: Vec<(SendKind, Vec<u8>)>,
    reads: Vec<Vec<u8>>,
    written: Vec<u8>,
}

#[test]
fn random_requests_of_both_ends_come_about() {
    let mut held = 0;
    for seed in 0..60 {
        let mut pair = Pair::new(seed, seed % 2 == 0);
        pair.connect();
        let mut asked: [Asked; 2] = std::array::from_fn(|_| Asked { written: vec![0; MEMORY], ..Asked::default() });
        let mut open: [Option<Request>; 2] = [None, None];
        let mut left = [60, 60];
        let mut steps = 0;
        while left != [0, 0] || steps < 30_000 {
            steps = if left == [0, 0] && open.iter().all(Option::is_none) { steps + 1 } else { 0 };
            let which = pair.random.usize(..2);
            if open[which].is_none() && left[which] > 0 {
                left[which] -= 1;
                begin(&mut pair, which, &mut asked[which], &mut open[which], &mut left[which]);
            }
            if let Some(request) = &mut open[which] {
                let Request { message, data, sent } = request;
                let pushed = pair.sides[which].stream.push(message, data.len() as u32, *sent, |range, into| {
                    into.copy_from_slice(&data[range.start as usize..range.end as usize]);
                    Some(())
                });
                if let Push::Sent(piece) = pushed {
                    *sent = piece.range.end;
                    if piece.is_last {
                        open[which] = None;
                    }
                }
            }
            // Seldom, so that Sends are held, and that there is no space to hold more.
            if pair.random.u32(..[4, 40, 400][seed as usize % 3]) == 0 {
                let receiver = pair.random.usize(..2);
                pair.sides[receiver].model.receives += 1;
                pair.sides[receiver].take(0);
            }
            pair.step();
        }
        assert_eq!(pair.ends(), [None, None], "seed {seed}");
        for (which, asked) in asked.iter().enumerate() {
            let (ours, theirs) = (&pair.sides[which].model, &pair.sides[1 - which].model);
            let lengths = |sends: &[(SendKind, Vec<u8>)]| sends.iter().map(|(_, data)| data.len()).collect::<Vec<_>>();
            let (come, sent) = (lengths(&theirs.sends), lengths(&asked.sends));
            assert!(theirs.sends == asked.sends, "Sends of {which}, seed {seed}: {come:?} of {sent:?}");
            assert!(ours.responses == asked.reads, "Reads of {which}, seed {seed}");
            let lengths = asked.reads.iter().map(|read| read.len() as u32);
            assert!(theirs.answered.iter().copied().eq(lengths), "answers to {which}, seed {seed}");
            assert!(theirs.written == asked.written, "Writes of {which}, seed {seed}");
        }
        held += usize::from(pair.sides.iter().any(|side| side.events.contains(&Event::Held)));
    }
    assert!(held > 5, "a Send without a receive stops the stream in {held} of 60 only");
}

/// Begins a random request; a Read is one piece and asked for at once.
fn begin(pair: &mut Pair, which: usize, asked: &mut Asked, open: &mut Option<Request>, left: &mut u32) {
    let random = &mut pair.random;
    let length = if random.bool() { random.usize(..9) } else { random.usize(..2500) };
    let data: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
    let offset = random.usize(..=MEMORY - length);
    let kind = SendKind { is_solicited: random.bool(), invalidates: random.bool().then(|| random.u32(..)) };
    match random.u8(..3) {
        0 => {
            asked.written[offset..offset + length].copy_from_slice(&data);
            let message = Outgoing::Write { stag: WRITTEN, offset: offset as u64 };
            *open = Some(Request { message, data, sent: 0 });
        }
        1 => {
            asked.sends.push((kind, data.clone()));
            *open = Some(Request { message: Outgoing::Send(kind), data, sent: 0 });
        }
        _ => match pair.sides[which].stream.read(length as u32, READ, offset as u64) {
            Push::Sent(_) => {
                asked.reads.push(pair.sides[1 - which].model.readable[offset..offset + length].to_vec());
            }
            Push::Wait => *left += 1,
            Push::Failed => panic!("a Read has no bytes to load"),
        },
    }
}

#[test]
fn a_response_overtakes_a_send_that_waits() {
    let mut pair = Pair::new(1, true);
    pair.connect();
    let [active, passive] = &mut pair.sides;
    assert!(matches!(passive.stream.read(600, READ, 10), Push::Sent(_)));
    let message = Outgoing::Send(SendKind::default());
    assert!(matches!(active.stream.push(&message, 0, 0, |_, _| Some(())), Push::Sent(_)));
    pair.run(400);
    let passive = &mut pair.sides[1];
    assert_eq!((passive.model.responses.len(), passive.model.sends.len()), (1, 0));
    passive.model.receives = 1;
    passive.take(0);
    assert_eq!(passive.model.sends.len(), 1);
}

#[test]
fn faults_end_both_sides_with_one_code() {
    for (name, code, act) in [
        (
            "a Write to nothing",
            Code::TAGGED_INVALID_STAG,
            (|side: &mut Side| {
                let message = Outgoing::Write { stag: 7, offset: 0 };
                matches!(
                    side.stream.push(&message, 4, 0, |_, into| {
                        into.fill(1);
                        Some(())
                    }),
                    Push::Sent(_)
                )
            }) as fn(&mut Side) -> bool,
        ),
        ("a Write beyond the end", Code::TAGGED_BOUNDS, |side| {
            let message = Outgoing::Write { stag: WRITTEN, offset: MEMORY as u64 - 3 };
            matches!(
                side.stream.push(&message, 4, 0, |_, into| {
                    into.fill(1);
                    Some(())
                }),
                Push::Sent(_)
            )
        }),
        ("a Read of nothing", Code::REMOTE_INVALID_STAG, |side| matches!(side.stream.read(4, 7, 0), Push::Sent(_))),
        ("a Read beyond the end", Code::REMOTE_BOUNDS, |side| {
            matches!(side.stream.read(4, READ, MEMORY as u64 - 3), Push::Sent(_))
        }),
    ] {
        let mut pair = Pair::new(2, true);
        pair.connect();
        // What was sent before is there; what comes after is not.
        let message = Outgoing::Write { stag: WRITTEN, offset: 0 };
        let fill = |_, into: &mut [u8]| {
            into.fill(9);
            Some(())
        };
        assert!(matches!(pair.sides[0].stream.push(&message, 8, 0, fill), Push::Sent(_)));
        assert!(act(&mut pair.sides[0]), "{name}");
        let message = Outgoing::Write { stag: WRITTEN, offset: 8 };
        assert!(matches!(pair.sides[0].stream.push(&message, 8, 0, fill), Push::Sent(_)));
        pair.run(400);
        assert_eq!(pair.ends(), [Some(End::Terminated(Some(code))), Some(End::Fault(code))], "{name}");
        assert_eq!(pair.sides[1].model.written[..8], [9; 8], "{name}");
        if code.layer == 1 {
            assert_eq!(pair.sides[1].model.written[8..16], [0; 8], "{name}");
        }
        assert_eq!(
            pair.sides[0].stream.push(&message, 0, 0, |_, _| Some(())),
            Push::Wait,
            "nothing is sent after an end"
        );
        assert!(pair.sides[1].stream.outgoing().is_empty(), "the Terminate has gone out");
    }
}

/// The headers of the refused segment, its length in front.
#[test]
fn a_terminate_shows_the_headers_that_it_is_about() {
    let mut pair = Pair::new(6, true);
    pair.connect();
    let [active, passive] = &mut pair.sides;
    let message = Outgoing::Write { stag: 7, offset: 0x0102 };
    assert!(matches!(active.stream.push(&message, 3, 0, |_, _| Some(())), Push::Sent(_)));
    let sent = active.stream.outgoing().next_piece().to_vec();
    passive.come.extend(&sent);
    passive.take(99);
    assert_eq!(terminate_of(passive), (Code::TAGGED_INVALID_STAG, sent[..16].to_vec()));

    let mut pair = Pair::new(6, true);
    pair.connect();
    let [active, passive] = &mut pair.sides;
    assert!(matches!(active.stream.read(5, 7, 0x0304), Push::Sent(_)));
    let sent = active.stream.outgoing().next_piece().to_vec();
    passive.come.extend(&sent);
    passive.take(99);
    assert_eq!(terminate_of(passive), (Code::REMOTE_INVALID_STAG, sent[..48].to_vec()));

    // A frame that cannot be trusted shows nothing.
    let mut pair = Pair::new(6, true);
    pair.connect();
    let passive = &mut pair.sides[1];
    let mut wrong = sent;
    wrong[20] ^= 1;
    passive.come.extend(wrong);
    passive.take(99);
    assert_eq!(terminate_of(passive), (Code::CRC, Vec::new()));
}

/// The Terminate that a side has built: its code, and what it shows.
fn terminate_of(side: &mut Side) -> (Code, Vec<u8>) {
    let bytes = side.stream.outgoing().next_piece().to_vec();
    let mut reader = FrameReader::try_new().unwrap();
    let mut input = bytes.as_slice();
    let frame = reader.next(&mut input).unwrap().expect("a frame");
    let segment = Segment::decode(frame.payload()).unwrap();
    assert_eq!((segment.header, input), (Header::Terminate { msn: 1 }, &[][..]));
    let terminate = Terminate::decode(segment.data).unwrap();
    let echo = if let Echo::Headers(headers) = terminate.echo { headers.to_vec() } else { Vec::new() };
    (terminate.code, echo)
}

#[test]
fn a_consumer_refuses_with_data() {
    let mut pair = Pair::new(3, true);
    pair.run(200);
    assert_eq!(pair.sides[1].stream.reject(b"busy"), Some(()));
    pair.run(200);
    assert_eq!(pair.ends(), [Some(End::Rejected); 2]);
    assert_eq!(pair.sides[0].stream.peer_frame().expect("a Reply").private_data, b"busy");
    assert_eq!(pair.sides[0].stream.open(), None);
    assert_eq!(pair.sides[1].stream.accept(memory(), LIMITS, true, b""), None);
}

/// More than Linux siw survives.
#[test]
fn private_data_is_bounded_by_the_weakest_peer() {
    let connect = |length| Stream::connect(memory(), LIMITS, true, &vec![1; length]).unwrap().is_some();
    assert!(connect(MOST_PRIVATE_DATA) && !connect(MOST_PRIVATE_DATA + 1));
    assert_eq!(MOST_PRIVATE_DATA, 248);
    let mut pair = Pair::new(9, true);
    pair.run(200);
    let passive = &mut pair.sides[1].stream;
    assert_eq!(passive.accept(memory(), LIMITS, true, &[1; MOST_PRIVATE_DATA + 1]), None);
    assert_eq!(passive.reject(&[1; MOST_PRIVATE_DATA + 1]), None);
    assert!(passive.accept(memory(), LIMITS, true, &[1; MOST_PRIVATE_DATA]).is_some());
}

/// A card that offers a Read only as its first frame: the Read is answered, and is no Read of its owner.
#[test]
fn a_read_as_the_first_frame_is_answered() {
    let mut pair = Pair::new(7, true);
    pair.run(200);
    let mut bytes = [0; 64];
    let request = *pair.sides[1].stream.peer_frame().expect("a Request").enhanced.as_ref().expect("of revision 2");
    assert!(request.write && request.read);
    // The Reply of a card, made by hand: ours would choose a Write.
    let chosen = Enhanced { write: false, ..request };
    let flags = StartFlags::CRC | StartFlags::ENHANCED;
    let reply = StartFrame { kind: StartKind::Reply, flags, revision: 2, enhanced: Some(chosen), private_data: b"" };
    let length = reply.encode(&mut bytes).expect("it fits");
    let active = &mut pair.sides[0];
    active.come.extend(&bytes[..length]);
    active.take(99);
    assert_eq!(
        (active.events.last(), active.stream.agreement().ready),
        (Some(&Event::Paused), Some(ReadyToReceive::Read))
    );
    assert_eq!(active.stream.open(), Some(()));
    let ring = active.stream.outgoing();
    let sent = ring.next_piece().to_vec();
    ring.handed_over(sent.len());
    ring.done(sent.len());
    let mut reader = FrameReader::try_new().unwrap();
    let frame = reader.next(&mut sent.as_slice()).unwrap().expect("a frame");
    let Header::ReadRequest(read) = Segment::decode(frame.payload()).unwrap().header else { panic!("no Read") };
    assert_eq!(read.length, 0);
    // Its answer, and a Read of the owner behind it.
    assert!(matches!(active.stream.read(0, READ, 0), Push::Sent(_)));
    let response = |stag| {
        let mut bytes = vec![0; 20];
        frame::build(&mut bytes, 14, true, |into| {
            Header::ReadResponse(Tagged { stag, offset: 0, is_last: true }).encode(into).map(|_| ())
        });
        bytes
    };
    active.come.extend(response(read.sink_stag));
    active.take(99);
    assert_eq!(active.model.responses.len(), 0);
    active.come.extend(response(read.sink_stag + 1));
    active.take(99);
    assert_eq!((active.model.responses.len(), active.stream.end()), (1, None));
}

/// Linux siw: no first frame is agreed, and this side sends nothing before one comes.
#[test]
fn a_responder_waits_for_the_first_frame_of_siw() {
    let enhanced = Enhanced { inbound_reads: 4, outbound_reads: 4, ..Enhanced::NONE };
    let flags = StartFlags::ENHANCED;
    let request =
        StartFrame { kind: StartKind::Request, flags, revision: 2, enhanced: Some(enhanced), private_data: b"" };
    let mut bytes = [0; 64];
    let length = request.encode(&mut bytes).expect("it fits");
    let mut side = Side::new(Stream::listen(vec![0; 1024]).unwrap(), &mut Rng::with_seed(8));
    side.come.extend(&bytes[..length]);
    side.take(99);
    assert_eq!(side.stream.accept(memory(), LIMITS, false, b"").map(|it| (it.ready, it.crc)), Some((None, false)));
    assert!(!side.stream.may_send());
    let message = Outgoing::Send(SendKind::default());
    assert_eq!(side.stream.push(&message, 0, 0, |_, _| Some(())), Push::Wait);
    // A Send without a CRC.
    let mut frame = [0; 24];
    let header = Header::Send(Send { kind: SendKind::default(), msn: 1, offset: 0, is_last: true });
    frame::build(&mut frame, 18, false, |into| header.encode(into).map(|_| ()));
    side.model.receives = 1;
    side.come.extend(frame);
    side.take(99);
    assert_eq!((side.model.sends.len(), side.stream.may_send()), (1, true));
    assert!(side.events.contains(&Event::Ready));
    assert!(matches!(side.stream.push(&message, 0, 0, |_, _| Some(())), Push::Sent(_)));
}

#[test]
fn bytes_before_the_reply_are_a_fault() {
    let mut pair = Pair::new(4, true);
    pair.run(200);
    assert_eq!(pair.sides[1].events, [Event::Requested, Event::Paused]);
    pair.sides[1].come.extend([0; 4]);
    pair.sides[1].take(9);
    assert_eq!(pair.ends(), [None, Some(End::Start(StartFault::Early))]);
}

/// The end has space even where nothing else has.
#[test]
fn a_full_stream_still_says_why_it_ends() {
    let mut pair = Pair::new(5, true);
    pair.connect();
    let side = &mut pair.sides[0];
    let message = Outgoing::Write { stag: WRITTEN, offset: 0 };
    while let Push::Sent(_) = side.stream.push(&message, 200, 0, |_, _| Some(())) {}
    let ended = side.stream.terminate(Code::LOCAL_CATASTROPHIC, Echo::Nothing);
    assert_eq!(ended, Event::Ended(End::Fault(Code::LOCAL_CATASTROPHIC)));
    pair.run(600);
    assert_eq!(pair.ends()[1], Some(End::Terminated(Some(Code::LOCAL_CATASTROPHIC))));
}
