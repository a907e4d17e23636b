//! `cargo xtask check-image`, which every driver build ends with: the rules of a finished image.
//!
//! The rules are those that no test run can show, because they are about what is *not* there: an import some Windows
//! lacks, an instruction the kernel may not use, a place that can panic, an allocation that cannot fail, a frame that
//! overruns a 24 KiB stack. Headers and imports are checked on both architectures, code on x64 only.
//!
//! Rules about single functions hold for optimised images: without optimisation the standard library's own checks are
//! all there, and such an image is not shipped.

mod allocation;
mod code;
mod depth;
mod frames;
mod header;
mod image;
mod lists;
mod panics;
mod symbols;

use crate::{
    cross::toolchain::{self, TargetLibraries},
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use code::Code;
pub use header::checksum;
pub use image::{Guard, Image, Import, Machine};
pub use lists::{Argued, Lists};
pub use panics::Site;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    fs,
    path::{Path, PathBuf},
};
use symbols::Symbols;

/// Check a driver image, or take its lists over into docs/.
#[derive(clap::Args)]
pub struct ImageCheckArguments {
    /// The image; its symbols lie beside it
    #[arg(default_value = "target/driver/x64/release/softndk.sys")]
    image: PathBuf,

    /// Rewrite xtask/lists/imports.txt, xtask/lists/panics.txt and xtask/lists/frames.txt from the image, keeping the reasons
    #[arg(long)]
    bless: bool,
}

/// Modules a driver of ours may import from.
const MODULES: &[&str] = &["ntoskrnl.exe", "hal.dll", "ndis.sys", "netio.sys", "cng.sys"];

/// The bound for a stack frame: a page.
const FRAME_LIMIT: u32 = 4096;

/// How many frames `frames.txt` shows.
const FRAMES_LISTED: usize = 20;

/// The bound for the stack below an entry point: the rest of 24 KiB is for the consumer and the network stack.
const DEPTH_LIMIT: u32 = 4096;

/// The rules of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRule {
    Subsystem,
    Entry,
    Characteristics,
    WritableCode,
    Guard,
    UnguardedCall,
    Checksum,
    ImportModule,
    ImportName,
    StaleImport,
    VectorExtension,
    StackProbe,
    Frame,
    Depth,
    InfallibleAllocation,
    Panic,
    StalePanic,
    UnarguedPanic,
}

impl ImageRule {
    fn broken(self, what: String) -> Violation {
        Violation { rule: self, what }
    }

    /// What to do about it.
    fn remedy(self) -> &'static str {
        match self {
            Self::Subsystem | Self::Entry | Self::Characteristics | Self::WritableCode | Self::Checksum => {
                "the linker's arguments come from wdk-build and build.rs"
            }
            Self::Guard | Self::UnguardedCall => {
                "-C control-flow-guard of .cargo/config.toml has to reach the compiler: RUSTFLAGS in the environment replaces it"
            }
            Self::ImportModule | Self::ImportName => {
                "if every supported Windows exports it, `cargo xtask check-image --bless` lists it"
            }
            Self::StaleImport | Self::StalePanic => "`cargo xtask check-image --bless` takes it off the list",
            Self::VectorExtension => {
                "kernel code must not touch AVX state; a target feature or an assembly block brings it in"
            }
            Self::StackProbe => "some frame is a page or larger: move its large values to the pool",
            Self::Frame => {
                "move large values to the pool, or split the function; if it must be, bless xtask/lists/frames.txt"
            }
            Self::Depth => {
                "split the functions on the way so that their frames are not there at the same time, or move values to the pool"
            }
            Self::InfallibleAllocation => "allocate with the try_ functions, or in DriverEntry",
            Self::Panic => {
                "use checked arithmetic and get(); if it cannot happen, bless and write the reason in xtask/lists/panics.txt"
            }
            Self::UnarguedPanic => "write the reason in xtask/lists/panics.txt",
        }
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: ImageRule,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {}", self.rule, self.what)
    }
}

/// Which of the rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strictness {
    /// The image is optimised: the rules about functions apply.
    pub optimised: bool,
    /// The image was made with the compiler the lists belong to: what they name must still be there, and nothing may be
    /// beyond it. Another compiler makes other frames and other panic sites of the same source.
    pub same_compiler: bool,
}

/// What an image was found to be.
pub struct ImageFindings {
    pub violations: Vec<Violation>,
    pub imports: Vec<Import>,
    pub panics: BTreeMap<Site, usize>,
    /// Size and name, the largest first.
    pub frames: Vec<(u32, String)>,
    /// Bytes of stack below each function that others call, and the way there, the deepest first.
    pub depths: Vec<(u32, String)>,
}

pub fn run(arguments: &ImageCheckArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    // A path as the other commands print it, relative to the work tree, is good from any folder.
    let image = if arguments.image.exists() { arguments.image.clone() } else { workspace.path(&arguments.image) };
    let optimised = !image.components().any(|part| part.as_os_str() == "debug");
    if arguments.bless {
        bless(&workspace, &image, optimised)
    } else {
        require(&workspace, &image, optimised)?;
        println!("{}: all rules kept", workspace.show(&image));
        Ok(())
    }
}

/// Checks an image against the lists of the work tree; a violation is an error that names it and the remedy.
pub fn require(workspace: &Workspace, image: &Path, optimised: bool) -> Result<()> {
    let lists = Lists::read(&lists_folder(workspace, image))?;
    let findings = check(image, &lists, strictness(optimised)?)?;
    if findings.violations.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    let mut remedies = Vec::new();
    for violation in &findings.violations {
        let _ = write!(text, "\n  {violation}");
        if !remedies.contains(&violation.rule.remedy()) {
            remedies.push(violation.rule.remedy());
        }
    }
    bail!("{} breaks {} rules:{text}\nWhat helps: {}", image.display(), findings.violations.len(), remedies.join("; "))
}

/// Where the lists of an image are: in `xtask/lists` for softndk.sys, below it for ndktest.sys.
fn lists_folder(workspace: &Workspace, image: &Path) -> PathBuf {
    let own = image.file_stem().is_some_and(|stem| stem == "ndktest");
    workspace.path(if own { "xtask/lists/ndktest" } else { "xtask/lists" })
}

fn strictness(optimised: bool) -> Result<Strictness> {
    let installed = toolchain::find("x86_64-pc-windows-msvc")? == Some(TargetLibraries::Installed);
    let same_compiler = installed && toolchain::is_the_lists_own()?;
    Ok(Strictness { optimised, same_compiler })
}

fn bless(workspace: &Workspace, image: &Path, optimised: bool) -> Result<()> {
    let folder = lists_folder(workspace, image);
    let mut lists = Lists::read(&folder)?;
    let findings = check(image, &lists, strictness(optimised)?)?;
    if optimised {
        let debug_only =
            lists.imports.iter().filter(|(_, debug_only)| **debug_only).map(|(import, _)| (import.clone(), true));
        lists.imports = debug_only.collect();
        lists.imports.extend(findings.imports.iter().map(|import| (import.clone(), false)));
        lists.bless_panics(&findings.panics);
        lists.frames = findings.frames.iter().take(FRAMES_LISTED).cloned().collect();
        lists.depths = findings.depths.iter().take(FRAMES_LISTED).cloned().collect();
    } else {
        for import in &findings.imports {
            lists.imports.entry(import.clone()).or_insert(true);
        }
    }
    for path in lists.write(&folder)? {
        println!("{}", workspace.show(&path));
    }
    for site in lists.unargued() {
        println!("needs a reason: {} -> {}", site.function, site.panic);
    }
    Ok(())
}

/// Applies every rule to the image at `path`, whose symbols lie beside it.
pub fn check(path: &Path, lists: &Lists, strictness: Strictness) -> Result<ImageFindings> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let image = Image::parse(bytes).with_context(|| format!("{} is not a driver image", path.display()))?;
    let symbols = Symbols::read(&path.with_extension("pdb"))?;
    let code = Code::read(&image, &symbols);

    let mut violations = header::check(&image);
    violations.extend(check_imports(&image, lists, strictness));
    violations.extend(check_instructions(&code, &symbols));
    let mut panics = BTreeMap::new();
    let (mut frames, mut depths) = (Vec::new(), Vec::new());
    if strictness.optimised {
        violations.extend(check_calls(&code, &symbols));
        violations.extend(check_stack_probe(&image, &symbols));
        if image.machine == Machine::X64 {
            let sizes = frames::sizes(&image);
            frames = named_frames(&sizes, &symbols);
            violations.extend(check_frames(&frames, lists, strictness));
            depths = named_depths(&sizes, &code, &symbols);
            if strictness.same_compiler {
                violations.extend(check_depths(&depths, lists));
                let lost = depth::table_calls(&symbols).1.into_iter();
                let text = |name| {
                    format!("{name}, named in depth.rs as an end of a call through a table, is not in the image")
                };
                violations.extend(lost.map(|name| ImageRule::Depth.broken(text(name))));
            }
            violations.extend(allocation::check(&image, &code, &symbols)?);
            panics = panics::sites(&code, &symbols)?;
            violations.extend(check_panics(&panics, lists, strictness));
        }
    }
    Ok(ImageFindings { violations, imports: image.imports, panics, frames, depths })
}

fn check_imports(image: &Image, lists: &Lists, strictness: Strictness) -> Vec<Violation> {
    let mut violations = Vec::new();
    for import in &image.imports {
        let shown = format!("{} {}", import.module, import.name);
        if !MODULES.contains(&import.module.as_str()) {
            violations.push(
                ImageRule::ImportModule.broken(format!("{shown}: a driver imports from {} only", MODULES.join(", "))),
            );
        } else if !lists.imports.contains_key(import) {
            violations
                .push(ImageRule::ImportName.broken(format!("{shown} is not on the list imports.txt of this image")));
        }
    }
    if strictness == (Strictness { optimised: true, same_compiler: true }) && image.machine == Machine::X64 {
        let present = image.imports.iter().collect::<BTreeSet<_>>();
        let gone = lists.imports.iter().filter(|(import, debug_only)| !**debug_only && !present.contains(import));
        violations.extend(gone.map(|(import, _)| {
            ImageRule::StaleImport.broken(format!("{} {} is no longer imported", import.module, import.name))
        }));
    }
    violations
}

fn check_instructions(code: &Code, symbols: &Symbols) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (address, mnemonic) in &code.vector_extensions {
        let function = symbols
            .holding(*address)
            .and_then(|index| symbols.functions.get(index))
            .map_or("?", |function| function.name.as_str());
        violations.push(ImageRule::VectorExtension.broken(format!("{mnemonic} at {address:#x} in {function}")));
    }
    violations
}

/// Optimised images only: the standard library comes compiled, with or without the guard, and is compiled again only with LTO.
fn check_calls(code: &Code, symbols: &Symbols) -> Vec<Violation> {
    let place = |at: &u32| {
        let function = symbols.holding(*at).and_then(|index| symbols.functions.get(index));
        let function = function.map_or("?", |function| function.name.as_str());
        ImageRule::UnguardedCall.broken(format!("a call that is not checked at {at:#x} in {function}"))
    };
    code.unguarded_calls.iter().map(place).collect()
}

fn check_stack_probe(image: &Image, symbols: &Symbols) -> Option<Violation> {
    const PROBE: &str = "__chkstk";
    let imported = image.imports.iter().any(|import| import.name == PROBE);
    let linked = symbols.functions.iter().any(|function| function.name == PROBE);
    (imported || linked).then(|| ImageRule::StackProbe.broken(format!("the image calls {PROBE}")))
}

fn named_frames(sizes: &BTreeMap<u32, u32>, symbols: &Symbols) -> Vec<(u32, String)> {
    let mut frames = sizes
        .iter()
        .map(|(address, size)| {
            let function = symbols.holding(*address).and_then(|index| symbols.functions.get(index));
            (*size, function.map_or_else(|| format!("{address:#x}"), |function| function.name.clone()))
        })
        .collect::<Vec<_>>();
    frames.sort_by(|left, right| right.0.cmp(&left.0).then_with(|| left.1.cmp(&right.1)));
    frames
}

/// What a listed number allows. The same source compiled in another folder is laid out a little differently, because symbol
/// hashes decide the order in which functions are inlined: an eighth allows for that and no more.
fn with_capacity(listed: u32) -> u32 {
    listed.saturating_add(listed / 8)
}

fn check_frames(frames: &[(u32, String)], lists: &Lists, strictness: Strictness) -> Vec<Violation> {
    let listed = lists.frames.first().map_or(0, |(size, _)| with_capacity(*size));
    frames
        .iter()
        .filter_map(|(size, name)| {
            if *size >= FRAME_LIMIT {
                Some(
                    ImageRule::Frame
                        .broken(format!("{name} takes {size} bytes of stack, the limit is below {FRAME_LIMIT}")),
                )
            } else if *size > listed && strictness.same_compiler {
                Some(ImageRule::Frame.broken(format!(
                    "{name} takes {size} bytes of stack, more than xtask/lists/frames.txt allows ({listed})"
                )))
            } else {
                None
            }
        })
        .collect()
}

fn named_depths(sizes: &BTreeMap<u32, u32>, code: &Code, symbols: &Symbols) -> Vec<(u32, String)> {
    let ignored = panics::failing_functions(code, symbols);
    let depths = depth::below_entries(sizes, code, symbols, &ignored);
    let step = |index: usize| {
        let frame = symbols.functions.get(index).and_then(|function| sizes.get(&function.start));
        format!("{} {}", panics::name(symbols, index), frame.copied().unwrap_or_default())
    };
    let way = |path: Vec<usize>| path.into_iter().map(step).collect::<Vec<_>>().join(" > ");
    depths.into_iter().map(|(bytes, path)| (bytes, way(path))).collect()
}

fn check_depths(depths: &[(u32, String)], lists: &Lists) -> Vec<Violation> {
    let listed = lists.depths.first().map_or(0, |(bytes, _)| with_capacity(*bytes));
    let bound = listed.max(DEPTH_LIMIT);
    let deeper = depths.iter().filter(|(bytes, _)| *bytes > bound);
    deeper
        .map(|(bytes, way)| ImageRule::Depth.broken(format!("{bytes} bytes of stack, the bound is {bound}: {way}")))
        .collect()
}

fn check_panics(found: &BTreeMap<Site, usize>, lists: &Lists, strictness: Strictness) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (site, count) in found.iter().filter(|_| strictness.same_compiler) {
        let listed = lists.argued(site).map_or(0, |argued| argued.count);
        if *count > listed {
            let text =
                format!("{} -> {}: {count} branches, xtask/lists/panics.txt has {listed}", site.function, site.panic);
            violations.push(ImageRule::Panic.broken(text));
        }
    }
    if strictness.same_compiler {
        violations.extend(
            lists
                .stale(found)
                .map(|site| ImageRule::StalePanic.broken(format!("{} -> {} is gone", site.function, site.panic))),
        );
    }
    violations.extend(
        lists
            .unargued()
            .into_iter()
            .map(|site| ImageRule::UnarguedPanic.broken(format!("{} -> {}", site.function, site.panic))),
    );
    violations
}
