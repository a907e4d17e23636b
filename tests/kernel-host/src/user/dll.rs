//! A DLL in a process: a copy of the image for this process alone, with variables of its own, and `DllMain`.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::imports;
use super::process::{self, Process, ProcessState};
use crate::image::loader::{self, ImageError, ImportedFunction};
use crate::image::{Export, Image, ImageKind};

const DLL_PROCESS_DETACH: u64 = 0;
const DLL_PROCESS_ATTACH: u64 = 1;

/// Why a DLL is not loaded.
#[derive(Debug)]
pub enum DllError {
    /// The image is wrong, or imports what nothing exports; the error names it.
    Image(ImageError),
    /// `DllMain` returned FALSE, or the process was killed in it.
    DllMain,
}

impl fmt::Display for DllError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(error) => write!(formatter, "{error}"),
            Self::DllMain => write!(formatter, "DllMain refused"),
        }
    }
}

impl std::error::Error for DllError {}

/// A DLL that a process has loaded. It stays until [`Self::unload`], or until the process ends.
pub struct Dll {
    image: Arc<Image>,
}

pub(super) fn load(state: &Arc<ProcessState>, path: &Path) -> Result<Dll, DllError> {
    let image = map(state, ImageKind::Dll, path)?;
    attach(state, &image)?;
    Ok(Dll { image })
}

/// Maps an image into a process; nothing of it has run.
pub(super) fn map(state: &Arc<ProcessState>, kind: ImageKind, path: &Path) -> Result<Arc<Image>, DllError> {
    let resolve = |module: &str, function: ImportedFunction<'_>, own: &[Export]| {
        imports::address_for(state, module, function, own)
    };
    let image = loader::load_as(kind, path, &resolve).map_err(DllError::Image)?;
    state.memory.add_image(&image);
    state.images.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&image));
    Ok(image)
}

/// Runs `DllMain`; a DLL that refuses goes.
pub(super) fn attach(state: &Arc<ProcessState>, image: &Arc<Image>) -> Result<(), DllError> {
    if call_entry(state, image, DLL_PROCESS_ATTACH, false) == Some(true) {
        return Ok(());
    }
    take_out(state, image);
    Err(DllError::DllMain)
}

/// `DllMain`, if there is one; `None` when the process was killed. `ending`: the process ends, and not only the DLL.
pub(super) fn call_entry(state: &Arc<ProcessState>, image: &Arc<Image>, reason: u64, ending: bool) -> Option<bool> {
    if image.entry == image.base {
        return Some(true);
    }
    // SAFETY: the image's entry point with the documented arguments: its own base, the reason, and no pointer.
    let result = unsafe { process::try_call(state, image.entry, &[image.base as u64, reason, u64::from(ending)]) }?;
    Some(result & 0xFFFF_FFFF != 0)
}

/// Tells a DLL that its process ends.
pub(super) fn detach(state: &Arc<ProcessState>, image: &Arc<Image>, ending: bool) {
    if image.kind == ImageKind::Dll {
        call_entry(state, image, DLL_PROCESS_DETACH, ending);
    }
}

/// Takes an image out of its process's memory, once.
pub(super) fn take_out(state: &ProcessState, image: &Arc<Image>) {
    let mut images = state.images.lock().unwrap_or_else(PoisonError::into_inner);
    let before = images.len();
    images.retain(|other| !Arc::ptr_eq(other, image));
    let found = images.len() != before;
    drop(images);
    if found {
        state.memory.free(image.base);
    }
}

impl Dll {
    /// The address of an exported function.
    #[must_use]
    pub fn export(&self, name: &str) -> Option<usize> {
        self.image.exports.iter().find(|(own, _)| own == name).map(|(_, address)| *address)
    }

    /// The image, for its sections and its place.
    #[must_use]
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// `FreeLibrary`: DLL_PROCESS_DETACH, then the image goes. `process` is the one that has loaded it.
    pub fn unload(self, process: &Process) {
        if process.is_dead() {
            return;
        }
        detach(&process.state, &self.image, false);
        take_out(&process.state, &self.image);
    }
}
