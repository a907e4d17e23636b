//! The Winsock catalogue itself.

use super::entry::{Generation, ProtocolInfo};
use super::install::Catalog;
use super::{Registered, failed};
use crate::failure::{Failure, Kind};
use crate::windows_text::{text, wide};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::ptr;
use windows_sys::Win32::Networking::WinSock::{
    WSACleanup, WSADATA, WSAENOBUFS, WSAPROTOCOL_INFOW, WSAStartup, WSCDeinstallProvider, WSCDeinstallProvider32,
    WSCEnumProtocols, WSCGetProviderPath, WSCInstallProvider64_32,
};
use windows_sys::Win32::System::Environment::ExpandEnvironmentStringsW;
use windows_sys::core::GUID;
use zerocopy::{FromZeros, IntoBytes};

/// Winsock 2.2.
const VERSION: u16 = 0x0202;
/// The longest path of a provider, in units of UTF-16.
const LONGEST_PATH: usize = 260;
/// How often a catalogue that has grown meanwhile is asked for again.
const ATTEMPTS: usize = 8;

const _: () = assert!(size_of::<ProtocolInfo>() == size_of::<WSAPROTOCOL_INFOW>());
const _: () = assert!(size_of::<GUID>() == 16);
const _: () = assert!(align_of::<ProtocolInfo>() == align_of::<WSAPROTOCOL_INFOW>());

/// Winsock, started; stopped when it is dropped.
pub struct Winsock(());

fn guid(info: &ProtocolInfo) -> GUID {
    // In memory as it is there: both are the same sixteen bytes.
    let mut guid = GUID { data1: 0, data2: 0, data3: 0, data4: [0; 8] };
    // SAFETY: a structure without padding, of as many bytes.
    unsafe { ptr::copy_nonoverlapping(info.provider_id.as_ptr(), (&raw mut guid).cast(), size_of::<GUID>()) };
    guid
}

/// A text as Windows takes it.
impl Winsock {
    pub fn start() -> Result<Self, Failure> {
        let mut data = WSADATA::default();
        // SAFETY: a place for what it says of itself.
        match unsafe { WSAStartup(VERSION, &raw mut data) } {
            0 => Ok(Self(())),
            error => Err(failed("cannot start Winsock", error)),
        }
    }

    /// The DLL's path of an entry, as the catalogue has it; nothing where it has none.
    fn path_of(info: &ProtocolInfo) -> String {
        let mut path = [0; LONGEST_PATH];
        let (mut length, mut error) = (LONGEST_PATH as i32, 0);
        // SAFETY: an identifier, and as many units as the length says.
        let status = unsafe { WSCGetProviderPath(&guid(info), path.as_mut_ptr(), &raw mut length, &raw mut error) };
        if status == 0 { text(&path) } else { String::new() }
    }
}

impl Catalog for Winsock {
    fn entries(&self) -> Result<Vec<Registered>, Failure> {
        let mut infos: Vec<ProtocolInfo> = Vec::new();
        let (mut count, mut error) = (-1, 0);
        for _ in 0..ATTEMPTS {
            let mut length = infos.as_bytes().len() as u32;
            let place = if infos.is_empty() { ptr::null_mut() } else { infos.as_mut_ptr().cast() };
            // SAFETY: all protocols; as many bytes as the length says, in structures of this layout.
            count = unsafe { WSCEnumProtocols(ptr::null(), place, &raw mut length, &raw mut error) };
            if count >= 0 || error != WSAENOBUFS {
                break;
            }
            infos = vec![ProtocolInfo::new_zeroed(); (length as usize).div_ceil(size_of::<ProtocolInfo>())];
        }
        let Ok(count) = usize::try_from(count) else { return Err(failed("cannot read the Winsock catalogue", error)) };
        let with_path = |info: &ProtocolInfo| Registered { info: *info, path: Self::path_of(info) };
        Ok(infos.iter().take(count).map(with_path).collect())
    }

    fn add(&self, entry: &Registered) -> Result<(), Failure> {
        let (path, mut error) = (wide(&entry.path), 0);
        let info: *const WSAPROTOCOL_INFOW = (&raw const entry.info).cast();
        // SAFETY: an identifier, a text with its zero, one structure of this layout.
        let status = unsafe { WSCInstallProvider64_32(&guid(&entry.info), path.as_ptr(), info, 1, &raw mut error) };
        if status == 0 {
            return Ok(());
        }
        Err(failed(&format!("cannot enter {} into the Winsock catalogue", entry.info.shown_name()), error))
    }

    fn take_out(&self, info: &ProtocolInfo) -> Result<(), Failure> {
        let mut error = 0;
        // SAFETY: an identifier.
        let status = unsafe { WSCDeinstallProvider(&guid(info), &raw mut error) };
        if status != 0 {
            return Err(failed(&format!("cannot take {} out of the Winsock catalogue", info.shown_name()), error));
        }
        // The entry of 32-bit programs may be missing: then there is nothing to take out.
        // SAFETY: an identifier.
        unsafe { WSCDeinstallProvider32(&guid(info), &raw mut error) };
        Ok(())
    }
}

impl Drop for Winsock {
    fn drop(&mut self) {
        // SAFETY: started once for this value.
        unsafe { WSACleanup() };
    }
}

/// A path with its variables replaced.
pub fn expanded(path: &str) -> PathBuf {
    let source = wide(path);
    let mut buffer = vec![0; 32 << 10];
    // SAFETY: a text with its zero, and as many units as the length says.
    let length = unsafe { ExpandEnvironmentStringsW(source.as_ptr(), buffer.as_mut_ptr(), buffer.len() as u32) };
    if length == 0 { PathBuf::from(path) } else { PathBuf::from(text(&buffer)) }
}

/// The path that the catalogue gets: whole, and of a file that is there.
pub fn check_dll(path: &str) -> Result<String, Failure> {
    let file = expanded(path);
    File::open(&file).map_err(|error| Failure {
        next_step: "copy softnd.dll there first, or name another path with --dll".to_owned(),
        ..Failure::file("open", &file, &error)
    })?;
    if path.contains('%') {
        return Ok(path.to_owned());
    }
    let whole = std::path::absolute(&file).map_err(|error| Failure::file("find", &file, &error))?;
    Ok(whole.to_string_lossy().into_owned())
}

/// The provider that programs find: softnd.dll, or else the first of version 2.
pub fn default_dll() -> Result<PathBuf, Failure> {
    let mut entries = Winsock::start()?.entries()?;
    let version = ProtocolInfo::ours(Generation::Version2).version;
    entries.retain(|entry| entry.info.is_network_direct() && entry.info.version == version);
    entries.sort_by_key(|entry| entry.info.generation().is_none());
    let first = entries.first().ok_or_else(|| {
        Failure::new(
            Kind::Unreachable,
            "cannot find a provider of NetworkDirect",
            "the Winsock catalogue has none of version 2",
            "install it with \"ndkctl nd install\", or name a DLL with --dll",
        )
    })?;
    Ok(expanded(&first.path))
}

/// The path as LoadLibrary takes it.
#[must_use]
pub fn wide_path(path: &Path) -> Vec<u16> {
    use std::os::windows::ffi::OsStrExt;
    path.as_os_str().encode_wide().chain([0]).collect()
}
