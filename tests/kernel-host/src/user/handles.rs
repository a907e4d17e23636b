//! The handles of a process: multiples of four that mean something in this process only. One that was closed is used again as late as
//! possible, and no two processes have the same one, so that a wrong handle is seldom by chance a right one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::completion_port::CompletionPort;
use super::file::FileObject;
use super::threads::ThreadObject;
use super::user_mutex::UserMutex;
use crate::dispatcher::Event;
use crate::status::{self, NtStatus};

/// `GetCurrentProcess()`, and `INVALID_HANDLE_VALUE`.
pub(super) const CURRENT_PROCESS: usize = usize::MAX;

/// `GetCurrentThread()`.
pub(super) const CURRENT_THREAD: usize = usize::MAX - 1;

/// The low bits of a handle are the program's.
const LOW_BITS: usize = 3;

/// Handles that a process has open at once, at most.
const MOST: usize = 1 << 14;

/// How many handles were closed after one that is used again.
const UNUSED: usize = 1 << 12;

/// What a handle stands for.
#[derive(Clone)]
pub(super) enum Object {
    File(Arc<FileObject>),
    Event(Arc<Event>),
    Port(Arc<CompletionPort>),
    Thread(Arc<ThreadObject>),
    Mutex(Arc<UserMutex>),
    /// With its limit.
    Semaphore(Arc<Event>, i32),
}

impl Object {
    /// What a wait for it waits for.
    pub fn signal(&self) -> Option<&Event> {
        match self {
            Self::Event(event) | Self::Semaphore(event, _) => Some(event),
            Self::File(file) => Some(&file.event),
            Self::Thread(thread) => Some(&thread.ended),
            Self::Mutex(mutex) => Some(&mutex.free),
            Self::Port(_) => None,
        }
    }

    fn opened(&self) {
        match self {
            Self::File(file) => file.handles.opened(),
            Self::Port(port) => port.handles.opened(),
            Self::Event(_) | Self::Thread(_) | Self::Mutex(_) | Self::Semaphore(..) => {}
        }
    }

    fn closed(&self) {
        match self {
            Self::File(file) if file.handles.closed() => file.device_file.close_now(),
            Self::Port(port) if port.handles.closed() => port.abandon(),
            _ => {}
        }
    }
}

/// How many handles an object has.
#[derive(Default)]
pub(super) struct HandleCount(std::sync::atomic::AtomicUsize);

impl HandleCount {
    fn opened(&self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }

    /// Whether it was the last one.
    fn closed(&self) -> bool {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1
    }
}

#[derive(Default)]
struct HandleEntries {
    objects: Vec<Option<Object>>,
    /// Places that were closed, the oldest first.
    closed: VecDeque<usize>,
}

/// The handles of one process.
pub(super) struct ProcessHandles {
    first: usize,
    entries: Mutex<HandleEntries>,
}

impl ProcessHandles {
    pub fn of_process(number: u32) -> Self {
        Self { first: number as usize * (MOST + UNUSED) + 4, entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, HandleEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle; `None` when the process has as many as it may have.
    pub fn open(&self, object: Object) -> Option<usize> {
        let mut entries = self.entries();
        if entries.objects.len() - entries.closed.len() >= MOST {
            return None;
        }
        object.opened();
        let oldest = if entries.closed.len() > UNUSED { entries.closed.pop_front() } else { None };
        let place = oldest.unwrap_or(entries.objects.len());
        if place == entries.objects.len() {
            entries.objects.push(None);
        }
        entries.objects[place] = Some(object);
        Some(self.first + place * 4)
    }

    fn index(&self, handle: usize) -> Option<usize> {
        (handle & !LOW_BITS).checked_sub(self.first).map(|offset| offset / 4)
    }

    /// STATUS_INVALID_HANDLE: no open handle of this process.
    pub fn find(&self, handle: usize) -> Result<Object, NtStatus> {
        let entries = self.entries();
        let found = self.index(handle).and_then(|index| entries.objects.get(index)?.clone());
        found.ok_or(status::STATUS_INVALID_HANDLE)
    }

    /// As [`Self::find`]; STATUS_OBJECT_TYPE_MISMATCH: a handle of something else.
    pub fn file(&self, handle: usize) -> Result<Arc<FileObject>, NtStatus> {
        match self.find(handle)? {
            Object::File(file) => Ok(file),
            _ => Err(status::STATUS_OBJECT_TYPE_MISMATCH),
        }
    }

    /// As [`Self::file`], for an event.
    pub fn event(&self, handle: usize) -> Result<Arc<Event>, NtStatus> {
        match self.find(handle)? {
            Object::Event(event) => Ok(event),
            _ => Err(status::STATUS_OBJECT_TYPE_MISMATCH),
        }
    }

    /// As [`Self::file`], for a completion port.
    pub fn port(&self, handle: usize) -> Result<Arc<CompletionPort>, NtStatus> {
        match self.find(handle)? {
            Object::Port(port) => Ok(port),
            _ => Err(status::STATUS_OBJECT_TYPE_MISMATCH),
        }
    }

    /// Closes a handle; with the last one of a file its device gets CLEANUP and CLOSE. STATUS_INVALID_HANDLE as [`Self::find`].
    pub fn close(&self, handle: usize) -> Result<(), NtStatus> {
        let index = self.index(handle);
        let mut entries = self.entries();
        let taken = index.and_then(|index| Some((index, entries.objects.get_mut(index)?.take()?)));
        let (index, object) = taken.ok_or(status::STATUS_INVALID_HANDLE)?;
        entries.closed.push_back(index);
        drop(entries);
        object.closed();
        Ok(())
    }

    /// Closes every handle, in the order in which they were opened.
    pub fn close_all(&self) {
        let entries = std::mem::take(&mut *self.entries());
        entries.objects.into_iter().flatten().for_each(|object| object.closed());
    }

    pub fn count(&self) -> usize {
        self.entries().objects.iter().flatten().count()
    }
}
