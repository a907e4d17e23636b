//! The lists of `xtask/lists` that the check compares: `imports.txt`, `panics.txt`, `frames.txt` and `stack-depths.txt`.
//!
//! `imports.txt` is what the images may import. `panics.txt` names every place that can panic, with a reason that a
//! person wrote. `frames.txt` and `stack-depths.txt` show the largest stack frames and the deepest ways down; their first
//! lines are the bounds for all.

use super::{image::Import, panics::Site};
use anyhow::{Context, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// How a place without a reason reads; the check refuses it.
const NO_REASON: &str = "(not argued yet)";

/// Marks an import that only unoptimised images need.
const DEBUG_ONLY: &str = " (debug)";

/// Ends the name of a site that stands for all functions of a module. Only overflow of arithmetic is argued so: in any number
/// of branches, because what a sum is checked for moves with every change of what is inlined.
const MODULE: &str = "::*";

/// What the list says about one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argued {
    /// Branches; without a bound for a module.
    pub count: usize,
    pub reason: String,
}

/// The lists, read.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// Each import, and whether only unoptimised images need it.
    pub imports: BTreeMap<Import, bool>,
    pub panics: BTreeMap<Site, Argued>,
    /// Size and name, the largest first.
    pub frames: Vec<(u32, String)>,
    /// Bytes and way down, the deepest first.
    pub depths: Vec<(u32, String)>,
    /// The image they belong to.
    pub image: &'static str,
}

impl Lists {
    /// Reads the lists in `folder`; a list that is not there is empty.
    pub fn read(folder: &Path) -> Result<Self> {
        let image = if folder.ends_with("ndktest") { "ndktest.sys" } else { "softndk.sys" };
        let mut lists = Self { image, ..Self::default() };
        for line in lines(&folder.join("imports.txt"))? {
            let (entry, debug_only) =
                line.strip_suffix(DEBUG_ONLY).map_or((line.as_str(), false), |entry| (entry, true));
            let (module, name) =
                entry.split_once(' ').with_context(|| format!("imports.txt: {line:?} is not MODULE NAME"))?;
            lists.imports.insert(Import { module: module.to_owned(), name: name.to_owned() }, debug_only);
        }
        lists.panics = read_panics(&folder.join("panics.txt"))?;
        lists.frames = read_sizes(&folder.join("frames.txt"))?;
        lists.depths = read_sizes(&folder.join("stack-depths.txt"))?;
        Ok(lists)
    }

    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let files = [
            ("imports.txt", self.imports_text()),
            ("panics.txt", self.panics_text()),
            ("frames.txt", self.frames_text()),
            ("stack-depths.txt", self.depths_text()),
        ];
        let mut written = Vec::new();
        for (name, text) in files {
            let path = folder.join(name);
            crate::workspace::write_if_changed(&path, text.as_bytes())?;
            written.push(path);
        }
        Ok(written)
    }

    fn imports_text(&self) -> String {
        let mut text = format!(
            "# What {} imports. An image with another import fails the check of `cargo xtask driver`;\n\
             # `cargo xtask check-image --bless` adds it. All are exported by Windows build 19041 and later.\n",
            self.image
        );
        for (import, debug_only) in &self.imports {
            let _ = writeln!(text, "{} {}{}", import.module, import.name, if *debug_only { DEBUG_ONLY } else { "" });
        }
        text
    }

    fn panics_text(&self) -> String {
        let mut text = "# Every place at which the release image for x64 can panic (a bugcheck), and why nothing outside the driver\n\
                        # brings it about. FUNCTION -> WAY xBRANCHES, then the reason; MODULE::* -> WAY for overflow of arithmetic in a\n\
                        # whole module. A new place fails the check, and so does one that is gone; `cargo xtask check-image --bless` rewrites the list and keeps the reasons.\n"
            .to_owned();
        for (site, Argued { count, reason }) in &self.panics {
            let count = if is_module(site) { String::new() } else { format!(" x{count}") };
            let _ = writeln!(text, "\n{} -> {}{count}\n    {reason}", site.function, site.panic);
        }
        text
    }

    fn frames_text(&self) -> String {
        let comment = "# The largest stack frames of the release image for x64, in bytes. A frame an eighth beyond the first line fails the check,\n\
                       # one of 4096 bytes or more in any case; `cargo xtask check-image --bless` measures again.\n";
        sizes_text(comment, &self.frames)
    }

    fn depths_text(&self) -> String {
        let comment = "# How much stack the functions that others call take with all that they call, in bytes, and the deepest way down\n\
                       # with each function's own frame.\n\
                       # Calls through pointers and ways into a bugcheck are not counted. More than an eighth beyond the first line, and more than 4096,\n\
                       # fails the check; `cargo xtask check-image --bless` measures again.\n";
        sizes_text(comment, &self.depths)
    }

    /// Sites without a written reason.
    pub fn unargued(&self) -> BTreeSet<&Site> {
        self.panics.iter().filter(|(_, argued)| argued.reason == NO_REASON).map(|(site, _)| site).collect()
    }

    /// What is said about a site: by its own entry, or by that of its module.
    pub fn argued(&self, site: &Site) -> Option<&Argued> {
        let of_module = || self.panics.iter().find(|(entry, _)| covers(entry, site)).map(|(_, argued)| argued);
        self.panics.get(site).or_else(of_module)
    }

    /// Entries that none of these sites needs.
    pub fn stale<'lists>(&'lists self, sites: &BTreeMap<Site, usize>) -> impl Iterator<Item = &'lists Site> {
        self.panics.keys().filter(|entry| !sites.keys().any(|site| *entry == site || covers(entry, site)))
    }

    /// Takes over the sites of an image: reasons stay where the site does, and entries of modules that have one.
    pub fn bless_panics(&mut self, sites: &BTreeMap<Site, usize>) {
        let mut blessed = self.panics.clone();
        blessed.retain(|entry, _| sites.keys().any(|site| covers(entry, site)));
        for (site, count) in sites {
            if !blessed.keys().any(|entry| covers(entry, site)) {
                let reason = self.panics.get(site).map_or_else(|| NO_REASON.to_owned(), |argued| argued.reason.clone());
                blessed.insert(site.clone(), Argued { count: *count, reason });
            }
        }
        self.panics = blessed;
    }
}

fn is_module(entry: &Site) -> bool {
    entry.function.ends_with(MODULE) && is_overflow(&entry.panic)
}

fn is_overflow(panic: &str) -> bool {
    panic.starts_with("core::panicking::panic_const::") && panic.ends_with("_overflow")
}

/// Whether an entry is that of a site's module.
fn covers(entry: &Site, site: &Site) -> bool {
    let module = entry.function.strip_suffix('*').filter(|_| is_module(entry));
    module.is_some_and(|module| entry.panic == site.panic && site.function.starts_with(module))
}

fn sizes_text(comment: &str, sizes: &[(u32, String)]) -> String {
    let mut text = comment.to_owned();
    for (size, name) in sizes {
        let _ = writeln!(text, "{size:>5} {name}");
    }
    text
}

fn read_sizes(path: &Path) -> Result<Vec<(u32, String)>> {
    let mut sizes = Vec::new();
    for line in lines(path)? {
        let parsed =
            line.trim_start().split_once(' ').and_then(|(size, name)| Some((size.parse().ok()?, name.to_owned())));
        sizes.push(parsed.with_context(|| format!("{}: {line:?} is not BYTES NAME", path.display()))?);
    }
    Ok(sizes)
}

fn read_panics(path: &Path) -> Result<BTreeMap<Site, Argued>> {
    let mut panics = BTreeMap::new();
    let mut lines = lines(path)?.into_iter();
    while let Some(line) = lines.next() {
        let parsed = line.split_once(" -> ").and_then(|(function, rest)| {
            let site = |panic: &str| Site { function: function.to_owned(), panic: panic.to_owned() };
            if let Some((panic, count)) = rest.rsplit_once(" x") {
                return Some((site(panic), count.parse().ok()?));
            }
            Some((site(rest), usize::MAX)).filter(|(site, _)| is_module(site))
        });
        let Some((site, count)) = parsed else { bail!("panics.txt: {line:?} is not FUNCTION -> WAY xBRANCHES") };
        let reason = lines.next().unwrap_or_default();
        if !reason.starts_with(' ') {
            bail!("panics.txt: {line:?} is not followed by an indented reason");
        }
        panics.insert(site, Argued { count, reason: reason.trim().to_owned() });
    }
    Ok(panics)
}

/// The lines of a list without comments and empty ones.
fn lines(path: &Path) -> Result<Vec<String>> {
    match fs::read_to_string(path) {
        Ok(text) => {
            Ok(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
