//! The file object behind a handle: the open device, its own event, its completion port and how it tells of completions.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::completion_port::CompletionPort;
use super::handles::HandleCount;
use crate::dispatcher::Event;
use crate::io::File;
use crate::status::{self, NtStatus};

/// Modes of `SetFileCompletionNotificationModes`.
pub(super) const SKIP_COMPLETION_PORT_ON_SUCCESS: u8 = 1;
pub(super) const SKIP_SET_EVENT_ON_HANDLE: u8 = 2;

/// The port that a file's completions go to, with the file's key.
type Association = Option<(Arc<CompletionPort>, usize)>;

pub(super) struct FileObject {
    pub device_file: File,
    /// Opened with FILE_FLAG_OVERLAPPED.
    pub overlapped: bool,
    pub event: Event,
    pub handles: HandleCount,
    association: Mutex<Association>,
    modes: AtomicU8,
}

impl FileObject {
    pub fn new(device_file: File, overlapped: bool) -> Self {
        Self {
            device_file,
            overlapped,
            event: Event::notification(),
            handles: HandleCount::default(),
            association: Mutex::new(None),
            modes: AtomicU8::new(0),
        }
    }

    fn association(&self) -> MutexGuard<'_, Association> {
        self.association.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its port and key.
    pub fn port(&self) -> Association {
        self.association().clone()
    }

    /// STATUS_INVALID_PARAMETER: opened for synchronous use, or it has a port.
    pub fn associate(&self, port: Arc<CompletionPort>, key: usize) -> Result<(), NtStatus> {
        let mut association = self.association();
        if !self.overlapped || association.is_some() {
            return Err(status::STATUS_INVALID_PARAMETER);
        }
        *association = Some((port, key));
        Ok(())
    }

    pub fn add_modes(&self, modes: u8) {
        self.modes.fetch_or(modes, Ordering::SeqCst);
    }

    pub fn has_mode(&self, mode: u8) -> bool {
        self.modes.load(Ordering::SeqCst) & mode != 0
    }
}
