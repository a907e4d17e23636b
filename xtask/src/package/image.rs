//! What a finished image gets for the package: a version resource, which Explorer and `Get-Item` show, and the commit's time instead of
//! the linker's. Its checksum is computed again.
//!
//! The linker could take the resource, too, but then every ordinary build would have one, and would change with every commit.

use crate::{
    command,
    image_check::checksum,
    setup::{self, TOOL_NEEDS},
};
use anyhow::{Context, Result, ensure};
use editpe::{
    ResourceDirectory, VersionInfo, VersionStringTable,
    types::{FixedFileInfo, VersionU16, VersionU32},
};
use object::{
    LittleEndian as LE,
    pe::{IMAGE_DIRECTORY_ENTRY_DEBUG, IMAGE_DIRECTORY_ENTRY_EXPORT, ImageDataDirectory},
    read::pe::PeFile64,
};
use std::{fs, ops::Range, path::Path, process::Command};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    NetworkDriver,
    Library,
    Program,
}

impl ImageKind {
    /// File type and subtype of VS_FIXEDFILEINFO.
    fn numbers(self) -> (u32, u32) {
        match self {
            Self::NetworkDriver => (3, 6),
            Self::Library => (2, 0),
            Self::Program => (1, 0),
        }
    }
}

/// What an image says about itself.
pub struct Resource<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub kind: ImageKind,
    pub version: [u16; 4],
    /// Version and commit, as text.
    pub product: String,
    /// In seconds since 1970.
    pub time: u64,
}

/// The image with its version resource, its time and its checksum.
pub fn finish(bytes: Vec<u8>, resource: &Resource<'_>) -> Result<Vec<u8>> {
    let mut image = editpe::Image::parse(bytes).context("this is not an image")?;
    ensure!(image.resource_directory().is_none(), "the image has resources already");
    let mut directory = ResourceDirectory::default();
    directory.set_version_info(&version_info(resource))?;
    image.set_resource_directory(directory)?;
    let mut bytes = image.data().to_vec();
    name_section(&mut bytes)?;
    set_times(&mut bytes, u32::try_from(resource.time)?)?;
    set_checksum(&mut bytes)?;
    Ok(bytes)
}

fn version_info(resource: &Resource<'_>) -> VersionInfo {
    let [major, minor, patch, build] = resource.version.map(u32::from);
    let version = VersionU32 { major: major << 16 | minor, minor: patch << 16 | build };
    let text = format!("{major}.{minor}.{patch}.{build}");
    let (file_type, file_subtype) = resource.kind.numbers();
    let info = FixedFileInfo {
        file_version: version,
        product_version: version,
        file_type,
        file_subtype,
        ..FixedFileInfo::default()
    };
    let strings = [
        ("CompanyName", "softndk project"),
        ("FileDescription", resource.description),
        ("FileVersion", &text),
        ("InternalName", resource.name),
        ("LegalCopyright", "MIT OR Apache-2.0"),
        ("OriginalFilename", resource.name),
        ("ProductName", "softndk"),
        ("ProductVersion", &resource.product),
    ];
    let strings = strings.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
    // English of the United States, in UTF-16.
    let strings = vec![VersionStringTable { key: "040904b0".to_owned(), strings }];
    VersionInfo { info, strings, vars: vec![VersionU16 { major: 0x0409, minor: 0x04B0 }] }
}

/// Where the fields are that `object` reads and does not write.
struct Fields {
    /// Start of the COFF header.
    coff: usize,
    sections: Range<usize>,
    times: Vec<usize>,
}

/// Size of a section's header.
const SECTION: usize = 40;

impl Fields {
    fn find(bytes: &[u8]) -> Result<Self> {
        let file = PeFile64::parse(bytes).context("this is not a 64-bit image")?;
        let coff = file.dos_header().nt_headers_offset() as usize + 4;
        let header = &file.nt_headers().file_header;
        let first = coff + 20 + usize::from(header.size_of_optional_header.get(LE));
        let sections = first..first + SECTION * usize::from(header.number_of_sections.get(LE));
        let place = |directory: &ImageDataDirectory| -> Option<(usize, usize)> {
            let (address, size) = directory.address_range();
            let (offset, available) = file.section_table().pe_file_range_at(address)?;
            (size > 0 && available >= size).then_some((offset as usize, size as usize))
        };
        // The time is the second word of the headers of the file, of each debug directory and of the export directory.
        let mut times = vec![coff + 4];
        if let Some((offset, size)) = file.data_directory(IMAGE_DIRECTORY_ENTRY_DEBUG).and_then(place) {
            times.extend((offset..offset + size).step_by(28).map(|entry| entry + 4));
        }
        if let Some((offset, _)) = file.data_directory(IMAGE_DIRECTORY_ENTRY_EXPORT).and_then(place) {
            times.push(offset + 4);
        }
        Ok(Self { coff, sections, times })
    }
}

/// The section is called as linkers call it.
fn name_section(bytes: &mut [u8]) -> Result<()> {
    let sections = Fields::find(bytes)?.sections;
    let last =
        bytes.get_mut(sections.end - SECTION..sections.end - SECTION + 8).context("an image without sections")?;
    ensure!(last == b".pedata\0", "the resources are not in a section of their own at the end");
    last.copy_from_slice(b".rsrc\0\0\0");
    Ok(())
}

fn set_times(bytes: &mut [u8], time: u32) -> Result<()> {
    for place in Fields::find(bytes)?.times {
        bytes.get_mut(place..place + 4).context("a time outside of the image")?.copy_from_slice(&time.to_le_bytes());
    }
    Ok(())
}

fn set_checksum(bytes: &mut [u8]) -> Result<()> {
    let place = Fields::find(bytes)?.coff + 20 + 64;
    let sum = checksum(bytes, place);
    bytes.get_mut(place..place + 4).context("a header that is too short")?.copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// A program without the symbols of mingw-w64, which are most of it and for its own debugger only.
pub fn without_symbols(program: &Path, place: &Path) -> Result<Vec<u8>> {
    const STRIP: &str = "x86_64-w64-mingw32-strip";
    setup::ensure(&TOOL_NEEDS)?;
    command::output(Command::new(STRIP).arg("--strip-all").arg("-o").arg(place).arg(program))?;
    fs::read(place).with_context(|| format!("cannot read {}", place.display()))
}
