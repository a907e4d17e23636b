//! The data path: frames that the host's protocol sends through a miniport, and frames that the miniport indicates.
//!
//! Ownership is tracked list by list: what was sent comes back exactly once through NdisMSendNetBufferListsComplete; what was
//! indicated without the RESOURCES flag goes back through MiniportReturnNetBufferLists exactly once, either at once or when the
//! test drops it. Memory of a completed send is freed, so a driver that keeps a pointer faults.
//!
//! A stack of TCP/IP that is bound to the miniport sends and takes its frames here, with the same checks.

use std::collections::HashMap;
use std::ffi::c_void;
use std::slice;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ndkpi_sys::ndis::NET_BUFFER_LIST;

use super::gate::Gate;
use super::miniport::{Miniport, MiniportState, lock, miniport};
use super::net_buffer::{self, List, read_data};
use super::rendezvous;
use super::rule::{Group, broken};
use super::{NdisStatus, ndis, status};
use crate::bugcheck::{BugCheck, bugcheck};
use crate::callout::{Context, ContextKind};
use crate::dispatcher::{self, Deadline, Event, Time};
use crate::irql;
use crate::kernel::is_verifying;
use crate::stack::TcpIpStack;
use crate::thread::Thread;
use crate::{call_image, capture};

/// Ethernet header: two addresses and a type.
const HEADER: usize = 14;

/// Frames on their way in either direction.
#[derive(Default)]
pub struct DataPath {
    sends: Mutex<HashMap<usize, Sent>>,
    held: Mutex<Vec<HeldFrame>>,
    received: Mutex<Vec<Vec<u8>>>,
    /// TCP/IP, which takes what is indicated.
    stack: Mutex<Option<Arc<TcpIpStack>>>,
    keep: AtomicBool,
    watch: Mutex<Watch>,
    /// Calls of the send handler; shut while the adapter is not running.
    sending: Gate,
}

/// Frames for [`DataPath::take_received`] at most while a stack takes them: the last ones.
const WITH_A_STACK: usize = 1024;

/// A list that the host keeps, and the frame that it brought.
struct HeldFrame {
    list: usize,
    frame: Vec<u8>,
}

/// What the layers above write into the information of every list they are given, as filters and TCP/IP do.
const NOTE: usize = 0x0A07_E0F0_0A07_E0F0;

struct Sent {
    list: List,
    /// The buffers behind the first one, each in a list of its own that no driver sees.
    following: Vec<List>,
    index: usize,
    batch: Arc<Batch>,
    /// When the miniport got it.
    since: Time,
}

/// The end of a wait for completions.
#[derive(Default)]
struct Watch {
    /// The deadline at which the sends are checked.
    deadline: Option<(Time, u64)>,
    /// When a list was completed last, or the first one given.
    progress: Time,
}

/// In how long a sent list is completed (NDIS rule `NdisTimedDataSend`), and how long all of them may stand still
/// (`NdisTimedDataHang`), with the numbers that Driver Verifier has for the rules.
const SEND_LIMIT: Duration = Duration::from_secs(30);
const STANDSTILL: Duration = Duration::from_secs(22);
const NDIS_TIMED_DATA_SEND: u64 = 0x9200D;
const NDIS_TIMED_DATA_HANG: u64 = 0x9200F;

const fn units(time: Duration) -> Time {
    time.as_nanos() as Time / 100
}

fn too_late(number: u64, miniport: usize, rule: String) -> ! {
    bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, [number, miniport as u64, 0, 0], rule)
}

/// Frames that were sent together.
struct Batch {
    statuses: Mutex<Vec<Option<NdisStatus>>>,
    done: Event,
}

/// Frames that a miniport has to complete.
pub struct SendBatch {
    batch: Arc<Batch>,
    miniport: usize,
}

impl SendBatch {
    /// Waits for every completion and returns the statuses in the order of the frames.
    #[must_use]
    pub fn wait(self) -> Vec<NdisStatus> {
        let limit = if is_verifying() { SEND_LIMIT } else { rendezvous::LIMIT };
        self.batch.done.wait(Some(limit));
        let statuses: Option<Vec<_>> = lock(&self.batch.statuses).iter().copied().collect();
        statuses.unwrap_or_else(|| {
            let rule = format!("a sent NET_BUFFER_LIST was not completed within {limit:?}");
            too_late(NDIS_TIMED_DATA_SEND, self.miniport, rule)
        })
    }
}

/// One frame to send: its bytes, in the pieces that get an MDL each.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    pub pieces: Vec<Vec<u8>>,
    /// Cancel id of the list, 0 for none.
    pub cancel_id: usize,
    /// Bytes of the first piece before the frame: unused data space.
    pub unused: usize,
    /// Frames that follow in the same list, each in a NET_BUFFER of its own.
    pub following: Vec<Vec<u8>>,
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Self {
        Self { pieces: vec![bytes], ..Self::default() }
    }
}

impl DataPath {
    /// Gives frames to `MiniportSendNetBufferLists`, all in one chain.
    pub fn send(&self, miniport: &Miniport, frames: Vec<Frame>) -> SendBatch {
        let count = frames.len();
        let batch = Arc::new(Batch { statuses: Mutex::new(vec![None; count]), done: Event::notification() });
        let sent = SendBatch { batch: Arc::clone(&batch), miniport: miniport.handle };
        if count == 0 {
            batch.done.set();
            return sent;
        }
        let reference = self.sending.enter().filter(|_| miniport.state() == MiniportState::Running);
        let Some(reference) = reference else {
            // NDIS does not let anything through to a miniport that is not running.
            *lock(&batch.statuses) = vec![Some(status::PAUSED); count];
            batch.done.set();
            return sent;
        };
        self.hand_over(miniport, frames, &batch);
        drop(reference);
        sent
    }

    /// As [`Self::send`] for frames that were on their way when a pause began: the miniport gets them whatever its state.
    pub fn send_late(&self, miniport: &Miniport, frames: Vec<Frame>) -> SendBatch {
        let statuses = Mutex::new(vec![None; frames.len()]);
        let batch = Arc::new(Batch { statuses, done: Event::notification() });
        self.hand_over(miniport, frames, &batch);
        SendBatch { batch, miniport: miniport.handle }
    }

    /// Calls `MiniportSendNetBufferLists`.
    fn hand_over(&self, miniport: &Miniport, frames: Vec<Frame>, batch: &Arc<Batch>) {
        const DISPATCH_LEVEL: u32 = 1;
        let first = self.build(miniport, frames, batch);
        let flags = if irql::current() == irql::DISPATCH { DISPATCH_LEVEL } else { 0 };
        let context = Context::new(ContextKind::MiniportEntry, SEND_HANDLER);
        let target = miniport.driver.handlers.send;
        // SAFETY: the registered handler, with the arguments of MINIPORT_SEND_NET_BUFFER_LISTS.
        unsafe { call_image!(context, target => (); miniport.context(), first, 0_u32, flags) };
    }

    fn build(&self, miniport: &Miniport, frames: Vec<Frame>, batch: &Arc<Batch>) -> *mut NET_BUFFER_LIST {
        const CANCEL_ID_SLOT: usize = 5;
        let mut next: *mut NET_BUFFER_LIST = std::ptr::null_mut();
        let mut sends = lock(&self.sends);
        for (index, frame) in frames.into_iter().enumerate().rev() {
            let pieces: Vec<&[u8]> = frame.pieces.iter().map(Vec::as_slice).collect();
            let each = std::iter::once(&*frame.pieces).chain(frame.following.iter().map(slice::from_ref));
            each.for_each(|pieces| capture::frame(miniport.if_index, pieces));
            let built = |list: Option<List>| list.unwrap_or_else(|| panic!("no memory for a frame of the test"));
            let list = built(List::with_data_behind(&pieces, frame.unused, 0));
            let following = frame.following.iter().map(|bytes| built(List::with_data(&[bytes], 0)));
            let following: Vec<List> = following.collect();
            list.continue_with(&following);
            // A driver may write into unused data space in front of the frame, and into nothing else of it.
            if frame.unused == 0 {
                list.lend_for_reading();
            }
            following.iter().for_each(List::lend_for_reading);
            let pointer = list.pointer();
            // SAFETY: the list is the host's own and not handed out yet.
            unsafe {
                (*pointer).Next = next;
                (*pointer).SourceHandle = miniport.handle as *mut c_void;
                (*pointer).NetBufferListInfo[CANCEL_ID_SLOT] = frame.cancel_id as *mut c_void;
            }
            let batch = Arc::clone(batch);
            sends.insert(pointer as usize, Sent { list, following, index, batch, since: dispatcher::now() });
            next = pointer;
        }
        drop(sends);
        if is_verifying() {
            self.watch_from_now(miniport.handle, false);
        }
        next
    }

    /// Checks the sends when none has been completed for so long. `progress`: something was just now.
    fn watch_from_now(&self, miniport: usize, progress: bool) {
        let mut watch = lock(&self.watch);
        let idle = lock(&self.sends).is_empty();
        if watch.deadline.is_some() && !progress {
            return;
        }
        let mut clock = dispatcher::lock();
        if let Some(key) = watch.deadline.take() {
            clock.deadlines.remove(&key);
        }
        if !idle {
            watch.progress = dispatcher::now();
            let due = watch.progress + units(STANDSTILL);
            watch.deadline = Some(clock.add_deadline(due, Deadline::Sends(miniport)));
        }
    }

    /// Nothing was completed since the watch began.
    fn stood_still(&self, miniport: usize) {
        let mut watch = lock(&self.watch);
        watch.deadline = None;
        let pending = lock(&self.sends).len();
        if pending != 0 && dispatcher::now() >= watch.progress + units(STANDSTILL) {
            let rule =
                format!("{pending} sent NET_BUFFER_LISTs are pending, and none was completed for {STANDSTILL:?}");
            too_late(NDIS_TIMED_DATA_HANG, miniport, rule);
        }
    }

    /// What came back came in time, and so will the rest.
    fn check_completed(&self, miniport: &Miniport, sent: &Sent) {
        // The time first: a list that is seen after it was still pending then.
        let now = dispatcher::now();
        let oldest = lock(&self.sends).values().map(|other| other.since).chain(Some(sent.since)).min();
        if oldest.is_some_and(|since| now > since + units(SEND_LIMIT)) {
            let rule = format!("a sent NET_BUFFER_LIST was not completed within {SEND_LIMIT:?}");
            too_late(NDIS_TIMED_DATA_SEND, miniport.handle, rule);
        }
        self.watch_from_now(miniport.handle, true);
    }

    /// Lets sends through, or lets none through any more and waits for the calls in progress, which may well meet a paused
    /// miniport: that one completes them with PAUSED.
    pub fn allow_sends(&self, allow: bool) {
        if allow {
            self.sending.open();
        } else {
            self.sending.shut();
        }
    }

    /// Calls `MiniportCancelSend`.
    pub fn cancel(&self, miniport: &Miniport, cancel_id: usize) {
        let context = Context::new(ContextKind::MiniportEntry, "MiniportCancelSend");
        let target = miniport.driver.handlers.cancel_send;
        // SAFETY: the registered handler, with the arguments of MINIPORT_CANCEL_SEND.
        unsafe { call_image!(context, target => (); miniport.context(), cancel_id) };
    }

    /// Keeps indicated lists instead of returning them at once.
    pub fn keep_received(&self, keep: bool) {
        self.keep.store(keep, Ordering::SeqCst);
    }

    /// Binds or unbinds TCP/IP; what was bound.
    pub(crate) fn bind_stack(&self, stack: Option<Arc<TcpIpStack>>) -> Option<Arc<TcpIpStack>> {
        std::mem::replace(&mut *lock(&self.stack), stack)
    }

    pub(crate) fn stack(&self) -> Option<Arc<TcpIpStack>> {
        lock(&self.stack).clone()
    }

    /// Whether a test asks for lists to be kept, or a stack keeps them for a while.
    fn keeps_lists(&self) -> bool {
        let stack_keeps = || self.stack().is_some_and(|stack| stack.keeps_lists(self.held()));
        self.keep.load(Ordering::SeqCst) || stack_keeps()
    }

    /// A stack returns the lists that it has kept, unless a test keeps them.
    pub(crate) fn return_kept_by_stack(&self, miniport: &Miniport) {
        if !self.keep.load(Ordering::SeqCst) {
            self.return_held(miniport);
        }
    }

    /// Takes the frames that were received since the last call: the last ones of them while a stack is bound, which has all of them.
    #[must_use]
    pub fn take_received(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *lock(&self.received))
    }

    /// How many indicated lists the host keeps.
    #[must_use]
    pub fn held(&self) -> usize {
        lock(&self.held).len()
    }

    /// Whether the host keeps this list.
    #[must_use]
    pub fn holds(&self, list: *mut NET_BUFFER_LIST) -> bool {
        lock(&self.held).iter().any(|held| held.list == list as usize)
    }

    /// Returns every list that the host keeps, in one chain.
    pub fn return_held(&self, miniport: &Miniport) {
        const DISPATCH_LEVEL: u32 = 1;
        let held = std::mem::take(&mut *lock(&self.held));
        let mut chain: *mut NET_BUFFER_LIST = std::ptr::null_mut();
        for HeldFrame { list, frame } in held {
            let list = list as *mut NET_BUFFER_LIST;
            // SAFETY: a live list: the pool refuses to free one that is held.
            let buffer = unsafe { (*list).FirstNetBuffer };
            if read_data(buffer).is_none_or(|now| now != frame) {
                let rule = format!("NET_BUFFER_LIST {list:p} was changed by the miniport before it came back");
                broken(Group::Receive, miniport.handle, rule);
            }
            // SAFETY: indicated to the host and not returned yet: the host may link it.
            unsafe { (*list).Next = chain };
            chain = list;
        }
        if chain.is_null() {
            return;
        }
        let flags = if irql::current() == irql::DISPATCH { DISPATCH_LEVEL } else { 0 };
        let context = Context::new(ContextKind::MiniportEntry, RETURN_HANDLER);
        let target = miniport.driver.handlers.return_lists;
        // SAFETY: the registered handler, with the arguments of MINIPORT_RETURN_NET_BUFFER_LISTS.
        unsafe { call_image!(context, target => (); miniport.context(), chain, flags) };
    }

    /// Ends the run when something is still on its way.
    pub fn check_idle(&self, miniport: &Miniport, when: &str) {
        let sends = lock(&self.sends).len();
        if sends != 0 {
            broken(
                Group::Send,
                miniport.handle,
                format!("{when}, and {sends} sent NET_BUFFER_LISTs are not completed"),
            );
        }
        self.check_returned(miniport, when);
    }

    /// Ends the run when the host still has lists of the miniport.
    pub fn check_returned(&self, miniport: &Miniport, when: &str) {
        let held = self.held();
        if held != 0 {
            broken(
                Group::Receive,
                miniport.handle,
                format!("{when}, and {held} indicated NET_BUFFER_LISTs are not returned"),
            );
        }
    }

    fn complete(&self, miniport: &Miniport, list: *mut NET_BUFFER_LIST) -> *mut NET_BUFFER_LIST {
        let Some(sent) = lock(&self.sends).remove(&(list as usize)) else {
            let rule = format!(
                "NdisMSendNetBufferListsComplete: {list:p} is no outstanding send of this adapter (completed twice?)"
            );
            broken(Group::Send, miniport.handle, rule);
        };
        // SAFETY: the memory is still held by `sent`.
        let (next, answer) = unsafe { ((*list).Next, (*list).Status) };
        if answer == status::PENDING {
            broken(Group::Send, miniport.handle, "NdisMSendNetBufferListsComplete: NBL.Status is NDIS_STATUS_PENDING");
        }
        let all = {
            let mut statuses = lock(&sent.batch.statuses);
            if let Some(slot) = statuses.get_mut(sent.index) {
                *slot = Some(answer);
            }
            statuses.iter().all(Option::is_some)
        };
        if is_verifying() {
            self.check_completed(miniport, &sent);
        }
        drop((sent.list, sent.following));
        if all {
            sent.batch.done.set();
        }
        next
    }

    fn receive(&self, miniport: &Miniport, list: *mut NET_BUFFER_LIST, resources: bool) {
        let frame = check_indicated(miniport, list);
        // SAFETY: a live list, which is the host's until it goes back.
        unsafe { (*list).NetBufferListInfo.fill(NOTE as *mut c_void) };
        capture::frame(miniport.if_index, slice::from_ref(&frame));
        let stack = self.stack();
        let mut received = lock(&self.received);
        if stack.is_some() && received.len() >= WITH_A_STACK {
            received.remove(0);
        }
        received.push(frame.clone());
        drop(received);
        if let Some(stack) = stack {
            stack.receive(&frame);
        }
        if !resources {
            let mut held = lock(&self.held);
            if held.iter().any(|held| held.list == list as usize) {
                broken(
                    Group::Receive,
                    miniport.handle,
                    format!("NET_BUFFER_LIST {list:p} is indicated again before it came back"),
                );
            }
            held.push(HeldFrame { list: list as usize, frame });
        }
    }
}

/// The frame in an indicated list, after all checks of the contract for such a list.
fn check_indicated(miniport: &Miniport, list: *mut NET_BUFFER_LIST) -> Vec<u8> {
    let rule = |text: String| -> ! {
        broken(Group::Receive, miniport.handle, format!("NdisMIndicateReceiveNetBufferLists: {text}"))
    };
    let Some(pool) = net_buffer::pool_of(list) else {
        rule(format!("{list:p} is no list of a pool; a sender's list is never indicated"));
    };
    if pool.owner != miniport.handle && pool.owner != miniport.driver.handle {
        rule("the list belongs to a pool of another adapter".to_owned());
    }
    // SAFETY: a live list of a live pool.
    let (source, answer, buffer) = unsafe { ((*list).SourceHandle, (*list).Status, (*list).FirstNetBuffer) };
    if source as usize != miniport.handle {
        rule(format!("SourceHandle is {source:p}, not the receiving adapter"));
    }
    if answer != status::SUCCESS {
        rule(format!("NBL.Status is {}, not success", status::name(answer)));
    }
    if buffer.is_null() {
        rule("the list has no NET_BUFFER".to_owned());
    }
    // SAFETY: a live list of a live pool.
    let information = unsafe { (*list).NetBufferListInfo };
    if information.iter().any(|word| *word as usize == NOTE) {
        rule("NetBufferListInfo still holds what the layers above noted about an earlier frame".to_owned());
    }
    // SAFETY: a live buffer of the list.
    let (next, current, chain, length, offset) = unsafe {
        (
            (*buffer).Next,
            (*buffer).CurrentMdl,
            (*buffer).MdlChain,
            (*buffer).NbDataLength.DataLength,
            (*buffer).CurrentMdlOffset,
        )
    };
    if !next.is_null() {
        rule("an Ethernet receive has one NET_BUFFER a list".to_owned());
    }
    if chain.is_null() || current.is_null() {
        rule("the NET_BUFFER has no MDL".to_owned());
    }
    // SAFETY: a live MDL of the buffer.
    let first = unsafe { (*current).ByteCount };
    if (length as usize) < HEADER || (first.saturating_sub(offset) as usize) < HEADER {
        rule(format!("a frame of {length} bytes, its first MDL does not hold an Ethernet header"));
    }
    let most = miniport.general().map_or(0, |general| general.mtu as usize) + HEADER;
    if length as usize > most {
        rule(format!("a frame of {length} bytes is longer than MTU and header, {most}"));
    }
    match read_data(buffer) {
        Some(frame) => frame,
        None => rule(format!("the MDL chain does not hold the {length} bytes of the frame, or is not mapped")),
    }
}

/// The clock, at the deadline of a miniport's sends.
pub(crate) fn check_send_deadline(handle: usize) {
    if let Ok(miniport) = ndis().miniports.get(handle as *mut c_void) {
        miniport.data.stood_still(handle);
    }
}

const SEND_HANDLER: &str = "MiniportSendNetBufferLists";
const RETURN_HANDLER: &str = "MiniportReturnNetBufferLists";

/// A handler that gets the level as a flag has no need to ask for it.
pub(crate) fn check_level_not_told(thread: &Thread) {
    let entered = thread.contexts.borrow().last().map_or("", |active| active.name);
    if entered == SEND_HANDLER || entered == RETURN_HANDLER {
        let rule = format!("KeGetCurrentIrql is called in {entered}, whose flags say the level");
        broken(Group::Send, 0, rule);
    }
}

/// What the call sets going may come back into the miniport.
fn check_locks(miniport: &Miniport, function: &str) {
    let held = Thread::current().locks_of_running_entry();
    if held != 0 {
        let rule = format!("{function} is called with {held} spin lock(s) held");
        broken(Group::Send, miniport.handle, rule);
    }
}

/// The flag says DISPATCH_LEVEL there only, and where the driver can know its level: in a DPC or a timer function, and in a
/// handler whose own flags set it. A clear flag makes NDIS check and raise, for each call.
fn check_level(miniport: &Miniport, group: Group, function: &str, says_dispatch: bool) {
    let at_dispatch = irql::current() == irql::DISPATCH;
    if says_dispatch && !at_dispatch {
        let rule = format!("{function}: the DISPATCH_LEVEL flag is set below DISPATCH_LEVEL");
        broken(group, miniport.handle, rule);
    }
    let known = Thread::current().contexts.borrow().last().is_some_and(|active| {
        let flagged = active.name == SEND_HANDLER || active.name == RETURN_HANDLER;
        flagged || matches!(active.kind, ContextKind::DeferredProcedureCall | ContextKind::Timer)
    });
    if !says_dispatch && at_dispatch && known {
        let rule = format!("{function}: the level is known to be DISPATCH_LEVEL, and the DISPATCH_LEVEL flag is clear");
        broken(group, miniport.handle, rule);
    }
}

crate::exports! {
    module "ndis.sys";

    /// Takes sent lists back.
    /// Checks: each list outstanding on this adapter, completed once and in time, with a final status; DISPATCH_LEVEL flag only there, and
    /// where the driver knows that it is there; no spin lock held.
    /// Source: NDIS: NdisMSendNetBufferListsComplete
    [UP_TO_DISPATCH] fn NdisMSendNetBufferListsComplete(handle: *mut c_void, chain: *mut NET_BUFFER_LIST, flags: u32) {
        const DISPATCH_LEVEL: u32 = 1;
        let miniport = miniport(handle, "NdisMSendNetBufferListsComplete");
        check_locks(&miniport, "NdisMSendNetBufferListsComplete");
        check_level(&miniport, Group::Send, "NdisMSendNetBufferListsComplete", flags & DISPATCH_LEVEL != 0);
        let mut list = chain;
        while !list.is_null() {
            list = miniport.data.complete(&miniport, list);
        }
    }

    /// Takes received frames.
    /// Checks: the adapter is running, pausing or restarting; the count; lists of the adapter's own pools with its SourceHandle;
    /// one buffer with the Ethernet header in its first MDL; length within the MTU; DISPATCH_LEVEL flag only there, and
    /// where the driver knows that it is there; no spin lock held.
    /// Source: NDIS: NdisMIndicateReceiveNetBufferLists
    [UP_TO_DISPATCH] fn NdisMIndicateReceiveNetBufferLists(
        handle: *mut c_void,
        chain: *mut NET_BUFFER_LIST,
        port: u32,
        count: u32,
        flags: u32,
    ) {
        const DISPATCH_LEVEL: u32 = 1;
        const RESOURCES: u32 = 2;
        let miniport = miniport(handle, "NdisMIndicateReceiveNetBufferLists");
        check_locks(&miniport, "NdisMIndicateReceiveNetBufferLists");
        check_level(&miniport, Group::Receive, "NdisMIndicateReceiveNetBufferLists", flags & DISPATCH_LEVEL != 0);
        let state = miniport.state();
        if !matches!(state, MiniportState::Running | MiniportState::Restarting | MiniportState::Pausing) {
            let rule = format!("NdisMIndicateReceiveNetBufferLists: the adapter is in state {state:?}");
            broken(Group::Receive, miniport.handle, rule);
        }
        if port != 0 {
            broken(Group::Receive, miniport.handle, "NdisMIndicateReceiveNetBufferLists: the port number is not 0");
        }
        let resources = flags & RESOURCES != 0;
        let (mut list, mut seen) = (chain, 0_u32);
        while !list.is_null() {
            // SAFETY: checked to be a live list by `receive`; a list that is none faults and is reported.
            let next = unsafe { (*list).Next };
            miniport.data.receive(&miniport, list, resources);
            seen += 1;
            list = next;
        }
        if seen != count {
            let rule = format!("NdisMIndicateReceiveNetBufferLists: the chain has {seen} lists, the count says {count}");
            broken(Group::Receive, miniport.handle, rule);
        }
        let returns = !resources && !miniport.data.keeps_lists();
        if let Some(stack) = miniport.data.stack() {
            stack.indicated(seen as usize, resources, returns);
        }
        if returns {
            miniport.data.return_held(&miniport);
        }
    }
}
