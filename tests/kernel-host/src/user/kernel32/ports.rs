//! Completion ports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{boolean, fails};
use crate::status::{self, NtStatus};
use crate::user::call::{self, system_call};
use crate::user::completion_port::{CompletionPacket, CompletionPort, PortWait};
use crate::user::handles::Object;
use crate::user::process::ProcessState;
use crate::user::{dos_error, event};

const INVALID_HANDLE_VALUE: usize = usize::MAX;

fn create(process: &ProcessState, file: usize, existing: usize, key: usize) -> Result<usize, NtStatus> {
    let file = if file == INVALID_HANDLE_VALUE { None } else { Some(process.handles.file(file)?) };
    if existing == 0 {
        let port = Arc::new(CompletionPort::new());
        if let Some(file) = file {
            file.associate(Arc::clone(&port), key)?;
        }
        return process.handles.open(Object::Port(port)).ok_or(status::STATUS_INSUFFICIENT_RESOURCES);
    }
    let port = process.handles.port(existing)?;
    file.ok_or(status::STATUS_INVALID_PARAMETER)?.associate(port, key)?;
    Ok(existing)
}

crate::exports! {
    module "kernel32.dll";

    /// Makes a port, gives a file to one, or both. Requests that are sent from then on are no thread's.
    /// Checks: handles of the process; a file for overlapped use without a port
    /// Source: Win32: CreateIoCompletionPort
    [PASSIVE_ONLY] fn CreateIoCompletionPort(file: usize, existing: usize, key: usize, _threads: u32) -> usize {
        system_call(|process| match create(process, file, existing, key) {
            Ok(handle) => handle,
            Err(refusal) => fails(dos_error::of_status(refusal)) as usize,
        })
    }

    /// Takes the oldest packet, waited for in virtual time.
    /// Source: Win32: GetQueuedCompletionStatus
    [PASSIVE_ONLY] fn GetQueuedCompletionStatus(
        port: usize, bytes: *mut u32, key: *mut usize, overlapped: *mut usize, milliseconds: u32,
    ) -> u32 {
        system_call(|process| {
            // SAFETY: the caller's out parameter.
            unsafe { overlapped.write(0) };
            let port = match process.handles.port(port) {
                Ok(port) => port,
                Err(refusal) => return boolean(Err(refusal)),
            };
            call::wait_at_port(process, Arc::as_ptr(&port).addr());
            match port.take(process, event::deadline_of(milliseconds)) {
                PortWait::Packet(packet) => {
                    // SAFETY: the caller's out parameters.
                    unsafe {
                        bytes.write(packet.information as u32);
                        key.write(packet.key);
                        overlapped.write(packet.overlapped);
                    }
                    boolean(if status::is_success(packet.status) { Ok(()) } else { Err(packet.status) })
                }
                PortWait::TimedOut => {
                    process.waits_in_vain.fetch_add(u64::from(milliseconds != 0), Ordering::Relaxed);
                    fails(dos_error::WAIT_TIMEOUT)
                }
                PortWait::Abandoned => fails(dos_error::ERROR_ABANDONED_WAIT_0),
            }
        })
    }

    /// Adds a packet of the program's own.
    /// Source: Win32: PostQueuedCompletionStatus
    [PASSIVE_ONLY] fn PostQueuedCompletionStatus(port: usize, bytes: u32, key: usize, overlapped: usize) -> u32 {
        system_call(|process| {
            let packet = CompletionPacket { key, overlapped, status: status::STATUS_SUCCESS, information: bytes as usize };
            boolean(process.handles.port(port).map(|port| port.post(packet)))
        })
    }
}
