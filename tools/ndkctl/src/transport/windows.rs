//! The control device on Windows.
//!
//! Requests go through `NtDeviceIoControlFile` and not `DeviceIoControl`: the latter turns the driver's status into a Win32
//! error, and several of ours share one. The handle is synchronous, so the call waits for pended requests itself.

mod process;

use super::{Answer, Device, DirectBuffer, Disturbances, Job};
use crate::arguments::MachineArguments;
use crate::failure::{Failure, Kind};
use softndk_ioctl::{Status, TEST_WIN32_DEVICE_NAME, WIN32_DEVICE_NAME, nd};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::net::IpAddr;
use std::os::windows::io::AsRawHandle;
use std::ptr;
use std::sync::atomic::AtomicU64;
use windows_sys::Wdk::System::IO::NtDeviceIoControlFile;
use windows_sys::Win32::NetworkManagement::IpHelper::ConvertInterfaceLuidToAlias;
use windows_sys::Win32::NetworkManagement::Ndis::NET_LUID_LH;
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// The longest alias of an interface, with its zero (NDIS_IF_MAX_STRING_SIZE + 1).
const ALIAS_LENGTH: usize = 257;

/// What helps where a device is not there.
const INSTALL: &str = "install the package with setup.ps1 -Install; \"ndkctl doctor\" says what is missing";

/// This computer: the driver is installed, or it is not.
#[derive(Debug)]
pub struct Machine;

/// Nothing is checked on Windows: the driver stays loaded.
#[derive(Clone, Copy, Debug)]
pub struct Leftovers;

impl Machine {
    /// Nothing to prepare.
    pub fn start(_arguments: &MachineArguments) -> Result<Self, Failure> {
        Ok(Self)
    }

    /// Opens the device of ndktest.sys.
    pub fn open(&self) -> Result<SystemDevice, Failure> {
        open_device()
    }

    /// Opens the control device of softndk.sys.
    pub fn open_provider(&self) -> Result<SystemDevice, Failure> {
        open_provider()
    }

    /// Opens the device of user-mode NetworkDirect.
    pub fn open_network_direct(&self) -> Result<SystemDevice, Failure> {
        open_path(nd::WIN32_DEVICE_NAME, INSTALL)
    }

    /// Whether adapters of other machines are reached.
    pub fn reaches_others(&self) -> bool {
        true
    }

    /// Where the system's TCP has an address of an adapter: there.
    pub fn tcp_address(&self, address: IpAddr) -> IpAddr {
        address
    }

    /// Waits.
    pub fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        wait()
    }

    /// What disturbs the adapters.
    pub fn disturber(&self) -> Disturber {
        Disturber
    }

    /// Nothing to take down.
    pub fn finish(self) -> Result<Leftovers, Failure> {
        Ok(Leftovers)
    }
}

/// Opens the device of ndktest.sys.
pub fn open_device() -> Result<SystemDevice, Failure> {
    open_path(TEST_WIN32_DEVICE_NAME, INSTALL)
}

/// Opens the control device of softndk.sys.
pub fn open_provider() -> Result<SystemDevice, Failure> {
    open_path(WIN32_DEVICE_NAME, INSTALL)
}

fn open_path(name: &str, install: &str) -> Result<SystemDevice, Failure> {
    let file = OpenOptions::new().read(true).write(true).open(name);
    file.map(|file| SystemDevice { file }).map_err(|error| unreachable(name, install, &error))
}

/// The name under which Windows shows an interface, by its NET_LUID and its index.
pub fn interface_alias(net_luid: u64, _index: u32) -> Option<String> {
    let luid = NET_LUID_LH { Value: net_luid };
    let mut name = [0_u16; ALIAS_LENGTH];
    // SAFETY: a NET_LUID, and a place of as many characters as are named.
    let status = unsafe { ConvertInterfaceLuidToAlias(&raw const luid, name.as_mut_ptr(), name.len()) };
    let end = name.iter().position(|unit| *unit == 0)?;
    (status == 0).then(|| String::from_utf16_lossy(&name[..end]))
}

/// Runs all jobs at once, each in a thread of its own, and waits for them.
pub fn in_parallel(jobs: Vec<Job<'_>>) {
    std::thread::scope(|scope| {
        for job in jobs {
            scope.spawn(job);
        }
    });
}

/// Adapters are not disturbed on Windows.
#[derive(Clone, Copy, Debug)]
pub struct Disturber;

impl Disturber {
    /// Nothing.
    pub fn disturb(self, _seed: u64, _is_over: &dyn Fn() -> bool, _ended: &AtomicU64) -> Disturbances {
        Disturbances::default()
    }
}

fn unreachable(name: &str, install: &str, error: &Error) -> Failure {
    let next_step = match error.kind() {
        ErrorKind::NotFound => install,
        ErrorKind::PermissionDenied => "run it as administrator",
        _ => "look at the adapter in Device Manager",
    };
    // What the open was answered with before it became a Win32 error.
    let status = match error.kind() {
        ErrorKind::NotFound => Some(Status::OBJECT_NAME_NOT_FOUND),
        ErrorKind::PermissionDenied => Some(Status::ACCESS_DENIED),
        _ => None,
    };
    let failure = Failure::new(Kind::Unreachable, format!("cannot open {name}"), error.to_string(), next_step);
    Failure { status: status.map(|status| status.0.cast_unsigned()), ..failure }
}

/// A handle of `\\.\NdkTest` or `\\.\SoftNdk`.
#[derive(Debug)]
pub struct SystemDevice {
    file: File,
}

impl SystemDevice {
    fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Answer {
        let lengths = (u32::try_from(input.len()), u32::try_from(output.len()));
        let (Ok(input_length), Ok(output_length)) = lengths else {
            return Answer { status: Status::INVALID_PARAMETER, information: 0 };
        };
        let mut block = IO_STATUS_BLOCK::default();
        // SAFETY: the handle is open and synchronous, so the call returns after the last use of the buffers and the block; the
        // lengths are those of the slices.
        let status = unsafe {
            NtDeviceIoControlFile(
                self.file.as_raw_handle(),
                ptr::null_mut(),
                None,
                ptr::null(),
                &raw mut block,
                code,
                input.as_ptr().cast::<c_void>(),
                input_length,
                output.as_mut_ptr().cast::<c_void>(),
                output_length,
            )
        };
        Answer { status: Status(status), information: block.Information.min(output.len()) }
    }
}

impl Device for SystemDevice {
    type Buffer = PageBuffer;

    fn buffered(&self, code: u32, input: &[u8], output: &mut [u8]) -> Answer {
        self.control(code, input, output)
    }

    fn direct(&self, code: u32, input: &[u8], buffer: &mut PageBuffer) -> Answer {
        self.control(code, input, buffer.bytes_mut())
    }

    fn allocate(&self, length: usize) -> Result<PageBuffer, Failure> {
        let mut pages = Vec::new();
        let count = length.div_ceil(size_of::<Page>());
        pages.try_reserve_exact(count).map_err(|error| {
            Failure::new(
                Kind::Refused,
                format!("cannot allocate {length} bytes"),
                error.to_string(),
                "use a smaller size or window",
            )
        })?;
        pages.resize_with(count, Page::new_zeroed);
        Ok(PageBuffer { pages, length })
    }
}

/// A page, aligned like one.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// Memory that starts on a page boundary.
pub struct PageBuffer {
    pages: Vec<Page>,
    length: usize,
}

impl DirectBuffer for PageBuffer {
    fn bytes(&self) -> &[u8] {
        let bytes = self.pages.as_slice().as_bytes();
        bytes.get(..self.length).unwrap_or(bytes)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.pages.as_mut_slice().as_mut_bytes();
        let length = self.length.min(bytes.len());
        &mut bytes[..length]
    }
}
