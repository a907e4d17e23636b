//! Packets that drivers make themselves (`IoAllocateIrp`, `IoInitializeIrp`) and hand to a provider below them.
//!
//! A provider takes the next stack location, and gives it back with the completion, which calls the driver's routine. The routine
//! returns STATUS_MORE_PROCESSING_REQUIRED, since the I/O manager has no sender to complete such a packet for, and may free or
//! prepare the packet again before it does. Rules: one provider at a time; a completion routine for every outcome; `IoReuseIrp`
//! before each further use; freed once, and not while a provider has it (WDM: IoAllocateIrp, IoReuseIrp, IoFreeIrp).

use std::collections::BTreeMap;

use super::object::IO_TYPE_IRP;
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::host_lock::HostLock;
use crate::ndis::loan::LoanedBytes;
use crate::ndis::rule::{Group, broken};
use crate::nt::{IO_STACK_LOCATION, IO_STATUS_BLOCK_UNION, IRP};
use crate::status::{self, NtStatus};

/// The kind under which allocated packets are recorded.
pub const LEDGER_KIND: &str = "IRP";

/// `SL_INVOKE_ON_CANCEL`, `SL_INVOKE_ON_SUCCESS`, `SL_INVOKE_ON_ERROR`.
const INVOKE_ALWAYS: u8 = 0xE0;
/// `SL_PENDING_RETURNED`.
const PENDING_RETURNED: u8 = 0x01;

#[derive(Clone, Copy, PartialEq, Eq)]
enum PacketUse {
    Ready,
    /// A provider has it, by this function.
    With(&'static str),
    /// Completed, and not prepared for another use.
    Completed,
}

struct OwnPacket {
    state: PacketUse,
    /// Of `IoAllocateIrp`; the memory of `IoInitializeIrp` is the driver's.
    memory: Option<LoanedBytes>,
}

/// By their addresses. A packet in memory of the driver's stays here until its address is initialised again.
static PACKETS: HostLock<BTreeMap<usize, OwnPacket>> = HostLock::new(BTreeMap::new());

fn wrong(packet: *mut IRP, rule: impl AsRef<str>) -> ! {
    broken(Group::Netio, packet as usize, rule)
}

const fn size_of_packet(locations: i8) -> usize {
    size_of::<IRP>() + locations as usize * size_of::<IO_STACK_LOCATION>()
}

/// Zeroes a packet and sets it up with its stack locations behind it.
///
/// # Safety
///
/// `packet` is writable for its size.
unsafe fn initialise(packet: *mut IRP, size: usize, locations: i8) {
    // SAFETY: the caller's contract.
    unsafe {
        packet.cast::<u8>().write_bytes(0, size);
        (*packet).Type = IO_TYPE_IRP;
        (*packet).Size = size as u16;
        (*packet).StackCount = locations;
        (*packet).CurrentLocation = locations + 1;
        let list = &raw mut (*packet).ThreadListEntry;
        (*list).Flink = list;
        (*list).Blink = list;
        (*packet).CurrentStackLocation = packet.add(1).cast::<IO_STACK_LOCATION>().add(locations as usize);
    }
}

/// A packet that a provider has.
pub(crate) struct Taken(*mut IRP);

// SAFETY: the packet is the provider's until its completion, on whatever thread that is.
unsafe impl Send for Taken {}

impl Taken {
    /// Takes a packet for a function of a provider.
    pub(crate) fn take(packet: *mut IRP, function: &'static str) -> Self {
        if packet.is_null() {
            wrong(packet, format!("{function} is called without an IRP"));
        }
        let before = {
            let mut packets = PACKETS.lock();
            packets.get_mut(&(packet as usize)).map(|own| std::mem::replace(&mut own.state, PacketUse::With(function)))
        };
        match before {
            Some(PacketUse::Ready) => {}
            Some(PacketUse::With(other)) => {
                wrong(packet, format!("{function} is given an IRP that is in use: {other} has not completed it"))
            }
            Some(PacketUse::Completed) => wrong(
                packet,
                format!("{function} is given an IRP that was completed and not prepared by IoReuseIrp since"),
            ),
            None => wrong(
                packet,
                format!("{function} is given what is no IRP of IoAllocateIrp or IoInitializeIrp (any more)"),
            ),
        }
        // SAFETY: a packet in the table is initialised; no other context uses it now.
        unsafe { advance(packet, function) };
        Self(packet)
    }

    fn location(&self) -> *mut IO_STACK_LOCATION {
        // SAFETY: the packet is the provider's, and its location was checked.
        unsafe { (*self.0).CurrentStackLocation }
    }

    /// `IoMarkIrpPending`: the function returns STATUS_PENDING.
    pub(crate) fn mark_pending(&self) {
        // SAFETY: the provider's own stack location.
        unsafe { (*self.location()).Control |= PENDING_RETURNED };
    }

    /// Completes it: calls the routine of the driver, after which the packet may be gone. No lock of the host is held.
    pub(crate) fn complete(self, answer: NtStatus, information: usize) {
        let packet = self.0;
        let location = self.location();
        // SAFETY: the packet and its location are the provider's until the routine is called.
        let (routine, context) = unsafe {
            (*packet).IoStatus.u = IO_STATUS_BLOCK_UNION { Status: answer };
            (*packet).IoStatus.Information = information;
            (*packet).PendingReturned = u8::from((*location).Control & PENDING_RETURNED != 0);
            let called = ((*location).CompletionRoutine as usize, (*location).Context as usize);
            // What the I/O manager clears: a driver must set its routine anew.
            (*location).Control = 0;
            (*packet).CurrentLocation += 1;
            (*packet).CurrentStackLocation = location.add(1);
            called
        };
        if let Some(own) = PACKETS.lock().get_mut(&(packet as usize)) {
            own.state = PacketUse::Completed;
        }
        let name = Context::new(ContextKind::CompletionRoutine, "a completion routine");
        // SAFETY: the routine that the driver set, with the arguments of IO_COMPLETION_ROUTINE.
        let returned = unsafe { call_image!(name, routine => i32; 0_usize, packet as usize, context) };
        if returned != status::STATUS_MORE_PROCESSING_REQUIRED {
            let text = status::text(returned);
            wrong(
                packet,
                format!(
                    "the completion routine of a driver's own IRP returned {text} and not STATUS_MORE_PROCESSING_REQUIRED"
                ),
            );
        }
    }
}

/// `IoSetNextIrpStackLocation`, after a look at what the driver has put there.
///
/// # Safety
///
/// `packet` is initialised and the caller's alone.
unsafe fn advance(packet: *mut IRP, function: &str) {
    // SAFETY: the caller's contract; there is a location below the current one when its number is above 1.
    let (kind, number, next) =
        unsafe { ((*packet).Type, (*packet).CurrentLocation, (*packet).CurrentStackLocation.wrapping_sub(1)) };
    if kind != IO_TYPE_IRP || number <= 1 {
        wrong(packet, format!("{function} is given an IRP without a stack location for it"));
    }
    // SAFETY: as above.
    let (routine, control) = unsafe { ((*next).CompletionRoutine, (*next).Control) };
    if routine.is_null() || control & INVOKE_ALWAYS != INVOKE_ALWAYS {
        wrong(packet, format!("{function} is given an IRP without a completion routine for success, error and cancel"));
    }
    // SAFETY: as above.
    unsafe {
        (*packet).CurrentLocation = number - 1;
        (*packet).CurrentStackLocation = next;
    }
}

/// A packet inside a range of addresses that a provider has.
pub(crate) fn in_use_within(start: usize, end: usize) -> Option<usize> {
    let packets = PACKETS.lock();
    packets.range(start..end).find(|(_, own)| matches!(own.state, PacketUse::With(_))).map(|(address, _)| *address)
}

fn check_locations(packet: *mut IRP, locations: i8, function: &str) {
    if locations < 1 {
        wrong(packet, format!("{function} is asked for an IRP with {locations} stack locations"));
    }
}

crate::exports! {
    module "ntoskrnl.exe";

    /// A packet of the driver's own.
    /// Checks: a stack location at least; can be made to fail; freed before the driver is unloaded
    /// Source: WDM: IoAllocateIrp
    [UP_TO_DISPATCH] fn IoAllocateIrp(locations: i8, _charge_quota: u8) -> *mut IRP {
        check_locations(std::ptr::null_mut(), locations, "IoAllocateIrp");
        if crate::fault::should_fail("IoAllocateIrp") {
            return std::ptr::null_mut();
        }
        let memory = LoanedBytes::filled(size_of_packet(locations), 0);
        let packet = memory.as_pointer().cast::<IRP>();
        // SAFETY: fresh memory of that size.
        unsafe { initialise(packet, size_of_packet(locations), locations) };
        PACKETS.lock().insert(packet as usize, OwnPacket { state: PacketUse::Ready, memory: Some(memory) });
        crate::ledger::record(LEDGER_KIND, packet as usize, "");
        packet
    }

    /// Frees a packet of the driver's own.
    /// Checks: one of IoAllocateIrp, freed once, not while a provider has it
    /// Source: WDM: IoFreeIrp
    [UP_TO_DISPATCH] fn IoFreeIrp(packet: *mut IRP) {
        let mut packets = PACKETS.lock();
        let removed = packets.remove(&(packet as usize));
        drop(packets);
        match removed {
            Some(OwnPacket { state: PacketUse::With(function), .. }) => {
                wrong(packet, format!("IoFreeIrp is given an IRP that is in use: {function} has not completed it"))
            }
            Some(OwnPacket { memory: Some(memory), .. }) => {
                crate::ledger::release(LEDGER_KIND, packet as usize);
                drop(memory);
            }
            _ => wrong(packet, "IoFreeIrp is given what is no IRP of IoAllocateIrp (any more)"),
        }
    }

    /// Prepares a packet of the driver's own for another use.
    /// Checks: one of IoAllocateIrp or IoInitializeIrp, which no provider has
    /// Source: WDM: IoReuseIrp
    [UP_TO_DISPATCH] fn IoReuseIrp(packet: *mut IRP, answer: NtStatus) {
        let mut packets = PACKETS.lock();
        let state = packets.get_mut(&(packet as usize)).map(|own| std::mem::replace(&mut own.state, PacketUse::Ready));
        drop(packets);
        match state {
            Some(PacketUse::Ready | PacketUse::Completed) => {}
            Some(PacketUse::With(function)) => {
                wrong(packet, format!("IoReuseIrp is given an IRP that is in use: {function} has not completed it"))
            }
            None => wrong(packet, "IoReuseIrp is given what is no IRP of IoAllocateIrp or IoInitializeIrp (any more)"),
        }
        // SAFETY: a packet that is the driver's alone.
        unsafe {
            let (size, locations) = ((*packet).Size as usize, (*packet).StackCount);
            initialise(packet, size, locations);
            (*packet).IoStatus.u = IO_STATUS_BLOCK_UNION { Status: answer };
        }
    }

    /// Makes a packet in memory of the driver's.
    /// Checks: the size holds the stack locations; no packet of IoAllocateIrp, and none that a provider has
    /// Source: WDM: IoInitializeIrp
    [UP_TO_DISPATCH] fn IoInitializeIrp(packet: *mut IRP, size: u16, locations: i8) {
        check_locations(packet, locations, "IoInitializeIrp");
        if usize::from(size) < size_of_packet(locations) {
            wrong(packet, format!("IoInitializeIrp is given {size} bytes for an IRP with {locations} stack locations"));
        }
        let mut packets = PACKETS.lock();
        let before = packets.get(&(packet as usize)).map(|own| (own.state, own.memory.is_some()));
        match before {
            Some((PacketUse::With(function), _)) => {
                drop(packets);
                wrong(packet, format!("IoInitializeIrp is given an IRP that is in use: {function} has not completed it"))
            }
            Some((_, true)) => {
                drop(packets);
                wrong(packet, "IoInitializeIrp is given an IRP of IoAllocateIrp, which IoReuseIrp is for")
            }
            _ => packets.insert(packet as usize, OwnPacket { state: PacketUse::Ready, memory: None }),
        };
        drop(packets);
        // SAFETY: the driver's memory of that size.
        unsafe { initialise(packet, usize::from(size), locations) };
    }
}
