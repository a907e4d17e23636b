//! Threads, and what each has of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{boolean, fails};
use crate::status::{self, NtStatus};
use crate::thread::Thread;
use crate::user::call::{self, system_call};
use crate::user::dos_error;
use crate::user::handles::{CURRENT_THREAD, Object};
use crate::user::process::ProcessState;
use crate::user::thread_storage::SLOTS;
use crate::user::threads::{self, ThreadObject};

const CREATE_SUSPENDED: u32 = 4;
const NO_SLOT: u32 = u32::MAX;
const ERROR_NO_MORE_ITEMS: u32 = 259;

fn thread_of(process: &ProcessState, handle: usize) -> Result<Arc<ThreadObject>, NtStatus> {
    if handle == CURRENT_THREAD {
        return call::thread_object().ok_or(status::STATUS_INVALID_HANDLE);
    }
    match process.handles.find(handle)? {
        Object::Thread(object) => Ok(object),
        _ => Err(status::STATUS_OBJECT_TYPE_MISMATCH),
    }
}

/// A slot that no one has; the values of all threads in it are 0.
fn allocate_slot(process: &ProcessState) -> Option<u32> {
    let mut slots = process.program.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = slots.iter().position(|taken| !taken).unwrap_or(slots.len());
    if place == SLOTS {
        return None;
    }
    if place == slots.len() {
        slots.push(false);
    }
    slots[place] = true;
    Some(place as u32)
}

fn free_slot(process: &ProcessState, slot: u32) -> bool {
    let mut slots = process.program.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    slots.get_mut(slot as usize).is_some_and(|taken| std::mem::replace(taken, false))
}

crate::exports! {
    module "kernel32.dll";

    /// Starts a thread with a stack of what the program asks for; CREATE_SUSPENDED waits for ResumeThread.
    /// Source: Win32: CreateThread
    [PASSIVE_ONLY] fn CreateThread(
        _security: usize, stack: usize, start: usize, argument: u64, flags: u32, identifier: *mut u32,
    ) -> usize {
        system_call(|process| {
            let object = threads::create(process, start, argument, stack, flags & CREATE_SUSPENDED != 0);
            if !identifier.is_null() {
                // SAFETY: the caller's out parameter.
                unsafe { identifier.write(object.identifier.load(Ordering::SeqCst) as u32) };
            }
            let handle = process.handles.open(Object::Thread(object));
            handle.unwrap_or_else(|| fails(dos_error::of_status(status::STATUS_INSUFFICIENT_RESOURCES)) as usize)
        })
    }

    /// Ends the calling thread.
    /// Source: Win32: ExitThread
    [PASSIVE_ONLY] fn ExitThread(code: u32) {
        system_call(|_| {
            if let Some(object) = call::thread_object() {
                object.code.store(code, Ordering::SeqCst);
            }
            if let Some(user_thread) = call::current() {
                user_thread.leaves.set(true);
            }
        });
    }

    /// Lets a thread run that was made suspended; the count before.
    /// Checks: a handle of the process
    /// Source: Win32: ResumeThread
    [PASSIVE_ONLY] fn ResumeThread(thread: usize) -> u32 {
        system_call(|process| match thread_of(process, thread) {
            Ok(object) => {
                let before = u32::from(!object.resumed.is_set());
                object.resumed.set();
                before
            }
            Err(refusal) => {
                fails(dos_error::of_status(refusal));
                u32::MAX
            }
        })
    }

    /// The exit code of a thread, or STILL_ACTIVE (259).
    /// Checks: a handle of the process
    /// Source: Win32: GetExitCodeThread
    [PASSIVE_ONLY] fn GetExitCodeThread(thread: usize, code: *mut u32) -> u32 {
        system_call(|process| boolean(thread_of(process, thread).map(|object| {
            // SAFETY: the caller's out parameter.
            unsafe { code.write(object.code.load(Ordering::SeqCst)) };
        })))
    }

    /// The pseudo handle -2.
    /// Source: Win32: GetCurrentThread
    [PASSIVE_ONLY] fn GetCurrentThread() -> usize {
        CURRENT_THREAD
    }

    /// Checks: a handle of the process
    /// Source: Win32: GetThreadId
    [PASSIVE_ONLY] fn GetThreadId(thread: usize) -> u32 {
        system_call(|process| match thread_of(process, thread) {
            Ok(object) => object.identifier.load(Ordering::SeqCst) as u32,
            Err(refusal) => fails(dos_error::of_status(refusal)),
        })
    }

    /// Binds nothing: the affinity of a program's threads is not modelled. The mask before, of all processors.
    /// Source: Win32: SetThreadAffinityMask
    [PASSIVE_ONLY] fn SetThreadAffinityMask(_thread: usize, mask: u64) -> u64 {
        let all = u64::MAX >> (64 - crate::processor::count().min(64));
        if mask & all == 0 { u64::from(fails(dos_error::ERROR_INVALID_PARAMETER)) } else { all }
    }

    /// Source: Win32: GetCurrentProcessorNumber
    [PASSIVE_ONLY] fn GetCurrentProcessorNumber() -> u32 {
        Thread::current().processor() as u32
    }

    /// Source: Win32: TlsAlloc
    [PASSIVE_ONLY] fn TlsAlloc() -> u32 {
        system_call(|process| allocate_slot(process).unwrap_or_else(|| {
            fails(ERROR_NO_MORE_ITEMS);
            NO_SLOT
        }))
    }

    /// Checks: a slot that was allocated
    /// Source: Win32: TlsFree
    [PASSIVE_ONLY] fn TlsFree(slot: u32) -> u32 {
        system_call(|process| if free_slot(process, slot) { 1 } else { fails(dos_error::ERROR_INVALID_PARAMETER) })
    }

    /// The value of the calling thread; the last error is 0 afterwards.
    /// Source: Win32: TlsGetValue
    [PASSIVE_ONLY] fn TlsGetValue(slot: u32) -> usize {
        let value = call::current().and_then(|user_thread| user_thread.storage.slot(slot as usize));
        call::set_last_error(if value.is_some() { 0 } else { dos_error::ERROR_INVALID_PARAMETER });
        value.unwrap_or(0)
    }

    /// Source: Win32: TlsSetValue
    [PASSIVE_ONLY] fn TlsSetValue(slot: u32, value: usize) -> u32 {
        let set = call::current().is_some_and(|user_thread| user_thread.storage.set_slot(slot as usize, value));
        if set { 1 } else { fails(dos_error::ERROR_INVALID_PARAMETER) }
    }

    /// As TlsAlloc; the callback is not called.
    /// Source: Win32: FlsAlloc
    [PASSIVE_ONLY] fn FlsAlloc(_callback: usize) -> u32 {
        system_call(|process| allocate_slot(process).unwrap_or(NO_SLOT))
    }

    /// Source: Win32: FlsFree
    [PASSIVE_ONLY] fn FlsFree(slot: u32) -> u32 {
        system_call(|process| u32::from(free_slot(process, slot)))
    }

    /// Source: Win32: FlsGetValue
    [PASSIVE_ONLY] fn FlsGetValue(slot: u32) -> usize {
        call::current().and_then(|user_thread| user_thread.storage.slot(slot as usize)).unwrap_or(0)
    }

    /// Source: Win32: FlsSetValue
    [PASSIVE_ONLY] fn FlsSetValue(slot: u32, value: usize) -> u32 {
        u32::from(call::current().is_some_and(|user_thread| user_thread.storage.set_slot(slot as usize, value)))
    }
}
