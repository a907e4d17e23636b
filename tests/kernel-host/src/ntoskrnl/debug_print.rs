//! Debug output, shown when the kernel is booted with it, and kept on request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::formatting::{self, Width};
use crate::{callout, exports};

static KEEPS: AtomicBool = AtomicBool::new(false);
static KEPT: Mutex<Vec<Printed>> = Mutex::new(Vec::new());

/// What an image printed in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// File name of the image.
    pub image: String,
    pub text: String,
}

/// From now on everything that images print is kept.
pub fn keep() {
    KEEPS.store(true, Ordering::Relaxed);
}

/// What was printed since [`keep`], oldest first.
#[must_use]
pub fn kept() -> Vec<Printed> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

exports! {
    module "ntoskrnl.exe";

    /// Prints a line to standard error, with the conversions of _vsnprintf.
    /// Source: WDM: DbgPrintEx
    [ANY] fn DbgPrintEx(
        _component: u32, _level: u32, format: *const u8,
        a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64,
    ) -> u32 {
        // SAFETY: a format with its arguments, as the documentation says.
        unsafe { print(format, &[a, b, c, d, e, f, g, h, i]) }
    }

    /// As DbgPrintEx, without component and level.
    /// Source: WDM: DbgPrint
    [ANY] fn DbgPrint(
        format: *const u8,
        a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64, j: u64, k: u64,
    ) -> u32 {
        // SAFETY: a format with its arguments, as the documentation says.
        unsafe { print(format, &[a, b, c, d, e, f, g, h, i, j, k]) }
    }
}

/// # Safety
///
/// The format is a C string and the arguments are what it describes; those it needs beyond them are 0.
unsafe fn print(format: *const u8, arguments: &[u64]) -> u32 {
    let mut rest = arguments.iter().copied();
    // SAFETY: the caller's contract.
    let text =
        unsafe { formatting::expand(&formatting::narrow(format, None), Width::Narrow, || rest.next().unwrap_or(0)) };
    let keeps = KEEPS.load(Ordering::Relaxed);
    let prints = crate::kernel::prints_debug_output();
    if keeps || prints {
        let image = callout::caller_image().map_or_else(|| "driver".to_owned(), |image| image.name.clone());
        if prints {
            eprint!("[{image}] {text}{}", if text.ends_with('\n') { "" } else { "\n" });
        }
        if keeps {
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(Printed { image, text });
        }
    }
    0
}
