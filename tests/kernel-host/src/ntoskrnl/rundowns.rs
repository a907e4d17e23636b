//! Rundown protection.

use crate::exports;
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
    [UP_TO_DISPATCH] fn ExAcquireRundownProtection(reference: *mut u64) -> u8 {
        // SAFETY: the image's reference.
        u8::from(unsafe { rundown::acquire(reference) })
    }

    /// Checks: acquired before
    /// Source: WDM: ExReleaseRundownProtection
    [UP_TO_DISPATCH] fn ExReleaseRundownProtection(reference: *mut u64) {
        // SAFETY: the image's reference.
        unsafe { rundown::release(reference) };
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
