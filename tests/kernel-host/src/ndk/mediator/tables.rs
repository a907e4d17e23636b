//! The layer's dispatch tables: one entry a slot, which says where in the arguments callbacks are, and one path for all.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use ndkpi_sys::ndkpi::NDK_OBJECT_HEADER;

use super::super::object_check::Kind;
use super::callbacks::{self, Callback, Purpose};
use super::object::{self, Object};
use crate::bugcheck::{BugCheck, bugcheck};
use crate::callback::host_function;
use crate::callout::{self, Context, ContextKind};
use crate::irql::{self, IrqlRange};
use crate::ndis::rule::{Group, broken};
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
    kind: Kind,
    index: usize,
    name: &'static str,
    level: IrqlRange,
    /// The completion, with the place of the out pointer of a create.
    completion: Option<(Given, usize)>,
    event: Option<Given>,
    /// Where the structure of a mapping is, and whether the call builds or releases it.
    mapping: Option<(usize, Mapping)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapping {
    Build,
    Release,
}

struct Entry {
    address: *const c_void,
    arguments: usize,
}

const fn slot(kind: Kind, index: usize, name: &'static str) -> Slot {
    Slot { kind, index, name, level: IrqlRange::UP_TO_DISPATCH, completion: None, event: None, mapping: None }
}

impl Slot {
    const fn passive(mut self) -> Self {
        self.level = IrqlRange::PASSIVE_ONLY;
        self
    }

    const fn request(mut self, at: usize) -> Self {
        self.completion = Some((Given { at, purpose: Purpose::Request }, 0));
        self
    }

    const fn create(mut self, at: usize, made: Kind) -> Self {
        self.completion = Some((Given { at, purpose: Purpose::Create(made) }, at + 2));
        self
    }

    const fn builds(mut self, at: usize) -> Self {
        self.mapping = Some((at, Mapping::Build));
        self
    }

    const fn releases(mut self, at: usize) -> Self {
        self.mapping = Some((at, Mapping::Release));
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
        let mut entries: Vec<Entry> = Vec::new();
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
                let _ = SLOT.set(slot(Kind::$kind, index, stringify!($name))$(.$special($($value),*))*);
                entries.push(Entry { address: entry as *const c_void, arguments: count!($($argument)*) });
            }
        )*
        finish(Kind::$kind, &entries)
    }};
}

fn finish(kind: Kind, entries: &[Entry]) -> Vec<usize> {
    assert_eq!(entries.len(), kind.slots(), "the table of {kind:?} has the wrong number of slots");
    entries.iter().map(|entry| host_function(entry.address, entry.arguments) as usize).collect()
}

/// The layer's table for a kind; the same for every object of it.
pub(super) fn of(kind: Kind) -> *const usize {
    static TABLES: OnceLock<[Vec<usize>; 10]> = OnceLock::new();
    TABLES.get_or_init(|| Kind::ALL.map(build))[kind as usize].as_ptr()
}

fn build(kind: Kind) -> Vec<usize> {
    match kind {
        Kind::Adapter => adapter(),
        Kind::QueuePair => queue_pair(),
        Kind::CompletionQueue => table! { CompletionQueue;
            NdkCloseCq(a b c).close();
            NdkQueryExtension(a b c d);
            NdkResizeCq(a b c d).request(2);
            NdkArmCq(a b);
            NdkGetCqResults(a b c);
            NdkControlCqInterruptModeration(a b c);
            NdkGetCqResultsEx(a b c);
        },
        Kind::MemoryRegion => table! { MemoryRegion;
            NdkCloseMr(a b c).close();
            NdkQueryExtension(a b c d);
            NdkRegisterMr(a b c d e f).request(4);
            NdkDeregisterMr(a b c).request(1);
            NdkInitializeFastRegisterMr(a b c d e).request(3);
            NdkGetRemoteTokenFromMr(a);
            NdkGetLocalTokenFromMr(a);
        },
        Kind::MemoryWindow => table! { MemoryWindow;
            NdkCloseMw(a b c).close();
            NdkQueryExtension(a b c d);
            NdkGetRemoteTokenFromMw(a);
        },
        Kind::ProtectionDomain => protection_domain(),
        Kind::SharedEndpoint => table! { SharedEndpoint;
            NdkCloseSharedEndpoint(a b c).close();
            NdkQueryExtension(a b c d);
            NdkGetLocalAddress(a b c);
        },
        Kind::Connector => connector(),
        Kind::Listener => table! { Listener;
            NdkCloseListener(a b c).close();
            NdkQueryExtension(a b c d);
            NdkListen(a b c d e).request(3);
            NdkGetLocalAddress(a b c);
            NdkControlConnectEvents(a b);
        },
        Kind::SharedReceiveQueue => table! { SharedReceiveQueue;
            NdkCloseSrq(a b c).close();
            NdkQueryExtension(a b c d);
            NdkModifySrq(a b c d e).request(3);
            NdkSrqReceive(a b c d);
        },
    }
}

fn adapter() -> Vec<usize> {
    table! { Adapter;
        NdkQueryExtension(a b c d);
        NdkQueryAdapterInfo(a b c).passive();
        NdkCreateCq(a b c d e f g h).create(5, Kind::CompletionQueue).event(2, Purpose::QueueNotification);
        NdkCreatePd(a b c d).create(1, Kind::ProtectionDomain);
        NdkCreateSharedEndpoint(a b c d e f).create(3, Kind::SharedEndpoint);
        NdkCreateConnector(a b c d).create(1, Kind::Connector);
        NdkCreateListener(a b c d e f).create(3, Kind::Listener).event(1, Purpose::ConnectEvent);
        NdkBuildLAM(a b c d e f g h).request(3).builds(5);
        NdkReleaseLAM(a b).releases(1);
    }
}

fn protection_domain() -> Vec<usize> {
    table! { ProtectionDomain;
        NdkClosePd(a b c).close();
        NdkQueryExtension(a b c d);
        NdkCreateMr(a b c d e).create(2, Kind::MemoryRegion);
        NdkCreateMw(a b c d).create(1, Kind::MemoryWindow);
        NdkCreateSrq(a b c d e f g h i j)
            .create(7, Kind::SharedReceiveQueue).event(4, Purpose::SharedReceiveNotification);
        NdkCreateQp(a b c d e f g h i j k l).create(9, Kind::QueuePair);
        NdkCreateQpWithSrq(a b c d e f g h i j k).create(8, Kind::QueuePair);
        NdkGetPrivilegedMemoryRegionToken(a b);
    }
}

fn queue_pair() -> Vec<usize> {
    table! { QueuePair;
        NdkCloseQp(a b c).close();
        NdkQueryExtension(a b c d);
        NdkFlush(a);
        NdkSend(a b c d e);
        NdkReceive(a b c d);
        NdkBind(a b c d e f g);
        NdkFastRegister(a b c d e f g h i);
        NdkInvalidate(a b c d);
        NdkRead(a b c d e f g);
        NdkWrite(a b c d e f g);
        NdkSendAndInvalidate(a b c d e f);
    }
}

fn connector() -> Vec<usize> {
    table! { Connector;
        NdkCloseConnector(a b c).close();
        NdkQueryExtension(a b c d);
        NdkConnect(a b c d e f g h i j k l).request(10);
        NdkConnectWithSharedEndpoint(a b c d e f g h i j k).request(9);
        NdkCompleteConnect(a b c d e).request(3).event(1, Purpose::DisconnectEvent);
        NdkAccept(a b c d e f g h i j).request(8).event(6, Purpose::DisconnectEvent);
        NdkReject(a b c);
        NdkGetConnectionData(a b c d e);
        NdkGetLocalAddress(a b c);
        NdkGetPeerAddress(a b c);
        NdkDisconnect(a b c).request(1);
        NdkCompleteConnectEx(a b c d e).request(3).event(1, Purpose::DisconnectEventEx);
        NdkAcceptEx(a b c d e f g h i j).request(8).event(6, Purpose::DisconnectEventEx);
    }
}

/// Passes a call on, with the layer's callbacks in the place of the consumer's.
///
/// # Safety
///
/// The arguments are those of the slot's type.
unsafe fn forward(slot: &'static Slot, arguments: &mut [u64]) -> u64 {
    check_level(slot);
    let closes = slot.completion.is_some_and(|(given, _)| given.purpose == Purpose::Close);
    let address = arguments[0] as usize;
    let object = if closes {
        object::take(slot.kind, address, slot.name)
    } else {
        super::object_at(slot.kind, address, slot.name)
    };
    let mapping = slot.mapping.map(|(at, what)| (arguments[at], what)).filter(|(mapping, _)| *mapping != 0);
    match mapping {
        Some((mapping, Mapping::Build)) => object.family.check_unmapped(mapping),
        Some((mapping, Mapping::Release)) => object.family.unmapped(mapping),
        None => {}
    }
    let owner = Arc::new(OnceLock::new());
    let makes = slot.completion.is_some_and(|(given, _)| matches!(given.purpose, Purpose::Create(_)));
    if !makes {
        let _ = owner.set(Arc::clone(&object));
    }
    let completion = slot.completion.map(|(given, out)| {
        let (callback, number) = substitute(slot, arguments, given, &object, &owner);
        (callback, number, out)
    });
    let event = slot.event.map(|given| substitute(slot, arguments, given, &object, &owner));
    let name = Context::new(ContextKind::DispatchFunction, slot.name);
    // SAFETY: the provider's function of this slot, with its arguments.
    let answer = unsafe { callout::call_image(name, object.provider_function(slot.index), arguments) };
    let Some((callback, number, out)) = completion else { return answer };
    let status = answer as i32;
    if let Some((mapping, Mapping::Build)) = mapping
        && status == 0
    {
        object.family.mapped(mapping);
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
    answer
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

/// Puts the layer's function and number where the consumer's callback and context were. A NULL callback stays.
fn substitute(
    slot: &'static Slot,
    arguments: &mut [u64],
    given: Given,
    object: &Arc<Object>,
    owner: &Arc<OnceLock<Arc<Object>>>,
) -> (Callback, Option<u64>) {
    let callback = Callback {
        purpose: given.purpose,
        given_to: slot.name,
        function: arguments[given.at] as usize,
        context: arguments[given.at + 1],
        family: Arc::clone(&object.family),
        object: Arc::clone(owner),
        mapping: slot.mapping.map(|(at, _)| arguments[at]),
    };
    if callback.function == 0 {
        if matches!(given.purpose, Purpose::Close | Purpose::Create(_)) {
            broken(Group::Ndk, object.address, format!("{} is given no completion function", slot.name));
        }
        return (callback, None);
    }
    let number = callbacks::remember(callback.clone());
    arguments[given.at] = callbacks::stub(given.purpose) as u64;
    arguments[given.at + 1] = number;
    (callback, Some(number))
}

/// A call that did not pend: no completion may come, a created object is in its place, a closed one is closed.
///
/// # Safety
///
/// `out` is the out pointer of a create.
unsafe fn finish_inline(slot: &Slot, callback: &Callback, number: Option<u64>, status: i32, out: Option<u64>) {
    if number.is_some_and(|number| !callbacks::withdraw(number)) {
        let rule = format!("{} returned {:#010X} although its completion was called", slot.name, status as u32);
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
                    format!("{} failed with {:#010X}; a close cannot fail", slot.name, status as u32),
                );
            }
            if let Some(object) = callback.object.get() {
                object.set_closed();
            }
        }
        _ => {}
    }
}
