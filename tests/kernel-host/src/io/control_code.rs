//! I/O control codes: device type, access, function and method in one word (WDM: Defining I/O Control Codes).

/// A 32-bit control code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlCode(pub u32);

/// How buffers travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Buffered,
    InDirect,
    OutDirect,
    Neither,
}

impl ControlCode {
    #[must_use]
    pub fn method(self) -> Method {
        match self.0 & 3 {
            0 => Method::Buffered,
            1 => Method::InDirect,
            2 => Method::OutDirect,
            _ => Method::Neither,
        }
    }

    /// The file rights a handle needs: `FILE_READ_DATA` 1, `FILE_WRITE_DATA` 2.
    #[must_use]
    pub fn required_access(self) -> u32 {
        self.0 >> 14 & 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_code() {
        // CTL_CODE(0x8000, 0x801, METHOD_OUT_DIRECT, FILE_READ_DATA | FILE_WRITE_DATA)
        let code = ControlCode(0x8000 << 16 | 3 << 14 | 0x801 << 2 | 2);
        assert_eq!(code.method(), Method::OutDirect);
        assert_eq!(code.required_access(), 3);
        assert_eq!(ControlCode(0x8000 << 16).required_access(), 0);
    }
}
