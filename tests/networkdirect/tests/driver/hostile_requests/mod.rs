//! Requests of a hostile process: every code with inputs that are nearly right, handles of other kinds and other processes, huge counts, memory
//! of odd lengths, and files that are closed with all of that pending. Its neighbours have traffic and keep what they have.
//!
//! A life is one context of the hostile process with a seed of its own. SOFTNDK_REQUESTS is how many requests there are in all,
//! SOFTNDK_REQUEST_SEED the seed of the first life: a failing one, whose seed is in the output, comes first in another run.

mod shape;

use super::program::*;
use fastrand::Rng;
use kernel_host::io::PendingIrp;
use kernel_host::kernel::FrameOrder;
use kernel_host::memory::user_buffer::UserBuffer;
use networkdirect::machine::{Machine, address, ip, rest};
use networkdirect::{cases, cases::Case};
use shape::{Kind, Shape};
use softndk_ioctl::Status;
use softndk_ioctl::nd::VERSION;
use softndk_ioctl::nd::control::*;
use softndk_ioctl::nd::private::DOORBELL;
use softndk_ioctl::nd::rings::OperationFlags;
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

pub const CASES: &[Case] =
    cases![hostile_requests_leave_others_and_the_driver_alone, handles_of_another_process_are_none];

const INTERNAL_ERROR: Status = Status(0xC000_00E5_u32.cast_signed());
/// Requests of one life.
const LIFE: u64 = 1000;
/// Objects of a neighbour, so that its handles are no numbers of the hostile process.
const WINDOWS: usize = 300;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect(name))
}

fn hostile_requests_leave_others_and_the_driver_alone() {
    let (wanted, first) = (number("SOFTNDK_REQUESTS", 20_000), number("SOFTNDK_REQUEST_SEED", 1));
    let machine = Machine::start();
    let (server, client, ..) = pair_of_programs();
    let windows: Vec<_> = (0..WINDOWS).map(|_| server.nd.create(MW_CREATE, server.domain)).collect();
    let mut foreign = windows.clone();
    foreign.extend([server.domain, server.adapter, server.pair.handle, server.queue.handle, server.region.handle]);
    let mut totals = Totals::default();
    for life in 0..wanted.div_ceil(LIFE) {
        eprintln!("life {}", first + life);
        Life::new(first + life, &foreign).live(&mut totals);
        server.pair.receive(&server.nd, life, &[server.region.sge(0, 64)]);
        client.pair.send(&client.nd, life, OperationFlags::empty(), &[client.region.sge(0, 64)]);
        assert_eq!(client.queue.wait(1)[0].status, 0);
        assert_eq!(server.queue.wait(1)[0].status, 0);
    }
    println!(
        "requests: {} in {} lives, {} succeeded, {} pended, {} of {} forms succeeded at least once",
        totals.requests,
        wanted.div_ceil(LIFE),
        totals.succeeded,
        totals.pended,
        totals.forms.len(),
        shape::COUNT
    );
    assert!(wanted < 10_000 || totals.forms.len() > 50, "the requests reach little: {:x?}", totals.forms);
    for window in windows {
        assert_eq!(server.nd.free(MW_FREE, window), Status::SUCCESS, "a neighbour's object is gone");
    }
    drop((server.close(), client.close()));
    machine.finish();
}

/// By a process without a handle of its own.
fn handles_of_another_process_are_none() {
    let machine = Machine::start();
    let (server, client, theirs, _) = pair_of_programs();
    let listener = server.listen(5000, 1);
    let window: u64 = server.nd.create(MW_CREATE, server.domain);
    let hostile = Nd::start(666);
    for (object, codes) in [
        (
            server.adapter,
            &[ADAPTER_CLOSE, ADAPTER_QUERY_ADDRESS_LIST, PD_CREATE, CONNECTOR_CREATE, LISTENER_CREATE][..],
        ),
        (server.domain, &[PD_FREE, MR_CREATE, MW_CREATE]),
        (server.queue.handle, &[CQ_FREE, CQ_CANCEL_IO, CQ_GET_AFFINITY, CQ_NOTIFY, DOORBELL]),
        (server.pair.handle, &[QP_FREE, QP_FLUSH, DOORBELL]),
        (server.region.handle, &[MR_FREE, MR_CANCEL_IO, MR_DEREGISTER]),
        (window, &[MW_FREE]),
        (theirs, &[CONNECTOR_FREE, CONNECTOR_CANCEL_IO, CONNECTOR_GET_ADDRESS, CONNECTOR_DISCONNECT]),
        (listener, &[LISTENER_FREE, LISTENER_CANCEL_IO, LISTENER_GET_ADDRESS]),
    ] {
        for code in codes {
            let (status, _) = send(&hostile.file, *code, handle(object).as_bytes(), 96);
            assert_eq!(status, INVALID_HANDLE, "{code:#x}");
        }
    }
    hostile.close();
    server.pair.receive(&server.nd, 1, &[server.region.sge(0, 64)]);
    client.pair.send(&client.nd, 2, OperationFlags::empty(), &[client.region.sge(0, 64)]);
    assert_eq!((client.queue.wait(1)[0].status, server.queue.wait(1)[0].status), (0, 0));
    drop((server.close(), client.close()));
    machine.finish();
}

#[derive(Default)]
struct Totals {
    requests: u64,
    succeeded: u64,
    pended: u64,
    /// Codes and kinds that succeeded.
    forms: BTreeSet<(u32, Option<u8>)>,
}

struct Life<'a> {
    nd: Nd,
    /// Of its adapter.
    host: u8,
    random: Rng,
    foreign: &'a [u64],
    objects: Vec<(Kind, u64)>,
    /// Requests that pend, and what they lent.
    pending: Vec<(PendingIrp, Option<UserBuffer>)>,
    /// Regions with memory, its address and length.
    lent: Vec<(u64, u64, u64)>,
}

impl<'a> Life<'a> {
    fn new(seed: u64, foreign: &'a [u64]) -> Self {
        let nd = Nd::start(666);
        let host = 1 + (seed % 2) as u8;
        let adapter = nd.open_adapter(ip(host));
        let objects = vec![(Kind::Adapter, adapter)];
        Self { nd, host, random: Rng::with_seed(seed), foreign, objects, pending: Vec::new(), lent: Vec::new() }
    }

    fn live(mut self, totals: &mut Totals) {
        for _ in 0..LIFE {
            let shape = shape::choose(&mut self.random);
            self.request(shape, totals);
            if self.pending.len() > 60 || self.random.u8(..32) == 0 {
                self.settle();
            }
        }
        let Self { nd, pending, .. } = self;
        nd.close();
        assert!(pending.iter().all(|(request, _)| request.is_completed()), "a request outlives its file");
    }

    /// Cancels some of what pends, and forgets what has ended.
    fn settle(&mut self) {
        for (request, _) in &self.pending {
            if self.random.u8(..3) == 0 {
                request.cancel();
            }
        }
        rest();
        self.pending.retain(|(request, _)| !request.is_completed());
    }

    fn request(&mut self, shape: Shape, totals: &mut Totals) {
        let input = self.input(&shape);
        totals.requests += 1;
        let memory = shape.direct.then(|| self.memory()).flatten();
        let room = if shape.direct { 0 } else { self.room() };
        let sent = match &memory {
            Some(memory) => self.nd.file.start_ioctl_direct(shape.code, &input, memory),
            None => self.nd.file.start_ioctl(shape.code, &input, room),
        };
        let Ok(request) = sent else { return };
        if !request.is_completed() {
            totals.pended += 1;
            let form = (shape.code, shape.handles.first().map(|(_, kind)| *kind as u8));
            totals.forms.insert(form);
            if let Some(memory) = memory.as_ref().filter(|_| shape.handles[0].1 == Kind::Region) {
                let region = u64::from_le_bytes(input[8..16].try_into().expect("eight bytes"));
                self.lent.push((region, memory.address() as u64, memory.len() as u64));
            }
            self.pending.push((request, memory));
            return;
        }
        let mut output = vec![0; room];
        let result = request.wait_into(&mut output);
        assert_ne!(Status(result.status), INTERNAL_ERROR, "{:#x} with {input:x?}", shape.code);
        if result.status == 0 {
            totals.succeeded += 1;
            totals.forms.insert((shape.code, shape.handles.first().map(|(_, kind)| *kind as u8)));
            if let (Some(kind), Some(handle)) = (shape.makes, output.first_chunk::<8>()) {
                self.objects.push((kind, u64::from_le_bytes(*handle)));
            }
        }
    }

    /// Memory for a direct request: lengths around those of rings and pages, not always on a page boundary.
    fn memory(&mut self) -> Option<UserBuffer> {
        let lengths = [0, 1, 127, 128, 4095, 4096, 4097, 8192, 20_000, 65_537];
        let length = lengths[self.random.usize(..lengths.len())];
        let offset = if self.random.u8(..4) == 0 { self.random.usize(..4096) } else { 0 };
        (length != 0).then(|| UserBuffer::with_offset(length, offset, FrameOrder::Scattered))
    }

    fn room(&mut self) -> usize {
        match self.random.u8(..16) {
            0 => 0,
            1 => self.random.usize(..100),
            2 => 65_537,
            _ => 96,
        }
    }

    fn input(&mut self, shape: &Shape) -> Vec<u8> {
        let mut input: Vec<u8> = Vec::with_capacity(shape.length);
        let extreme = self.random.u8(..4) == 0;
        while input.len() < shape.length {
            let word = if extreme && self.random.u8(..3) == 0 { self.extreme() } else { self.random.u32(..9) };
            input.extend(word.to_le_bytes());
        }
        for (offset, kind) in shape.handles {
            let handle = self.handle(*kind);
            input[*offset..offset + 8].copy_from_slice(&handle.to_le_bytes());
        }
        if let Some(offset) = shape.address {
            let port = if shape.code == CONNECTOR_BIND { 0 } else { self.random.u16(5000..5003) };
            let form = socket(address(if self.random.u8(..8) == 0 { 3 - self.host } else { self.host }, port));
            input[offset..offset + size_of::<SocketAddress>()].copy_from_slice(form.as_bytes());
        }
        self.special(shape, &mut input);
        input[..4].copy_from_slice(&VERSION.to_le_bytes());
        self.spoil(&mut input);
        input
    }

    /// Numbers without which a request does not get far.
    fn special(&mut self, shape: &Shape, input: &mut [u8]) {
        // A code that does not exist may be one that does.
        let mut put = |offset: usize, bytes: &[u8]| {
            if let Some(place) = input.get_mut(offset..offset + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        match shape.code {
            ADAPTER_OPEN => {
                let asked = ResolveAddress { version: VERSION, reserved: 0, address: socket(address(1, 0)) };
                let id: u64 = self.nd.ask(PROVIDER_RESOLVE_ADDRESS, &asked);
                put(std::mem::offset_of!(OpenAdapter, adapter_id), &id.to_le_bytes());
            }
            ADAPTER_QUERY => put(4, &softndk_ioctl::nd::INFO_VERSION.to_le_bytes()),
            CONNECTOR_CONNECT | CONNECTOR_ACCEPT | CONNECTOR_REJECT if self.random.bool() => {
                let at = if shape.code == CONNECTOR_REJECT { 8 } else { 16 };
                put(at, &[32_u32, shape.length.saturating_sub(32) as u32].map(u32::to_le_bytes).concat());
            }
            PROVIDER_BIND_FILE => put(8, &self.nd.token.to_le_bytes()),
            MR_REGISTER if !self.lent.is_empty() => {
                let (region, base, length) = self.lent[self.random.usize(..self.lent.len())];
                let length = if self.random.bool() { length } else { self.random.u64(..=length + 1) };
                let asked = Register {
                    version: VERSION,
                    flags: 7,
                    length,
                    target_address: base,
                    handle: region,
                    address: base,
                };
                put(0, asked.as_bytes());
            }
            _ => {}
        }
    }

    /// Changes a little: a byte, a word, the length.
    fn spoil(&mut self, input: &mut Vec<u8>) {
        match self.random.u8(..16) {
            0 => {
                let place = self.random.usize(..input.len());
                input[place] ^= 1 << self.random.u8(..8);
            }
            1 => {
                let place = self.random.usize(..input.len() / 4) * 4;
                let word = self.extreme();
                input[place..place + 4].copy_from_slice(&word.to_le_bytes());
            }
            2 => input.truncate(self.random.usize(..input.len())),
            3 => input.extend(vec![0xEE; self.random.usize(..70)]),
            _ => {}
        }
    }

    fn extreme(&mut self) -> u32 {
        let values = [u32::MAX, 1 << 31, i32::MAX as u32, 1 << 16, 65_535, 4096, 16_352, 1 << 28, 0];
        values[self.random.usize(..values.len())]
    }

    /// A handle: mostly a living one of the kind, else of another kind, of the past, of a neighbour, or none.
    fn handle(&mut self, kind: Kind) -> u64 {
        let of_kind: Vec<_> = self.objects.iter().filter(|(other, _)| *other == kind).collect();
        match self.random.u8(..32) {
            0 => self.random.u64(..),
            1 => self.foreign[self.random.usize(..self.foreign.len())],
            2 => self.objects[self.random.usize(..self.objects.len())].1,
            3 => 0,
            _ if of_kind.is_empty() => 0,
            // The newest ones: those of long ago are freed.
            _ => of_kind[of_kind.len() - 1 - self.random.usize(..of_kind.len().min(4))].1,
        }
    }
}
