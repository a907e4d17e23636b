//! The layer's dispatch tables: one entry a slot, which has the positions of the callbacks in the arguments, and one path for
//! all.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use ndkpi_sys::ndkpi::NDK_OBJECT_HEADER;

use super::super::object_check::NdkObjectKind;
use super::callbacks::{self, Callback, Purpose};
use super::object::{self, NdkObject};
use super::refusals::{self, Cause};
use super::results::{self, TakenResult};
use super::trace;
use crate::bugcheck::{BugCheck, bugcheck};
use crate::callback::host_function;
use crate::callout::{self, Context, ContextKind};
use crate::export::ExportDeclaration;
use crate::fault;
use crate::irql::{self, IrqlRange};
use crate::ndis::rule::{Group, broken};
use crate::status;
use crate::thread::Thread;

const PENDING: i32 = 0x103;

/// A callback among the arguments; its context follows it.
#[derive(Clone, Copy)]
struct Given {
    at: usize,
    purpose: Purpose,
}

/// What a slot's function takes.
pub(super) struct Slot {
    kind: NdkObjectKind,
    index: usize,
    name: &'static str,
    level: IrqlRange,
    /// The completion, with the place of the out pointer of a create.
    completion: Option<(Given, usize)>,
    event: Option<Given>,
    /// Where the structure of a mapping is, and whether the call builds or releases it.
    mapping: Option<(usize, MappingCall)>,
    /// Where objects are among the arguments that what is made, or connected, needs.
    uses: &'static [usize],
    answer: Answer,
    /// The names of the arguments.
    arguments: &'static [&'static str],
    /// For reports: the function that the thread is in.
    declaration: ExportDeclaration,
}

/// What a function returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Status,
    Nothing,
    Results,
    ResultsEx,
    Token,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MappingCall {
    Build,
    Release,
}

struct DispatchEntry {
    address: *const c_void,
    arguments: usize,
}

const fn slot(kind: NdkObjectKind, index: usize, name: &'static str, arguments: &'static [&'static str]) -> Slot {
    let level = IrqlRange::UP_TO_DISPATCH;
    Slot {
        kind,
        index,
        name,
        level,
        completion: None,
        event: None,
        mapping: None,
        uses: &[],
        answer: Answer::Status,
        arguments,
        declaration: ExportDeclaration {
            module: "NDK",
            name,
            irql: level,
            documentation: &[],
            address: std::ptr::null(),
            arguments: arguments.len(),
            direct: false,
            fast: None,
        },
    }
}

/// Functions that may answer STATUS_INSUFFICIENT_RESOURCES beside creates; a disconnect, a deregistration or a close may not.
const MAY_LACK_MEMORY: &[&str] = &[
    "NdkBuildLAM",
    "NdkRegisterMr",
    "NdkInitializeFastRegisterMr",
    "NdkResizeCq",
    "NdkModifySrq",
    "NdkSrqReceive",
    "NdkListen",
    "NdkConnect",
    "NdkConnectWithSharedEndpoint",
    "NdkSend",
    "NdkReceive",
    "NdkBind",
    "NdkFastRegister",
    "NdkInvalidate",
    "NdkRead",
    "NdkWrite",
    "NdkSendAndInvalidate",
];

impl Slot {
    fn may_lack_memory(&self) -> bool {
        let creates = self.completion.is_some_and(|(given, _)| matches!(given.purpose, Purpose::Create(_)));
        creates || MAY_LACK_MEMORY.contains(&self.name)
    }

    const fn passive(mut self) -> Self {
        self.level = IrqlRange::PASSIVE_ONLY;
        self
    }

    const fn request(mut self, at: usize) -> Self {
        self.completion = Some((Given { at, purpose: Purpose::Request }, 0));
        self
    }

    const fn create(mut self, at: usize, made: NdkObjectKind) -> Self {
        self.completion = Some((Given { at, purpose: Purpose::Create(made) }, at + 2));
        self
    }

    const fn builds(mut self, at: usize) -> Self {
        self.mapping = Some((at, MappingCall::Build));
        self
    }

    const fn releases(mut self, at: usize) -> Self {
        self.mapping = Some((at, MappingCall::Release));
        self
    }

    const fn uses(mut self, places: &'static [usize]) -> Self {
        self.uses = places;
        self
    }

    const fn gives(mut self, answer: Answer) -> Self {
        self.answer = answer;
        self
    }

    const fn close(mut self) -> Self {
        self.completion = Some((Given { at: 1, purpose: Purpose::Close }, 0));
        self
    }

    const fn event(mut self, at: usize, purpose: Purpose) -> Self {
        self.event = Some(Given { at, purpose });
        self
    }
}

macro_rules! count {
    () => { 0 };
    ($head:ident $($tail:ident)*) => { 1 + count!($($tail)*) };
}

/// One table: for each slot its name, its arguments and what is special about it.
macro_rules! table {
    ($kind:ident; $($name:ident ($($argument:ident)*) $(. $special:ident ($($value:expr),*))*;)*) => {{
        let mut entries: Vec<DispatchEntry> = Vec::new();
        $(
            {
                static SLOT: OnceLock<Slot> = OnceLock::new();
                unsafe extern "win64" fn entry($($argument: u64),*) -> u64 {
                    // The table holds no entry before its slot is set.
                    let Some(slot) = SLOT.get() else { return 0 };
                    // SAFETY: the consumer calls with the arguments of this slot's type.
                    unsafe { forward(slot, &mut [$($argument),*]) }
                }
                let index = entries.len();
                let _ = SLOT.set(slot(NdkObjectKind::$kind, index, stringify!($name), &[$(stringify!($argument)),*])$(.$special($($value),*))*);
                entries.push(DispatchEntry { address: entry as *const c_void, arguments: count!($($argument)*) });
            }
        )*
        finish(NdkObjectKind::$kind, &entries)
    }};
}

fn finish(kind: NdkObjectKind, entries: &[DispatchEntry]) -> Vec<usize> {
    assert_eq!(entries.len(), kind.slots(), "the table of {kind:?} has the wrong number of slots");
    entries.iter().map(|entry| host_function(entry.address, entry.arguments) as usize).collect()
}

/// The layer's table for a kind; the same for every object of it.
pub(super) fn of(kind: NdkObjectKind) -> *const usize {
    static TABLES: OnceLock<[Vec<usize>; 10]> = OnceLock::new();
    TABLES.get_or_init(|| NdkObjectKind::ALL.map(build))[kind as usize].as_ptr()
}

fn build(kind: NdkObjectKind) -> Vec<usize> {
    match kind {
        NdkObjectKind::Adapter => adapter(),
        NdkObjectKind::QueuePair => queue_pair(),
        NdkObjectKind::CompletionQueue => table! { CompletionQueue;
            NdkCloseCq(NdkCq CloseCompletion RequestContext).close();
            NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
            NdkResizeCq(NdkCq CqDepth RequestCompletion RequestContext).request(2);
            NdkArmCq(NdkCq Type).gives(Answer::Nothing);
            NdkGetCqResults(NdkCq pResults nResults).gives(Answer::Results);
            NdkControlCqInterruptModeration(NdkCq ModerationInterval ModerationCount);
            NdkGetCqResultsEx(NdkCq pResults nResults).gives(Answer::ResultsEx);
        },
        NdkObjectKind::MemoryRegion => table! { MemoryRegion;
            NdkCloseMr(NdkMr CloseCompletion RequestContext).close();
            NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
            NdkRegisterMr(NdkMr pMdl Length Flags RequestCompletion RequestContext).request(4);
            NdkDeregisterMr(NdkMr RequestCompletion RequestContext).request(1);
            NdkInitializeFastRegisterMr(NdkMr AdapterPageCount RemoteAccess RequestCompletion RequestContext).request(3);
            NdkGetRemoteTokenFromMr(NdkMr).gives(Answer::Token);
            NdkGetLocalTokenFromMr(NdkMr).gives(Answer::Token);
        },
        NdkObjectKind::MemoryWindow => table! { MemoryWindow;
            NdkCloseMw(NdkMw CloseCompletion RequestContext).close();
            NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
            NdkGetRemoteTokenFromMw(NdkMw).gives(Answer::Token);
        },
        NdkObjectKind::ProtectionDomain => protection_domain(),
        NdkObjectKind::SharedEndpoint => table! { SharedEndpoint;
            NdkCloseSharedEndpoint(NdkSharedEndpoint CloseCompletion RequestContext).close();
            NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
            NdkGetLocalAddress(NdkSharedEndpoint pAddress pAddressLength);
        },
        NdkObjectKind::Connector => connector(),
        NdkObjectKind::Listener => table! { Listener;
            NdkCloseListener(NdkListener CloseCompletion RequestContext).close();
            NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
            NdkListen(NdkListener pAddress AddressLength RequestCompletion RequestContext).request(3);
            NdkGetLocalAddress(NdkListener pAddress pAddressLength);
            NdkControlConnectEvents(NdkListener Pause).gives(Answer::Nothing);
        },
        NdkObjectKind::SharedReceiveQueue => table! { SharedReceiveQueue;
            NdkCloseSrq(NdkSrq CloseCompletion RequestContext).close();
            NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
            NdkModifySrq(NdkSrq SrqDepth NotifyThreshold RequestCompletion RequestContext).request(3);
            NdkSrqReceive(NdkSrq RequestContext pSgl nSge);
        },
    }
}

fn adapter() -> Vec<usize> {
    table! { Adapter;
        NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
        NdkQueryAdapterInfo(NdkAdapter pInfo pBufferSize).passive();
        NdkCreateCq(
            NdkAdapter CqDepth CqNotification CqNotificationContext pAffinity CreateCompletion RequestContext ppNdkCq
        ).create(5, NdkObjectKind::CompletionQueue).event(2, Purpose::QueueNotification);
        NdkCreatePd(NdkAdapter CreateCompletion RequestContext ppNdkPd).create(1, NdkObjectKind::ProtectionDomain);
        NdkCreateSharedEndpoint(NdkAdapter pAddress AddressLength CreateCompletion RequestContext ppNdkSharedEndpoint)
            .create(3, NdkObjectKind::SharedEndpoint);
        NdkCreateConnector(NdkAdapter CreateCompletion RequestContext ppNdkConnector).create(1, NdkObjectKind::Connector);
        NdkCreateListener(
            NdkAdapter ConnectEvent ConnectEventContext CreateCompletion RequestContext ppNdkListener
        ).create(3, NdkObjectKind::Listener).event(1, Purpose::ConnectEvent);
        NdkBuildLAM(NdkAdapter pMdl Length RequestCompletion RequestContext pNdkLAM pLAMSize pFBO).request(3).builds(5);
        NdkReleaseLAM(NdkAdapter pNdkLAM).releases(1).gives(Answer::Nothing);
    }
}

fn protection_domain() -> Vec<usize> {
    table! { ProtectionDomain;
        NdkClosePd(NdkPd CloseCompletion RequestContext).close();
        NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
        NdkCreateMr(NdkPd FastRegister CreateCompletion RequestContext ppNdkMr).create(2, NdkObjectKind::MemoryRegion);
        NdkCreateMw(NdkPd CreateCompletion RequestContext ppNdkMw).create(1, NdkObjectKind::MemoryWindow);
        NdkCreateSrq(
            NdkPd SrqDepth MaxReceiveRequestSge NotifyThreshold SrqNotification SrqNotificationContext pAffinity
            CreateCompletion RequestContext ppNdkSrq
        ).create(7, NdkObjectKind::SharedReceiveQueue).event(4, Purpose::SharedReceiveNotification);
        NdkCreateQp(
            NdkPd pReceiveCq pInitiatorCq QPContext ReceiveQueueDepth InitiatorQueueDepth MaxReceiveRequestSge
            MaxInitiatorRequestSge InlineDataSize CreateCompletion RequestContext ppNdkQp
        ).create(9, NdkObjectKind::QueuePair).uses(&[1, 2]);
        NdkCreateQpWithSrq(
            NdkPd pReceiveCq pInitiatorCq pSrq QPContext InitiatorQueueDepth MaxInitiatorRequestSge InlineDataSize
            CreateCompletion RequestContext ppNdkQp
        ).create(8, NdkObjectKind::QueuePair).uses(&[1, 2, 3]);
        NdkGetPrivilegedMemoryRegionToken(NdkPd pToken).gives(Answer::Nothing);
    }
}

fn queue_pair() -> Vec<usize> {
    table! { QueuePair;
        NdkCloseQp(NdkQp CloseCompletion RequestContext).close();
        NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
        NdkFlush(NdkQp).gives(Answer::Nothing);
        NdkSend(NdkQp RequestContext pSgl nSge Flags);
        NdkReceive(NdkQp RequestContext pSgl nSge);
        NdkBind(NdkQp RequestContext pMr pMw pVirtualAddress Length Flags);
        NdkFastRegister(
            NdkQp RequestContext pMr AdapterPageCount pAdapterPageArray FBO Length pBaseVirtualAddress Flags
        );
        NdkInvalidate(NdkQp RequestContext pNdkMrOrMw Flags);
        NdkRead(NdkQp RequestContext pSgl nSge RemoteAddress RemoteToken Flags);
        NdkWrite(NdkQp RequestContext pSgl nSge RemoteAddress RemoteToken Flags);
        NdkSendAndInvalidate(NdkQp RequestContext pSgl nSge Flags RemoteToken);
    }
}

fn connector() -> Vec<usize> {
    table! { Connector;
        NdkCloseConnector(NdkConnector CloseCompletion RequestContext).close();
        NdkQueryExtension(NdkObject ExtensionInterfaceID Version pExtensionInterface);
        NdkConnect(
            NdkConnector pNdkQp pSrcAddress SrcAddressLength pDestAddress DestAddressLength InboundReadLimit
            OutboundReadLimit pPrivateData PrivateDataLength RequestCompletion RequestContext
        ).request(10).uses(&[1]);
        NdkConnectWithSharedEndpoint(
            NdkConnector pNdkQp pNdkSharedEndpoint pDestAddress DestAddressLength InboundReadLimit OutboundReadLimit
            pPrivateData PrivateDataLength RequestCompletion RequestContext
        ).request(9).uses(&[1, 2]);
        NdkCompleteConnect(NdkConnector DisconnectEvent DisconnectEventContext RequestCompletion RequestContext)
            .request(3).event(1, Purpose::DisconnectEvent);
        NdkAccept(
            NdkConnector pNdkQp InboundReadLimit OutboundReadLimit pPrivateData PrivateDataLength DisconnectEvent
            DisconnectEventContext RequestCompletion RequestContext
        ).request(8).event(6, Purpose::DisconnectEvent).uses(&[1]);
        NdkReject(NdkConnector pPrivateData PrivateDataLength);
        NdkGetConnectionData(NdkConnector pInboundReadLimit pOutboundReadLimit pPrivateData pPrivateDataLength);
        NdkGetLocalAddress(NdkConnector pAddress pAddressLength);
        NdkGetPeerAddress(NdkConnector pAddress pAddressLength);
        NdkDisconnect(NdkConnector RequestCompletion RequestContext).request(1);
        NdkCompleteConnectEx(NdkConnector DisconnectEvent DisconnectEventContext RequestCompletion RequestContext)
            .request(3).event(1, Purpose::DisconnectEventEx);
        NdkAcceptEx(
            NdkConnector pNdkQp InboundReadLimit OutboundReadLimit pPrivateData PrivateDataLength DisconnectEvent
            DisconnectEventContext RequestCompletion RequestContext
        ).request(8).event(6, Purpose::DisconnectEventEx).uses(&[1]);
    }
}

/// Passes a call on, with the layer's callbacks in the place of the consumer's.
///
/// # Safety
///
/// The arguments are those of the slot's type.
unsafe fn forward(slot: &'static Slot, arguments: &mut [u64]) -> u64 {
    let thread = Thread::current();
    thread.set_export(&slot.declaration);
    check_level(slot);
    let closes = slot.completion.is_some_and(|(given, _)| given.purpose == Purpose::Close);
    let address = arguments[0] as usize;
    let object = if closes {
        object::take(slot.kind, address, slot.name)
    } else {
        super::object_at(slot.kind, address, slot.name)
    };
    if slot.may_lack_memory() && fault::should_fail_ndk(slot.name) {
        refusals::made_to_fail(slot.name, &object, status::STATUS_INSUFFICIENT_RESOURCES);
        return u64::from(status::STATUS_INSUFFICIENT_RESOURCES as u32);
    }
    let mapping = slot.mapping.map(|(at, what)| (arguments[at], what)).filter(|(mapping, _)| *mapping != 0);
    match mapping {
        Some((mapping, MappingCall::Build)) => object.family.check_unmapped(mapping),
        Some((mapping, MappingCall::Release)) => object.family.unmapped(mapping),
        None => {}
    }
    let used: Vec<Arc<NdkObject>> =
        slot.uses.iter().filter_map(|at| arguments.get(*at)).filter_map(|at| object::open_at(*at as usize)).collect();
    let owner = Arc::new(OnceLock::new());
    let makes = slot.completion.is_some_and(|(given, _)| matches!(given.purpose, Purpose::Create(_)));
    if !makes {
        let _ = owner.set(Arc::clone(&object));
        object.needs(&used);
    }
    let call = trace::next_call();
    // The consumer's memory is read before the call only: a completion that comes before the call returns may free it (NDK-QP-12).
    let traced = trace::is_on().then(|| {
        let line = trace::TraceLine::begin().text(format!("#{call} {} {}", object.name(), slot.name));
        line.arguments(slot.arguments, arguments)
    });
    let results = arguments.get(1).copied().unwrap_or(0);
    if slot.name == "NdkArmCq" {
        object.set_armed();
    }
    let substituted = Substituted { slot, object: &object, owner: &owner, used: &used, call };
    let completion = slot.completion.map(|(given, out)| {
        let (callback, number) = substituted.callback(arguments, given);
        (callback, number, out)
    });
    let event = slot.event.map(|given| substituted.callback(arguments, given));
    let name = Context::new(ContextKind::DispatchFunction, slot.name);
    // SAFETY: the provider's function of this slot, with its arguments.
    let answer = unsafe { callout::call_image(name, object.provider_function(slot.index), arguments) };
    if let Some((callback, number, out)) = completion {
        let status = answer as i32;
        if let Some((mapping, MappingCall::Build)) = mapping
            && status == 0
        {
            object.family.mapped(mapping, &callback.given_at);
        }
        if status != PENDING {
            // SAFETY: the caller's contract.
            unsafe { finish_inline(slot, &callback, number, status, arguments.get(out).copied()) };
            if status < 0
                && let Some((_, Some(number))) = event
            {
                callbacks::withdraw(number);
            }
        }
    }
    let status = answer as i32;
    let refused = slot.answer == Answer::Status && status < 0;
    let mut causes: Vec<Cause> = Vec::new();
    if refused {
        causes.extend(refusals::returned(slot.name, &object, status));
    }
    let taken = match slot.answer {
        // SAFETY: the consumer's array, of which the provider has filled so many; it is the caller's until this returns.
        Answer::Results => unsafe { results::plain(results, answer as u32) },
        // SAFETY: as above.
        Answer::ResultsEx => unsafe { results::extended(results, answer as u32) },
        _ => Vec::new(),
    };
    for result in &taken {
        match result.status {
            status if status >= 0 => object.set_fruitful(),
            // Ended by something else, which has a line of its own.
            status::STATUS_CANCELLED => {}
            _ => causes.extend(refusals::result(slot.name, &object, result)),
        }
    }
    if let Some(line) = traced {
        let made = if makes { owner.get() } else { None };
        trace_answer(slot, line, (answer, &taken), (made, &causes));
    }
    answer
}

/// The end of a call's line, when it has returned.
fn trace_answer(
    slot: &Slot,
    line: trace::TraceLine,
    (answer, taken): (u64, &[TakenResult]),
    (made, causes): (Option<&Arc<NdkObject>>, &[Cause]),
) {
    let line = match slot.answer {
        Answer::Status => line.text(format!(" = {}", status::text(answer as i32))),
        Answer::Nothing => line,
        Answer::Results | Answer::ResultsEx => line.text(format!(" = {}", results::text(taken))),
        Answer::Token => line.text(format!(" = {:#x}", answer as u32)),
    };
    let line = causes.iter().fold(line, |line, cause| line.text(format!(", because {cause}")));
    match made {
        Some(made) if answer as u32 == 0 => line.text(format!(", made {} at {:#x}", made.name(), made.address)).end(),
        _ => line.end(),
    }
}

fn check_level(slot: &Slot) {
    let level = Thread::current().irql();
    if !slot.level.contains(level) {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0x1001, u64::from(level), slot.index as u64, 0],
            format!("{} is called at {}; it needs {}", slot.name, irql::name(level), slot.level.describe()),
        );
    }
}

/// What the callbacks of one call have in common.
struct Substituted<'call> {
    slot: &'static Slot,
    object: &'call Arc<NdkObject>,
    owner: &'call Arc<OnceLock<Arc<NdkObject>>>,
    used: &'call [Arc<NdkObject>],
    call: u64,
}

impl Substituted<'_> {
    /// Puts the layer's function and number where the consumer's callback and context were. A NULL callback stays.
    fn callback(&self, arguments: &mut [u64], given: Given) -> (Callback, Option<u64>) {
        let callback = Callback {
            purpose: given.purpose,
            given_to: self.slot.name,
            function: arguments[given.at] as usize,
            context: arguments[given.at + 1],
            family: Arc::clone(&self.object.family),
            object: Arc::clone(self.owner),
            of: Arc::clone(self.object),
            needs: self.used.to_vec(),
            call: self.call,
            given_at: object::call_site(),
            mapping: self.slot.mapping.map(|(at, _)| arguments[at]),
            cause: None,
        };
        if callback.function == 0 {
            if matches!(given.purpose, Purpose::Close | Purpose::Create(_)) {
                let rule = format!("{} is given no completion function", self.slot.name);
                broken(Group::Ndk, self.object.address, rule);
            }
            return (callback, None);
        }
        let number = callbacks::remember(callback.clone());
        arguments[given.at] = callbacks::stub(given.purpose) as u64;
        arguments[given.at + 1] = number;
        (callback, Some(number))
    }
}

/// A call that did not pend: no completion may come, a created object is in its place, a closed one is closed.
///
/// # Safety
///
/// `out` is the out pointer of a create.
unsafe fn finish_inline(slot: &Slot, callback: &Callback, number: Option<u64>, status: i32, out: Option<u64>) {
    if number.is_some_and(|number| !callbacks::withdraw(number)) {
        let rule = format!("{} returned {} although its completion was called", slot.name, status::text(status));
        broken(Group::Ndk, 0, rule);
    }
    match callback.purpose {
        Purpose::Create(_) if status >= 0 => {
            let place = out.unwrap_or(0) as *const *mut NDK_OBJECT_HEADER;
            // SAFETY: the consumer's out pointer, which a successful create has filled.
            callbacks::created(callback, unsafe { place.read_unaligned() });
        }
        Purpose::Close => {
            if status < 0 {
                broken(
                    Group::Ndk,
                    0,
                    format!("{} failed with {}; a close cannot fail", slot.name, status::text(status)),
                );
            }
            if let Some(object) = callback.object.get() {
                object.set_closed();
            }
        }
        _ => {}
    }
}
