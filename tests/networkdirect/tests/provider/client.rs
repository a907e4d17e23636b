//! A client of the provider as C code is one: interface pointers, tables of functions, memory of its process.
//!
//! Slots are the numbers of the public header's tables. Every call runs on a user stack of the process, with the calling convention of
//! Windows; what a case looks at afterwards is read from the process's memory.

use super::border;
use super::calls;
use super::ends::{PROVIDER_OPEN, PROVIDER_RESOLVE};
use kernel_host::Process;
use kernel_host::io::Caller;
use kernel_host::user::Dll;
use networkdirect::machine::{Machine, pass};
use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

pub const SUCCESS: u32 = 0;
pub const PENDING: u32 = 0x103;
pub const BUFFER_OVERFLOW: u32 = 0x8000_0005;
pub const TIMEOUT: u32 = 0x102;
pub const DEVICE_BUSY: u32 = 0x8000_0011;
pub const NO_MORE_ENTRIES: u32 = 0x8000_001A;
pub const ACCESS_VIOLATION: u32 = 0xC000_0005;
pub const ACCESS_DENIED: u32 = 0xC000_0022;
pub const INVALID_HANDLE: u32 = 0xC000_0008;
pub const INVALID_PARAMETER: u32 = 0xC000_000D;
pub const INVALID_DEVICE_REQUEST: u32 = 0xC000_0010;
pub const INVALID_PARAMETER_MIX: u32 = 0xC000_0030;
pub const DATA_OVERRUN: u32 = 0xC000_003C;
pub const SHARING_VIOLATION: u32 = 0xC000_0043;
pub const IO_TIMEOUT: u32 = 0xC000_00B5;
pub const NOT_SUPPORTED: u32 = 0xC000_00BB;
pub const BAD_NETWORK_NAME: u32 = 0xC000_00CC;
pub const CANCELED: u32 = 0xC000_0120;
pub const REMOTE_ERROR: u32 = 0xC000_013D;
pub const INVALID_ADDRESS: u32 = 0xC000_0141;
pub const INVALID_DEVICE_STATE: u32 = 0xC000_0184;
pub const INVALID_BUFFER_SIZE: u32 = 0xC000_0206;
pub const ADDRESS_ALREADY_EXISTS: u32 = 0xC000_020A;
pub const CONNECTION_DISCONNECTED: u32 = 0xC000_020C;
pub const CONNECTION_REFUSED: u32 = 0xC000_0236;
pub const ADDRESS_ALREADY_ASSOCIATED: u32 = 0xC000_0238;
pub const ADDRESS_NOT_ASSOCIATED: u32 = 0xC000_0239;
pub const CONNECTION_INVALID: u32 = 0xC000_023A;
pub const HOST_UNREACHABLE: u32 = 0xC000_023D;
pub const CONNECTION_ABORTED: u32 = 0xC000_0241;
pub const CONNECTION_ACTIVE: u32 = 0xC000_023B;

/// ND_INVALID_PARAMETER_1 and those behind it.
pub const fn invalid_parameter(number: u32) -> u32 {
    0xC000_00EE + number
}

/// A process with the provider's DLL.
pub struct Program {
    pub process: Process,
    provider: Dll,
    calls: Dll,
    factory: usize,
    /// What it has before the first call.
    before: Belongings,
    /// Handles that the client was given and has not closed.
    kept_handles: AtomicUsize,
}

/// What a process has of the system, and the waits in vain of its threads at ports.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Belongings {
    heap_blocks: usize,
    handles: usize,
    waits_in_vain: u64,
}

impl Belongings {
    fn of(process: &Process) -> Self {
        Self {
            heap_blocks: process.heap_blocks(),
            handles: process.open_handles(),
            waits_in_vain: process.waits_in_vain(),
        }
    }
}

impl Program {
    pub fn start(machine: &Machine) -> Self {
        Self::start_as(machine, Caller::Administrator)
    }

    /// As [`Self::start`], for another user.
    pub fn start_as(machine: &Machine, caller: Caller) -> Self {
        let process = machine.kernel.start_process_as(caller);
        let built = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(name);
        let load =
            |path: PathBuf| process.load_dll(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let own = std::env::var_os("SOFTNDK_DLL").map(PathBuf::from);
        let provider = load(own.unwrap_or_else(|| built("softnd/x64/release/softnd.dll")));
        let calls = load(built("c-images/nd-program/nd-program.dll"));
        let factory = provider.export("DllGetClassObject").expect("an exported function");
        let before = Belongings::of(&process);
        Self { process, provider, calls, factory, before, kept_handles: AtomicUsize::new(0) }
    }

    /// The client was given a handle.
    pub fn keeps_a_handle(&self) {
        self.kept_handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls a function of the provider's DLL or of the C program.
    pub fn export(&self, name: &str, arguments: &[u64]) -> u64 {
        let dll = if self.provider.export(name).is_some() { &self.provider } else { &self.calls };
        let function = dll.export(name).unwrap_or_else(|| panic!("{name} is not exported"));
        // SAFETY: a function of one of the two DLLs with its arguments.
        let answer = unsafe { self.process.call(function, arguments) };
        self.handles_of(name);
        answer
    }

    /// Counts the handles that a function of the C program makes for the client or closes.
    fn handles_of(&self, function: &str) {
        match function {
            "make_event" | "make_port" => self.keeps_a_handle(),
            "close_handle" => drop(self.kept_handles.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    pub fn run_program(&self, command: &str) -> u64 {
        let name = self.bytes(format!("{command}\0").as_bytes());
        self.export("run_program", &[self.factory as u64, name])
    }

    /// Memory of the process with these bytes; it goes with the process.
    pub fn bytes(&self, bytes: &[u8]) -> u64 {
        let address = self.process.allocate(bytes.len().max(1));
        assert!(self.process.write(address, bytes));
        address as u64
    }

    pub fn zeroed(&self, length: usize) -> u64 {
        self.process.allocate(length) as u64
    }

    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        self.process.read(address as usize, length).expect("memory of the process")
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        assert!(self.process.write(address as usize, bytes), "memory of the process");
    }

    pub fn u32_at(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).try_into().expect("four bytes"))
    }

    pub fn u64_at(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.read(address, 8).try_into().expect("eight bytes"))
    }

    /// A sockaddr, and its length.
    pub fn socket(&self, address: SocketAddr) -> (u64, u64) {
        let mut bytes = Vec::new();
        match address {
            SocketAddr::V4(v4) => {
                bytes.extend(2_u16.to_le_bytes());
                bytes.extend(v4.port().to_be_bytes());
                bytes.extend(v4.ip().octets());
                bytes.extend([0; 8]);
            }
            SocketAddr::V6(v6) => {
                bytes.extend(23_u16.to_le_bytes());
                bytes.extend(v6.port().to_be_bytes());
                bytes.extend([0; 4]);
                bytes.extend(v6.ip().octets());
                bytes.extend(v6.scope_id().to_le_bytes());
            }
        }
        (self.bytes(&bytes), bytes.len() as u64)
    }

    pub fn overlapped(&self) -> Overlapped<'_> {
        self.overlapped_with(0)
    }

    /// One with an event.
    pub fn overlapped_with(&self, event: u64) -> Overlapped<'_> {
        let address = self.zeroed(32);
        self.write(address + 24, &event.to_le_bytes());
        calls::overlapped_made(address);
        Overlapped { program: self, address }
    }

    /// An object from DllGetClassObject.
    pub fn class_object(&self, iid: &str) -> Result<Com<'_>, u32> {
        let class = self.zeroed(16);
        let made = self.made(|out| self.export("DllGetClassObject", &[class, self.guid(iid), out]));
        made.map(|made| made.named(calls::interface(iid)))
    }

    pub fn provider(&self) -> Com<'_> {
        self.class_object(IND2_PROVIDER).expect("the provider of version 2")
    }

    pub fn guid(&self, text: &str) -> u64 {
        let number = u128::from_str_radix(&text.replace('-', ""), 16).expect("a GUID");
        let bytes = number.to_be_bytes();
        let mut guid = Vec::new();
        guid.extend(bytes[..4].iter().rev());
        guid.extend(bytes[4..6].iter().rev());
        guid.extend(bytes[6..8].iter().rev());
        guid.extend(&bytes[8..]);
        self.bytes(&guid)
    }

    /// What a call writes to the place for an interface pointer.
    pub fn made(&self, call: impl FnOnce(u64) -> u64) -> Result<Com<'_>, u32> {
        let out = self.bytes(&0xBAD_0BAD_u64.to_le_bytes());
        let status = call(out) as u32;
        let this = self.u64_at(out);
        if status == SUCCESS {
            assert!(this != 0xBAD_0BAD, "a call succeeds and gives no object");
            return Ok(Com { program: self, this, open: Cell::new(true), interface: "" });
        }
        Err(status)
    }

    /// The adapter with this address.
    pub fn adapter(&self, address: SocketAddr) -> Com<'_> {
        let provider = self.provider();
        let (socket, length) = self.socket(address);
        let identifier = self.zeroed(8);
        provider.expects(PROVIDER_RESOLVE, &[socket, length, identifier], SUCCESS);
        let identifier = self.u64_at(identifier);
        let adapter = provider.makes(PROVIDER_OPEN, IND2_ADAPTER, &[identifier]).expect("the adapter opens");
        provider.release();
        adapter
    }
}

pub const IND2_PROVIDER: &str = "49EAE6C1-76C4-46D0-8003-5C2EAA2C9A8E";
pub const IND2_ADAPTER: &str = "D89C798C-4823-4D69-846C-DFDCCFF9E5F3";
pub const IND2_COMPLETION_QUEUE: &str = "20CC445E-64A0-4CBB-AA75-F6A7251FDA9E";
pub const IND2_MEMORY_REGION: &str = "55DFEA2F-BC56-4982-8A45-0301BE46C413";
pub const IND2_MEMORY_WINDOW: &str = "070FE1F5-0AB5-4361-88DB-974BA704D4B9";
pub const IND2_QUEUE_PAIR: &str = "EEF2F332-B75D-4063-BCE3-3A0BAD2D02CE";
pub const IND2_CONNECTOR: &str = "7DD615C4-6B4C-4866-950C-F3B1D25A5302";
pub const IND2_LISTENER: &str = "65D23D83-3A57-4E02-86A4-350165C2D130";
pub const IND2_SHARED_RECEIVE_QUEUE: &str = "AABD67DC-459A-4DB1-826B-56CFCC278883";
pub const CLASS_FACTORY: &str = "00000001-0000-0000-C000-000000000046";
pub const UNKNOWN: &str = "00000000-0000-0000-C000-000000000046";

const ADD_REF: usize = 1;
const RELEASE: usize = 2;
pub const CANCEL: usize = 3;
pub const GET_OVERLAPPED_RESULT: usize = 4;

/// An interface pointer that its owner has to release.
pub struct Com<'p> {
    pub program: &'p Program,
    pub this: u64,
    open: Cell<bool>,
    /// Empty where that does not matter.
    interface: &'static str,
}

impl<'p> Com<'p> {
    /// Its calls are those of this interface.
    pub fn named(mut self, interface: &'static str) -> Self {
        self.interface = interface;
        self
    }

    /// Calls a slot of the table.
    pub fn call(&self, slot: usize, arguments: &[u64]) -> u64 {
        assert!(self.open.get(), "a released object is used");
        let table = self.program.u64_at(self.this);
        let method = self.program.u64_at(table + 8 * slot as u64);
        let seen = border::before(self.program, (self.interface, slot), arguments);
        let all = [&[self.this], &*seen].concat();
        // SAFETY: a method of a live interface with its arguments.
        let answer = unsafe { self.program.process.call(method as usize, &all) };
        border::after(self.program, (self.interface, slot), arguments);
        calls::returned((self.interface, slot), arguments, answer as u32);
        answer
    }

    pub fn status(&self, slot: usize, arguments: &[u64]) -> u32 {
        self.call(slot, arguments) as u32
    }

    #[track_caller]
    pub fn expects(&self, slot: usize, arguments: &[u64], status: u32) {
        let answer = self.status(slot, arguments);
        assert_eq!(answer, status, "slot {slot} answers {answer:#010x} and not {status:#010x}");
    }

    /// Calls a slot that makes an object: its identifier first, the place for the pointer last.
    pub fn makes(&self, slot: usize, iid: &str, arguments: &[u64]) -> Result<Com<'p>, u32> {
        let made = self.program.made(|out| {
            let mut all = vec![self.program.guid(iid)];
            all.extend(arguments);
            all.push(out);
            self.call(slot, &all)
        });
        made.map(|made| made.named(calls::interface(iid)))
    }

    /// Waits for the end of an overlapped call that was just made.
    pub fn finish(&self, status: u32, overlapped: &Overlapped<'_>) -> u32 {
        if status != PENDING {
            return status;
        }
        overlapped.wait();
        self.status(GET_OVERLAPPED_RESULT, &[overlapped.address, 0])
    }

    /// QueryInterface by its own identifiers gives the object, and by another one none; references are counted.
    pub fn answers_for_itself(&self) {
        let program = self.program;
        let ask = |iid: &str| program.made(|out| self.call(0, &[program.guid(iid), out]));
        for iid in calls::identifiers(self.interface) {
            let same = ask(&iid).unwrap_or_else(|status| panic!("{}: {status:#010x} for {iid}", self.interface));
            assert_eq!(same.this, self.this, "one pointer for all of its interfaces");
        }
        assert_eq!(ask(CLASS_FACTORY).err(), Some(0x8000_4002), "no such interface");
        let count = self.call(ADD_REF, &[]) as u32;
        assert!(count >= 2);
        assert_eq!(self.call(RELEASE, &[]) as u32, count - 1);
    }

    /// Another object has given up the client's last reference.
    pub fn is_gone(&self) {
        self.open.set(false);
    }

    /// What the client's count is afterwards.
    pub fn release(&self) -> u32 {
        assert!(self.open.get(), "released twice");
        let left = self.status(RELEASE, &[]);
        self.open.set(left != 0);
        left
    }
}

impl Drop for Com<'_> {
    fn drop(&mut self) {
        if self.open.get() && !std::thread::panicking() && !self.program.process.is_dead() {
            self.call(RELEASE, &[]);
        }
    }
}

impl Drop for Program {
    // Rule: BUG-10
    fn drop(&mut self) {
        if self.process.is_dead() || std::thread::panicking() {
            return;
        }
        let unload = self.export("DllCanUnloadNow", &[]) as u32;
        let left = Belongings::of(&self.process);
        let handles = self.before.handles + self.kept_handles.load(Ordering::Relaxed);
        assert_eq!(
            (unload, left),
            (0, Belongings { handles, ..self.before }),
            "the DLL can be unloaded and has given back what it had"
        );
    }
}

/// An OVERLAPPED of the process.
pub struct Overlapped<'p> {
    program: &'p Program,
    pub address: u64,
}

impl Overlapped<'_> {
    pub fn status(&self) -> u32 {
        let status = self.program.u32_at(self.address);
        if status != PENDING {
            calls::overlapped_ended(self.address, status);
        }
        status
    }

    pub fn wait(&self) {
        for _ in 0..60_000 {
            if self.status() != PENDING {
                return;
            }
            pass(1);
        }
        panic!("an overlapped request does not end");
    }
}
