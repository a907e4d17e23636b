//! Open files of devices and what a program does with them: `CreateFile`, `DeviceIoControl` in its three methods, `CancelIo` and
//! `CloseHandle`, with the I/O manager's checks in front of the driver.
//!
//! Closing sends CLEANUP, expects the driver to complete every pended packet of the file, and only then sends CLOSE.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cancel;
use super::control_code::{ControlCode, Method};
use super::device::{self, DO_DEVICE_INITIALIZING, Device};
use super::irp::{self, ActiveIrp, IoResult, IrpRequest, Major, UNWRITTEN};
use super::object::{FILE_OBJECT, IO_TYPE_FILE};
use super::security::{ALWAYS_ASKED_FOR, FILE_READ_DATA, FILE_WRITE_DATA, OpenerScope, map_generic};
use super::token::Caller;
use crate::bugcheck::{BugCheck, bugcheck};
use crate::distortion;
use crate::kernel::Kernel;
use crate::memory::mdl;
use crate::memory::user_buffer::{LockedMdl, UserBuffer};
use crate::ndis::loan::{Loan, LoanedBytes};
use crate::nt::UNICODE_STRING;
use crate::status::{self, NtStatus};

/// How long after CLEANUP a driver may keep packets of the file, in kernel time.
const CLEANUP_LIMIT: Duration = Duration::from_secs(10);

/// A process number for callers that do not care which one they are.
const DEFAULT_PROCESS: u32 = 4712;

/// The opener of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opener {
    pub caller: Caller,
    pub process: u32,
}

impl Default for Opener {
    fn default() -> Self {
        Self { caller: Caller::Administrator, process: DEFAULT_PROCESS }
    }
}

/// An open handle of a device.
pub struct File {
    inner: Arc<OpenFile>,
}

struct OpenFile {
    device: Arc<Device>,
    object: Loan<FILE_OBJECT>,
    _name: LoanedBytes,
    granted: u32,
    opener: Opener,
    closed: AtomicBool,
}

// SAFETY: the file object is memory shared with the image by design; the host only passes its address around.
unsafe impl Sync for OpenFile {}

/// Opens a device by its Win32 path.
pub fn open(path: &str, access: u32, opener: Opener) -> Result<File, NtStatus> {
    let (device, remaining) = device::find(path).ok_or(status::STATUS_OBJECT_NAME_NOT_FOUND)?;
    if !device.grants(opener.caller, access | ALWAYS_ASKED_FOR) {
        return Err(status::STATUS_ACCESS_DENIED);
    }
    device.check_flags();
    if device.flags() & DO_DEVICE_INITIALIZING != 0 {
        return Err(status::STATUS_NO_SUCH_DEVICE);
    }
    device.file_opened()?;
    let units: Vec<u8> = remaining.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let name = LoanedBytes::copy_of(&units);
    let granted = map_generic(access);
    let length = units.len() as u16;
    let object = Loan::new(FILE_OBJECT {
        Type: IO_TYPE_FILE,
        Size: size_of::<FILE_OBJECT>() as i16,
        DeviceObject: device.object(),
        Vpb: std::ptr::null_mut(),
        FsContext: std::ptr::null_mut(),
        FsContext2: std::ptr::null_mut(),
        SectionObjectPointer: std::ptr::null_mut(),
        PrivateCacheMap: std::ptr::null_mut(),
        FinalStatus: 0,
        RelatedFileObject: std::ptr::null_mut(),
        LockOperation: 0,
        DeletePending: 0,
        ReadAccess: u8::from(granted & FILE_READ_DATA != 0),
        WriteAccess: u8::from(granted & FILE_WRITE_DATA != 0),
        DeleteAccess: 0,
        SharedRead: 0,
        SharedWrite: 0,
        SharedDelete: 0,
        Flags: 0,
        FileName: UNICODE_STRING { Length: length, MaximumLength: length, Buffer: name.as_pointer().cast() },
        Rest: [0; 14],
    });
    let inner = Arc::new(OpenFile { device, object, _name: name, granted, opener, closed: AtomicBool::new(false) });
    let kernel_mode = opener.caller == Caller::Kernel;
    let create = IrpRequest::plain(Major::Create, opener.process, kernel_mode);
    let sent = {
        let _scope = OpenerScope::enter(opener.caller);
        irp::send(&inner.device, inner.object.as_pointer(), create)
    };
    let answer = sent.wait(None).map_or(status::STATUS_UNSUCCESSFUL, |result| result.status);
    if !status::is_success(answer) {
        // A file that could not be opened is neither cleaned up nor closed.
        inner.closed.store(true, Ordering::SeqCst);
        inner.device.file_closed();
        return Err(answer);
    }
    Ok(File { inner })
}

impl Kernel {
    /// Opens a device by its Win32 path (`\\.\Name`), as an elevated administrator's program.
    pub fn open_device(&self, path: &str, access: u32) -> Result<File, NtStatus> {
        open(path, access, Opener::default())
    }

    /// As [`Self::open_device`], for another opener.
    pub fn open_device_as(&self, path: &str, access: u32, opener: Opener) -> Result<File, NtStatus> {
        open(path, access, opener)
    }
}

impl File {
    /// `DeviceIoControl` with a code whose method is BUFFERED: waits for the end, copies what the driver returned.
    pub fn ioctl(&self, code: u32, input: &[u8], output: &mut [u8]) -> IoResult {
        match self.start_ioctl(code, input, output.len()) {
            Ok(pending) => pending.wait_into(output),
            Err(answer) => IoResult { status: answer, information: 0 },
        }
    }

    /// As [`Self::ioctl`], without waiting.
    pub fn start_ioctl(&self, code: u32, input: &[u8], output_length: usize) -> Result<PendingIrp, NtStatus> {
        let control = self.check(code)?;
        let request = match control.method() {
            Method::Buffered => self.buffered(control, input, output_length),
            // A direct code called with an empty second buffer, or one without any user memory to pass.
            Method::InDirect | Method::OutDirect if output_length == 0 => self.direct(control, input, None),
            Method::InDirect | Method::OutDirect | Method::Neither => return Err(status::STATUS_INVALID_PARAMETER),
        };
        Ok(self.send(request))
    }

    /// As [`Self::start_ioctl`], for a request that is cancelled before the driver has it, as by `CancelIoEx` of another thread.
    pub fn start_ioctl_cancelled(&self, code: u32, input: &[u8], output_length: usize) -> Result<PendingIrp, NtStatus> {
        let mut request = self.buffered(self.check(code)?, input, output_length);
        request.cancelled = true;
        Ok(self.send(request))
    }

    /// `DeviceIoControl` with a code whose method is IN_DIRECT or OUT_DIRECT: the second buffer's pages are locked and
    /// described by an MDL, which is unmapped and unlocked when the driver completes.
    pub fn ioctl_direct(&self, code: u32, input: &[u8], buffer: &mut UserBuffer) -> IoResult {
        match self.start_ioctl_direct(code, input, buffer) {
            Ok(pending) => {
                let result = pending.wait();
                if distortion::is_watched() && !buffer.is_empty() {
                    distortion::bytes(&distortion::of_reply(code), buffer.as_mut_slice());
                }
                result
            }
            Err(answer) => IoResult { status: answer, information: 0 },
        }
    }

    /// As [`Self::ioctl_direct`], without waiting; the buffer has to outlive the request.
    pub fn start_ioctl_direct(&self, code: u32, input: &[u8], buffer: &UserBuffer) -> Result<PendingIrp, NtStatus> {
        let control = self.check(code)?;
        if !matches!(control.method(), Method::InDirect | Method::OutDirect) {
            return Err(status::STATUS_INVALID_PARAMETER);
        }
        let request = self.direct(control, input, Some(buffer).filter(|buffer| !buffer.is_empty()));
        Ok(self.send(request))
    }

    /// Cancels every request of this file that is still pending (`CancelIoEx`); returns how many there were.
    pub fn cancel_all(&self) -> usize {
        let pending = irp::outstanding_of(self.inner.address());
        pending.iter().filter(|packet| cancel::cancel(packet)).count()
    }

    /// How many requests of this file are pending.
    #[must_use]
    pub fn pending(&self) -> usize {
        irp::outstanding_of(self.inner.address()).len()
    }

    /// The address of the file object, as a driver sees it.
    #[must_use]
    pub fn object(&self) -> usize {
        self.inner.address()
    }

    /// `CloseHandle`: CLEANUP, the end of every pended request, CLOSE.
    pub fn close(self) {
        self.inner.close();
    }

    /// As [`Self::close`], for a file that others still have a reference to.
    pub fn close_now(&self) {
        self.inner.close();
    }

    /// The code, if the file was opened with the rights that it needs.
    pub(crate) fn check(&self, code: u32) -> Result<ControlCode, NtStatus> {
        let control = ControlCode(code);
        if control.required_access() & !self.inner.granted != 0 && self.inner.opener.caller != Caller::Kernel {
            return Err(status::STATUS_ACCESS_DENIED);
        }
        Ok(control)
    }

    /// A control request without its buffers.
    pub(crate) fn request(&self, control: ControlCode, input: &[u8], output_length: usize) -> IrpRequest {
        let opener = self.inner.opener;
        let mut request = IrpRequest::plain(Major::DeviceControl, opener.process, opener.caller == Caller::Kernel);
        request.parameters = [output_length as u64, input.len() as u64, u64::from(control.0), 0];
        request.input_length = input.len();
        request.output_length = output_length;
        request
    }

    /// A control request whose two buffers are one buffer of the system's.
    pub(crate) fn buffered(&self, control: ControlCode, input: &[u8], output_length: usize) -> IrpRequest {
        let mut request = self.request(control, input, output_length);
        request.buffered_output = true;
        request.system_buffer = system_buffer(&seen_input(control, input), output_length);
        request
    }

    fn direct(&self, control: ControlCode, input: &[u8], buffer: Option<&UserBuffer>) -> IrpRequest {
        let mut request = self.request(control, input, buffer.map_or(0, UserBuffer::len));
        request.system_buffer = system_buffer(&seen_input(control, input), 0);
        let access = if control.method() == Method::InDirect { mdl::Access::Read } else { mdl::Access::Write };
        request.mdl = buffer.map(|buffer| buffer.lock(access));
        if access == mdl::Access::Read {
            request.mdl.iter().for_each(LockedMdl::lend_for_reading);
        }
        request
    }

    /// Sends a control request.
    pub(crate) fn send(&self, request: IrpRequest) -> PendingIrp {
        let code = request.parameters[2] as u32;
        let irp = irp::send(&self.inner.device, self.inner.object.as_pointer(), request);
        PendingIrp { irp, code, _file: Arc::clone(&self.inner) }
    }
}

/// What the driver sees of an input.
fn seen_input(control: ControlCode, input: &[u8]) -> Cow<'_, [u8]> {
    if distortion::is_watched() { distortion::copied(&distortion::of_request(control.0), input) } else { input.into() }
}

/// The buffer that both directions share: input first, the rest marked as unwritten.
pub(crate) fn system_buffer(input: &[u8], output_length: usize) -> Option<LoanedBytes> {
    let length = input.len().max(output_length);
    if length == 0 {
        return None;
    }
    let mut bytes: Vec<u8> = UNWRITTEN.iter().copied().cycle().take(length).collect();
    for (to, from) in bytes.iter_mut().zip(input) {
        *to = *from;
    }
    Some(LoanedBytes::copy_of(&bytes))
}

impl OpenFile {
    fn address(&self) -> usize {
        self.object.as_pointer() as usize
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.send_and_wait(Major::Cleanup);
        for packet in irp::outstanding_of(self.address()) {
            if packet.wait(Some(CLEANUP_LIMIT)).is_none() {
                let rule = "IRP_MJ_CLEANUP is over, and a pended packet of the file is still not completed";
                let parameters = [Major::Cleanup as u64, packet.address() as u64, 0, 0];
                bugcheck(BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION, parameters, rule);
            }
        }
        self.send_and_wait(Major::Close);
        self.device.file_closed();
    }

    fn send_and_wait(&self, major: Major) {
        let kernel_mode = self.opener.caller == Caller::Kernel;
        let request = IrpRequest::plain(major, self.opener.process, kernel_mode);
        let packet = irp::send(&self.device, self.object.as_pointer(), request);
        let has_routine = self.device.routine(major as usize) != 0;
        let failed = packet.wait(None).filter(|result| has_routine && !status::is_success(result.status));
        if let Some(IoResult { status, .. }) = failed {
            let rule = format!("{} failed with {:#x}, and cannot fail", major.name(), status as u32);
            let parameters = [major as u64, packet.address() as u64, status as u64, 0];
            bugcheck(BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION, parameters, rule);
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The system closes a program's open handles when it ends.
        if !std::thread::panicking() {
            self.inner.close();
        }
    }
}

/// A request that a driver may still have.
pub struct PendingIrp {
    irp: Arc<ActiveIrp>,
    code: u32,
    _file: Arc<OpenFile>,
}

impl PendingIrp {
    /// Whether the driver has completed the request.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.irp.is_completed()
    }

    /// What the dispatch routine returned: STATUS_PENDING, even if the driver has completed the request since, or its status.
    pub(crate) fn returned(&self) -> NtStatus {
        if self.irp.is_marked_pending() == Some(true) { status::STATUS_PENDING } else { self.wait().status }
    }

    /// Cancels the request (`CancelIoEx`). `false` when it is completed already.
    pub fn cancel(&self) -> bool {
        cancel::cancel(&self.irp)
    }

    /// Waits for the end.
    #[must_use]
    pub fn wait(&self) -> IoResult {
        self.irp.wait(None).unwrap_or(IoResult { status: status::STATUS_UNSUCCESSFUL, information: 0 })
    }

    /// Waits for the end, at most so long in kernel time.
    #[must_use]
    pub fn wait_for(&self, limit: Duration) -> Option<IoResult> {
        self.irp.wait(Some(limit))
    }

    /// Waits for the end and copies buffered output.
    pub fn wait_into(&self, output: &mut [u8]) -> IoResult {
        let result = self.wait();
        for (to, from) in output.iter_mut().zip(self.irp.output()) {
            *to = from;
        }
        if distortion::is_watched() {
            distortion::bytes(&distortion::of_reply(self.code), output);
        }
        result
    }
}
