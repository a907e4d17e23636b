//! The devices of this computer, by SetupAPI and newdev.dll.

use super::devices::{AdapterDevice, Devices, HARDWARE_ID, failed};
use super::registry::{Key, READ, alias};
use crate::failure::{Failure, Kind};
use crate::windows_text::{text, wide};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;
use windows_sys::Win32::Devices::DeviceAndDriverInstallation::{
    CM_Get_DevNode_Status, DI_NEEDREBOOT, DI_NEEDRESTART, DICD_GENERATE_ID, DICS_FLAG_CONFIGSPECIFIC, DICS_FLAG_GLOBAL,
    DICS_PROPCHANGE, DIF_PROPERTYCHANGE, DIF_REGISTERDEVICE, DIREG_DRV, DN_STARTED, DiInstallDevice, DiUninstallDevice,
    GUID_DEVCLASS_NET, HDEVINFO, INSTALLFLAG_NONINTERACTIVE, SETUP_DI_REGISTRY_PROPERTY, SP_CLASSINSTALL_HEADER,
    SP_DEVINFO_DATA, SP_DEVINSTALL_PARAMS_W, SP_PROPCHANGE_PARAMS, SPDRP_DRIVER, SPDRP_HARDWAREID,
    SetupDiCallClassInstaller, SetupDiCreateDeviceInfoList, SetupDiCreateDeviceInfoW, SetupDiDestroyDeviceInfoList,
    SetupDiEnumDeviceInfo, SetupDiGetClassDevsW, SetupDiGetDeviceInstallParamsW, SetupDiGetDeviceInstanceIdW,
    SetupDiGetDeviceRegistryPropertyW, SetupDiOpenDevRegKey, SetupDiSetClassInstallParamsW,
    SetupDiSetDeviceRegistryPropertyW, UpdateDriverForPlugAndPlayDevicesW,
};
use windows_sys::Win32::Foundation::{ERROR_NO_MORE_ITEMS, INVALID_HANDLE_VALUE};
use windows_sys::core::{BOOL, w};

/// The longest list of hardware ids that is read, in units of UTF-16; ours is short.
const LONGEST_LIST: usize = 1024;
/// The longest instance id (MAX_DEVICE_ID_LEN).
const LONGEST_INSTANCE: usize = 200;

/// This computer's devices.
#[derive(Clone, Copy, Debug)]
pub struct SetupApi;

/// The INF to install from: the one that is named, or the one beside this program; none for the package in the driver store.
pub fn inf(named: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = named else {
        let beside = std::env::current_exe().ok().map(|program| program.with_file_name("softndk.inf"));
        return Ok(beside.filter(|path| path.is_file()));
    };
    // The call wants a full path.
    let whole = std::path::absolute(path).map_err(|error| Failure::file("find", path, &error))?;
    if whole.is_file() {
        return Ok(Some(whole));
    }
    let cause = "there is no such file";
    Err(Failure::new(Kind::File, format!("cannot open {}", path.display()), cause, "name softndk.inf with --inf"))
}

fn last_error() -> u32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0).cast_unsigned()
}

fn done(answer: BOOL, what: &str) -> Result<(), Failure> {
    if answer == 0 { Err(failed(what, last_error())) } else { Ok(()) }
}

/// A set of devices.
struct DeviceSet(HDEVINFO);

impl DeviceSet {
    fn of(set: HDEVINFO, what: &str) -> Result<Self, Failure> {
        if set == INVALID_HANDLE_VALUE as HDEVINFO { Err(failed(what, last_error())) } else { Ok(Self(set)) }
    }

    /// The root-enumerated network adapters, also those that are not present.
    fn of_adapters() -> Result<Self, Failure> {
        // SAFETY: a class, an enumerator's name with its zero, no window.
        let set = unsafe { SetupDiGetClassDevsW(&GUID_DEVCLASS_NET, w!("ROOT"), ptr::null_mut(), 0) };
        Self::of(set, "cannot list the devices")
    }

    /// Those with our hardware id.
    fn ours(&self) -> Vec<SP_DEVINFO_DATA> {
        let mut found = Vec::new();
        for index in 0.. {
            let mut data = empty();
            // SAFETY: an open set, and a structure of the size that it says.
            if unsafe { SetupDiEnumDeviceInfo(self.0, index, &raw mut data) } == 0 {
                break;
            }
            let ids = self.property(&data, SPDRP_HARDWAREID).unwrap_or_default();
            if ids.split(|unit| *unit == 0).any(|id| String::from_utf16_lossy(id).eq_ignore_ascii_case(HARDWARE_ID)) {
                found.push(data);
            }
        }
        found
    }

    /// A property of text; `None` where the device does not have it.
    fn property(&self, data: &SP_DEVINFO_DATA, property: SETUP_DI_REGISTRY_PROPERTY) -> Option<Vec<u16>> {
        let mut value = vec![0_u16; LONGEST_LIST];
        let length = size_of_val(value.as_slice()) as u32;
        let place = value.as_mut_ptr().cast();
        // SAFETY: a device of the set, and as many bytes as the length says.
        let answer = unsafe {
            SetupDiGetDeviceRegistryPropertyW(self.0, data, property, ptr::null_mut(), place, length, ptr::null_mut())
        };
        (answer != 0).then_some(value)
    }

    fn instance(&self, data: &SP_DEVINFO_DATA) -> Result<String, Failure> {
        let mut id = [0_u16; LONGEST_INSTANCE];
        // SAFETY: a device of the set, and as many units as the length says.
        let answer = unsafe {
            SetupDiGetDeviceInstanceIdW(self.0, data, id.as_mut_ptr(), LONGEST_INSTANCE as u32, ptr::null_mut())
        };
        done(answer, "cannot read a device's instance id")?;
        Ok(text(&id))
    }

    fn describe(&self, data: &SP_DEVINFO_DATA) -> Result<AdapterDevice, Failure> {
        let (mut status, mut problem) = (0, 0);
        // SAFETY: places for both answers.
        let known = unsafe { CM_Get_DevNode_Status(&raw mut status, &raw mut problem, data.DevInst, 0) } == 0;
        let has_driver = self.property(data, SPDRP_DRIVER).is_some();
        Ok(AdapterDevice {
            instance: self.instance(data)?,
            alias: self.driver_key(data, READ).and_then(|key| alias(&key)),
            has_driver,
            started: known && status & DN_STARTED != 0,
            problem: (known && problem != 0).then_some(problem),
        })
    }

    /// The device's driver key; `None` while it has no driver.
    fn driver_key(&self, data: &SP_DEVINFO_DATA, access: u32) -> Option<Key> {
        // SAFETY: a device of the set.
        let key = unsafe { SetupDiOpenDevRegKey(self.0, data, DICS_FLAG_GLOBAL, 0, DIREG_DRV, access) };
        if ptr::eq(key, INVALID_HANDLE_VALUE) {
            return None;
        }
        // SAFETY: it has just been opened for this value.
        Some(unsafe { Key::of(key) })
    }
}

impl Drop for DeviceSet {
    fn drop(&mut self) {
        // SAFETY: an open set, which is not used again. A device that is not registered goes with it.
        unsafe { SetupDiDestroyDeviceInfoList(self.0) };
    }
}

fn empty() -> SP_DEVINFO_DATA {
    SP_DEVINFO_DATA { cbSize: size_of::<SP_DEVINFO_DATA>() as u32, ..SP_DEVINFO_DATA::default() }
}

impl SetupApi {
    /// The set and the device with this instance id.
    fn find(instance: &str, what: &str) -> Result<(DeviceSet, SP_DEVINFO_DATA), Failure> {
        const NO_SUCH_DEVICE: u32 = 0xE000_020B;
        let set = DeviceSet::of_adapters()?;
        for data in set.ours() {
            if set.instance(&data)?.eq_ignore_ascii_case(instance) {
                return Ok((set, data));
            }
        }
        Err(failed(what, NO_SUCH_DEVICE))
    }

    /// The driver keys of all devices that have one, with their instance ids.
    pub fn driver_keys(access: u32) -> Result<Vec<(String, Key)>, Failure> {
        let set = DeviceSet::of_adapters()?;
        let mut keys = Vec::new();
        for data in set.ours() {
            if set.property(&data, SPDRP_DRIVER).is_some() {
                let key = set.driver_key(&data, access);
                let key = key.ok_or_else(|| failed("cannot open an adapter's driver key", last_error()))?;
                keys.push((set.instance(&data)?, key));
            }
        }
        Ok(keys)
    }

    /// Stops a device and starts it again, so that its driver reads its keywords. Whether Windows must be restarted for that.
    pub fn restart(instance: &str) -> Result<bool, Failure> {
        let what = format!("cannot restart {instance}");
        let (set, data) = Self::find(instance, &what)?;
        let change = SP_PROPCHANGE_PARAMS {
            ClassInstallHeader: SP_CLASSINSTALL_HEADER {
                cbSize: size_of::<SP_CLASSINSTALL_HEADER>() as u32,
                InstallFunction: DIF_PROPERTYCHANGE,
            },
            StateChange: DICS_PROPCHANGE,
            Scope: DICS_FLAG_CONFIGSPECIFIC,
            HwProfile: 0,
        };
        let length = size_of_val(&change) as u32;
        // SAFETY: a device of the set, and parameters that begin with the header of the function that they are for.
        let answer =
            unsafe { SetupDiSetClassInstallParamsW(set.0, &raw const data, (&raw const change).cast(), length) };
        done(answer, &what)?;
        // SAFETY: a device of the set, whose parameters were set above.
        done(unsafe { SetupDiCallClassInstaller(DIF_PROPERTYCHANGE, set.0, &raw const data) }, &what)?;
        let mut outcome =
            SP_DEVINSTALL_PARAMS_W { cbSize: size_of::<SP_DEVINSTALL_PARAMS_W>() as u32, ..Default::default() };
        // SAFETY: a device of the set, a structure of the size that it says.
        done(unsafe { SetupDiGetDeviceInstallParamsW(set.0, &raw const data, &raw mut outcome) }, &what)?;
        Ok(outcome.Flags & (DI_NEEDRESTART | DI_NEEDREBOOT) != 0)
    }
}

impl Devices for SetupApi {
    fn list(&self) -> Result<Vec<AdapterDevice>, Failure> {
        let set = DeviceSet::of_adapters()?;
        set.ours().iter().map(|data| set.describe(data)).collect()
    }

    fn register(&self) -> Result<String, Failure> {
        const WHAT: &str = "cannot make a device";
        let class = &GUID_DEVCLASS_NET;
        // SAFETY: a class, no window.
        let set = DeviceSet::of(unsafe { SetupDiCreateDeviceInfoList(class, ptr::null_mut()) }, WHAT)?;
        let mut data = empty();
        // SAFETY: an open set, a name with its zero, a structure of the size that it says.
        let answer = unsafe {
            let (description, window) = (ptr::null(), ptr::null_mut());
            SetupDiCreateDeviceInfoW(set.0, w!("SOFTNDK"), class, description, window, DICD_GENERATE_ID, &raw mut data)
        };
        done(answer, WHAT)?;
        // A list of one text ends with a second zero.
        let ids: Vec<u16> = wide(HARDWARE_ID).into_iter().chain([0]).collect();
        let length = size_of_val(ids.as_slice()) as u32;
        // SAFETY: a device of the set, and as many bytes as the length says.
        let answer = unsafe {
            SetupDiSetDeviceRegistryPropertyW(set.0, &raw mut data, SPDRP_HARDWAREID, ids.as_ptr().cast(), length)
        };
        done(answer, WHAT)?;
        // SAFETY: a device of the set.
        done(unsafe { SetupDiCallClassInstaller(DIF_REGISTERDEVICE, set.0, &raw const data) }, WHAT)?;
        set.instance(&data)
    }

    fn install(&self, instance: &str, inf: Option<&Path>) -> Result<bool, Failure> {
        let what = format!("cannot install the driver of {instance}");
        let mut restart = 0;
        let answer = if let Some(inf) = inf {
            let (id, inf) = (wide(HARDWARE_ID), wide(&inf.to_string_lossy()));
            let flags = INSTALLFLAG_NONINTERACTIVE;
            // SAFETY: two texts with their zeros, a place for the answer, no window.
            unsafe {
                let restart = &raw mut restart;
                UpdateDriverForPlugAndPlayDevicesW(ptr::null_mut(), id.as_ptr(), inf.as_ptr(), flags, restart)
            }
        } else {
            let (set, data) = Self::find(instance, &what)?;
            // SAFETY: a device of the set, no window, the best driver that there is.
            unsafe { DiInstallDevice(ptr::null_mut(), set.0, &raw const data, ptr::null(), 0, &raw mut restart) }
        };
        // Windows may have found the driver in its store as soon as the device was there: then this one is no better.
        if answer == 0 && last_error() == ERROR_NO_MORE_ITEMS {
            return Ok(false);
        }
        done(answer, &what)?;
        Ok(restart != 0)
    }

    fn remove(&self, instance: &str) -> Result<bool, Failure> {
        let what = format!("cannot remove {instance}");
        let (set, data) = Self::find(instance, &what)?;
        let mut restart = 0;
        // SAFETY: a device of the set, no window.
        let answer = unsafe { DiUninstallDevice(ptr::null_mut(), set.0, &raw const data, 0, &raw mut restart) };
        done(answer, &what)?;
        Ok(restart != 0)
    }
}
