//! Counted strings and random numbers.

use crate::exports;
use crate::nt::UNICODE_STRING;
use crate::status::{NtStatus, STATUS_BUFFER_TOO_SMALL, STATUS_SUCCESS};

exports! {
    module "ntoskrnl.exe";

    /// Points a UNICODE_STRING at a terminated string.
    /// Source: WDM: RtlInitUnicodeString
    [ANY] fn RtlInitUnicodeString(string: *mut UNICODE_STRING, source: *mut u16) {
        let mut length = 0_usize;
        // SAFETY: the image's string, terminated by 0.
        unsafe {
            while !source.is_null() && source.add(length).read() != 0 {
                length += 1;
            }
            let bytes = (length * 2).min(0xFFFC) as u16;
            let capacity = if source.is_null() { 0 } else { bytes + 2 };
            string.write(UNICODE_STRING { Length: bytes, MaximumLength: capacity, Buffer: source });
        }
    }

    /// Whether two strings are equal, with or without regard to case.
    /// Source: WDM: RtlEqualUnicodeString
    [PASSIVE_ONLY] fn RtlEqualUnicodeString(first: *const UNICODE_STRING, second: *const UNICODE_STRING, fold: u8) -> u8 {
        // SAFETY: the image's strings.
        let (first, second) = unsafe { ((*first).text(), (*second).text()) };
        u8::from(if fold != 0 { first.to_uppercase() == second.to_uppercase() } else { first == second })
    }

    /// Copies as much as fits.
    /// Source: WDM: RtlCopyUnicodeString
    [UP_TO_DISPATCH] fn RtlCopyUnicodeString(destination: *mut UNICODE_STRING, source: *const UNICODE_STRING) {
        // SAFETY: the image's strings.
        unsafe {
            if source.is_null() {
                (*destination).Length = 0;
                return;
            }
            let bytes = (*source).Length.min((*destination).MaximumLength) & !1;
            std::ptr::copy((*source).Buffer, (*destination).Buffer, usize::from(bytes) / 2);
            (*destination).Length = bytes;
        }
    }

    /// Adds a terminated string.
    /// Checks: STATUS_BUFFER_TOO_SMALL when it does not fit
    /// Source: WDM: RtlAppendUnicodeToString
    [ANY] fn RtlAppendUnicodeToString(destination: *mut UNICODE_STRING, source: *const u16) -> NtStatus {
        let mut length = 0_usize;
        // SAFETY: the image's strings.
        unsafe {
            while !source.is_null() && source.add(length).read() != 0 {
                length += 1;
            }
            append(destination, source, length)
        }
    }

    /// Adds a counted string.
    /// Checks: STATUS_BUFFER_TOO_SMALL when it does not fit
    /// Source: WDM: RtlAppendUnicodeStringToString
    [ANY] fn RtlAppendUnicodeStringToString(
        destination: *mut UNICODE_STRING, source: *const UNICODE_STRING,
    ) -> NtStatus {
        // SAFETY: the image's strings.
        unsafe { append(destination, (*source).Buffer, usize::from((*source).Length) / 2) }
    }

    /// A pseudo-random number below 2^31 from the caller's seed.
    /// Source: WDM: RtlRandomEx
    [UP_TO_APC] fn RtlRandomEx(seed: *mut u32) -> u32 {
        // SAFETY: the image's seed.
        unsafe {
            let next = seed.read().wrapping_mul(0x7FFF_FFED).wrapping_add(0x7FFF_FFC3) % 0x7FFF_FFFF;
            seed.write(next);
            next
        }
    }

    /// Which Windows this is: the build that the configuration says.
    /// Source: WDM: RtlGetVersion
    [PASSIVE_ONLY] fn RtlGetVersion(information: *mut u32) -> NtStatus {
        // SAFETY: the image's RTL_OSVERSIONINFOW: size, major, minor, build, platform.
        unsafe {
            information.add(1).write(10);
            information.add(2).write(0);
            information.add(3).write(crate::kernel::build_number());
            information.add(4).write(2);
        }
        STATUS_SUCCESS
    }
}

/// Adds characters, and a zero behind them where one fits.
unsafe fn append(destination: *mut UNICODE_STRING, characters: *const u16, count: usize) -> NtStatus {
    // SAFETY: the caller's contract.
    unsafe {
        let used = usize::from((*destination).Length) / 2;
        let capacity = usize::from((*destination).MaximumLength) / 2;
        if capacity - used < count {
            return STATUS_BUFFER_TOO_SMALL;
        }
        std::ptr::copy(characters, (*destination).Buffer.add(used), count);
        (*destination).Length += 2 * count as u16;
        if capacity - used > count {
            (*destination).Buffer.add(used + count).write(0);
        }
    }
    STATUS_SUCCESS
}
