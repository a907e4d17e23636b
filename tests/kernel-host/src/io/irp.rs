//! I/O request packets: building one, sending it to a device, its completion, and the I/O manager's rules about all of that.
//!
//! A packet lies in lent memory and is taken back as soon as it is completed, so that a driver that touches it after that
//! faults. Rules: completed exactly once; never with STATUS_PENDING or a cancel routine; marked pending before others can find
//! it; the dispatch routine returns STATUS_PENDING if and only if it marked the packet pending, otherwise the status it
//! completed it with; `Information` stays within the output (WDM: IoCompleteRequest, IoMarkIrpPending, IRP_MJ_DEVICE_CONTROL).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::Device;
use super::object::{FILE_OBJECT, IO_TYPE_IRP};
use crate::bugcheck::{BugCheck, bugcheck};
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::dispatcher::Event;
use crate::host_lock::HostLock;
use crate::irql;
use crate::memory::user_buffer::LockedMdl;
use crate::ndis::loan::{Loan, LoanedBytes};
use crate::nt::{IO_STACK_LOCATION, IO_STATUS_BLOCK, IO_STATUS_BLOCK_UNION, IRP, LIST_ENTRY};
use crate::status::{self, NtStatus};
use crate::thread::Thread;

/// Major function codes (wdm.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Major {
    Create = 0x00,
    Close = 0x02,
    Read = 0x03,
    Write = 0x04,
    DeviceControl = 0x0E,
    InternalDeviceControl = 0x0F,
    Cleanup = 0x12,
}

impl Major {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "IRP_MJ_CREATE",
            Self::Close => "IRP_MJ_CLOSE",
            Self::Read => "IRP_MJ_READ",
            Self::Write => "IRP_MJ_WRITE",
            Self::DeviceControl => "IRP_MJ_DEVICE_CONTROL",
            Self::InternalDeviceControl => "IRP_MJ_INTERNAL_DEVICE_CONTROL",
            Self::Cleanup => "IRP_MJ_CLEANUP",
        }
    }
}

/// `SL_PENDING_RETURNED` in `IO_STACK_LOCATION.Control`.
const PENDING_RETURNED: u8 = 0x01;

/// The word that unwritten parts of an output buffer hold, so that a driver that returns them is seen.
pub const UNWRITTEN: [u8; 8] = 0xBAAD_F00D_0BAD_C0DE_u64.to_le_bytes();

/// A packet and its stack location, adjacent as in Windows.
#[repr(C)]
struct Packet {
    irp: IRP,
    stack: IO_STACK_LOCATION,
}

/// What a packet carries.
pub struct IrpRequest {
    pub major: Major,
    /// `Parameters` of the stack location.
    pub parameters: [u64; 4],
    /// The system buffer with how much of it is input, for buffered transfers.
    pub system_buffer: Option<LoanedBytes>,
    pub input_length: usize,
    /// The most that `Information` may be.
    pub output_length: usize,
    /// Whether the output is in the system buffer.
    pub buffered_output: bool,
    pub mdl: Option<LockedMdl>,
    /// `UserBuffer`, for METHOD_NEITHER.
    pub user_buffer: usize,
    pub kernel_mode: bool,
    pub process: u32,
    /// The packet is cancelled before the driver has it.
    pub cancelled: bool,
    /// What a process of user mode adds.
    pub user: Option<UserRequest>,
}

/// The sender's side of a packet of user mode.
pub struct UserRequest {
    /// `UserIosb`.
    pub status_block: usize,
    /// The end of the thread that sends the packet does not cancel it.
    pub outlives_thread: bool,
    /// Tells the program; runs at the driver's level with no lock of the host held.
    pub on_completion: OnCompletion,
}

/// The last step of a completion, after the packet and its buffers were taken back.
pub type OnCompletion = Box<dyn FnOnce(&CompletedRequest) + Send>;

/// A completed packet, for [`OnCompletion`].
pub struct CompletedRequest {
    pub result: IoResult,
    /// What the driver returned in the system buffer.
    pub output: Vec<u8>,
    /// The dispatch routine returns STATUS_PENDING.
    pub marked_pending: bool,
}

impl IrpRequest {
    /// A packet without buffers.
    #[must_use]
    pub fn plain(major: Major, process: u32, kernel_mode: bool) -> Self {
        Self {
            major,
            parameters: [0; 4],
            system_buffer: None,
            input_length: 0,
            output_length: 0,
            buffered_output: false,
            mdl: None,
            user_buffer: 0,
            kernel_mode,
            process,
            cancelled: false,
            user: None,
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoResult {
    pub status: NtStatus,
    pub information: usize,
}

#[derive(Clone)]
struct Completion {
    result: IoResult,
    output: Vec<u8>,
    marked_pending: bool,
}

/// A packet that a driver has, or had.
pub struct ActiveIrp {
    pub device: Arc<Device>,
    pub file: usize,
    pub process: u32,
    /// The thread that sent it.
    thread: u64,
    bound_to_thread: bool,
    /// Packets are numbered in the order in which they are sent.
    number: u64,
    pub(crate) user_iosb: usize,
    address: usize,
    major: Major,
    output_length: usize,
    buffered_output: bool,
    input_length: usize,
    parts: Mutex<Option<Parts>>,
    /// How the driver has completed it, from then on.
    completion: Mutex<Option<Completion>>,
    /// Everything of it is taken back, and the sender may know.
    over: AtomicBool,
    completed: Event,
}

/// What is freed at completion.
struct Parts {
    packet: Loan<Packet>,
    system_buffer: Option<LoanedBytes>,
    mdl: Option<LockedMdl>,
    on_completion: Option<OnCompletion>,
}

// SAFETY: the MDL is kernel memory of which any thread may dispose.
unsafe impl Send for Parts {}

/// The packets of this host.
struct Packets {
    /// Those that drivers have, by address.
    live: BTreeMap<usize, Arc<ActiveIrp>>,
    /// Those that are completed, and whose pages and buffers are being taken back.
    ending: Vec<Arc<ActiveIrp>>,
}

static PACKETS: HostLock<Packets> = HostLock::new(Packets { live: BTreeMap::new(), ending: Vec::new() });

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live packet at an address.
pub(super) fn active(irp: *mut IRP) -> Option<Arc<ActiveIrp>> {
    PACKETS.lock().live.get(&(irp as usize)).cloned()
}

/// Runs the closure while the packet cannot be taken back; `None` when it is completed.
pub(super) fn with_live<T>(irp: &ActiveIrp, body: impl FnOnce(*mut IRP) -> T) -> Option<T> {
    let packets = PACKETS.lock();
    packets.live.get(&irp.address)?;
    Some(body(irp.address()))
}

/// The packets that are not over and of which `is_it` holds, in the order in which they were sent.
fn outstanding(is_it: impl Fn(&ActiveIrp) -> bool) -> Vec<Arc<ActiveIrp>> {
    let packets = PACKETS.lock();
    let all = packets.live.values().chain(&packets.ending);
    let mut found: Vec<_> = all.filter(|irp| is_it(irp)).cloned().collect();
    drop(packets);
    found.sort_unstable_by_key(|irp| irp.number);
    found
}

/// The packets of a file that are not over.
pub(crate) fn outstanding_of(file: usize) -> Vec<Arc<ActiveIrp>> {
    outstanding(|irp| irp.file == file)
}

/// How long a driver may keep a cancelled packet of a thread that has ended, in kernel time. (Windows waits five minutes.)
const CANCEL_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

/// A thread that ends has its packets cancelled and waits for them (WDM: IoCancelIrp; the I/O manager at thread exit). Packets
/// of a file with a completion port are no thread's (Win32: ExitThread).
pub(crate) fn thread_ends(thread: u64) {
    cancel_and_wait(&outstanding(|irp| irp.bound_to_thread && irp.thread == thread));
}

/// As [`thread_ends`], for a thread of a process that goes on outside of it.
pub(crate) fn thread_leaves(thread: u64, process: u32) {
    cancel_and_wait(&outstanding(|irp| irp.bound_to_thread && irp.thread == thread && irp.process == process));
}

/// As [`thread_ends`], for all threads of a process.
pub(crate) fn process_ends(process: u32) {
    cancel_and_wait(&outstanding(|irp| irp.bound_to_thread && irp.process == process));
}

fn cancel_and_wait(own: &[Arc<ActiveIrp>]) {
    for irp in own {
        super::cancel::cancel(irp);
    }
    for irp in own {
        if irp.wait(Some(CANCEL_LIMIT)).is_none() {
            let name = irp.major.name();
            violation(irp, format!("{name}: its thread has ended and cancelled it, and it is still not completed"));
        }
    }
}

/// Sends a packet to a device and returns it, completed or pending.
pub fn send(device: &Arc<Device>, file: *mut FILE_OBJECT, request: IrpRequest) -> Arc<ActiveIrp> {
    let major = request.major;
    let may_be_raised = major == Major::DeviceControl && request.kernel_mode;
    let level = irql::current();
    assert!(
        level == irql::PASSIVE || may_be_raised,
        "{} at level {level:?}: programs call at PASSIVE_LEVEL",
        major.name()
    );
    let cancelled = request.cancelled;
    let irp = build(device, file, request);
    let routine = device.routine(major as usize);
    if routine == 0 {
        // NDIS and the I/O manager complete what the driver has no routine for.
        let result = IoResult { status: status::STATUS_INVALID_DEVICE_REQUEST, information: 0 };
        let mut packets = PACKETS.lock();
        packets.begin_end(&irp, result, false);
        drop(packets);
        finish(&irp);
        return irp;
    }
    let context = Context::new(ContextKind::DeviceDispatch, major.name());
    let outer = DISPATCHED.replace(irp.address);
    // SAFETY: a dispatch routine that the driver registered, with the arguments of DRIVER_DISPATCH.
    let returned = unsafe { call_image!(context, routine => i32; device.object(), irp.address) };
    DISPATCHED.set(outer);
    check_returned(&irp, returned);
    if cancelled {
        check_cancel_seen(&irp);
    }
    irp
}

fn build(device: &Arc<Device>, file: *mut FILE_OBJECT, request: IrpRequest) -> Arc<ActiveIrp> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let null = std::ptr::null_mut();
    let user_iosb = request.user.as_ref().map_or(0, |user| user.status_block);
    let system_buffer = request.system_buffer.as_ref().map_or(null, |buffer| buffer.as_pointer().cast());
    let mdl = request.mdl.as_ref().map_or(std::ptr::null_mut(), LockedMdl::as_ptr);
    let unwritten = if crate::kernel::is_verifying() { STATUS_UNWRITTEN } else { 0 };
    let no_list = LIST_ENTRY { Flink: std::ptr::null_mut(), Blink: std::ptr::null_mut() };
    let packet = Loan::new(Packet {
        irp: IRP {
            Type: IO_TYPE_IRP,
            Size: size_of::<Packet>() as u16,
            MdlAddress: mdl,
            Flags: 0,
            SystemBuffer: system_buffer,
            ThreadListEntry: no_list,
            IoStatus: IO_STATUS_BLOCK { u: IO_STATUS_BLOCK_UNION { Status: unwritten }, Information: 0 },
            RequestorMode: i8::from(!request.kernel_mode),
            PendingReturned: 0,
            StackCount: 1,
            CurrentLocation: 1,
            Cancel: u8::from(request.cancelled),
            CancelIrql: 0,
            ApcEnvironment: 0,
            AllocationFlags: 0,
            UserIosb: user_iosb as *mut _,
            UserEvent: std::ptr::null_mut(),
            Overlay: [0; 2],
            CancelRoutine: null,
            UserBuffer: request.user_buffer as *mut c_void,
            DriverContext: [null; 4],
            Thread: Thread::current().object().cast(),
            AuxiliaryBuffer: null,
            ListEntry: no_list,
            CurrentStackLocation: std::ptr::null_mut(),
            OriginalFileObject: file.cast(),
            TailRest: 0,
        },
        stack: IO_STACK_LOCATION {
            MajorFunction: request.major as u8,
            MinorFunction: 0,
            Flags: 0,
            Control: 0,
            Parameters: request.parameters,
            DeviceObject: device.object().cast(),
            FileObject: file.cast(),
            CompletionRoutine: null,
            Context: null,
        },
    });
    let address = packet.as_pointer();
    // SAFETY: the packet is the host's and not yet handed out.
    unsafe { (*address).irp.CurrentStackLocation = &raw mut (*address).stack };
    let irp = Arc::new(ActiveIrp {
        device: Arc::clone(device),
        file: file as usize,
        process: request.process,
        thread: Thread::current().identifier(),
        bound_to_thread: !request.user.as_ref().is_some_and(|user| user.outlives_thread),
        number: NEXT.fetch_add(1, Ordering::Relaxed),
        user_iosb,
        address: address as usize,
        major: request.major,
        output_length: request.output_length,
        buffered_output: request.buffered_output,
        input_length: request.input_length,
        parts: Mutex::new(Some(Parts {
            packet,
            system_buffer: request.system_buffer,
            mdl: request.mdl,
            on_completion: request.user.map(|user| user.on_completion),
        })),
        completion: Mutex::new(None),
        over: AtomicBool::new(false),
        completed: Event::notification(),
    });
    PACKETS.lock().live.insert(irp.address, Arc::clone(&irp));
    irp
}

impl ActiveIrp {
    /// The address that the driver has.
    #[must_use]
    pub fn address(&self) -> *mut IRP {
        self.address as *mut IRP
    }

    /// It is completed, and its pages and buffers are the sender's again.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Waits for completion, at most so long in kernel time; `None` when it did not come.
    pub fn wait(&self, limit: Option<std::time::Duration>) -> Option<IoResult> {
        // No wait at all where there is nothing to wait for: the caller may be a driver at DISPATCH_LEVEL.
        if !self.is_completed() {
            self.completed.wait(limit);
        }
        if !self.is_completed() {
            return None;
        }
        lock(&self.completion).as_ref().map(|completion| completion.result.clone())
    }

    /// The output bytes of a completed request with buffered output.
    #[must_use]
    pub fn output(&self) -> Vec<u8> {
        lock(&self.completion).as_ref().map(|completion| completion.output.clone()).unwrap_or_default()
    }

    /// Whether the driver marked the packet pending; the packet is not taken back while the table is locked.
    pub(super) fn is_marked_pending(&self) -> Option<bool> {
        let packets = PACKETS.lock();
        if let Some(completion) = lock(&self.completion).as_ref() {
            return Some(completion.marked_pending);
        }
        packets.live.get(&self.address)?;
        // SAFETY: in the table, therefore not completed and not taken back; the driver writes the byte before it returns.
        let control = unsafe { (&raw const (*(self.address as *const Packet)).stack.Control).read_volatile() };
        Some(control & PENDING_RETURNED != 0)
    }
}

thread_local! {
    /// The packet whose dispatch routine runs on this thread; 0 for none.
    static DISPATCHED: Cell<usize> = const { Cell::new(0) };
}

/// A spin lock is about to be released: a packet that is in a list must be marked pending by then, as any thread may take and
/// complete it from now on.
pub(crate) fn before_lock_release() {
    let address = DISPATCHED.get();
    if address == 0 || !crate::kernel::is_verifying() {
        return;
    }
    let packets = PACKETS.lock();
    let Some(irp) = packets.live.get(&address) else { return };
    // SAFETY: in the table, therefore not completed and not taken back.
    let (next, control) = unsafe {
        let packet = address as *const Packet;
        (
            (&raw const (*packet).irp.ListEntry.Flink).read_volatile(),
            (&raw const (*packet).stack.Control).read_volatile(),
        )
    };
    if !next.is_null() && control & PENDING_RETURNED == 0 {
        let irp = Arc::clone(irp);
        drop(packets);
        let name = irp.major.name();
        violation(&irp, format!("{name}: the packet is in a queue whose lock is released, and not marked pending"));
    }
}

/// What a driver that never writes `IoStatus.Status` completes with.
const STATUS_UNWRITTEN: NtStatus = -1;

/// Bit 28 of a status is 0 in every status there is.
fn check_meaning(irp: &ActiveIrp, answer: NtStatus, what: &str) {
    if answer as u32 & 0x1000_0000 != 0 {
        let status = answer as u32;
        violation(irp, format!("{}: {what} {status:#x}, which is no status; was it ever written?", irp.major.name()));
    }
}

/// A packet that was cancelled before its cancel routine was set: the routine is not called for it any more, so the driver
/// reads `Irp->Cancel` after it has set it.
fn check_cancel_seen(irp: &ActiveIrp) {
    // SAFETY: live while the closure runs; the field is the driver's to change at any time.
    let routine = with_live(irp, |packet| unsafe { (&raw const (*packet).CancelRoutine).read_volatile() });
    if routine.is_some_and(|routine| !routine.is_null()) {
        let name = irp.major.name();
        let rule =
            format!("{name}: cancelled before its cancel routine was set, and Irp->Cancel is not read after that");
        violation(irp, rule);
    }
}

/// What a dispatch routine may return.
fn check_returned(irp: &ActiveIrp, returned: NtStatus) {
    check_meaning(irp, returned, "the dispatch routine returned");
    let name = irp.major.name();
    let marked = irp.is_marked_pending().unwrap_or(false);
    let completed = lock(&irp.completion).as_ref().map(|completion| completion.result.status);
    if marked && returned != status::STATUS_PENDING {
        let rule = format!("{name}: marked pending, but the dispatch routine returned {:#x}", returned as u32);
        violation(irp, rule);
    }
    if !marked && returned == status::STATUS_PENDING {
        violation(irp, format!("{name}: the dispatch routine returned STATUS_PENDING without IoMarkIrpPending"));
    }
    match completed {
        Some(answer) if !marked && answer != returned => {
            let rule = format!(
                "{name}: completed with {:#x}, but the dispatch routine returned {:#x}",
                answer as u32, returned as u32
            );
            violation(irp, rule);
        }
        None if !marked => {
            let rule =
                format!("{name}: returned {:#x} without completing the packet or marking it pending", returned as u32);
            violation(irp, rule);
        }
        _ => {}
    }
}

fn violation(irp: &ActiveIrp, rule: String) -> ! {
    bugcheck(BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION, [irp.major as u64, irp.address as u64, 0, 0], rule)
}

impl Packets {
    /// Takes a packet from its driver: a thread that does not find it finds how it ended.
    fn begin_end(&mut self, irp: &Arc<ActiveIrp>, result: IoResult, marked_pending: bool) {
        self.live.remove(&irp.address);
        self.ending.push(Arc::clone(irp));
        *lock(&irp.completion) = Some(Completion { result, output: Vec::new(), marked_pending });
    }
}

/// Ends a packet that was taken from its driver: keeps what the sender gets, takes pages and buffers back, and only then lets the
/// sender know, which may use or free them at once.
fn finish(irp: &Arc<ActiveIrp>) {
    let Some(parts) = lock(&irp.parts).take() else { return };
    let Some(Completion { result, marked_pending, .. }) = lock(&irp.completion).clone() else { return };
    let is_error = (result.status as u32) >> 30 == 3;
    let mut output = Vec::new();
    if let Some(buffer) = parts.system_buffer.as_ref().filter(|_| irp.buffered_output && !is_error) {
        output = buffer.to_vec();
        output.truncate(result.information);
    }
    check_output(irp, &output);
    *lock(&irp.completion) = Some(Completion { result: result.clone(), output: output.clone(), marked_pending });
    drop(parts.mdl);
    drop(parts.system_buffer);
    drop(parts.packet);
    if let Some(tell) = parts.on_completion {
        tell(&CompletedRequest { result, output, marked_pending });
    }
    irp.over.store(true, Ordering::SeqCst);
    PACKETS.lock().ending.retain(|other| !Arc::ptr_eq(other, irp));
    irp.completed.set();
}

/// Output that the driver never wrote is the pool's former contents, disclosed to a user.
fn check_output(irp: &ActiveIrp, output: &[u8]) {
    let skip = irp.input_length.next_multiple_of(UNWRITTEN.len());
    let unwritten =
        output.chunks_exact(UNWRITTEN.len()).skip(skip / UNWRITTEN.len()).position(|word| word == UNWRITTEN);
    if let Some(word) = unwritten {
        let offset = skip + word * UNWRITTEN.len();
        violation(
            irp,
            format!("{}: output byte {offset} was never written: pool contents are disclosed", irp.major.name()),
        );
    }
}

crate::exports! {
    module "ntoskrnl.exe";

    /// Completes a packet; it and its buffers are taken back at once.
    /// Checks: a live packet (completed once), a DPC within its number of completions, a status that is one and not STATUS_PENDING, no cancel routine left, no spin lock held,
    /// Information within the output, every returned byte written.
    /// Source: WDM: IoCompleteRequest
    [UP_TO_DISPATCH] fn IofCompleteRequest(irp: *mut IRP, _boost: i8) {
        // One hold from the look to the end: of two threads that complete it, at once or not, the second is wrong.
        let mut packets = PACKETS.lock();
        let Some(live) = packets.live.get(&(irp as usize)).cloned() else {
            drop(packets);
            let rule = "IoCompleteRequest: the packet is not outstanding; it was completed before, or never was one";
            bugcheck(BugCheck::MULTIPLE_IRP_COMPLETE_REQUESTS, [irp as u64, 0, 0, 0], rule);
        };
        // SAFETY: in the table, therefore not taken back; the driver owns it and is in this call.
        let (answer, information, routine, control) = unsafe {
            (
                (*irp).IoStatus.u.Status,
                (*irp).IoStatus.Information,
                (*irp).CancelRoutine,
                (&raw const (*(irp.cast::<Packet>())).stack.Control).read(),
            )
        };
        packets.begin_end(&live, IoResult { status: answer, information }, control & PENDING_RETURNED != 0);
        drop(packets);
        let thread = Thread::current();
        crate::processor::get(thread.processor()).running.complete_request(thread);
        if thread.spin_locks_held.load(Ordering::Relaxed) > thread.locks_at_context_entry() {
            violation(&live, format!("{}: completed with a spin lock held", live.major.name()));
        }
        check_meaning(&live, answer, "completed with");
        if answer == status::STATUS_PENDING {
            violation(&live, format!("{}: completed with STATUS_PENDING", live.major.name()));
        }
        if !routine.is_null() {
            let rule = format!("{}: completed with its cancel routine still set", live.major.name());
            bugcheck(BugCheck::CANCEL_STATE_IN_COMPLETED_IRP, [irp as u64, routine as u64, 0, 0], rule);
        }
        if information > live.output_length && live.major == Major::DeviceControl {
            let rule = format!("{}: Information {information} is above the output length {}", live.major.name(), live.output_length);
            violation(&live, rule);
        }
        finish(&live);
    }

    /// The process that sent the packet.
    /// Checks: a live packet.
    /// Source: WDM: IoGetRequestorProcessId
    [UP_TO_DISPATCH] fn IoGetRequestorProcessId(irp: *mut IRP) -> u32 {
        let Some(live) = active(irp) else {
            bugcheck(BugCheck::MULTIPLE_IRP_COMPLETE_REQUESTS, [irp as u64, 0, 0, 0], "IoGetRequestorProcessId: the packet is completed");
        };
        live.process
    }

    /// Whether a 32-bit process sent the packet: this host has none.
    /// Source: WDM: IoIs32bitProcess
    [ANY] fn IoIs32bitProcess(_irp: *mut IRP) -> u8 {
        0
    }
}
