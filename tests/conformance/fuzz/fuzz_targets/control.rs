//! Requests of a program to both control devices, as bytes, against the loaded images: any code, any lengths, any contents, on two handles
//! of each, some given up half way. One load serves all inputs; after each, nothing of it may be left in the drivers or in the host.
//!
//! An input is a run of steps of six bytes and what follows them: how (bits below), which request, the length of its input, the length of
//! its output, then the input. What the image does with them is not seen as coverage unless the image counts it; the seeds reach deep.
#![no_main]

use std::cell::OnceCell;
use std::time::Duration;

use kernel_host::io::{File, GENERIC_READ, GENERIC_WRITE, PendingIrp};
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::{Driver, FrameOrder};
use libfuzzer_sys::fuzz_target;
use ndkctl::script::{encode, parse};
use softndk_ioctl::{
    ABI_VERSION, AdapterListRequest, EventListRequest, MeasureRequest, MemcpyRequest, ObjectListRequest,
    ObjectSummaryReply, ObjectSummaryRequest, PairCloseRequest, PairCreateReply, PairCreateRequest,
    PairModerationRequest, RefusalListRequest, Request, RequestHeader, ScriptRequest, TEST_WIN32_DEVICE_NAME, TransferRequest, UplinkListRequest, VersionRequest, WIN32_DEVICE_NAME,
};
use zerocopy::{FromBytes, IntoBytes};

#[path = "host.rs"]
mod host;
#[path = "control_seeds.rs"]
mod made;
#[path = "seeds.rs"]
mod seeds;

/// On the second handle instead of the first.
const SECOND: u8 = 1;
/// The header and the length are put right.
const RIGHT_HEADER: u8 = 2;
/// The pair is the handle's own latest.
const OWN_PAIR: u8 = 4;
/// The input is the text of a script, if it is one.
const TEXT: u8 = 8;
/// The answer is not waited for: it is cancelled by the next step on the handle, or by its end.
const LEFT_ALONE: u8 = 16;
/// The handle is closed and opened again before.
const ANEW: u8 = 32;
/// A direct buffer does not begin on a page.
const ASKEW: u8 = 64;
/// To the provider's device, softndk.sys, and not to the consumer's, ndktest.sys.
const PROVIDER: u8 = 128;

/// Code and length of the input of every request.
const REQUESTS: [(u32, usize); 14] = [
    of::<VersionRequest>(),
    of::<AdapterListRequest>(),
    of::<ObjectSummaryRequest>(),
    of::<ObjectListRequest>(),
    of::<PairCreateRequest>(),
    of::<PairCloseRequest>(),
    of::<PairModerationRequest>(),
    of::<TransferRequest>(),
    of::<MemcpyRequest>(),
    of::<ScriptRequest>(),
    of::<MeasureRequest>(),
    of::<RefusalListRequest>(),
    of::<EventListRequest>(),
    of::<UplinkListRequest>(),
];

/// From here on the second byte of a step means: the code is the first four bytes of the input.
const ANY_CODE: u8 = 250;

/// How long a transfer may go on, and how long a script, in the host's time.
const PATIENCE: [Duration; 2] = [Duration::from_millis(30), Duration::from_secs(5)];

const fn of<R: Request>() -> (u32, usize) {
    (R::CODE, size_of::<R>())
}

struct Step<'a> {
    how: u8,
    which: u8,
    input: &'a [u8],
    capacity: usize,
}

/// A handle, what it is waiting for, and its latest pair.
struct Handle {
    file: File,
    provider: File,
    pending: Vec<(PendingIrp, Option<UserBuffer>)>,
    pair: u32,
}

thread_local! {
    /// A handle that outlives all inputs.
    static WATCHER: OnceCell<&'static [File; 2]> = const { OnceCell::new() };
    static CONSUMER: OnceCell<&'static Driver> = const { OnceCell::new() };
}

fuzz_target!(init: seeds::write(made::seeds()), |bytes: &[u8]| {
    WATCHER.with(|watcher| {
        let watcher = watcher.get_or_init(|| Box::leak(Box::new([WIN32_DEVICE_NAME, TEST_WIN32_DEVICE_NAME].map(open))));
        host::leaves_nothing(|| watcher.each_ref().map(objects), || one_input(bytes));
    });
});

fn one_input(bytes: &[u8]) {
    let mut handles = [Handle::new(), Handle::new()];
    let mut rest = bytes;
    while let Some(step) = next(&mut rest) {
        let handle = &mut handles[usize::from(step.how & SECOND)];
        if step.how & ANEW != 0 {
            std::mem::replace(handle, Handle::new()).close();
        }
        handle.act(&step);
    }
    handles.into_iter().for_each(Handle::close);
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<Step<'a>> {
    let (&[how, which, length, length_high, capacity, capacity_high], behind) = rest.split_first_chunk::<6>()?;
    let length = usize::from(u16::from_le_bytes([length, length_high])).min(behind.len());
    let (input, behind) = behind.split_at(length);
    *rest = behind;
    Some(Step { how, which, input, capacity: usize::from(u16::from_le_bytes([capacity, capacity_high])) })
}

fn open(name: &str) -> File {
    let kernel = &host::machine().kernel;
    CONSUMER.with(|consumer| {
        consumer.get_or_init(|| {
            let image = conformance::machine::image().with_file_name("ndktest.sys");
            Box::leak(Box::new(kernel.load_driver(image, "ndktest").expect("the consumer loads")))
        });
    });
    kernel.open_device(name, GENERIC_READ | GENERIC_WRITE).expect("the device opens")
}

/// What the driver says it holds.
fn objects(file: &File) -> ObjectSummaryReply {
    let request = ObjectSummaryRequest { header: RequestHeader::of::<ObjectSummaryRequest>() };
    let mut reply = [0; size_of::<ObjectSummaryReply>()];
    let answer = file.ioctl(ObjectSummaryRequest::CODE, request.as_bytes(), &mut reply);
    assert_eq!(answer.status, 0, "the device answers");
    let counts = ObjectSummaryReply::read_from_bytes(&reply).expect("a whole reply");
    ObjectSummaryReply { pool_bytes: 0, pool_blocks: 0, ..counts }
}

impl Handle {
    fn new() -> Self {
        Self { file: open(TEST_WIN32_DEVICE_NAME), provider: open(WIN32_DEVICE_NAME), pending: Vec::new(), pair: 0 }
    }

    fn act(&mut self, step: &Step<'_>) {
        self.give_up();
        let (code, length) = self.code(step);
        let input = self.input(step, code, length);
        // A direct request's buffer may be longer than sixteen bits can say.
        let direct = code & 3 != 0;
        let buffer = direct.then(|| {
            let offset = if step.how & ASKEW == 0 { 0 } else { 64 };
            UserBuffer::with_offset(step.capacity * 3, offset, FrameOrder::Scattered)
        });
        let file = if step.how & PROVIDER == 0 { &self.file } else { &self.provider };
        let started = match &buffer {
            Some(buffer) => file.start_ioctl_direct(code, &input, buffer),
            None => file.start_ioctl(code, &input, step.capacity),
        };
        let Ok(pending) = started else { return };
        if step.how & LEFT_ALONE != 0 {
            self.pending.push((pending, buffer));
            return;
        }
        let patience = PATIENCE[usize::from(code == ScriptRequest::CODE)];
        if pending.wait_for(patience).is_none() {
            pending.cancel();
        }
        let mut output = vec![0; step.capacity];
        let answer = pending.wait_into(&mut output);
        if code == PairCreateRequest::CODE && answer.status == 0 {
            let (reply, _) = PairCreateReply::read_from_prefix(&output).expect("a whole reply");
            assert_ne!(reply.pair, 0, "a pair's id");
            self.pair = reply.pair;
        }
    }

    fn code(&self, step: &Step<'_>) -> (u32, usize) {
        match step.input.first_chunk::<4>() {
            Some(code) if step.which >= ANY_CODE => (u32::from_le_bytes(*code), step.input.len()),
            _ => REQUESTS[usize::from(step.which) % REQUESTS.len()],
        }
    }

    fn input(&self, step: &Step<'_>, code: u32, length: usize) -> Vec<u8> {
        let mut input = step.input.to_vec();
        if code == ScriptRequest::CODE && step.how & TEXT != 0 {
            let steps = std::str::from_utf8(&input).ok().and_then(|text| parse(text).ok()).map(|lines| encode(&lines));
            let steps = steps.unwrap_or(input);
            let header = RequestHeader { version: ABI_VERSION, size: (length + steps.len()) as u32 };
            let request = ScriptRequest { header, length: steps.len() as u32, reserved: 0 };
            return [request.as_bytes(), &steps].concat();
        }
        if step.how & RIGHT_HEADER != 0 {
            input.resize(if code == ScriptRequest::CODE { input.len().max(length) } else { length.max(8) }, 0);
            input[..4].copy_from_slice(&ABI_VERSION.to_le_bytes());
            let size = input.len() as u32;
            input[4..8].copy_from_slice(&size.to_le_bytes());
        }
        let pairs = [PairCloseRequest::CODE, PairModerationRequest::CODE, TransferRequest::CODE];
        if step.how & OWN_PAIR != 0 && pairs.contains(&code) && input.len() >= 12 {
            input[8..12].copy_from_slice(&self.pair.to_le_bytes());
        }
        input
    }

    /// Cancels the pending requests and waits for them.
    fn give_up(&mut self) {
        for (pending, buffer) in self.pending.drain(..) {
            pending.cancel();
            let _ = pending.wait();
            drop(buffer);
        }
    }

    /// Closes with requests still under way; their buffers go when they are over.
    fn close(self) {
        self.file.close();
        self.provider.close();
        for (pending, buffer) in self.pending {
            let _ = pending.wait();
            drop(buffer);
        }
    }
}
