//! Maps a PE32+ image as the Windows loader does: sections at their addresses, relocations applied, imports bound to
//! stubs, protections set. The image's pages come from the memory file, so that an MDL over a global variable has real
//! page frames. Drivers and the DLLs of user programs differ in the subsystem, the addresses and who exports to them.
//!
//! Everything that cannot be resolved is reported at once: a missing import is an error that names all of them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::LittleEndian as LE;
use object::pe;
use object::read::pe::{ExportTarget, ImageNtHeaders as _, ImageOptionalHeader as _, Import, PeFile64};

use super::stack_trace::UnwindModule;
use super::symbols::Symbols;
use super::{Export, Image, ImageKind, Section, Target, ThreadLocals};
use super::{coverage, load_configuration};
use crate::bugcheck::{BugCheck, bugcheck};
use crate::export::{self, Resolved};
use crate::import_counts;
use crate::memory::address_space::{Protection, Reservation, Zone};
use crate::memory::{PAGE_SIZE, frames, paged};

/// Why an image could not be loaded.
#[derive(Debug)]
pub enum ImageError {
    Read(PathBuf, std::io::Error),
    Format(PathBuf, String),
    /// `module!name` of each import that nothing exports.
    UnresolvedImports(PathBuf, Vec<String>),
    NoMemory(PathBuf),
}

impl fmt::Display for ImageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(formatter, "{}: {error}", path.display()),
            Self::Format(path, reason) => write!(formatter, "{}: {reason}", path.display()),
            Self::UnresolvedImports(path, names) => {
                write!(formatter, "{}: nothing exports {}", path.display(), names.join(", "))
            }
            Self::NoMemory(path) => write!(formatter, "{}: no memory to map it", path.display()),
        }
    }
}

impl std::error::Error for ImageError {}

/// One function that an image imports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ImportedFunction<'image> {
    Name(&'image str),
    Ordinal(u16),
}

/// Where the function of a module is, for an image with these exports of its own.
pub(crate) type Resolver<'a> = &'a dyn Fn(&str, ImportedFunction<'_>, &[Export]) -> Option<usize>;

/// Maps the image at `path` and makes it known. Its entry point has not run.
pub fn load(path: &Path) -> Result<Arc<Image>, ImageError> {
    let image = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    load_as(ImageKind::Driver, path, &|module, function, _| match function {
        ImportedFunction::Name(name) => slot_of(&image, module, name),
        ImportedFunction::Ordinal(ordinal) => address_of_ordinal(module, ordinal, 0),
    })
}

/// As [`load`], for an image of this kind whose imports `resolve` knows.
pub(crate) fn load_as(kind: ImageKind, path: &Path, resolve: Resolver<'_>) -> Result<Arc<Image>, ImageError> {
    let bytes = std::fs::read(path).map_err(|error| ImageError::Read(path.to_owned(), error))?;
    let format = |reason: &str| ImageError::Format(path.to_owned(), reason.to_owned());
    let file = PeFile64::parse(&*bytes).map_err(|error| format(&error.to_string()))?;
    let headers = file.nt_headers();
    if headers.file_header().machine.get(LE) != pe::IMAGE_FILE_MACHINE_AMD64 {
        return Err(format("not an x64 image"));
    }
    let optional = headers.optional_header();
    check_kind(kind, &file).map_err(format)?;
    let length = (optional.size_of_image() as usize).next_multiple_of(PAGE_SIZE);
    let pages = length / PAGE_SIZE;
    let frames = frames::allocate_run(pages).ok_or_else(|| ImageError::NoMemory(path.to_owned()))?;
    let zone = match kind {
        ImageKind::Driver => Zone::Images,
        ImageKind::Dll | ImageKind::Program => Zone::UserBuffers,
    };
    let reservation = Reservation::new(zone, length).ok_or_else(|| ImageError::NoMemory(path.to_owned()))?;
    let base = reservation.address();
    let list: Vec<u32> = frames.clone().collect();
    if !reservation.try_map(&list, Protection::ReadWrite) {
        frames::free_run(frames);
        return Err(ImageError::NoMemory(path.to_owned()));
    }
    // SAFETY: the range was mapped read-write just now and no other thread has its address.
    let memory = unsafe { std::slice::from_raw_parts_mut(base as *mut u8, length) };
    memory.fill(0);
    copy_headers_and_sections(&file, &bytes, memory).map_err(|reason| format(&reason))?;
    relocate(&file, memory, base).map_err(|reason| format(&reason))?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let export_table = export_table(&file, base);
    let missing = bind_imports(&file, memory, &export_table, resolve).map_err(|reason| format(&reason))?;
    if !missing.is_empty() {
        reservation.release();
        frames::free_run(frames);
        return Err(ImageError::UnresolvedImports(path.to_owned(), missing));
    }
    let configuration = file.data_directories().get(pe::IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG);
    let configuration = configuration.map_or(0, |directory| directory.virtual_address.get(LE) as usize);
    let call_targets = if configuration == 0 { None } else { load_configuration::apply(memory, base, configuration) };
    let sections = describe_sections(&file, base);
    let imports = file.data_directory(pe::IMAGE_DIRECTORY_ENTRY_IAT).map(|directory| directory.virtual_address.get(LE));
    if kind == ImageKind::Driver {
        check_integrity(path, optional.section_alignment(), base, &sections, imports);
    }
    let thread_locals = if kind.is_user() { thread_locals(&file, memory, base) } else { None };
    protect(&reservation, base, length, &sections);
    let image = Arc::new(Image {
        call_targets,
        unwind: UnwindModule::new(&file, base),
        symbols: Symbols::new(path),
        exports: named(&export_table),
        export_table,
        entry: base + optional.address_of_entry_point() as usize,
        name,
        path: path.to_owned(),
        kind,
        base,
        length,
        sections,
        stack_reserve: optional.size_of_stack_reserve() as usize,
        thread_locals,
        reservation,
        frames,
    });
    super::register(Arc::clone(&image));
    if crate::kernel::is_verifying() && kind == ImageKind::Driver {
        image.sections.iter().filter(|section| section.is_pageable()).for_each(|section| {
            let what = format!("the pageable section {} of {}", section.name(), image.name);
            // SAFETY: pages of the image's reservation; `unload` takes the range back first.
            unsafe { paged::add(section.address, section.length, protection_of(section), what) };
        });
    }
    Ok(image)
}

/// Removes the image from the address space. No code may run in it any more.
pub fn unload(image: &Arc<Image>) {
    // Its functions have names only as long as it is there.
    crate::ndk::mediator::trace::flush();
    coverage::write(image);
    super::forget(image);
    image.sections.iter().filter(|section| section.is_pageable()).for_each(|section| paged::remove(section.address));
    image.reservation.release();
    frames::free_run(image.frames.clone());
}

/// The header says what the image is.
fn check_kind(kind: ImageKind, file: &PeFile64<'_>) -> Result<(), &'static str> {
    let headers = file.nt_headers();
    let subsystem = headers.optional_header().subsystem();
    let is_dll = headers.file_header().characteristics.get(LE).0 & pe::IMAGE_FILE_DLL.0 != 0;
    let is_windows = [pe::IMAGE_SUBSYSTEM_WINDOWS_GUI, pe::IMAGE_SUBSYSTEM_WINDOWS_CUI].contains(&subsystem);
    match kind {
        ImageKind::Driver if subsystem != pe::IMAGE_SUBSYSTEM_NATIVE => {
            Err("not a driver: its subsystem is not NATIVE")
        }
        ImageKind::Dll if !is_dll || !is_windows => Err("not a DLL of the Windows subsystem"),
        ImageKind::Program if is_dll || !is_windows => Err("not a program of the Windows subsystem"),
        _ => Ok(()),
    }
}

fn copy_headers_and_sections(file: &PeFile64<'_>, bytes: &[u8], memory: &mut [u8]) -> Result<(), String> {
    let headers = file.nt_headers().optional_header().size_of_headers() as usize;
    let source = bytes.get(..headers).ok_or("headers longer than the file")?;
    memory.get_mut(..headers).ok_or("headers longer than the image")?.copy_from_slice(source);
    for section in file.section_table().iter() {
        let (offset, size) = section.pe_file_range();
        let size = size.min(section.virtual_size.get(LE)) as usize;
        let source =
            bytes.get(offset as usize..offset as usize + size).ok_or("a section reaches past the end of the file")?;
        let start = section.virtual_address.get(LE) as usize;
        memory
            .get_mut(start..start + size)
            .ok_or("a section reaches past the end of the image")?
            .copy_from_slice(source);
    }
    Ok(())
}

fn relocate(file: &PeFile64<'_>, memory: &mut [u8], base: usize) -> Result<(), String> {
    let delta = (base as u64).wrapping_sub(file.nt_headers().optional_header().image_base());
    let directories = file.data_directories();
    let Some(mut blocks) =
        directories.relocation_blocks(file.data(), &file.section_table()).map_err(|error| error.to_string())?
    else {
        // An image with nothing to relocate may lie anywhere, unless its header forbids it.
        let stripped =
            file.nt_headers().file_header().characteristics.get(LE).0 & pe::IMAGE_FILE_RELOCS_STRIPPED.0 != 0;
        return if delta == 0 || !stripped { Ok(()) } else { Err("its relocations were stripped".to_owned()) };
    };
    while let Some(block) = blocks.next().map_err(|error| error.to_string())? {
        for relocation in block {
            match relocation.typ {
                pe::IMAGE_REL_BASED_ABSOLUTE => {}
                pe::IMAGE_REL_BASED_DIR64 => {
                    let place = relocation.virtual_address as usize;
                    let field = memory.get_mut(place..place + 8).ok_or("a relocation lies outside of the image")?;
                    let mut word = [0; 8];
                    word.copy_from_slice(field);
                    field.copy_from_slice(&u64::from_le_bytes(word).wrapping_add(delta).to_le_bytes());
                }
                other => return Err(format!("relocation type {other}")),
            }
        }
    }
    Ok(())
}

/// Fills the import address table and returns what nothing exports.
fn bind_imports(
    file: &PeFile64<'_>,
    memory: &mut [u8],
    exports: &[Export],
    resolve: Resolver<'_>,
) -> Result<Vec<String>, String> {
    let text = |error: object::Error| error.to_string();
    let mut missing = Vec::new();
    let Some(table) = file.import_table().map_err(text)? else { return Ok(missing) };
    let mut descriptors = table.descriptors().map_err(text)?;
    while let Some(descriptor) = descriptors.next().map_err(text)? {
        let module = String::from_utf8_lossy(table.name(descriptor.name.get(LE)).map_err(text)?).into_owned();
        let mut slot = descriptor.first_thunk.get(LE) as usize;
        let lookup = match descriptor.original_first_thunk.get(LE) {
            0 => descriptor.first_thunk.get(LE),
            table => table,
        };
        let mut thunks = table.thunks(lookup).map_err(text)?;
        while let Some(entry) = thunks.next::<pe::ImageNtHeaders64>().map_err(text)? {
            let (address, shown) = match table.import::<pe::ImageNtHeaders64>(entry).map_err(text)? {
                Import::Ordinal(ordinal) => {
                    (resolve(&module, ImportedFunction::Ordinal(ordinal), exports), format!("{module}!#{ordinal}"))
                }
                Import::Name(_, name) => {
                    let name = String::from_utf8_lossy(name);
                    (resolve(&module, ImportedFunction::Name(&name), exports), format!("{module}!{name}"))
                }
            };
            if address.is_none() {
                missing.push(shown);
            }
            let field = memory.get_mut(slot..slot + 8).ok_or("an import slot lies outside of the image")?;
            field.copy_from_slice(&(address.unwrap_or(0) as u64).to_le_bytes());
            slot += 8;
        }
    }
    Ok(missing)
}

/// The directory of thread-local storage of a relocated image.
fn thread_locals(file: &PeFile64<'_>, memory: &[u8], base: usize) -> Option<ThreadLocals> {
    let directory = file.data_directory(pe::IMAGE_DIRECTORY_ENTRY_TLS)?.virtual_address.get(LE) as usize;
    let word = |offset: usize| {
        let bytes = memory.get(offset..offset + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let [start, end, index, callbacks] = [0, 8, 16, 24].map(|offset| word(directory + offset));
    let zeroes = word(directory + 32)? & 0xFFFF_FFFF;
    let list = callbacks?.checked_sub(base);
    let callbacks = list.into_iter().flat_map(|list| (0..).map_while(move |number| word(list + 8 * number)));
    let callbacks = callbacks.take_while(|callback| *callback != 0).collect();
    Some(ThreadLocals { template: start?..end?, zeroes, index: index?, callbacks })
}

/// As [`address_of`], for the slot of an image with this name.
fn slot_of(image: &str, module: &str, name: &str) -> Option<usize> {
    match export::resolve(module, name) {
        Some(Resolved::Function(export)) => Some(import_counts::slot_for(image, name, export.entry())),
        _ => address_of(module, name),
    }
}

/// What an import slot receives: a stub, the routine itself, a variable, or another image's export.
pub fn address_of(module: &str, name: &str) -> Option<usize> {
    address_of_name(module, name, 0)
}

fn address_of_name(module: &str, name: &str, depth: usize) -> Option<usize> {
    match export::resolve(module, name) {
        Some(Resolved::Function(export)) => Some(export.entry()),
        Some(Resolved::Data(export)) => Some(export.address as usize),
        None => address_in_image(module, depth, |export| export.name.as_deref() == Some(name)),
    }
}

fn address_of_ordinal(module: &str, ordinal: u16, depth: usize) -> Option<usize> {
    address_in_image(module, depth, |export| export.ordinal == ordinal)
}

/// How many forwarders may follow each other.
const MOST_FORWARDERS: usize = 8;

fn address_in_image(module: &str, depth: usize, is_it: impl Fn(&Export) -> bool) -> Option<usize> {
    let images = super::all();
    let is_named = |image: &&Arc<Image>| image.kind == ImageKind::Driver && image.name.eq_ignore_ascii_case(module);
    let image = images.iter().find(is_named)?;
    match &image.export_table.iter().find(|export| is_it(export))?.target {
        Target::Address(address) => Some(*address),
        Target::Forwarder(_) if depth == MOST_FORWARDERS => None,
        Target::Forwarder(forwarder) => follow(forwarder, depth + 1),
    }
}

/// `module.name` or `module.#number`, the module without its extension.
fn follow(forwarder: &str, depth: usize) -> Option<usize> {
    let (module, name) = forwarder.rsplit_once('.')?;
    ["exe", "sys", "dll"].iter().find_map(|extension| {
        let module = format!("{module}.{extension}");
        match name.strip_prefix('#') {
            Some(ordinal) => address_of_ordinal(&module, ordinal.parse().ok()?, depth),
            None => address_of_name(&module, name, depth),
        }
    })
}

fn describe_sections(file: &PeFile64<'_>, base: usize) -> Vec<Section> {
    file.section_table()
        .iter()
        .map(|section| {
            let flags = section.characteristics.get(LE).0;
            let name = section.raw_name();
            Section {
                name: String::from_utf8_lossy(name).into_owned(),
                address: base + section.virtual_address.get(LE) as usize,
                length: (section.virtual_size.get(LE) as usize).next_multiple_of(PAGE_SIZE),
                used: section.virtual_size.get(LE) as usize,
                readable: flags & pe::IMAGE_SCN_MEM_READ.0 != 0,
                writable: flags & pe::IMAGE_SCN_MEM_WRITE.0 != 0,
                executable: flags & pe::IMAGE_SCN_MEM_EXECUTE.0 != 0,
            }
        })
        .collect()
}

fn protect(reservation: &Reservation, base: usize, length: usize, sections: &[Section]) {
    reservation.protect(0, length, Protection::ReadOnly);
    for section in sections {
        reservation.protect(section.address - base, section.length, protection_of(section));
    }
}

pub(crate) fn protection_of(section: &Section) -> Protection {
    match (section.writable, section.executable) {
        (true, true) => Protection::ReadWriteExecute,
        (true, false) => Protection::ReadWrite,
        (false, true) => Protection::ReadExecute,
        (false, false) => Protection::ReadOnly,
    }
}

/// What Windows requires of an image where the hypervisor protects the integrity of code (HVCI). `imports` is the offset of the
/// import address table.
fn check_integrity(path: &Path, alignment: u32, base: usize, sections: &[Section], imports: Option<u32>) {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for section in sections {
        let parameters = |subject| [subject, base as u64, section.address as u64, 0];
        if section.writable && section.executable {
            let rule = format!("the section {} of {name} is writable and executable", section.name());
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, parameters(0x2003), rule);
        }
        if !section.address.is_multiple_of(PAGE_SIZE) || (alignment as usize) < PAGE_SIZE {
            let rule = format!("the section {} of {name} is not aligned to a page", section.name());
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, parameters(0x2004), rule);
        }
        let range = section.address..section.address + section.length;
        if section.executable && imports.is_some_and(|offset| range.contains(&(base + offset as usize))) {
            let rule = format!("the import address table of {name} is in the executable section {}", section.name());
            bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, parameters(0x2005), rule);
        }
    }
}

fn export_table(file: &PeFile64<'_>, base: usize) -> Vec<Export> {
    let Ok(Some(table)) = file.export_table() else { return Vec::new() };
    let Ok(exports) = table.exports() else { return Vec::new() };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let entry = |export: object::read::pe::Export<'_>| Export {
        name: export.name.map(text),
        ordinal: export.ordinal.0,
        target: match export.target {
            ExportTarget::Address(address) => Target::Address(base + address as usize),
            ExportTarget::ForwardByOrdinal(module, ordinal) => {
                Target::Forwarder(format!("{}.#{ordinal}", text(module)))
            }
            ExportTarget::ForwardByName(module, name) => Target::Forwarder(format!("{}.{}", text(module), text(name))),
        },
    };
    exports.into_iter().map(entry).collect()
}

/// The exports with a name and a place of their own.
fn named(table: &[Export]) -> Vec<(String, usize)> {
    let place = |export: &Export| match (&export.name, &export.target) {
        (Some(name), Target::Address(address)) => Some((name.clone(), *address)),
        _ => None,
    };
    table.iter().filter_map(place).collect()
}
