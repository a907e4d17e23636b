//! One run of a script: its objects, what happened, and the step that is being done.
//!
//! Rules: every pointer is made here and every number of the script is checked before it is used; memory that an adapter may
//! still know is kept until every object is closed; a step that waits gives up when its request ends.

use core::net::{IpAddr, SocketAddr};

use ndkpi_sys::{
    ndkpi::{NDK_OP_FLAGS, NDK_RESULT_EX, NDK_SGE},
    nt::{NTSTATUS, PVOID},
};
use softndk_ioctl::{
    SCRIPT_TAIL_MAX, ScriptAnswer, ScriptEvent, ScriptItem, ScriptKind, ScriptName, ScriptOccurrence, Status,
    script_byte,
};
use softndk_kernel::pool::{PoolArray, PoolBox, PoolSlice};

use super::{
    buffer::ScriptBuffer,
    log::Log,
    resource::{Resource, Slots, Stop},
};
use crate::{
    driver::Driver,
    session::{
        consumer::{OpenedAdapter, Waiter},
        memory::MemoryList,
        object::{Completion, PendingCall},
        pair,
        request::{RequestWait, Wake},
    },
    tags,
};

/// Longest private data of a step; longer than what any adapter takes.
pub const PRIVATE_DATA_MAX: usize = 4096;
/// Entries of a reply.
pub const SEEN_MAX: usize = 512;
/// Bytes of all buffers that a script makes.
const MEMORY_MAX: u64 = 64 << 20;
/// Buffers that a script closed and an adapter may still know.
const BURIED_MAX: usize = 256;
/// Adapters that were closed before what was made from them.
const CLOSING_MAX: usize = 64;
/// How long nothing must happen for the system to be at rest, in nanoseconds.
const REST: u64 = 10_000_000;
/// Waits between two looks at the adapters.
const WAITS: u32 = 64;
/// When the system must have come to rest, in nanoseconds.
const REST_LIMIT: u64 = 20_000_000_000;
/// After which rest something that is expected and has not happened is absent, in nanoseconds. Long, because a rest also comes when
/// the context that makes it happen has no processor.
const ABSENT_LIMIT: u64 = 5_000_000_000;

/// What a step came to.
pub struct Answer {
    /// Its status, where it has one.
    pub status: NTSTATUS,
    /// What was seen is what was expected (of observations).
    pub agrees: bool,
    /// Digest or numbers seen.
    pub values: [u64; 2],
    /// Entries seen, in [`Session::seen`].
    pub seen: usize,
}

impl Answer {
    pub const NOTHING: Self = Self { status: 0, agrees: true, values: [0; 2], seen: 0 };

    pub fn of(status: NTSTATUS) -> Self {
        Self { status, ..Self::NOTHING }
    }
}

/// One entry of a reply.
pub type Entry = [u8; 32];

pub struct Session<'a> {
    pub driver: &'static Driver,
    request_wait: RequestWait<'a>,
    pub slots: Slots,
    pub log: PoolBox<Log>,
    /// Answers the requests that a step waits for; in the pool, because a request that was given up may still end.
    waiter: PoolBox<Waiter>,
    /// The memory list of a registration that was given up.
    pub list: Option<MemoryList>,
    pub sges: PoolSlice<NDK_SGE>,
    pub private_data: PoolSlice<u8>,
    pub occurrences: PoolSlice<ScriptOccurrence>,
    pub results: PoolSlice<NDK_RESULT_EX>,
    pub seen: PoolSlice<Entry>,
    buried: PoolArray<Option<PoolBox<ScriptBuffer>>>,
    closing: PoolArray<Option<Closing>>,
    /// Bytes of buffers that may still be made.
    pub memory_left: u64,
    /// The number of the last open; 0 is none.
    pub opens: u32,
    /// Changes of addresses seen, and waits since the adapters were looked at.
    changes: u32,
    waits: u32,
}

/// An adapter whose close waits for what was made from it, as CloseNDKAdapter does.
struct Closing {
    adapter: PoolBox<OpenedAdapter>,
    open: u32,
    name: ScriptName,
}

impl<'a> Session<'a> {
    pub fn try_new(driver: &'static Driver, request_wait: RequestWait<'a>) -> Result<PoolBox<Self>, Status> {
        let none = |_| Status::INSUFFICIENT_RESOURCES;
        let log = PoolBox::try_new(tags::SESSION, Log::try_new()?).map_err(none)?;
        let mut private_data = PoolSlice::try_filled(tags::SESSION, PRIVATE_DATA_MAX, 0_u8).map_err(none)?;
        for (offset, byte) in (0..).zip(private_data.iter_mut()) {
            *byte = script_byte(0, offset);
        }
        let tail = usize::from(SCRIPT_TAIL_MAX);
        let session = Self {
            driver,
            request_wait,
            slots: Slots::try_new(&log)?,
            log,
            waiter: PoolBox::try_new(tags::SESSION, Waiter::try_new()?).map_err(none)?,
            list: None,
            sges: PoolSlice::try_filled(tags::SESSION, tail, NDK_SGE::zeroed()).map_err(none)?,
            private_data,
            occurrences: PoolSlice::try_filled(tags::SESSION, SEEN_MAX, ScriptOccurrence::default()).map_err(none)?,
            results: PoolSlice::try_filled(tags::SESSION, 16, NDK_RESULT_EX::zeroed()).map_err(none)?,
            seen: PoolSlice::try_filled(tags::SESSION, SEEN_MAX, [0; 32]).map_err(none)?,
            buried: PoolArray::try_from_fn(tags::SESSION, BURIED_MAX, |_| Ok(None)).map_err(none)?,
            closing: PoolArray::try_from_fn(tags::SESSION, CLOSING_MAX, |_| Ok(None)).map_err(none)?,
            memory_left: MEMORY_MAX,
            opens: 0,
            changes: driver.watch.changes(),
            waits: 0,
        };
        PoolBox::try_new(tags::SESSION, session).map_err(none)
    }

    /// Whether the script should end: cancelled, file closed.
    pub fn give_up(&self) -> Result<(), Status> {
        self.request_wait.check()
    }

    /// Fails when an adapter that the script has open is not in service any more. PASSIVE_LEVEL.
    pub fn check_adapters(&self) -> Result<(), Status> {
        let open = self.slots.resources().filter_map(|resource| match resource {
            Resource::Adapter(adapter) => Some(adapter),
            _ => None,
        });
        let closing = self.closing.iter().flatten().map(|closing| &closing.adapter);
        let gone = open.chain(closing).any(|adapter| !pair::serves(self.driver, adapter.interface()));
        if gone { Err(Status::DEVICE_REMOVED) } else { Ok(()) }
    }

    /// Looks at the adapters when addresses have changed, and about every second of waiting: a script without a connection hears of
    /// nothing else.
    fn check_adapters_sometimes(&mut self) -> Result<(), Status> {
        self.waits = self.waits.wrapping_add(1);
        let changes = self.driver.watch.changes();
        if !self.waits.is_multiple_of(WAITS) && changes == self.changes {
            return Ok(());
        }
        self.changes = changes;
        self.check_adapters()
    }

    /// Waits until nothing happens any more.
    pub fn rest(&mut self) -> Result<(), Stop> {
        let request_wait = self.request_wait.within(REST_LIMIT);
        loop {
            self.give_up()?;
            request_wait.check()?;
            self.check_adapters_sometimes()?;
            if request_wait.pause(&[&self.log.changed], Some(REST)) == Wake::Time {
                break;
            }
        }
        self.finish_closing();
        Ok(())
    }

    /// Waits until nothing happens any more and what is expected is there, or has been absent for long.
    pub fn rest_until(&mut self, mut there: impl FnMut(&mut Self) -> Result<bool, Stop>) -> Result<(), Stop> {
        let limit = self.request_wait.within(ABSENT_LIMIT);
        loop {
            self.rest()?;
            if there(self)? {
                return Ok(());
            }
            match limit.check() {
                Ok(()) => {}
                Err(Status::IO_TIMEOUT) => return Ok(()),
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Makes a request and waits for its final status.
    pub fn request(&mut self, call: impl FnOnce(Completion<'_>) -> NTSTATUS) -> Result<Answer, Stop> {
        // SAFETY: the waiter stays until every object is closed.
        let status = call(unsafe { self.waiter.completion() });
        let request_wait = self.request_wait.within(REST_LIMIT);
        let status = self.waiter.finish_unless(status, |done| {
            self.give_up()?;
            request_wait.wait(&[done])
        })?;
        Ok(Answer::of(status))
    }

    /// A request whose end is an event: an answer other than PENDING is its end.
    pub fn event(&self, status: NTSTATUS, event: ScriptEvent, object: ScriptName) -> Answer {
        if status != ndkpi_sys::nt::STATUS_PENDING {
            self.log.record(event, object, status);
        }
        Answer::NOTHING
    }

    /// Keeps the memory of a closed buffer until every object is closed.
    pub fn bury(&mut self, buffer: PoolBox<ScriptBuffer>) -> Result<(), Stop> {
        let place = self.buried.iter_mut().find(|place| place.is_none()).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        *place = Some(buffer);
        Ok(())
    }

    pub fn can_bury(&self) -> bool {
        self.buried.iter().any(Option::is_none)
    }

    /// Lets go everything of a kind whose end is not waited for.
    fn drop_all(&mut self, kind: ScriptKind) {
        for name in Slots::names() {
            if self.slots.holds(name, kind) {
                drop(self.slots.take(name));
            }
        }
    }

    pub fn can_close_deferred(&self) -> bool {
        self.closing.iter().any(Option::is_none)
    }

    /// Closes an adapter: now, if nothing of it is left, else when nothing is.
    pub fn close_adapter(&mut self, adapter: PoolBox<OpenedAdapter>, open: u32, name: ScriptName) -> Result<(), Stop> {
        let place = self.closing.iter_mut().find(|place| place.is_none()).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        *place = Some(Closing { adapter, open, name });
        self.finish_closing();
        Ok(())
    }

    fn finish_closing(&mut self) {
        if self.log.closes() != 0 {
            return;
        }
        for place in self.closing.iter_mut() {
            let slots = &self.slots;
            if let Some(closing) = place.take_if(|closing| !slots.uses(closing.open)) {
                let name = closing.name;
                drop(closing);
                self.log.record(ScriptEvent::Closed, name, 0);
            }
        }
    }

    pub fn adapter(&self, name: ScriptName) -> Result<&OpenedAdapter, Stop> {
        match self.slots.get(name)? {
            Resource::Adapter(adapter) => Ok(adapter),
            _ => Err(Stop::Broken),
        }
    }

    /// The address that an adapter's listeners and connectors use.
    pub fn home(&self, name: ScriptName) -> Result<IpAddr, Stop> {
        Ok(self.adapter(name)?.first_address()?)
    }

    /// The address that a script means by an adapter and a port.
    pub fn socket(&self, host: ScriptName, port: u16) -> Result<SocketAddr, Stop> {
        Ok(SocketAddr::new(self.home(host)?, port))
    }
}

impl Drop for Session<'_> {
    /// Closes what is left, in an order in which nothing waits for what comes later, and waits for all of it.
    fn drop(&mut self) {
        const ORDER: [ScriptKind; 9] = [
            ScriptKind::Connector,
            ScriptKind::Listener,
            ScriptKind::Endpoint,
            ScriptKind::QueuePair,
            ScriptKind::Window,
            ScriptKind::Region,
            ScriptKind::SharedReceiveQueue,
            ScriptKind::CompletionQueue,
            ScriptKind::Domain,
        ];
        for kind in ORDER {
            for name in Slots::names() {
                if self.slots.holds(name, kind) {
                    let _closed = self.close(name);
                }
            }
        }
        loop {
            // A listener's close waits for what arrived and was not taken.
            while let Some(connector) = self.log.take_arrival(ScriptName::NONE) {
                // SAFETY: handed to us and known to no other context.
                unsafe { connector.close_unowned() };
            }
            if self.log.closes() == 0 {
                break;
            }
            self.log.changed.wait();
        }
        self.drop_all(ScriptKind::Buffer);
        self.buried.fill_with(|| None);
        self.closing.fill_with(|| None);
        self.drop_all(ScriptKind::Adapter);
    }
}

/// Reads a step's arguments.
pub struct Arguments<'a>(pub &'a ScriptItem<'a>);

impl Arguments<'_> {
    pub fn object(&self) -> ScriptName {
        self.0.step.object
    }

    pub fn number(&self, index: usize) -> u64 {
        self.0.step.arguments.get(index).copied().unwrap_or(0)
    }

    /// A number that the dispatch table takes as a ULONG.
    pub fn short(&self, index: usize) -> Result<u32, Stop> {
        u32::try_from(self.number(index)).map_err(|_| Stop::Broken)
    }

    pub fn port(&self, index: usize) -> Result<u16, Stop> {
        u16::try_from(self.number(index)).map_err(|_| Stop::Broken)
    }

    pub fn name(&self, index: usize) -> Result<ScriptName, Stop> {
        self.short(index).map(ScriptName)
    }

    pub fn flags(&self, index: usize) -> Result<NDK_OP_FLAGS, Stop> {
        self.short(index).map(NDK_OP_FLAGS::from_bits_retain)
    }

    /// A number as the context of a request.
    pub fn context(&self, index: usize) -> PVOID {
        core::ptr::without_provenance_mut(self.number(index) as usize)
    }

    /// Whether the status of a step is compared.
    pub fn has_status(&self) -> bool {
        matches!(self.0.code.verb().answer, ScriptAnswer::Inline | ScriptAnswer::Final)
    }
}
