//! Reading a device's driver key: the configuration handle, its parameters, the network address. What is read belongs to the
//! handle and is freed with it, so that a driver that keeps a pointer faults.
//!
//! Values are text in the registry; reading one as an integer converts it as `RtlUnicodeStringToInteger` does, which takes the
//! digits it finds and never fails.

use std::ffi::c_void;
use std::sync::Mutex;

use ndkpi_sys::ndis::{NDIS_CONFIGURATION_OBJECT, NDIS_CONFIGURATION_PARAMETER};
use ndkpi_sys::nt::UNICODE_STRING;

use super::attributes::{ExpectedHeader, check_header};
use super::loan::{Loan, LoanedBytes};
use super::miniport::lock;
use super::rule::{Group, broken, live};
use super::{NdisStatus, ndis, status};

/// `NDIS_PARAMETER_TYPE`.
const INTEGER: i32 = 0;
const HEX_INTEGER: i32 = 1;
const STRING: i32 = 2;

/// An open configuration: its owner and what it has given out.
pub struct Configuration {
    pub handle: usize,
    /// The miniport, or the miniport driver, that the values belong to.
    pub owner: usize,
    values: Vec<(String, String)>,
    given_out: Mutex<Vec<GivenOut>>,
}

/// Memory that is valid as long as the handle.
enum GivenOut {
    Parameter { _parameter: Loan<NDIS_CONFIGURATION_PARAMETER>, _text: Option<LoanedBytes> },
    Bytes { _bytes: LoanedBytes },
}

// SAFETY: the lent memory is read and written by the image only; the host frees it, which any thread may do.
unsafe impl Send for GivenOut {}

impl Configuration {
    fn value(&self, keyword: &str) -> Option<&str> {
        let found = self.values.iter().find(|(name, _)| name.eq_ignore_ascii_case(keyword));
        found.map(|(_, text)| text.as_str())
    }

    fn parameter(&self, text: &str, kind: i32) -> *mut NDIS_CONFIGURATION_PARAMETER {
        let mut parameter = NDIS_CONFIGURATION_PARAMETER::zeroed();
        parameter.ParameterType.0 = kind;
        let mut memory = None;
        if kind == STRING {
            let units: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
            let bytes = LoanedBytes::copy_of(&units);
            let length = (units.len() - 2) as u16;
            parameter.ParameterData.StringData =
                UNICODE_STRING { Length: length, MaximumLength: length + 2, Buffer: bytes.as_pointer().cast() };
            memory = Some(bytes);
        } else {
            parameter.ParameterData.IntegerData = integer(text, if kind == HEX_INTEGER { 16 } else { 10 });
        }
        let parameter = Loan::new(parameter);
        let pointer = parameter.as_pointer();
        lock(&self.given_out).push(GivenOut::Parameter { _parameter: parameter, _text: memory });
        pointer
    }
}

/// What `RtlUnicodeStringToInteger` makes of a text: blanks, sign, an optional prefix, then digits as long as they last.
fn integer(text: &str, base: u32) -> u32 {
    let text = text.trim_start();
    let (negative, digits) = text.strip_prefix('-').map_or((false, text.trim_start_matches('+')), |rest| (true, rest));
    let digits = if base == 16 { digits.trim_start_matches("0x") } else { digits };
    let value = digits.chars().map_while(|digit| digit.to_digit(base));
    let value = value.fold(0_u32, |value, digit| value.wrapping_mul(base).wrapping_add(digit));
    if negative { value.wrapping_neg() } else { value }
}

/// Six bytes out of twelve hexadecimal digits, with or without dashes between the pairs.
fn network_address(text: &str) -> Option<[u8; 6]> {
    let digits: Vec<u32> =
        text.chars().filter(|character| *character != '-').map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let mut address = [0; 6];
    let pairs = digits.chunks_exact(2);
    if digits.len() != 12 {
        return None;
    }
    for (byte, pair) in address.iter_mut().zip(pairs) {
        *byte = (pair.iter().fold(0, |value, digit| value * 16 + digit)) as u8;
    }
    Some(address)
}

/// The text of a counted string that an image passes, with unpaired surrogates replaced.
pub fn text_of(string: *const UNICODE_STRING) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: not null; a counted string by contract.
    let string = unsafe { string.read_unaligned() };
    if string.Length % 2 != 0 || string.Length > string.MaximumLength || (string.Buffer.is_null() && string.Length != 0)
    {
        return None;
    }
    // SAFETY: the string says that its buffer has this many units.
    let units: Vec<u16> =
        (0..usize::from(string.Length) / 2).map(|index| unsafe { string.Buffer.add(index).read_unaligned() }).collect();
    Some(String::from_utf16_lossy(&units))
}

fn configuration(handle: *mut c_void, function: &str) -> std::sync::Arc<Configuration> {
    live(ndis().configurations.get(handle), function, "configuration", handle)
}

crate::exports! {
    module "ndis.sys";

    /// Opens the driver key of an adapter.
    /// Checks: object header, Flags 0, a live miniport handle.
    /// Source: NDIS: NdisOpenConfigurationEx, NDIS_CONFIGURATION_OBJECT
    [PASSIVE_ONLY] fn NdisOpenConfigurationEx(object: *const NDIS_CONFIGURATION_OBJECT, handle: *mut *mut c_void) -> NdisStatus {
        const NAME: &str = "NDIS_CONFIGURATION_OBJECT";
        if object.is_null() || handle.is_null() {
            broken(Group::Configuration, 0, "NdisOpenConfigurationEx: a required pointer is NULL");
        }
        // SAFETY: not null; the driver's structure by contract.
        let object = unsafe { object.read_unaligned() };
        let expected = ExpectedHeader { structure: NAME, object_type: 0xA9, revision: 1, size: 0x14, size_of: 0x18 };
        if let Err(rule) = check_header(object.Header, expected) {
            broken(Group::Configuration, 0, format!("NdisOpenConfigurationEx: {rule}"));
        }
        if object.Flags != 0 {
            broken(Group::Configuration, 0, format!("NdisOpenConfigurationEx: Flags {:#x} must be 0", object.Flags));
        }
        let miniport = super::miniport::miniport(object.NdisHandle, "NdisOpenConfigurationEx");
        if crate::fault::should_fail("NdisOpenConfigurationEx") {
            return status::RESOURCES;
        }
        let values = lock(&miniport.config).values().clone().into_iter().collect();
        let opened = ndis().configurations.insert_with(|number| Configuration {
            handle: number,
            owner: miniport.handle,
            values,
            given_out: Mutex::new(Vec::new()),
        });
        // SAFETY: the caller's out parameter.
        unsafe { handle.write(opened.handle as *mut c_void) };
        status::SUCCESS
    }

    /// Reads one value; integers are converted from the text in the registry.
    /// Checks: a live configuration handle, a well-formed keyword, a type that the registry can give.
    /// Source: NDIS: NdisReadConfiguration, NDIS_CONFIGURATION_PARAMETER
    [PASSIVE_ONLY] fn NdisReadConfiguration(
        answer: *mut NdisStatus,
        parameter: *mut *mut NDIS_CONFIGURATION_PARAMETER,
        handle: *mut c_void,
        keyword: *const UNICODE_STRING,
        kind: i32,
    ) {
        let configuration = configuration(handle, "NdisReadConfiguration");
        let Some(keyword) = text_of(keyword) else {
            broken(Group::Configuration, configuration.handle, "NdisReadConfiguration: the keyword is no counted string");
        };
        if !(INTEGER..=STRING).contains(&kind) {
            broken(Group::Configuration, configuration.handle, format!("NdisReadConfiguration: {kind} is no readable type"));
        }
        let found = configuration.value(&keyword).map(|text| configuration.parameter(text, kind));
        let found = found.filter(|_| !crate::fault::should_fail("NdisReadConfiguration"));
        // SAFETY: the caller's out parameters.
        unsafe {
            parameter.write(found.unwrap_or(std::ptr::null_mut()));
            answer.write(if found.is_some() { status::SUCCESS } else { status::FAILURE });
        }
    }

    /// Reads the NetworkAddress value as bytes.
    /// Checks: a live configuration handle.
    /// Source: NDIS: NdisReadNetworkAddress
    [PASSIVE_ONLY] fn NdisReadNetworkAddress(
        answer: *mut NdisStatus,
        address: *mut *mut c_void,
        length: *mut u32,
        handle: *mut c_void,
    ) {
        let configuration = configuration(handle, "NdisReadNetworkAddress");
        let found = configuration.value("NetworkAddress").and_then(network_address).map(|bytes| LoanedBytes::copy_of(&bytes));
        let pointer = found.as_ref().map_or(std::ptr::null_mut(), |bytes| bytes.as_pointer().cast());
        // SAFETY: the caller's out parameters.
        unsafe {
            address.write(pointer);
            length.write(if found.is_some() { 6 } else { 0 });
            answer.write(if found.is_some() { status::SUCCESS } else { status::FAILURE });
        }
        lock(&configuration.given_out).extend(found.map(|bytes| GivenOut::Bytes { _bytes: bytes }));
    }

    /// Closes a configuration; everything read through it is gone.
    /// Checks: a live configuration handle.
    /// Source: NDIS: NdisCloseConfiguration
    [PASSIVE_ONLY] fn NdisCloseConfiguration(handle: *mut c_void) {
        live(ndis().configurations.remove(handle), "NdisCloseConfiguration", "configuration", handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_the_run_time_library_reads_them() {
        assert_eq!(integer("100000", 10), 100_000);
        assert_eq!(integer("  -1", 10), u32::MAX);
        assert_eq!(integer("12abc", 10), 12);
        assert_eq!(integer("abc", 10), 0);
        assert_eq!(integer("", 10), 0);
        assert_eq!(integer("0x1F", 16), 0x1F);
        assert_eq!(integer("4294967296", 10), 0);
    }

    #[test]
    fn a_network_address_has_twelve_digits() {
        assert_eq!(network_address("02-00-0A-0b-0C-0D"), Some([2, 0, 10, 11, 12, 13]));
        assert_eq!(network_address("02000A0B0C0D"), Some([2, 0, 10, 11, 12, 13]));
        assert_eq!(network_address("02000A0B0C0"), None);
        assert_eq!(network_address("02000A0B0C0G"), None);
    }
}
