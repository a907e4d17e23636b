//! The images of a program's process by name: the run-time library, DLLs that it has loaded, and how often.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::dll::{self, DllError};
use super::imports;
use super::process::ProcessState;
use super::start;
use crate::image::{Image, ImageKind, Target};

/// Forwarders that may follow each other.
const MOST_FORWARDERS: usize = 8;

/// A DLL, and how often LoadLibrary was called for it.
struct Library {
    image: Arc<Image>,
    uses: usize,
}

#[derive(Default)]
pub(super) struct Libraries {
    run_time: OnceLock<Arc<Image>>,
    program: OnceLock<Arc<Image>>,
    loaded: Mutex<Vec<Library>>,
    /// Mapped, in the order in which their DllMain has to run.
    unattached: Mutex<Vec<Arc<Image>>>,
    /// Images with thread-local variables, by their numbers.
    thread_locals: Mutex<Vec<Arc<Image>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Libraries {
    pub fn add_run_time(&self, image: Arc<Image>) {
        lock(&self.unattached).insert(0, Arc::clone(&image));
        let _ = self.run_time.set(image);
    }

    pub fn add_program(&self, image: &Arc<Image>) {
        let _ = self.program.set(Arc::clone(image));
    }

    pub fn run_time(&self) -> Option<&Arc<Image>> {
        self.run_time.get()
    }

    pub fn program(&self) -> Option<&Arc<Image>> {
        self.program.get()
    }

    fn loaded(&self, is_it: impl Fn(&Image) -> bool) -> Option<Arc<Image>> {
        lock(&self.loaded).iter().find(|library| is_it(&library.image)).map(|library| Arc::clone(&library.image))
    }

    /// The image with this name, without its path.
    pub fn named(&self, name: &str) -> Option<Arc<Image>> {
        self.loaded(|image| image.name.eq_ignore_ascii_case(name))
    }

    /// The image that a module handle stands for.
    pub fn at(&self, base: usize) -> Option<Arc<Image>> {
        let mut own = self.program.get().into_iter().chain(self.run_time.get());
        own.find(|image| image.base == base).cloned().or_else(|| self.loaded(|image| image.base == base))
    }

    /// Gives an image with thread-local variables its number; once.
    pub fn number_of(&self, process: &ProcessState, image: &Arc<Image>) -> usize {
        let mut numbered = lock(&self.thread_locals);
        if let Some(number) = numbered.iter().position(|other| Arc::ptr_eq(other, image)) {
            return number;
        }
        numbered.push(Arc::clone(image));
        let number = numbered.len() - 1;
        if let Some(locals) = &image.thread_locals {
            process.memory.write(locals.index, &(number as u32).to_le_bytes());
        }
        number
    }

    /// The images whose DllMain has not run.
    pub fn take_unattached(&self) -> Vec<Arc<Image>> {
        std::mem::take(&mut *lock(&self.unattached))
    }
}

/// The file name of a library as programs write it.
pub(super) fn file_name(path: &str) -> String {
    let name = path.rsplit(['\\', '/']).next().unwrap_or_default().to_ascii_lowercase();
    if name.contains('.') { name } else { format!("{name}.dll") }
}

/// Maps a DLL that is not there yet, with those that it needs; its DllMain has not run.
pub(super) fn map(state: &Arc<ProcessState>, name: &str) -> Option<Result<Arc<Image>, DllError>> {
    let libraries = &state.program.libraries;
    if let Some(image) = libraries.named(name) {
        return Some(Ok(image));
    }
    let path = start::find_library(state.program.setup()?, name)?;
    let mapped = dll::map(state, ImageKind::Dll, &path);
    if let Ok(image) = &mapped {
        lock(&libraries.loaded).push(Library { image: Arc::clone(image), uses: 0 });
        lock(&libraries.unattached).push(Arc::clone(image));
    }
    Some(mapped)
}

/// `LoadLibrary`: the module's handle. `None`: there is no such file, or it cannot be loaded.
pub(super) fn load(state: &Arc<ProcessState>, path: &str) -> Option<usize> {
    let name = file_name(path);
    if imports::is_of_system(&name) {
        return state.program.libraries.run_time().map(|image| image.base);
    }
    let image = match map(state, &name)? {
        Ok(image) => image,
        Err(error) => {
            state.program.write(format!("LoadLibrary of {name}: {error}\n").as_bytes());
            return None;
        }
    };
    for unattached in state.program.libraries.take_unattached() {
        if super::threads::attach_image(state, &unattached).is_err() {
            lock(&state.program.libraries.loaded).retain(|library| !Arc::ptr_eq(&library.image, &unattached));
            return None;
        }
    }
    let mut loaded = lock(&state.program.libraries.loaded);
    let library = loaded.iter_mut().find(|library| Arc::ptr_eq(&library.image, &image))?;
    library.uses += 1;
    Some(image.base)
}

/// `FreeLibrary`: the last one takes the DLL out. What it was loaded for by other images' imports stays.
pub(super) fn unload(state: &Arc<ProcessState>, base: usize) -> bool {
    let libraries = &state.program.libraries;
    if libraries.run_time().is_some_and(|image| image.base == base) {
        return true;
    }
    let mut loaded = lock(&libraries.loaded);
    let Some(place) = loaded.iter().position(|library| library.image.base == base) else { return false };
    let library = &mut loaded[place];
    if library.uses == 0 {
        return true;
    }
    library.uses -= 1;
    if library.uses > 0 {
        return true;
    }
    let image = loaded.swap_remove(place).image;
    drop(loaded);
    dll::detach(state, &image, false);
    dll::take_out(state, &image);
    true
}

/// What a module exports under a name or a number.
pub(super) fn export(
    state: &Arc<ProcessState>,
    image: &Image,
    is_it: impl Fn(&crate::image::Export) -> bool,
) -> Option<usize> {
    export_at_depth(state, image, &is_it, 0)
}

fn export_at_depth(
    state: &Arc<ProcessState>,
    image: &Image,
    is_it: &dyn Fn(&crate::image::Export) -> bool,
    depth: usize,
) -> Option<usize> {
    match &image.export_table.iter().find(|export| is_it(export))?.target {
        Target::Address(address) => Some(*address),
        Target::Forwarder(_) if depth == MOST_FORWARDERS => None,
        Target::Forwarder(forwarder) => {
            let (module, name) = forwarder.rsplit_once('.')?;
            let module = format!("{module}.dll");
            if imports::is_of_system(&module.to_ascii_lowercase()) {
                return imports::of_system(state, &module.to_ascii_lowercase(), name);
            }
            let other = map(state, &module)?.ok()?;
            export_at_depth(state, &other, &|export| export.name.as_deref() == Some(name), depth + 1)
        }
    }
}
