//! Frames, pause and restart, status indications and OID requests of the miniport, and the ways to get them wrong.

use core::ffi::c_void;
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use ndkpi_sys::ndis::*;
use ndkpi_sys::nt;

use crate::kernel::{
    DISPATCH_LEVEL, KeAcquireSpinLockRaiseToDpc, KeGetCurrentIrql, KeLowerIrql, KeReleaseSpinLock, KfRaiseIrql,
    SpinLock,
};
use crate::miniport::{Fault, buffer_pool, faulty, miniport_handle, unless};
use crate::spin_lock::Shared;

/// The shortest Ethernet frame.
const FRAME: u32 = 60;

static LOCK: Shared<SpinLock> = Shared(core::cell::UnsafeCell::new(0));
/// How many indicated lists are not back.
static LENT: AtomicUsize = AtomicUsize::new(0);
static LENT_LIST: AtomicPtr<NET_BUFFER_LIST> = AtomicPtr::new(core::ptr::null_mut());

/// Runs the call under a spin lock in the bad twin of `fault`.
unsafe fn perhaps_locked(fault: Fault, call: impl FnOnce()) {
    if !faulty(fault) {
        return call();
    }
    let before = KeAcquireSpinLockRaiseToDpc(LOCK.0.get());
    call();
    KeReleaseSpinLock(LOCK.0.get(), before);
}

/// Every send is completed and answered by a frame of our own.
pub unsafe extern "C" fn send(_: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, _port: u32, flags: NDIS_SEND_FLAGS) {
    let level = flags & NDIS_SEND_FLAGS::DISPATCH_LEVEL;
    let (completed, received) = (
        NDIS_SEND_COMPLETE_FLAGS::from_bits_retain(level.bits()),
        NDIS_RECEIVE_FLAGS::from_bits_retain(level.bits()),
    );
    if faulty(Fault::SendersListIndicated) {
        indicate(list, received);
    }
    if faulty(Fault::SendWritten) {
        let data = (*(*(*list).FirstNetBuffer).CurrentMdl.cast::<crate::kernel::Mdl>()).mapped_system_va.cast::<u8>();
        data.write_volatile(0x5A);
    }
    if faulty(Fault::SendKept) || faulty(Fault::SendsStandStill) {
        return;
    }
    if faulty(Fault::LevelAsked) {
        KeGetCurrentIrql();
    }
    if faulty(Fault::SendTooLate) {
        // The first one of them stays, the others go; the third takes it along.
        match SENDS.fetch_add(1, Ordering::AcqRel) {
            0 => return KEPT.store(list, Ordering::Release),
            1 => {}
            _ => (*list).Next = KEPT.swap(core::ptr::null_mut(), Ordering::AcqRel),
        }
    }
    (*list).Status = unless(Fault::SendCompletedPending, NDIS_STATUS_SUCCESS, NDIS_STATUS_PENDING);
    let flags = unless(Fault::SendCompletedLevelUntold, completed, NDIS_SEND_COMPLETE_FLAGS::empty());
    perhaps_locked(Fault::SendCompletedLocked, || {
        NdisMSendNetBufferListsComplete(miniport_handle(), list, flags);
    });
    if faulty(Fault::SendCompletedTwice) {
        NdisMSendNetBufferListsComplete(miniport_handle(), list, flags);
    }
    if faulty(Fault::SendTouchedAfterCompletion) {
        core::ptr::read_volatile(&raw const (*list).Status);
    }
    let answer = frame();
    let received = unless(Fault::ReceiveLevelUntold, received, NDIS_RECEIVE_FLAGS::empty());
    let received = unless(Fault::ReceiveLevelWrong, received, NDIS_RECEIVE_FLAGS::DISPATCH_LEVEL);
    indicate(answer, received);
    if faulty(Fault::ReceiveIndicatedTwice) {
        core::ptr::write_bytes(&raw mut (*answer).NetBufferListInfo, 0, 1);
        indicate(answer, received);
    }
    if faulty(Fault::ReceiveFreedEarly) {
        NdisFreeNetBufferList(answer);
    }
}

static SENDS: AtomicUsize = AtomicUsize::new(0);
static KEPT: AtomicPtr<NET_BUFFER_LIST> = AtomicPtr::new(core::ptr::null_mut());

/// A frame of the miniport's own pool.
unsafe fn frame() -> *mut NET_BUFFER_LIST {
    let list = NdisAllocateNetBufferList(buffer_pool(), 0, 0);
    let buffer = (*list).FirstNetBuffer;
    (*buffer).DataOffset = 0;
    (*buffer).CurrentMdl = (*buffer).MdlChain;
    (*buffer).CurrentMdlOffset = 0;
    (*buffer).NbDataLength.DataLength = unless(Fault::ReceiveShort, FRAME, 10);
    (*list).SourceHandle = unless(Fault::ReceiveWithoutSource, miniport_handle(), core::ptr::null_mut());
    list
}

unsafe fn indicate(list: *mut NET_BUFFER_LIST, flags: NDIS_RECEIVE_FLAGS) {
    LENT.fetch_add(1, Ordering::AcqRel);
    LENT_LIST.store(list, Ordering::Release);
    let count = unless(Fault::ReceiveMiscounted, 1, 2);
    perhaps_locked(Fault::ReceiveIndicatedLocked, || {
        NdisMIndicateReceiveNetBufferLists(miniport_handle(), list, 0, count, flags);
    });
}

pub unsafe extern "C" fn take_back(_context: NDIS_HANDLE, chain: *mut NET_BUFFER_LIST, _flags: NDIS_RETURN_FLAGS) {
    let mut next = chain;
    while !next.is_null() {
        let list = next;
        next = (*list).Next;
        LENT.fetch_sub(1, Ordering::AcqRel);
        NdisFreeNetBufferList(list);
    }
}

pub unsafe extern "C" fn pause(_: NDIS_HANDLE, _: *mut NDIS_MINIPORT_PAUSE_PARAMETERS) -> NDIS_STATUS {
    if faulty(Fault::PauseFails) {
        return NDIS_STATUS_RESOURCES;
    }
    if faulty(Fault::PauseNeverCompleted) {
        return NDIS_STATUS_PENDING;
    }
    NdisMPauseComplete(miniport_handle());
    if faulty(Fault::PauseCompletedTwice) {
        NdisMPauseComplete(miniport_handle());
    }
    unless(Fault::PauseCompletedAndReturned, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS)
}

pub unsafe extern "C" fn restart(_: NDIS_HANDLE, _: *mut NDIS_MINIPORT_RESTART_PARAMETERS) -> NDIS_STATUS {
    indicate_link();
    if faulty(Fault::RestartCompletedUnasked) {
        NdisMRestartComplete(miniport_handle(), NDIS_STATUS_SUCCESS);
    }
    if faulty(Fault::RestartNeverCompleted) { NDIS_STATUS_PENDING } else { NDIS_STATUS_SUCCESS }
}

/// Before MiniportHaltEx returns, when the adapter is not running any more.
pub unsafe fn halting() {
    if faulty(Fault::ReceiveWhileHalting) {
        indicate(frame(), NDIS_RECEIVE_FLAGS::empty());
    }
}

/// Indicates that the link is up.
unsafe fn indicate_link() {
    let mut link = NDIS_LINK_STATE::zeroed();
    link.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: 1,
        Size: unless(Fault::LinkStateHeader, size_of::<NDIS_LINK_STATE>() as u16, 8),
    };
    link.MediaConnectState = MediaConnectStateConnected;
    link.MediaDuplexState = MediaDuplexStateFull;
    let mut indication = NDIS_STATUS_INDICATION::zeroed();
    indication.Header = NDIS_OBJECT_HEADER {
        Type: unless(Fault::StatusType, NDIS_OBJECT_TYPE_STATUS_INDICATION, NDIS_OBJECT_TYPE_DEFAULT),
        Revision: 1,
        Size: NDIS_SIZEOF_STATUS_INDICATION_REVISION_1,
    };
    indication.SourceHandle = unless(Fault::StatusWithoutSource, miniport_handle(), core::ptr::null_mut());
    indication.StatusCode = NDIS_STATUS_LINK_STATE;
    indication.StatusBuffer = (&raw mut link).cast();
    indication.StatusBufferSize = unless(Fault::LinkStateShort, size_of::<NDIS_LINK_STATE>() as u32, 8);
    NdisMIndicateStatusEx(miniport_handle(), &raw mut indication);
}

static TIMER: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static REQUEST: AtomicPtr<NDIS_OID_REQUEST> = AtomicPtr::new(core::ptr::null_mut());

unsafe extern "C" fn timer(_: nt::PVOID, _: nt::PVOID, _: nt::PVOID, _: nt::PVOID) {
    let request = REQUEST.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !request.is_null() {
        NdisMOidRequestComplete(miniport_handle(), request, NDIS_STATUS_SUCCESS);
    }
}

pub unsafe fn make_timer(miniport: NDIS_HANDLE) {
    let mut characteristics = NDIS_TIMER_CHARACTERISTICS::zeroed();
    characteristics.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_TIMER_CHARACTERISTICS,
        Revision: 1,
        Size: size_of::<NDIS_TIMER_CHARACTERISTICS>() as u16,
    };
    characteristics.AllocationTag = crate::kernel::TAG;
    characteristics.TimerFunction = Some(timer);
    let mut handle = core::ptr::null_mut();
    if NdisAllocateTimerObject(miniport, &raw mut characteristics, &raw mut handle) == NDIS_STATUS_SUCCESS {
        TIMER.store(handle, Ordering::Release);
    }
}

unsafe fn set_timer(seconds: i64, period: i32) {
    let due = nt::LARGE_INTEGER { QuadPart: -10_000_000 * seconds };
    NdisSetTimerObject(TIMER.load(Ordering::Acquire), due, period, core::ptr::null_mut());
}

pub unsafe fn free_timer() {
    let handle = TIMER.load(Ordering::Acquire);
    set_timer(60, 60_000);
    let raised = faulty(Fault::TimerCancelledRaised);
    let before = if raised { KfRaiseIrql(DISPATCH_LEVEL) } else { 0 };
    NdisCancelTimerObject(handle);
    if raised {
        KeLowerIrql(before);
    }
    NdisFreeTimerObject(handle);
}

/// How an answered OID request ends: the good way is the return value.
pub unsafe fn end_request(request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    if faulty(Fault::OidNeverCompleted) {
        return NDIS_STATUS_PENDING;
    }
    if faulty(Fault::OidTooLate) {
        REQUEST.store(request, Ordering::Release);
        set_timer(13, 0);
        return NDIS_STATUS_PENDING;
    }
    if faulty(Fault::OidCompletedTwice) || faulty(Fault::OidCompletedAndReturned) {
        NdisMOidRequestComplete(miniport_handle(), request, NDIS_STATUS_SUCCESS);
    }
    if faulty(Fault::OidCompletedTwice) {
        NdisMOidRequestComplete(miniport_handle(), request, NDIS_STATUS_SUCCESS);
    }
    NDIS_STATUS_SUCCESS
}
