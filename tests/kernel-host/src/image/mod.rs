//! Driver images: what is loaded, where it lies, and what of it is code. The loader is in [`loader`], names and line
//! numbers in [`symbols`], unwinding in [`stack_trace`].

mod coverage;
mod load_configuration;
pub mod loader;
pub mod stack_trace;
pub mod symbols;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use crate::memory::address_space::Reservation;

/// One section as mapped.
#[derive(Clone, Debug)]
pub struct Section {
    pub name: String,
    pub address: usize,
    pub length: usize,
    /// The part of it that holds something; the rest fills the last page.
    pub used: usize,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
}

impl Section {
    /// Its name without the zeroes behind it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.trim_end_matches('\0')
    }

    /// Windows may page it out, unless the driver sees to it that it stays.
    pub(crate) fn is_pageable(&self) -> bool {
        self.name.starts_with("PAGE")
    }
}

/// One export.
pub(crate) struct Export {
    pub name: Option<String>,
    pub ordinal: u16,
    pub target: Target,
}

/// Where an export is.
pub(crate) enum Target {
    Address(usize),
    /// In another module: `module.name` or `module.#number`.
    Forwarder(String),
}

/// What an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// The kernel's; it exports to other drivers.
    Driver,
    /// A process's own copy of a DLL.
    Dll,
    /// The program of a process.
    Program,
}

impl ImageKind {
    /// It belongs to a process of user mode.
    #[must_use]
    pub fn is_user(self) -> bool {
        self != Self::Driver
    }
}

/// The variables that each thread has of its own: IMAGE_TLS_DIRECTORY.
#[derive(Clone, Debug)]
pub(crate) struct ThreadLocals {
    /// What a thread's copy begins with.
    pub template: std::ops::Range<usize>,
    /// How many zeroes follow.
    pub zeroes: usize,
    /// Where the image wants the number of its copy.
    pub index: usize,
    /// Functions that are called as DllMain is.
    pub callbacks: Vec<usize>,
}

/// A loaded image.
pub struct Image {
    pub name: String,
    pub path: PathBuf,
    pub kind: ImageKind,
    pub base: usize,
    pub length: usize,
    pub entry: usize,
    pub sections: Vec<Section>,
    /// What a program asks for its threads' stacks.
    pub(crate) stack_reserve: usize,
    pub(crate) thread_locals: Option<ThreadLocals>,
    /// Names that it exports, with addresses (or the variable's address).
    pub exports: Vec<(String, usize)>,
    /// The same with what has no name or lies elsewhere, for other images' imports.
    pub(crate) export_table: Vec<Export>,
    pub(crate) call_targets: load_configuration::CallTargets,
    pub(crate) unwind: stack_trace::UnwindModule,
    pub(crate) symbols: symbols::Symbols,
    pub(crate) reservation: Reservation,
    pub(crate) frames: std::ops::Range<u32>,
}

impl Image {
    pub fn contains(&self, address: usize) -> bool {
        (self.base..self.base + self.length).contains(&address)
    }

    /// The section that holds an address.
    pub fn section(&self, address: usize) -> Option<&Section> {
        self.sections.iter().find(|section| (section.address..section.address + section.length).contains(&address))
    }
}

static IMAGES: RwLock<Vec<Arc<Image>>> = RwLock::new(Vec::new());

fn images() -> std::sync::RwLockReadGuard<'static, Vec<Arc<Image>>> {
    IMAGES.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Every loaded image.
pub fn all() -> Vec<Arc<Image>> {
    images().clone()
}

/// The image that an address lies in.
pub fn containing(address: usize) -> Option<Arc<Image>> {
    images().iter().find(|image| image.contains(address)).cloned()
}

thread_local! {
    /// Answers of [`base_containing`], each at a place that its address names: base and end, and `CHANGES` at the time.
    static FOUND: [Cell<(usize, usize, u64)>; FOUND_PLACES] = const { [const { Cell::new((0, 0, 0)) }; FOUND_PLACES] };
}

const FOUND_PLACES: usize = 16;

/// How often an image has been loaded or unloaded.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// The base of the image that an address lies in; for those who ask often.
pub(crate) fn base_containing(address: usize) -> Option<usize> {
    const NEAR: usize = 0x1_0000;
    FOUND.with(|found| {
        let place = &found[address / NEAR % FOUND_PLACES];
        let changes = CHANGES.load(Ordering::Acquire);
        let (base, end, at) = place.get();
        if at == changes && (base..end).contains(&address) {
            return Some(base);
        }
        let (base, end) = range_containing(address)?;
        place.set((base, end, changes));
        Some(base)
    })
}

#[cold]
fn range_containing(address: usize) -> Option<(usize, usize)> {
    images().iter().find(|image| image.contains(address)).map(|image| (image.base, image.base + image.length))
}

/// Whether an address is executable code of a loaded image.
pub fn contains_code(address: usize) -> bool {
    images().iter().any(|image| image.section(address).is_some_and(|section| section.executable))
}

/// Whether an indirect call may go to an address of an image; `None` when it lies in none. Takes no memory and little stack.
pub(crate) fn is_call_target(address: usize) -> Option<bool> {
    let images = images();
    let image = images.iter().find(|image| image.contains(address))?;
    Some(match &image.call_targets {
        Some(targets) => targets.binary_search(&((address - image.base) as u32)).is_ok(),
        None => image.section(address).is_some_and(|section| section.executable),
    })
}

/// Whether a range lies in sections of a loaded image that nothing can write: where constant tables belong.
pub fn contains_read_only(address: usize, length: usize) -> bool {
    images().iter().any(|image| {
        image.section(address).is_some_and(|section| {
            !section.writable && address.checked_add(length).is_some_and(|end| end <= section.address + section.length)
        })
    })
}

pub(crate) fn register(image: Arc<Image>) {
    IMAGES.write().unwrap_or_else(std::sync::PoisonError::into_inner).push(image);
    CHANGES.fetch_add(1, Ordering::Release);
}

pub(crate) fn forget(image: &Arc<Image>) {
    IMAGES.write().unwrap_or_else(std::sync::PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, image));
    CHANGES.fetch_add(1, Ordering::Release);
    load_configuration::forget_known_targets();
}
