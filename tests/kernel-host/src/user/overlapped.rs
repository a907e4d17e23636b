//! A control request of a program: its buffers are taken as the I/O manager takes them, and its end is told as the program
//! has asked for: the status block, an event, a packet in the port of the file.
//!
//! A request that fails in the dispatch routine without pending is told by the call's status alone. One that succeeds there sets
//! the event and queues its packet, unless the file's modes say otherwise; one that pends always does (WDM: IoCompleteRequest;
//! Win32: SetFileCompletionNotificationModes).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::completion_port::{CompletionPacket, CompletionPort};
use super::file::{FileObject, SKIP_COMPLETION_PORT_ON_SUCCESS, SKIP_SET_EVENT_ON_HANDLE};
use super::process::ProcessState;
use super::{event, memory};
use crate::dispatcher::Event;
use crate::io::control_code::Method;
use crate::io::file::system_buffer;
use crate::io::irp::{CompletedRequest, IrpRequest, UserRequest};
use crate::memory::mdl::Access;
use crate::status::{self, NtStatus};

/// Bytes of an IO_STATUS_BLOCK, and where its second half is.
const STATUS_BLOCK: usize = 16;
const INFORMATION: usize = 8;

/// The arguments of `NtDeviceIoControlFile`.
#[derive(Clone, Copy)]
pub(super) struct ControlCall {
    pub file: usize,
    pub event: usize,
    pub apc_routine: usize,
    pub apc_context: usize,
    pub status_block: usize,
    pub code: u32,
    pub input: usize,
    pub input_length: usize,
    pub output: usize,
    pub output_length: usize,
}

/// `NT_ERROR`.
pub(super) fn is_error(answer: NtStatus) -> bool {
    answer as u32 >> 30 == 3
}

/// Runs or begins a control request.
///
/// STATUS_INVALID_HANDLE, STATUS_OBJECT_TYPE_MISMATCH: the file or the event is none of this process. STATUS_ACCESS_VIOLATION: the
/// status block or a buffer is not the process's, or a direct buffer may not be touched so. STATUS_ACCESS_DENIED: the code needs
/// rights that the file was not opened with. STATUS_INVALID_PARAMETER: METHOD_NEITHER. STATUS_NOT_IMPLEMENTED: an APC routine.
/// Otherwise what the driver answers; STATUS_PENDING for one that it has marked so.
pub(super) fn control(process: &Arc<ProcessState>, call: &ControlCall) -> NtStatus {
    process.control_requests.fetch_add(1, Ordering::Relaxed);
    begin(process, call).unwrap_or_else(|refusal| refusal)
}

fn begin(process: &Arc<ProcessState>, call: &ControlCall) -> Result<NtStatus, NtStatus> {
    let file = process.handles.file(call.file)?;
    let event = if call.event & !3 == 0 { None } else { Some(process.handles.event(call.event)?) };
    if call.apc_routine != 0 {
        return Err(status::STATUS_NOT_IMPLEMENTED);
    }
    if !process.memory.permits(call.status_block, STATUS_BLOCK, Access::Write) {
        return Err(status::STATUS_ACCESS_VIOLATION);
    }
    let port = file.port();
    let mut request = request(process, &file, call)?;
    let outlives_thread = port.is_some();
    let completion = RequestCompletion {
        process: Arc::clone(process),
        file: Arc::clone(&file),
        event: event.clone(),
        port: port.filter(|_| call.apc_context != 0),
        apc_context: call.apc_context,
        status_block: call.status_block,
        output: call.output,
    };
    let on_completion = Box::new(move |ended: &CompletedRequest| completion.tell(ended));
    request.user = Some(UserRequest { status_block: call.status_block, outlives_thread, on_completion });
    if let Some(event) = &event {
        event.reset();
    }
    file.event.reset();
    let sent = file.device_file.send(request);
    let answer = sent.returned();
    if answer != status::STATUS_PENDING || file.overlapped {
        return Ok(answer);
    }
    // A file for synchronous use: the call is over when the request is.
    event::wait(process, event.as_deref().unwrap_or(&file.event), None);
    if process.is_dead() {
        return Ok(status::STATUS_CANCELLED);
    }
    Ok(sent.wait().status)
}

/// The request with its buffers.
fn request(process: &ProcessState, file: &FileObject, call: &ControlCall) -> Result<IrpRequest, NtStatus> {
    let control = file.device_file.check(call.code)?;
    let memory = &process.memory;
    let length_of = |address: usize, length: usize| if address == 0 { 0 } else { length };
    let input =
        memory.read(call.input, length_of(call.input, call.input_length)).ok_or(status::STATUS_ACCESS_VIOLATION)?;
    let access = match control.method() {
        Method::Buffered => {
            let length = length_of(call.output, call.output_length);
            if !memory.permits(call.output, length, Access::Write) {
                return Err(status::STATUS_ACCESS_VIOLATION);
            }
            return Ok(file.device_file.buffered(control, &input, length));
        }
        Method::InDirect => Access::Read,
        Method::OutDirect => Access::Write,
        Method::Neither => return Err(status::STATUS_INVALID_PARAMETER),
    };
    let mut request = file.device_file.request(control, &input, call.output_length);
    request.system_buffer = system_buffer(&input, 0);
    if call.output_length != 0 {
        let locked = memory.lock_pages(call.output, call.output_length, access)?;
        if access == Access::Read {
            locked.lend_for_reading();
        }
        request.mdl = Some(locked);
    }
    Ok(request)
}

/// Whom the end of a request is told.
struct RequestCompletion {
    process: Arc<ProcessState>,
    file: Arc<FileObject>,
    event: Option<Arc<Event>>,
    port: Option<(Arc<CompletionPort>, usize)>,
    apc_context: usize,
    status_block: usize,
    output: usize,
}

impl RequestCompletion {
    fn tell(self, ended: &CompletedRequest) {
        // The request's pages were unlocked just now.
        memory::release_retired();
        let answer = ended.result.status;
        if is_error(answer) && !ended.marked_pending {
            return;
        }
        // Memory that the program has given back meanwhile is left alone. The status is written last: programs read it first.
        let memory = &self.process.memory;
        memory.write(self.output, &ended.output);
        memory.write(self.status_block + INFORMATION, &ended.result.information.to_le_bytes());
        memory.write(self.status_block, &answer.to_le_bytes());
        match &self.event {
            Some(event) => event.set(),
            None if self.file.has_mode(SKIP_SET_EVENT_ON_HANDLE) => {}
            None => self.file.event.set(),
        }
        let skips = self.file.has_mode(SKIP_COMPLETION_PORT_ON_SUCCESS) && !ended.marked_pending;
        if let Some((port, key)) = self.port.filter(|_| !(skips && status::is_success(answer))) {
            let information = ended.result.information;
            port.post(CompletionPacket { key, overlapped: self.apc_context, status: answer, information });
        }
    }
}
