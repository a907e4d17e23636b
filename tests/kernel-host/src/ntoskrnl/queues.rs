//! Cancel-safe IRP queues and interlocked singly linked lists.

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::callback;
use crate::callout::{Context, ContextKind};
use crate::nt::{IO_CSQ, IRP, SLIST_HEADER};
use crate::status::{NtStatus, STATUS_CANCELLED, STATUS_SUCCESS, is_success};
use crate::{call_image, exports};

const IO_TYPE_CSQ: u32 = 2;
const IO_TYPE_CSQ_EX: u32 = 3;
const SL_PENDING_RETURNED: u8 = 1;

/// Cancel-safe queue callbacks all run with the same context.
const CALLBACK: Context = Context::new(ContextKind::QueueCallback, "a callback of a cancel-safe queue");

exports! {
    module "ntoskrnl.exe";

    /// Fills an IO_CSQ with the driver's callbacks.
    /// Source: WDM: IoCsqInitialize
    [UP_TO_DISPATCH] fn IoCsqInitialize(
        queue: *mut IO_CSQ, insert: *mut c_void, remove: *mut c_void, peek: *mut c_void, acquire: *mut c_void,
        release: *mut c_void, complete: *mut c_void,
    ) -> NtStatus {
        // SAFETY: the image's queue.
        unsafe { fill(queue, IO_TYPE_CSQ, [insert, remove, peek, acquire, release, complete]) };
        STATUS_SUCCESS
    }

    /// As IoCsqInitialize, with an insert callback that may refuse.
    /// Source: WDM: IoCsqInitializeEx
    [UP_TO_DISPATCH] fn IoCsqInitializeEx(
        queue: *mut IO_CSQ, insert: *mut c_void, remove: *mut c_void, peek: *mut c_void, acquire: *mut c_void,
        release: *mut c_void, complete: *mut c_void,
    ) -> NtStatus {
        // SAFETY: the image's queue.
        unsafe { fill(queue, IO_TYPE_CSQ_EX, [insert, remove, peek, acquire, release, complete]) };
        STATUS_SUCCESS
    }

    /// Marks the IRP pending, inserts it and makes it cancellable; a cancelled one is completed at once.
    /// Source: WDM: IoCsqInsertIrp
    [UP_TO_DISPATCH] fn IoCsqInsertIrp(queue: *mut IO_CSQ, irp: *mut IRP, context: *mut c_void) {
        // SAFETY: the image's queue and IRP.
        unsafe { insert_irp(queue, irp, context, ptr::null_mut()) };
    }

    /// As IoCsqInsertIrp; returns what the insert callback says.
    /// Source: WDM: IoCsqInsertIrpEx
    [UP_TO_DISPATCH] fn IoCsqInsertIrpEx(
        queue: *mut IO_CSQ, irp: *mut IRP, context: *mut c_void, insert_context: *mut c_void,
    ) -> NtStatus {
        // SAFETY: the image's queue and IRP.
        unsafe { insert_irp(queue, irp, context, insert_context) }
    }

    /// Takes the next IRP that the peek callback names and that is not being cancelled.
    /// Source: WDM: IoCsqRemoveNextIrp
    [UP_TO_DISPATCH] fn IoCsqRemoveNextIrp(queue: *mut IO_CSQ, peek_context: *mut c_void) -> *mut IRP {
        // SAFETY: the image's queue and the IRPs in it.
        unsafe { remove_next_irp(queue, peek_context) }
    }

    /// Takes a certain IRP, by the context it was inserted with.
    /// Source: WDM: IoCsqRemoveIrp
    [UP_TO_DISPATCH] fn IoCsqRemoveIrp(queue: *mut IO_CSQ, context: *mut IrpContext) -> *mut IRP {
        // SAFETY: the image's queue and context.
        unsafe { remove_irp(queue, context) }
    }

    /// Empties the list header.
    /// Source: WDM: ExInitializeSListHead
    [ANY] fn InitializeSListHead(list: *mut SLIST_HEADER) {
        // SAFETY: the image's list.
        unsafe { list.write(SLIST_HEADER { Alignment: 0, Region: 0 }) };
    }

    /// Pushes an entry; returns the first one before.
    /// Source: WDM: ExInterlockedPushEntrySList
    [UP_TO_DISPATCH] fn ExpInterlockedPushEntrySList(list: *mut SLIST_HEADER, entry: *mut *mut c_void) -> *mut c_void {
        with_list(|| {
            // SAFETY: the image's list and entry, both 16-byte aligned.
            unsafe {
                let first = (*list).Region & !15;
                entry.write(first as *mut c_void);
                (*list).Region = entry as u64 | 1;
                (*list).Alignment = ((*list).Alignment & !0xFFFF).wrapping_add(1 << 16) | (((*list).Alignment & 0xFFFF) + 1);
                first as *mut c_void
            }
        })
    }

    /// Pops an entry, or NULL.
    /// Source: WDM: ExInterlockedPopEntrySList
    [UP_TO_DISPATCH] fn ExpInterlockedPopEntrySList(list: *mut SLIST_HEADER) -> *mut c_void {
        with_list(|| {
            // SAFETY: the image's list and its entries.
            unsafe {
                let first = ((*list).Region & !15) as *mut *mut c_void;
                if !first.is_null() {
                    (*list).Region = first.read() as u64 | 1;
                    (*list).Alignment -= 1;
                }
                first.cast()
            }
        })
    }

    /// Takes all entries.
    /// Source: WDM: ExInterlockedFlushSList
    [UP_TO_DISPATCH] fn ExpInterlockedFlushSList(list: *mut SLIST_HEADER) -> *mut c_void {
        with_list(|| {
            // SAFETY: the image's list.
            unsafe {
                let first = (*list).Region & !15;
                list.write(SLIST_HEADER { Alignment: 0, Region: 0 });
                first as *mut c_void
            }
        })
    }

    /// How many entries the list has.
    /// Source: WDM: ExQueryDepthSList
    [ANY] fn ExQueryDepthSList(list: *const SLIST_HEADER) -> u16 {
        // SAFETY: the image's list.
        unsafe { (*list).Alignment as u16 }
    }
}

/// One lock for all lists: their header is changed in two words.
fn with_list<T>(body: impl FnOnce() -> T) -> T {
    static LISTS: Mutex<()> = Mutex::new(());
    let _guard = LISTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    body()
}

/// `IO_CSQ_IRP_CONTEXT`.
#[repr(C)]
pub struct IrpContext {
    kind: u32,
    irp: *mut IRP,
    queue: *mut IO_CSQ,
}

unsafe fn fill(queue: *mut IO_CSQ, kind: u32, callbacks: [*mut c_void; 6]) {
    let [insert, remove, peek, acquire, release, complete] = callbacks;
    // SAFETY: the caller's contract.
    unsafe {
        queue.write(IO_CSQ {
            Type: kind,
            CsqInsertIrp: insert,
            CsqRemoveIrp: remove,
            CsqPeekNextIrp: peek,
            CsqAcquireLock: acquire,
            CsqReleaseLock: release,
            CsqCompleteCanceledIrp: complete,
            ReservePointer: ptr::null_mut(),
        });
    }
}

/// IoSetCancelRoutine.
unsafe fn set_cancel_routine(irp: *mut IRP, routine: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's contract: a live IRP.
    unsafe { AtomicPtr::from_ptr(&raw mut (*irp).CancelRoutine) }.swap(routine, Ordering::SeqCst)
}

unsafe fn lock(queue: *mut IO_CSQ) -> u8 {
    let mut old = 0_u8;
    // SAFETY: the caller's contract: a live queue.
    unsafe { call_image!(CALLBACK, (*queue).CsqAcquireLock => (); queue, &raw mut old) };
    old
}

unsafe fn unlock(queue: *mut IO_CSQ, old: u8) {
    // SAFETY: the caller's contract: a live queue.
    unsafe { call_image!(CALLBACK, (*queue).CsqReleaseLock => (); queue, old) };
}

fn cancel_routine() -> *mut c_void {
    callback::host_function(cancel as *const c_void, 2).cast_mut()
}

unsafe fn insert_irp(queue: *mut IO_CSQ, irp: *mut IRP, context: *mut c_void, insert_context: *mut c_void) -> NtStatus {
    // SAFETY: the caller's contract.
    unsafe {
        let old = lock(queue);
        let owner: *mut c_void = if context.is_null() {
            queue.cast()
        } else {
            context.cast::<IrpContext>().write(IrpContext { kind: 1, irp, queue });
            context
        };
        (*irp).DriverContext[3] = owner;
        (*(*irp).CurrentStackLocation).Control |= SL_PENDING_RETURNED;
        if (*queue).Type == IO_TYPE_CSQ_EX {
            let status = call_image!(CALLBACK, (*queue).CsqInsertIrp => NtStatus; queue, irp, insert_context);
            if !is_success(status) {
                (*(*irp).CurrentStackLocation).Control &= !SL_PENDING_RETURNED;
                unlock(queue, old);
                return status;
            }
        } else {
            call_image!(CALLBACK, (*queue).CsqInsertIrp => (); queue, irp);
        }
        set_cancel_routine(irp, cancel_routine());
        if (*irp).Cancel != 0 && !set_cancel_routine(irp, ptr::null_mut()).is_null() {
            call_image!(CALLBACK, (*queue).CsqRemoveIrp => (); queue, irp);
            forget_context(irp);
            unlock(queue, old);
            call_image!(CALLBACK, (*queue).CsqCompleteCanceledIrp => (); queue, irp);
            return STATUS_CANCELLED;
        }
        unlock(queue, old);
    }
    STATUS_SUCCESS
}

unsafe fn forget_context(irp: *mut IRP) {
    // SAFETY: the caller's contract: an IRP of a queue.
    unsafe {
        let owner = (*irp).DriverContext[3];
        if !owner.is_null() && owner.cast::<u32>().read() == 1 {
            (*owner.cast::<IrpContext>()).irp = ptr::null_mut();
        }
        (*irp).DriverContext[3] = ptr::null_mut();
    }
}

unsafe fn remove_next_irp(queue: *mut IO_CSQ, peek_context: *mut c_void) -> *mut IRP {
    // SAFETY: the caller's contract.
    unsafe {
        let old = lock(queue);
        let mut irp: *mut IRP =
            call_image!(CALLBACK, (*queue).CsqPeekNextIrp => *mut IRP; queue, ptr::null_mut::<IRP>(), peek_context);
        // One whose cancel routine is taken is being cancelled: its cancel routine waits for this lock.
        while !irp.is_null() && set_cancel_routine(irp, ptr::null_mut()).is_null() {
            irp = call_image!(CALLBACK, (*queue).CsqPeekNextIrp => *mut IRP; queue, irp, peek_context);
        }
        if !irp.is_null() {
            call_image!(CALLBACK, (*queue).CsqRemoveIrp => (); queue, irp);
            forget_context(irp);
        }
        unlock(queue, old);
        irp
    }
}

unsafe fn remove_irp(queue: *mut IO_CSQ, context: *mut IrpContext) -> *mut IRP {
    // SAFETY: the caller's contract.
    unsafe {
        let old = lock(queue);
        let mut irp = (*context).irp;
        if !irp.is_null() {
            if set_cancel_routine(irp, ptr::null_mut()).is_null() {
                irp = ptr::null_mut();
            } else {
                call_image!(CALLBACK, (*queue).CsqRemoveIrp => (); queue, irp);
                forget_context(irp);
            }
        }
        unlock(queue, old);
        irp
    }
}

/// The cancel routine of queued IRPs; the I/O manager calls it with the cancel spin lock held.
unsafe extern "win64" fn cancel(_device: *mut c_void, irp: *mut IRP) {
    // SAFETY: an IRP of a queue, as this routine was only ever set there.
    unsafe {
        crate::io::cancel::release((*irp).CancelIrql);
        let owner = (*irp).DriverContext[3];
        let queue = if owner.cast::<u32>().read() == 1 { (*owner.cast::<IrpContext>()).queue } else { owner.cast() };
        let level = lock(queue);
        call_image!(CALLBACK, (*queue).CsqRemoveIrp => (); queue, irp);
        forget_context(irp);
        unlock(queue, level);
        call_image!(CALLBACK, (*queue).CsqCompleteCanceledIrp => (); queue, irp);
    }
}
