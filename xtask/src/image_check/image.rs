//! A driver image as the rules see it: header values, sections, imports, exports, relocated pointers, exception table.
//!
//! Everything is read once; the rules work on these plain values.

use anyhow::{Context, Result, bail};
use object::{
    LittleEndian as LE, Object,
    pe::{self, ImageNtHeaders64},
    read::pe::{ExportTarget, ImageNtHeaders, ImageOptionalHeader, Import as Thunk, PeFile64},
};

/// The processor an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    X64,
    Arm64,
}

/// One section.
pub struct Section {
    pub name: String,
    pub address: u32,
    pub size: u32,
    pub file_offset: u32,
    pub file_size: u32,
    pub writable: bool,
    pub executable: bool,
}

/// One imported function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub module: String,
    pub name: String,
}

/// One entry of the exception table of an x64 image: a function, or a part of one.
pub struct RuntimeFunction {
    pub start: u32,
    pub end: u32,
    pub unwind_info: u32,
}

/// What the load configuration says about control flow guard. Addresses are relative to the image base, 0 is none.
pub struct Guard {
    pub flags: u32,
    pub check_slot: u32,
    pub dispatch_slot: u32,
    /// Where indirect calls may go.
    pub targets: Vec<u32>,
}

/// An image, taken apart.
pub struct Image {
    pub bytes: Vec<u8>,
    pub machine: Machine,
    pub image_base: u64,
    pub entry: u32,
    pub subsystem: u16,
    pub characteristics: u16,
    pub checksum: u32,
    /// Where the checksum stands in the file: it is left out of its own sum.
    pub checksum_offset: usize,
    pub sections: Vec<Section>,
    pub imports: Vec<Import>,
    /// Name and address of each exported function.
    pub exports: Vec<(String, u32)>,
    /// Values of the pointers that the loader relocates, as addresses relative to the image base.
    pub pointers: Vec<u32>,
    pub runtime_functions: Vec<RuntimeFunction>,
    pub guard: Option<Guard>,
}

impl Image {
    pub fn parse(bytes: Vec<u8>) -> Result<Self> {
        let file = PeFile64::parse(&*bytes).context("not a 64-bit PE image")?;
        let headers = file.nt_headers();
        let optional = headers.optional_header();
        let machine = match file.architecture() {
            object::Architecture::X86_64 => Machine::X64,
            object::Architecture::Aarch64 => Machine::Arm64,
            other => bail!("an image for {other:?}; drivers are for x64 or arm64"),
        };
        let sections = sections(&file);
        let checksum_offset = file.dos_header().nt_headers_offset() as usize + CHECKSUM_IN_HEADERS;
        let mut image = Self {
            machine,
            image_base: optional.image_base(),
            entry: optional.address_of_entry_point(),
            subsystem: optional.subsystem().0,
            characteristics: optional.dll_characteristics().0,
            checksum: optional.check_sum(),
            checksum_offset,
            sections,
            imports: imports(&file)?,
            exports: exports(&file)?,
            pointers: Vec::new(),
            runtime_functions: Vec::new(),
            guard: None,
            bytes: Vec::new(),
        };
        let relocated = relocated_places(&file)?;
        let exceptions =
            file.data_directory(pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION).map(pe::ImageDataDirectory::address_range);
        let configuration = file
            .data_directory(pe::IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG)
            .map(|directory| directory.address_range().0)
            .filter(|address| *address != 0);
        image.bytes = bytes;
        image.guard = configuration.and_then(|configuration| image.read_guard(configuration));
        image.pointers = relocated.into_iter().filter_map(|place| image.pointer_at(place)).collect();
        if let (Machine::X64, Some((address, size))) = (machine, exceptions) {
            image.runtime_functions = image.read_runtime_functions(address, size)?;
        }
        Ok(image)
    }

    /// `length` bytes at an address of the loaded image, if they lie within what the file holds of one section.
    pub fn at(&self, address: u32, length: u32) -> Option<&[u8]> {
        let section = self.sections.iter().find(|section| section.holds(address))?;
        let within = address - section.address;
        let end = within.checked_add(length)?;
        if end > section.file_size {
            return None;
        }
        let start = section.file_offset.checked_add(within)? as usize;
        self.bytes.get(start..start.checked_add(length as usize)?)
    }

    pub fn is_code(&self, address: u32) -> bool {
        self.sections.iter().any(|section| section.executable && section.holds(address))
    }

    fn pointer_at(&self, place: u32) -> Option<u32> {
        let bytes = self.at(place, 8)?.try_into().ok()?;
        u64::from_le_bytes(bytes).checked_sub(self.image_base)?.try_into().ok()
    }

    /// Offsets are those of IMAGE_LOAD_CONFIG_DIRECTORY64.
    fn read_guard(&self, configuration: u32) -> Option<Guard> {
        const FLAGS: u32 = 0x90;
        let size = read_u32(self.at(configuration, 4)?, 0)?;
        if size < FLAGS + 4 {
            return None;
        }
        let configuration = self.at(configuration, FLAGS + 4)?;
        let word = |offset: usize| Some(u64::from_le_bytes(configuration.get(offset..offset + 8)?.try_into().ok()?));
        let address =
            |offset| Some(word(offset)?.checked_sub(self.image_base).and_then(|it| it.try_into().ok()).unwrap_or(0));
        let flags = read_u32(configuration, FLAGS as usize)?;
        // Behind each offset as many bytes as the flags' upper four bits say.
        let (table, stride): (u32, _) = (address(0x80)?, 4 + (flags >> 28));
        let targets = (0..word(0x88)?)
            .map_while(|index| u32::try_from(index).ok()?.checked_mul(stride)?.checked_add(table))
            .map_while(|entry| read_u32(self.at(entry, 4)?, 0))
            .collect();
        Some(Guard { flags, check_slot: address(0x70)?, dispatch_slot: address(0x78)?, targets })
    }

    fn read_runtime_functions(&self, address: u32, size: u32) -> Result<Vec<RuntimeFunction>> {
        let table = self.at(address, size).context("the exception directory lies outside its section")?;
        let mut functions = Vec::new();
        for entry in table.as_chunks::<12>().0 {
            let [start, end, unwind_info] = [0, 4, 8].map(|offset| read_u32(entry, offset).unwrap_or_default());
            functions.push(RuntimeFunction { start, end, unwind_info });
        }
        Ok(functions)
    }
}

impl Section {
    pub fn holds(&self, address: u32) -> bool {
        address >= self.address && address - self.address < self.size
    }
}

/// Offset of the checksum from the start of the PE signature: signature, file header, then 64 bytes into the optional one.
const CHECKSUM_IN_HEADERS: usize = 4 + 20 + 64;

/// A little-endian number out of a byte string.
pub fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn sections(file: &PeFile64) -> Vec<Section> {
    file.section_table()
        .iter()
        .map(|header| {
            let flags = header.characteristics.get(LE).0;
            let name = header.name.split(|byte| *byte == 0).next().unwrap_or_default();
            Section {
                name: String::from_utf8_lossy(name).into_owned(),
                address: header.virtual_address.get(LE),
                size: header.virtual_size.get(LE),
                file_offset: header.pointer_to_raw_data.get(LE),
                file_size: header.size_of_raw_data.get(LE),
                writable: flags & pe::IMAGE_SCN_MEM_WRITE.0 != 0,
                executable: flags & pe::IMAGE_SCN_MEM_EXECUTE.0 != 0,
            }
        })
        .collect()
}

fn imports(file: &PeFile64) -> Result<Vec<Import>> {
    let mut imports = Vec::new();
    let Some(table) = file.import_table()? else { return Ok(imports) };
    let mut descriptors = table.descriptors()?;
    while let Some(descriptor) = descriptors.next()? {
        let module = String::from_utf8_lossy(table.name(descriptor.name.get(LE))?).into_owned();
        let mut thunks = table.thunks(descriptor.original_first_thunk.get(LE))?;
        while let Some(thunk) = thunks.next::<ImageNtHeaders64>()? {
            let name = match table.import::<ImageNtHeaders64>(thunk)? {
                Thunk::Ordinal(ordinal) => format!("#{ordinal}"),
                Thunk::Name(_, name) => String::from_utf8_lossy(name).into_owned(),
            };
            imports.push(Import { module: module.clone(), name });
        }
    }
    imports.sort();
    Ok(imports)
}

fn exports(file: &PeFile64) -> Result<Vec<(String, u32)>> {
    let Some(table) = file.export_table()? else { return Ok(Vec::new()) };
    let exports = table.exports()?;
    Ok(exports
        .into_iter()
        .filter_map(|export| match (export.name, export.target) {
            (Some(name), ExportTarget::Address(address)) => Some((String::from_utf8_lossy(name).into_owned(), address)),
            _ => None,
        })
        .collect())
}

/// Addresses of the 64-bit pointers that the loader adjusts.
fn relocated_places(file: &PeFile64) -> Result<Vec<u32>> {
    let mut places = Vec::new();
    let Some(mut blocks) = file.data_directories().relocation_blocks(file.data(), &file.section_table())? else {
        return Ok(places);
    };
    while let Some(block) = blocks.next()? {
        places.extend(block.filter(|place| place.typ == pe::IMAGE_REL_BASED_DIR64).map(|place| place.virtual_address));
    }
    Ok(places)
}
