//! `NDIS_HANDLE`s that a driver gets: numbers that are no addresses, so that a driver that follows one faults at once.
//!
//! A table records the kind of each number, also after it was freed: using a stale handle or one of another kind is reported as
//! that, and never finds another object.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Above the addresses of user space and below those of the kernel: no canonical address, any access faults.
const FIRST: usize = 0x00ED_1500_0000_0000;
const STEP: usize = 0x10;

/// Why a number is not the handle it is used as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandleProblem {
    Null,
    NeverIssued(usize),
    Freed(usize),
}

impl fmt::Display for HandleProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => write!(formatter, "the handle is NULL"),
            Self::NeverIssued(value) => write!(formatter, "{value:#x} was never given out as such a handle"),
            Self::Freed(value) => write!(formatter, "{value:#x} was freed before"),
        }
    }
}

/// Handles of one kind.
pub struct HandleTable<T> {
    kind: usize,
    inner: Mutex<HandleRecords<T>>,
}

struct HandleRecords<T> {
    live: HashMap<usize, Arc<T>>,
    issued: usize,
}

impl<T> HandleTable<T> {
    /// A table whose handles differ from those of every table with another `kind` (below 256).
    #[must_use]
    pub fn new(kind: usize) -> Self {
        Self { kind, inner: Mutex::new(HandleRecords { live: HashMap::new(), issued: 0 }) }
    }

    /// Stores an object that is built with its own handle.
    pub fn insert_with(&self, build: impl FnOnce(usize) -> T) -> Arc<T> {
        let mut inner = self.lock();
        let handle = self.number(inner.issued);
        inner.issued += 1;
        let object = Arc::new(build(handle));
        inner.live.insert(handle, Arc::clone(&object));
        object
    }

    /// The object behind a live handle.
    pub fn get(&self, handle: *mut c_void) -> Result<Arc<T>, HandleProblem> {
        let inner = self.lock();
        inner.live.get(&(handle as usize)).cloned().ok_or_else(|| self.explain(&inner, handle as usize))
    }

    /// Takes the object out; the handle is stale from here on.
    pub fn remove(&self, handle: *mut c_void) -> Result<Arc<T>, HandleProblem> {
        let mut inner = self.lock();
        let object = inner.live.remove(&(handle as usize));
        object.ok_or_else(|| self.explain(&inner, handle as usize))
    }

    /// Every live object.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        let inner = self.lock();
        let mut pairs: Vec<_> = inner.live.iter().map(|(handle, object)| (*handle, Arc::clone(object))).collect();
        pairs.sort_by_key(|(handle, _)| *handle);
        pairs.into_iter().map(|(_, object)| object).collect()
    }

    fn explain(&self, inner: &HandleRecords<T>, handle: usize) -> HandleProblem {
        let issued =
            (0..inner.issued).contains(&(handle.wrapping_sub(self.number(0)) / STEP)) && handle.is_multiple_of(STEP);
        match handle {
            0 => HandleProblem::Null,
            _ if issued => HandleProblem::Freed(handle),
            _ => HandleProblem::NeverIssued(handle),
        }
    }

    fn number(&self, index: usize) -> usize {
        FIRST + (self.kind << 32) + index * STEP
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HandleRecords<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_foreign_and_null_handles_are_distinguished() {
        let table = HandleTable::new(1);
        let other = HandleTable::new(2);
        let handle = *table.insert_with(|handle| handle) as *mut c_void;
        let foreign = *other.insert_with(|handle| handle) as *mut c_void;
        assert!(table.get(handle).is_ok());
        assert_eq!(table.get(std::ptr::null_mut()), Err(HandleProblem::Null));
        assert_eq!(table.get(foreign), Err(HandleProblem::NeverIssued(foreign as usize)));
        assert!(table.remove(handle).is_ok());
        assert_eq!(table.get(handle), Err(HandleProblem::Freed(handle as usize)));
        assert_eq!(table.remove(handle), Err(HandleProblem::Freed(handle as usize)));
        assert_eq!(table.all().len(), 0);
    }
}
