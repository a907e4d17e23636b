//! What NDIS would write to its log: why it refused something with a status, so that a failing status has a reason.

use std::sync::{Mutex, PoisonError};

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Adds a sentence.
pub fn record(text: impl Into<String>) {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
}

/// Takes every sentence since the last call.
#[must_use]
pub fn take() -> Vec<String> {
    std::mem::take(&mut *NOTES.lock().unwrap_or_else(PoisonError::into_inner))
}
