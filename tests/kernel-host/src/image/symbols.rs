//! Names and line numbers of image code, from the PDB beside the image; names alone from its own table of symbols, which mingw-w64
//! leaves in a program. Read only when a report needs them.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::read::pe::PeFile64;
use object::{Object as _, ObjectSymbol as _, SymbolKind};
use pdb_addr2line::pdb::PDB;

/// Where an image's symbols are.
pub(crate) struct Symbols {
    image: PathBuf,
    program_database: PathBuf,
}

/// One function at an address; an inlined call gives several, innermost first.
#[derive(Clone, Debug)]
pub struct Location {
    pub function: String,
    /// As the compiler names it.
    pub file: Option<String>,
    pub line: Option<u32>,
}

impl Symbols {
    pub(crate) fn new(image: &Path) -> Self {
        let beside = image.with_extension("pdb");
        let spelled_by_cargo = image
            .with_file_name(image.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().replace('-', "_")))
            .with_extension("pdb");
        Self { image: image.to_owned(), program_database: if beside.exists() { beside } else { spelled_by_cargo } }
    }

    /// Names the functions at offsets from the image's base; an empty list where nothing is known.
    pub(crate) fn locate(&self, offsets: &[u32]) -> Vec<Vec<Location>> {
        let found = self.try_locate(offsets).or_else(|| self.try_name(offsets));
        found.unwrap_or_else(|| vec![Vec::new(); offsets.len()])
    }

    fn try_name(&self, offsets: &[u32]) -> Option<Vec<Vec<Location>>> {
        let bytes = std::fs::read(&self.image).ok()?;
        let file = PeFile64::parse(&*bytes).ok()?;
        let base = file.relative_address_base();
        let symbols = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && !symbol.name().is_ok_and(str::is_empty));
        let mut functions: Vec<_> = symbols
            .filter_map(|symbol| Some((u32::try_from(symbol.address().checked_sub(base)?).ok()?, symbol.name().ok()?)))
            .filter(|(_, name)| !name.starts_with('.'))
            .collect();
        functions.sort_unstable();
        let name = |offset: &u32| {
            let after = functions.partition_point(|(start, _)| start <= offset);
            let found = after.checked_sub(1).map(|place| functions[place].1.to_owned());
            found.map(|function| Location { function, file: None, line: None }).into_iter().collect()
        };
        (!functions.is_empty()).then(|| offsets.iter().map(name).collect())
    }

    fn try_locate(&self, offsets: &[u32]) -> Option<Vec<Vec<Location>>> {
        let file = File::open(&self.program_database).ok()?;
        let database = PDB::open(file).ok()?;
        let data = pdb_addr2line::ContextPdbData::try_from_pdb(database).ok()?;
        let context = data.make_context().ok()?;
        let locate = |offset: &u32| {
            let Ok(Some(found)) = context.find_frames(*offset) else { return Vec::new() };
            // Ordered from the innermost inlined call to the function itself.
            let name = |frame: pdb_addr2line::Frame<'_>| Location {
                function: frame.function.unwrap_or_else(|| "unnamed function".to_owned()),
                file: frame.file.map(Cow::into_owned),
                line: frame.line,
            };
            found.frames.into_iter().map(name).collect()
        };
        Some(offsets.iter().map(locate).collect())
    }
}

/// The last three components of a source path: enough to find it, and the same on every machine.
pub(super) fn shorten(path: &str) -> String {
    let parts: Vec<&str> = path.split(['/', '\\']).collect();
    parts[parts.len().saturating_sub(3)..].join("/")
}
