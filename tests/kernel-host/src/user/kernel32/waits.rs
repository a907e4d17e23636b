//! Events, mutexes, semaphores, and waits.

use std::ffi::c_void;
use std::sync::Arc;

use super::{boolean, fails};
use crate::dispatcher::{self, Event, Time};
use crate::status::{self, NtStatus};
use crate::user::call::{set_last_error, system_call};
use crate::user::handles::Object;
use crate::user::process::ProcessState;
use crate::user::user_mutex::UserMutex;
use crate::user::{dos_error, event};

const WAIT_FAILED: u32 = u32::MAX;
const ERROR_NOT_OWNER: u32 = 288;
const ERROR_TOO_MANY_POSTS: u32 = 298;

/// MAXIMUM_WAIT_OBJECTS.
const MOST_OBJECTS: u32 = 64;

/// Waits for an object that a handle stands for.
pub(in crate::user) fn wait_for(process: &ProcessState, object: &Object, deadline: Option<Time>) -> NtStatus {
    if let Object::Mutex(mutex) = object
        && mutex.take_again()
    {
        return status::STATUS_SUCCESS;
    }
    let Some(signal) = object.signal() else { return status::STATUS_OBJECT_TYPE_MISMATCH };
    let answer = event::wait(process, signal, deadline);
    if let Object::Mutex(mutex) = object
        && answer == status::STATUS_SUCCESS
    {
        mutex.taken();
    }
    answer
}

/// WAIT_OBJECT_0 and more, WAIT_TIMEOUT, or WAIT_FAILED with an error.
fn result_of(waited: Result<NtStatus, NtStatus>) -> u32 {
    match waited {
        Ok(status::STATUS_TIMEOUT) => dos_error::WAIT_TIMEOUT,
        Ok(answer) if answer >= 0 => answer as u32,
        Ok(refusal) | Err(refusal) => {
            set_last_error(dos_error::of_status(refusal));
            WAIT_FAILED
        }
    }
}

/// All of them, one after the other: what was signalled is taken even if another one is not in time.
fn wait_for_all(process: &ProcessState, objects: &[Object], deadline: Option<Time>) -> NtStatus {
    for object in objects {
        match wait_for(process, object, deadline) {
            status::STATUS_SUCCESS => {}
            other => return other,
        }
    }
    status::STATUS_SUCCESS
}

fn wait_for_any(process: &ProcessState, objects: &[Object], deadline: Option<Time>) -> NtStatus {
    let mine = |object: &Object| matches!(object, Object::Mutex(mutex) if mutex.take_again());
    if let Some(index) = objects.iter().position(mine) {
        return index as NtStatus;
    }
    let signals: Option<Vec<_>> = objects.iter().map(Object::signal).collect();
    let Some(signals) = signals else { return status::STATUS_OBJECT_TYPE_MISMATCH };
    let answer = event::wait_for_any(process, &signals, deadline);
    if let Some(Object::Mutex(mutex)) = usize::try_from(answer).ok().and_then(|index| objects.get(index)) {
        mutex.taken();
    }
    answer
}

fn objects_of(process: &ProcessState, count: u32, handles: *const usize) -> Result<Vec<Object>, NtStatus> {
    if count == 0 || count > MOST_OBJECTS {
        return Err(status::STATUS_INVALID_PARAMETER);
    }
    // SAFETY: the caller's handles.
    (0..count as usize).map(|index| process.handles.find(unsafe { handles.add(index).read() })).collect()
}

/// A handle of a new object; objects have no names.
fn made(process: &ProcessState, object: Object, name: *const u16) -> usize {
    let handle = if name.is_null() { process.handles.open(object) } else { None };
    handle.unwrap_or_else(|| {
        set_last_error(dos_error::of_status(status::STATUS_NOT_SUPPORTED));
        0
    })
}

crate::exports! {
    module "kernel32.dll";

    /// Makes an event without a name.
    /// Source: Win32: CreateEventW
    [PASSIVE_ONLY] fn CreateEventW(_security: *const c_void, manual_reset: u32, initial: u32, name: *const u16) -> usize {
        system_call(|process| {
            let event = if manual_reset == 0 { Event::synchronization() } else { Event::notification() };
            if initial != 0 {
                event.set();
            }
            made(process, Object::Event(Arc::new(event)), name)
        })
    }

    /// Makes a mutex without a name. One whose owner has ended is not abandoned but held.
    /// Source: Win32: CreateMutexW
    [PASSIVE_ONLY] fn CreateMutexW(_security: *const c_void, owned: u32, name: *const u16) -> usize {
        system_call(|process| made(process, Object::Mutex(Arc::new(UserMutex::new(owned != 0))), name))
    }

    /// Makes a semaphore without a name.
    /// Source: Win32: CreateSemaphoreW
    [PASSIVE_ONLY] fn CreateSemaphoreW(_security: *const c_void, initial: i32, most: i32, name: *const u16) -> usize {
        system_call(|process| {
            if initial < 0 || most <= 0 || initial > most {
                return fails(dos_error::ERROR_INVALID_PARAMETER) as usize;
            }
            made(process, Object::Semaphore(Arc::new(Event::counting(initial)), most), name)
        })
    }

    /// Signals an event.
    /// Checks: a handle of the process
    /// Source: Win32: SetEvent
    [PASSIVE_ONLY] fn SetEvent(handle: usize) -> u32 {
        system_call(|process| boolean(process.handles.event(handle).map(|event| event.set())))
    }

    /// Resets an event.
    /// Checks: a handle of the process
    /// Source: Win32: ResetEvent
    [PASSIVE_ONLY] fn ResetEvent(handle: usize) -> u32 {
        system_call(|process| boolean(process.handles.event(handle).map(|event| event.reset())))
    }

    /// Gives a mutex back.
    /// Checks: a handle of the process; the owner
    /// Source: Win32: ReleaseMutex
    [PASSIVE_ONLY] fn ReleaseMutex(handle: usize) -> u32 {
        system_call(|process| match process.handles.find(handle) {
            Ok(Object::Mutex(mutex)) if mutex.release() => 1,
            Ok(Object::Mutex(_)) => fails(ERROR_NOT_OWNER),
            Ok(_) => boolean(Err(status::STATUS_OBJECT_TYPE_MISMATCH)),
            Err(refusal) => boolean(Err(refusal)),
        })
    }

    /// Adds to a semaphore's count.
    /// Checks: a handle of the process; the limit
    /// Source: Win32: ReleaseSemaphore
    [PASSIVE_ONLY] fn ReleaseSemaphore(handle: usize, count: i32, before: *mut i32) -> u32 {
        system_call(|process| match process.handles.find(handle) {
            Ok(Object::Semaphore(semaphore, most)) if count > 0 => {
                let Some(previous) = semaphore.add(count, most) else { return fails(ERROR_TOO_MANY_POSTS) };
                if !before.is_null() {
                    // SAFETY: the caller's out parameter.
                    unsafe { before.write(previous) };
                }
                1
            }
            Ok(Object::Semaphore(..)) => fails(dos_error::ERROR_INVALID_PARAMETER),
            Ok(_) => boolean(Err(status::STATUS_OBJECT_TYPE_MISMATCH)),
            Err(refusal) => boolean(Err(refusal)),
        })
    }

    /// Waits for an event, a mutex, a semaphore, the end of a thread, or the event of a file, in virtual time.
    /// Checks: a handle of the process
    /// Source: Win32: WaitForSingleObject
    [PASSIVE_ONLY] fn WaitForSingleObject(handle: usize, milliseconds: u32) -> u32 {
        system_call(|process| {
            let deadline = event::deadline_of(milliseconds);
            result_of(process.handles.find(handle).map(|object| wait_for(process, &object, deadline)))
        })
    }

    /// Waits for one of several objects, or for all, one after the other.
    /// Checks: handles of the process, 64 at most
    /// Source: Win32: WaitForMultipleObjects
    [PASSIVE_ONLY] fn WaitForMultipleObjects(count: u32, handles: *const usize, all: u32, milliseconds: u32) -> u32 {
        system_call(|process| {
            let deadline = event::deadline_of(milliseconds);
            let wait = if all == 0 { wait_for_any } else { wait_for_all };
            result_of(objects_of(process, count, handles).map(|objects| wait(process, &objects, deadline)))
        })
    }

    /// Sleeps in virtual time; 0 lets others run.
    /// Source: Win32: Sleep
    [PASSIVE_ONLY] fn Sleep(milliseconds: u32) {
        system_call(|process| {
            if milliseconds == 0 {
                crate::schedule::let_others();
                return;
            }
            event::wait(process, &Event::notification(), event::deadline_of(milliseconds));
        });
    }

    /// Lets others run.
    /// Source: Win32: SwitchToThread
    [PASSIVE_ONLY] fn SwitchToThread() -> u32 {
        system_call(|_| {
            crate::schedule::let_others();
            1
        })
    }

    /// Milliseconds of virtual time since the kernel was booted.
    /// Source: Win32: GetTickCount64
    [PASSIVE_ONLY] fn GetTickCount64() -> u64 {
        dispatcher::now() / (dispatcher::UNITS_PER_SECOND / 1000)
    }
}
