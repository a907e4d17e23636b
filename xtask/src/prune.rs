//! `cargo xtask prune`: removes from `target/` what no build uses any more.
//!
//! Cargo never removes anything. A crate that is built again by another compiler gets new files beside the old ones, and a test binary has
//! a hundred megabytes. Which files belong together is in the names: each unit has a hash, and a folder in `.fingerprint` that says
//! what was built and how. A unit goes where a newer one of its kind is of another compiler. Units that differ in their dependencies
//! stay: commands that ask for other packages have other features in them, and each uses its own. Incremental folders, which only make
//! the next build of a crate faster, go as well.

use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirEntry, File, TryLockError},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

/// Remove from target/ what no build uses any more: incremental folders and superseded artefacts.
#[derive(clap::Args)]
pub struct PruneArguments {
    /// Say what would be removed and remove nothing
    #[arg(long)]
    dry_run: bool,
}

/// What a unit is, without its dependencies and its compiler.
type Kind = Vec<String>;

/// A unit of a build.
struct Unit {
    kind: Kind,
    hash: String,
    /// A number that stands for it.
    compiler: String,
    /// Since the epoch.
    built: Duration,
}

pub fn run(arguments: &PruneArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut all = 0;
    for folder in profile_folders(&workspace.path("target"))? {
        let _lock = lock(&folder)?;
        let doomed = doomed(&folder)?;
        let freed = doomed.iter().map(|path| size(path)).sum::<u64>();
        if freed > 0 {
            println!("{:>8}  {}", shown(freed), workspace.show(&folder));
        }
        all += freed;
        if !arguments.dry_run {
            doomed.iter().try_for_each(|path| remove(path))?;
        }
    }
    println!("{:>8}  {}", shown(all), if arguments.dry_run { "could be freed" } else { "freed" });
    Ok(())
}

/// The folders below this one that cargo builds into: those with fingerprints.
fn profile_folders(below: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![below.to_owned()];
    while let Some(folder) = left.pop() {
        if folder.join(".fingerprint").is_dir() {
            found.push(folder);
            continue;
        }
        left.extend(entries(&folder)?.iter().filter(|entry| is_folder(entry)).map(DirEntry::path));
    }
    found.sort();
    Ok(found)
}

/// Holds off builds into the folder, as cargo's own builds hold off each other.
fn lock(folder: &Path) -> Result<Option<File>> {
    let Ok(file) = File::open(folder.join(".cargo-lock")) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            bail!("a build into {} is under way; try again when it is done", folder.display())
        }
        Err(TryLockError::Error(error)) => Err(error).context("cannot lock a target folder"),
    }
}

/// What is to go from a profile folder.
fn doomed(folder: &Path) -> Result<Vec<PathBuf>> {
    let units =
        entries(&folder.join(".fingerprint"))?.iter().flat_map(|entry| units(&entry.path())).collect::<Vec<_>>();
    let old = superseded(&units);
    let mut doomed = Vec::new();
    for part in [".fingerprint", "build", "deps", "examples"] {
        let of_old =
            |entry: &&DirEntry| hash(&entry.file_name().to_string_lossy()).is_some_and(|hash| old.contains(hash));
        doomed.extend(entries(&folder.join(part))?.iter().filter(of_old).map(DirEntry::path));
    }
    doomed.extend(entries(&folder.join("incremental"))?.iter().map(DirEntry::path));
    Ok(doomed)
}

/// The hashes of units of another compiler than the newest of their kind. A folder can hold several units; it goes when all are old.
fn superseded(units: &[Unit]) -> BTreeSet<&str> {
    let mut newest: BTreeMap<&Kind, &Unit> = BTreeMap::new();
    for unit in units {
        let best = newest.entry(&unit.kind).or_insert(unit);
        if unit.built > best.built {
            *best = unit;
        }
    }
    let is_old = |unit: &&Unit| newest.get(&unit.kind).is_some_and(|best| best.compiler != unit.compiler);
    let (old, kept): (Vec<_>, Vec<_>) = units.iter().partition(is_old);
    let kept = kept.iter().map(|unit| unit.hash.as_str()).collect::<BTreeSet<_>>();
    old.iter().map(|unit| unit.hash.as_str()).filter(|hash| !kept.contains(hash)).collect()
}

/// The units of a folder of `.fingerprint`. What cannot be read is not known to be old, and stays.
fn units(folder: &Path) -> Vec<Unit> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(hash) = hash(&name) else { return Vec::new() };
    let package = &name[..name.len() - hash.len()];
    let files = entries(folder).unwrap_or_default();
    let unit = |entry: &DirEntry| {
        let path = entry.path();
        let what = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
        let facts: Value = serde_json::from_str(&fs::read_to_string(&path).ok()?).ok()?;
        let same = ["features", "target", "profile", "path", "rustflags", "config", "compile_kind"];
        let fact = |name| facts.get(name).map(Value::to_string).unwrap_or_default();
        let compiler = fact("rustc");
        let facts = same.map(fact);
        let kind = [package.to_owned(), what].into_iter().chain(facts).collect();
        let built = entry.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Unit { kind, hash: hash.to_owned(), compiler, built })
    };
    files.iter().filter_map(unit).collect()
}

/// The hash at the end of a file's name before its extensions: `libclap-0123456789abcdef.rlib`.
fn hash(name: &str) -> Option<&str> {
    let stem = name.split('.').next()?;
    let (_, hash) = stem.rsplit_once('-')?;
    (hash.len() == 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(hash)
}

/// What is in a folder; nothing where there is none.
fn entries(folder: &Path) -> Result<Vec<DirEntry>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let list = fs::read_dir(folder).and_then(Iterator::collect);
    list.with_context(|| format!("cannot read {}", folder.display()))
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

fn size(path: &Path) -> u64 {
    if path.is_dir() {
        return entries(path).unwrap_or_default().iter().map(|entry| size(&entry.path())).sum();
    }
    fs::symlink_metadata(path).map_or(0, |file| file.len())
}

fn remove(path: &Path) -> Result<()> {
    let gone = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    gone.with_context(|| format!("cannot remove {}", path.display()))
}

fn shown(bytes: u64) -> String {
    format!("{} MB", bytes / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASHES: [&str; 4] = ["0000000000000001", "0000000000000002", "0000000000000003", "0000000000000004"];

    fn unit(kind: &str, hash: usize, compiler: &str, age: u64) -> Unit {
        let built = Duration::from_secs(1_000 - age);
        Unit { kind: vec![kind.to_owned()], hash: HASHES[hash].to_owned(), compiler: compiler.to_owned(), built }
    }

    #[test]
    fn units_of_an_older_compiler_go() {
        let units = [unit("lib", 0, "1", 9), unit("lib", 1, "2", 3), unit("lib", 2, "2", 5), unit("test", 3, "1", 99)];
        assert_eq!(superseded(&units), [HASHES[0]].into());
    }

    #[test]
    fn hash_is_at_the_end_of_a_name() {
        assert_eq!(hash("libclap-0123456789abcdef.rlib"), Some("0123456789abcdef"));
        assert_eq!(hash("own-program-0123456789abcdef"), Some("0123456789abcdef"));
        for name in ["xtask", "own-program", "libclap-0123456789abcde.d", "a-0123456789abcdeg"] {
            assert_eq!(hash(name), None, "{name}");
        }
    }

    /// A target folder with a library of two compilers, the newer one's once more with other dependencies, and a program of its own.
    #[test]
    fn files_of_an_old_generation_and_incremental_folders_go() {
        let target = Workspace::find().unwrap().path("target/prune-test");
        let _ = fs::remove_dir_all(&target);
        let debug = target.join("x64/debug");
        for (hash, compiler) in [(HASHES[0], 1), (HASHES[1], 2), (HASHES[2], 2)] {
            let folder = debug.join(format!(".fingerprint/one-{hash}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("lib-one.json"), format!("{{\"rustc\":{compiler},\"deps\":[{hash:?}]}}")).unwrap();
            fs::create_dir_all(debug.join("deps")).unwrap();
            fs::write(debug.join(format!("deps/libone-{hash}.rlib")), "").unwrap();
        }
        let built = |hash: &str, age: u64| {
            let file = debug.join(format!(".fingerprint/one-{hash}/lib-one.json"));
            let at = UNIX_EPOCH + Duration::from_secs(1_000_000 - age);
            File::options().write(true).open(file).unwrap().set_modified(at).unwrap();
        };
        built(HASHES[0], 20);
        built(HASHES[1], 10);
        built(HASHES[2], 5);
        fs::create_dir_all(debug.join("incremental/one-abc")).unwrap();
        fs::write(debug.join("program"), "").unwrap();

        assert_eq!(profile_folders(&target).unwrap(), std::slice::from_ref(&debug));
        let names = |doomed: Vec<PathBuf>| -> BTreeSet<String> {
            doomed.iter().map(|path| path.strip_prefix(&debug).unwrap().display().to_string()).collect()
        };
        let fingerprint = format!(".fingerprint/one-{}", HASHES[0]);
        let expected = [fingerprint, format!("deps/libone-{}.rlib", HASHES[0]), "incremental/one-abc".to_owned()];
        assert_eq!(names(doomed(&debug).unwrap()), expected.into());
        fs::remove_dir_all(&target).unwrap();
    }

    #[test]
    fn folder_of_a_build_under_way_is_left_alone() {
        let folder = Workspace::find().unwrap().path("target/prune-lock-test");
        fs::create_dir_all(&folder).unwrap();
        let build = File::create(folder.join(".cargo-lock")).unwrap();
        assert!(lock(&folder).unwrap().is_some());
        build.lock().unwrap();
        assert!(lock(&folder).unwrap_err().to_string().contains("is under way"));
        drop(build);
        fs::remove_dir_all(&folder).unwrap();
    }
}
