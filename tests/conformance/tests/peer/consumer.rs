//! The child: a consumer on the first machine that does what the lines of a script say. Each order is one line, and so is its answer.
//!
//! | order | answer |
//! |---|---|
//! | `new` | none: another queue pair and all that belongs to it |
//! | `connect PORT INBOUND OUTBOUND DATA` | none: it has begun |
//! | `connected` | status; and of a success or rejection the limits and the private data |
//! | `complete`, `disconnected`, `accepted` | status |
//! | `listen` | port |
//! | `arrived` | limits and private data |
//! | `accept INBOUND OUTBOUND DATA`, `disconnect` | none: it has begun |
//! | `reject DATA` | status |
//! | `close` | `closed` |
//! | `event`, `events` | reason of the disconnect event, once it has come; how many have come |
//! | `receive LENGTH` | `posted` |
//! | `send LENGTH`, `solicit LENGTH`, `invalidate LENGTH TOKEN` | none |
//! | `write LENGTH TOKEN ADDRESS`, `read LENGTH TOKEN ADDRESS` | none |
//! | `fence` | none: a Send behind a read fence, of no bytes |
//! | `result`, `received` | status, and of a receive the token that it has invalidated and its bytes |
//! | `code` | the provider's error code of that result, hexadecimal |
//! | `bytes LENGTH` | what the last Read has brought |
//! | `region LENGTH RIGHTS`, `fast LENGTH RIGHTS` | token and address of memory for the peer |
//! | `memory` | its bytes |
//! | `terminate` | the newest Terminate on the list of refusals: `sent` or `received`, layer, type and code |
//!
//! Data and bytes are hexadecimal, `-` where there are none. Requests take the bytes of [`byte_at`].

use conformance::consumer::{
    Adapter, Buffer, Connector, End, Listener, Offer, QueuePairShape, Remote, Started, Window, WindowKind, refusals,
};
use conformance::machine::with_machine;
use conformance::two_machines::{address_of, next_line, own_number, send_line, setup};
use ndkpi_sys::ndkpi::{
    NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE, NDK_OP_FLAG_READ_FENCE,
    NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, NDK_OP_FLAGS, NdkOperationTypeReceiveAndInvalidate,
};
use ndkpi_sys::nt::{NTSTATUS, STATUS_CONNECTION_REFUSED};
use std::net::SocketAddr;

/// What a request of the consumer sends at a position.
pub fn byte_at(position: usize) -> u8 {
    (position * 7 + position / 251 + 3) as u8
}

/// So many of these.
pub fn bytes_of(length: usize) -> Vec<u8> {
    (0..length).map(byte_at).collect()
}

pub fn to_hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        "-".to_owned()
    } else {
        bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]).map(digit).collect()
    }
}

fn digit(half: u8) -> char {
    char::from_digit(half.into(), 16).expect("a digit")
}

pub fn from_hex(text: &str) -> Vec<u8> {
    let digit = |index: usize| u8::from_str_radix(&text[index..index + 2], 16).expect("two digits");
    if text == "-" { Vec::new() } else { (0..text.len()).step_by(2).map(digit).collect() }
}

/// The longest request and receive.
pub const LONGEST: usize = (1 << 20) + 1;

/// The role.
pub fn obey_lines() {
    assert_eq!(own_number(), 1);
    with_machine(&setup(1), |machine| {
        let adapter = machine.open(0);
        let mut consumer = Consumer::new(&adapter);
        while let Some(line) = next_line() {
            consumer.obey(&line);
        }
    });
}

/// What has begun and not been waited for.
#[derive(Default)]
struct Begun {
    connecting: Option<Started>,
    accepting: Option<Started>,
    leaving: Option<Started>,
}

/// The fields are in the order in which they may be closed.
struct Consumer<'a> {
    begun: Begun,
    connector: Option<Connector>,
    /// The provider's error code of the last result.
    code: u32,
    receives: Vec<Window<'a>>,
    source: Window<'a>,
    sink: Window<'a>,
    remote: Option<Window<'a>>,
    end: End<'a>,
    listener: Option<Listener>,
    adapter: &'a Adapter,
}

fn words_of(status: NTSTATUS) -> String {
    format!("{status:08x}")
}

impl<'a> Consumer<'a> {
    fn new(adapter: &'a Adapter) -> Self {
        let shape = adapter.fit(QueuePairShape { receive_depth: 256, initiator_depth: 256, ..Default::default() });
        let end = End::new(adapter, shape);
        let open = || Window::open(&end, Buffer::scattered(LONGEST), WindowKind::Registered);
        let (source, sink) = (open(), open());
        source.buffer.fill(byte_at);
        let begun = Begun::default();
        Self {
            begun,
            connector: None,
            code: 0,
            receives: Vec::new(),
            source,
            sink,
            remote: None,
            end,
            listener: None,
            adapter,
        }
    }

    fn connector(&self) -> &Connector {
        self.connector.as_ref().expect("a connector")
    }

    fn obey(&mut self, line: &str) {
        let mut words = line.split(' ');
        let order = words.next().expect("a word");
        let words: Vec<&str> = words.collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        let short = |index: usize| number(index) as u32;
        match order {
            "new" => {
                let listener = self.listener.take();
                // Gone before there is another.
                self.connector = None;
                *self = Self { listener, ..Self::new(self.adapter) };
            }
            "connect" => self.connect(number(0) as u16, &offer(short(1), short(2), &from_hex(words[3]))),
            "connected" => self.connected(),
            "complete" => send_line(&words_of(self.connector().begin_complete_connect_ex().wait())),
            "listen" => self.listen(),
            "arrived" => self.arrived(),
            "accept" => self.accept(&offer(short(0), short(1), &from_hex(words[2]))),
            "accepted" => say_end(self.begun.accepting.take()),
            "reject" => send_line(&words_of(self.connector().reject(&from_hex(words[0])))),
            "disconnect" => self.begun.leaving = Some(self.connector().begin_disconnect()),
            "disconnected" => say_end(self.begun.leaving.take()),
            "close" => {
                self.connector().close();
                send_line("closed");
            }
            "event" => {
                assert!(self.connector().wait_for_disconnect(), "no disconnect event");
                send_line(&self.connector().disconnect_reason().to_string());
            }
            "events" => send_line(&self.connector().disconnect_events().to_string()),
            "result" => {
                let result = self.end.initiator.wait_for_one();
                self.code = result.ProviderErrorCode;
                send_line(&words_of(result.Status));
            }
            "code" => send_line(&format!("{:x}", self.code)),
            "received" => self.received(),
            "bytes" => send_line(&to_hex(&self.sink.buffer.to_vec()[..number(0) as usize])),
            "region" => self.open_memory(number(0) as usize, words[1], WindowKind::Registered),
            "fast" => self.open_memory(number(0) as usize, words[1], WindowKind::FastRegistered),
            "memory" => send_line(&to_hex(&self.remote.as_ref().expect("memory").buffer.to_vec())),
            "terminate" => send_line(&newest_terminate()),
            _ => assert_eq!(self.post(order, &words), 0, "{line}"),
        }
        if order == "receive" {
            send_line("posted");
        }
    }

    fn post(&mut self, order: &str, words: &[&str]) -> NTSTATUS {
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        let none = NDK_OP_FLAGS::empty();
        let length = if words.is_empty() { 0 } else { number(0) as usize };
        let remote = || Remote { token: number(1) as u32, address: number(2) };
        let source = if length == 0 { Vec::new() } else { self.source.first_in_sges(length, length.min(3)) };
        let sink = if length == 0 { Vec::new() } else { self.sink.first_in_sges(length, length.min(3)) };
        let pair = &self.end.queue_pair;
        match order {
            "receive" => {
                let window = Window::open(&self.end, Buffer::scattered(length.max(1)), WindowKind::Registered);
                let sges = if length == 0 { Vec::new() } else { window.in_sges(length.min(2)) };
                let posted = pair.receive(self.receives.len() as u64, &sges);
                self.receives.push(window);
                posted
            }
            "send" => pair.send(1, &source, none),
            "solicit" => pair.send(1, &source, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT),
            "invalidate" => pair.send_and_invalidate(1, &source, none, number(1) as u32),
            "write" => pair.write(1, &source, remote(), none),
            "read" => pair.read(1, &sink, remote(), none),
            "fence" => pair.send(1, &[], NDK_OP_FLAG_READ_FENCE),
            _ => panic!("no order: {order}"),
        }
    }

    fn connect(&mut self, port: u16, offer: &OwnedOffer) {
        let connector = Connector::new(self.adapter).expect("a connector");
        let (from, to) = (SocketAddr::new(address_of(1), 0), SocketAddr::new(address_of(2), port));
        self.begun.connecting = Some(connector.begin_connect(&self.end.queue_pair, from, to, &offer.borrow()));
        self.connector = Some(connector);
    }

    fn connected(&mut self) {
        let status = self.begun.connecting.take().expect("a connect").wait();
        let has_data = status == 0 || status == STATUS_CONNECTION_REFUSED && self.has_data();
        send_line(&if has_data { format!("{status:08x} {}", self.data()) } else { words_of(status) });
    }

    fn has_data(&self) -> bool {
        self.connector().connection_data(None, &mut 0).0 == 0
    }

    /// Limits and private data, without the zeroes behind it.
    fn data(&self) -> String {
        let mut data = self.connector().data();
        let length = data.private_data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        data.private_data.truncate(length);
        format!("{} {} {}", data.inbound_reads, data.outbound_reads, to_hex(&data.private_data))
    }

    fn listen(&mut self) {
        let listener = Listener::new(self.adapter).expect("a listener");
        assert_eq!(listener.listen(SocketAddr::new(address_of(1), 0)), 0);
        send_line(&listener.local_address().port().to_string());
        self.listener = Some(listener);
    }

    fn arrived(&mut self) {
        self.connector = Some(self.listener.as_ref().expect("a listener").next());
        send_line(&self.data());
    }

    fn accept(&mut self, offer: &OwnedOffer) {
        let accepting = self.connector().begin_accept_ex(&self.end.queue_pair, &offer.borrow());
        self.begun.accepting = Some(accepting);
    }

    fn received(&mut self) {
        let result = self.end.receive.wait_for_one();
        self.code = result.ProviderErrorCode;
        let bytes = match result.Status {
            0 => self.receives[result.RequestContext as usize].buffer.to_vec()[..result.BytesTransferred as usize]
                .to_vec(),
            _ => Vec::new(),
        };
        let token =
            if result.Type == NdkOperationTypeReceiveAndInvalidate { result.TypeSpecificCompletionOutput } else { 0 };
        send_line(&format!("{:08x} {token} {}", result.Status, to_hex(&bytes)));
    }

    fn open_memory(&mut self, length: usize, rights: &str, kind: WindowKind) {
        let rights = match rights {
            "read" => NDK_OP_FLAG_ALLOW_REMOTE_READ,
            "write" => NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
            _ => NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
        };
        let buffer = Buffer::scattered(length);
        buffer.fill(byte_at);
        let window = Window::open_with(&self.end, buffer, kind, rights);
        send_line(&format!("{} {}", window.remote_token(), window.remote(0).address));
        self.remote = Some(window);
    }
}

fn newest_terminate() -> String {
    refusals::newest_terminate().map_or_else(String::new, |(is_of_peer, [layer, kind, code])| {
        format!("{} {layer} {kind} {code}", if is_of_peer { "received" } else { "sent" })
    })
}

struct OwnedOffer {
    inbound: u32,
    outbound: u32,
    data: Vec<u8>,
}

fn offer(inbound: u32, outbound: u32, data: &[u8]) -> OwnedOffer {
    OwnedOffer { inbound, outbound, data: data.to_vec() }
}

impl OwnedOffer {
    fn borrow(&self) -> Offer<'_> {
        Offer { inbound_reads: self.inbound, outbound_reads: self.outbound, private_data: &self.data }
    }
}

fn say_end(started: Option<Started>) {
    send_line(&words_of(started.expect("it has begun").wait()));
}
