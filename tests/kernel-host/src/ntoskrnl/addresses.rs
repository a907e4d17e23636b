//! Internet addresses as text.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::exports;
use crate::status::{NtStatus, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

exports! {
    module "ntoskrnl.exe";

    /// Reads `a.b.c.d` or `a.b.c.d:port`; only the dotted decimal form, which Windows calls strict.
    /// Source: RTL: RtlIpv4StringToAddressExW
    [PASSIVE_ONLY] fn RtlIpv4StringToAddressExW(text: *const u16, _strict: u8, address: *mut [u8; 4], port: *mut u16) -> NtStatus {
        // SAFETY: the image's string.
        let text = unsafe { terminated(text) };
        let (host, number) = match text.rsplit_once(':') {
            Some((host, digits)) => (host, number(digits)),
            None => (text.as_str(), Some(0)),
        };
        let (Ok(parsed), Some(number)) = (host.parse::<Ipv4Addr>(), number) else { return STATUS_INVALID_PARAMETER };
        // SAFETY: the image's outputs; the port is in network order.
        unsafe {
            address.write_unaligned(parsed.octets());
            port.write_unaligned(number.to_be());
        }
        STATUS_SUCCESS
    }

    /// Reads `x:x::x`, with `%zone` behind it, and as `[x:x::x%zone]:port`.
    /// Source: RTL: RtlIpv6StringToAddressExW
    [PASSIVE_ONLY] fn RtlIpv6StringToAddressExW(
        text: *const u16, address: *mut [u8; 16], zone: *mut u32, port: *mut u16,
    ) -> NtStatus {
        // SAFETY: the image's string.
        let text = unsafe { terminated(text) };
        let Some((parsed, scope, number)) = parse_v6(&text) else { return STATUS_INVALID_PARAMETER };
        // SAFETY: the image's outputs; the port is in network order.
        unsafe {
            address.write_unaligned(parsed.octets());
            zone.write_unaligned(scope);
            port.write_unaligned(number.to_be());
        }
        STATUS_SUCCESS
    }
}

/// A port: Windows takes none that is 0.
fn number(digits: &str) -> Option<u16> {
    digits.parse().ok().filter(|port| *port != 0)
}

fn parse_v6(text: &str) -> Option<(Ipv6Addr, u32, u16)> {
    let (inner, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inner, behind) = rest.split_once(']')?;
            let port = if behind.is_empty() { 0 } else { number(behind.strip_prefix(':')?)? };
            (inner, port)
        }
        None => (text, 0),
    };
    let (address, zone) = match inner.split_once('%') {
        Some((address, zone)) => (address, zone.parse().ok()?),
        None => (inner, 0),
    };
    Some((address.parse().ok()?, zone, port))
}

/// # Safety
///
/// `text` is terminated by 0.
unsafe fn terminated(text: *const u16) -> String {
    let mut length = 0;
    // SAFETY: the caller's contract.
    unsafe {
        while text.add(length).read() != 0 {
            length += 1;
        }
        String::from_utf16_lossy(std::slice::from_raw_parts(text, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_zones_and_ports() {
        let address: Ipv6Addr = "fe80::1".parse().expect("an address");
        assert_eq!(parse_v6("fe80::1"), Some((address, 0, 0)));
        assert_eq!(parse_v6("fe80::1%12"), Some((address, 12, 0)));
        assert_eq!(parse_v6("[fe80::1%12]:445"), Some((address, 12, 445)));
        for wrong in ["fe80::1:", "[fe80::1]:0", "[fe80::1", "fe80::1%x", "10.0.0.1"] {
            assert_eq!(parse_v6(wrong), None, "{wrong}");
        }
    }
}
