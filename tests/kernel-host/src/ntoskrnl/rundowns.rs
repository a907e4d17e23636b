//! Rundown protection.

use crate::exports;
use crate::fast;
use crate::rundown;

exports! {
    module "ntoskrnl.exe";

    /// Source: WDM: ExInitializeRundownProtection
    [UP_TO_DISPATCH] fn ExInitializeRundownProtection(reference: *mut u64) {
        // SAFETY: the image's reference.
        unsafe { rundown::initialise(reference) };
    }

    /// FALSE once rundown has begun.
    /// Source: WDM: ExAcquireRundownProtection
    [UP_TO_DISPATCH, fast = fast::ExAcquireRundownProtection] fn ExAcquireRundownProtection(reference: *mut u64) -> u8 {
        // SAFETY: the image's reference.
        u8::from(unsafe { rundown::acquire(reference) })
    }

    /// Checks: acquired before
    /// Source: WDM: ExReleaseRundownProtection
    [UP_TO_DISPATCH, fast = fast::ExReleaseRundownProtection] fn ExReleaseRundownProtection(reference: *mut u64) {
        // SAFETY: the image's reference.
        unsafe { rundown::release(reference) };
    }

    /// Acquires several at once; FALSE, and none, once rundown has begun.
    /// Source: WDM: ExAcquireRundownProtectionEx
    [UP_TO_DISPATCH] fn ExAcquireRundownProtectionEx(reference: *mut u64, count: u32) -> u8 {
        for taken in 0..count {
            // SAFETY: the image's reference.
            unsafe {
                if !rundown::acquire(reference) {
                    (0..taken).for_each(|_| rundown::release(reference));
                    return 0;
                }
            }
        }
        1
    }

    /// Checks: acquired as often before
    /// Source: WDM: ExReleaseRundownProtectionEx
    [UP_TO_DISPATCH] fn ExReleaseRundownProtectionEx(reference: *mut u64, count: u32) {
        // SAFETY: the image's reference.
        (0..count).for_each(|_| unsafe { rundown::release(reference) });
    }

    /// Begins rundown and waits for the last release.
    /// Source: WDM: ExWaitForRundownProtectionRelease
    [UP_TO_APC] fn ExWaitForRundownProtectionRelease(reference: *mut u64) {
        // SAFETY: the image's reference.
        unsafe { rundown::wait(reference) };
    }

    /// Source: WDM: ExRundownCompleted
    [UP_TO_APC] fn ExRundownCompleted(reference: *mut u64) {
        // SAFETY: the image's reference.
        unsafe { rundown::completed(reference) };
    }

    /// Checks: run down before
    /// Source: WDM: ExReInitializeRundownProtection
    [UP_TO_APC] fn ExReInitializeRundownProtection(reference: *mut u64) {
        // SAFETY: the image's reference.
        unsafe { rundown::reinitialise(reference) };
    }
}
