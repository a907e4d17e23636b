//! Big-endian numbers in slices, without a panic.

/// Takes numbers from the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Puts numbers at the front of a slice. After the first that does not fit nothing is put.
pub(crate) struct Writer<'a> {
    rest: &'a mut [u8],
    written: usize,
    fits: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(into: &'a mut [u8]) -> Self {
        Self { rest: into, written: 0, fits: true }
    }

    pub(crate) fn put(mut self, bytes: &[u8]) -> Self {
        match core::mem::take(&mut self.rest).split_at_mut_checked(bytes.len()).filter(|_| self.fits) {
            Some((first, rest)) => {
                first.copy_from_slice(bytes);
                self.rest = rest;
                self.written = self.written.saturating_add(bytes.len());
            }
            None => self.fits = false,
        }
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// Bytes written; `None` where they did not all fit.
    pub(crate) fn finish(self) -> Option<usize> {
        self.fits.then_some(self.written)
    }
}
