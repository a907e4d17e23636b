//! What was run, by line, function and branch: read from llvm-cov's listing, summed up by file and crate.
//!
//! The same source is in the listing more than once: in the image and in the tests of the libraries, and generic code once
//! for each use. Items at the same place are one item, which was run if any of them was. Unit tests that stand at the
//! end of a file are not counted: they are no code of the driver.

use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The crates of the image that are ours and have logic, with the folders of their sources. The owners of kernel primitives count
/// as part of the driver.
pub(super) const CRATES: [(&str, &[&str]); 4] = [
    ("driver", &["driver", "kernel/src"]),
    ("engine", &["engine/src"]),
    ("cells", &["cells/src"]),
    ("ioctl", &["tools/ioctl/src"]),
];

/// How many of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub run: usize,
    pub all: usize,
}

impl Share {
    fn of<'counts>(counts: impl IntoIterator<Item = &'counts u64>) -> Self {
        counts
            .into_iter()
            .fold(Self::default(), |share, count| Self { run: share.run + usize::from(*count > 0), all: share.all + 1 })
    }

    fn add(self, other: Self) -> Self {
        Self { run: self.run + other.run, all: self.all + other.all }
    }

    /// Of hundred; what has nothing to run is run.
    pub fn percent(self) -> f64 {
        const MOST: &str = "fewer lines than 2^32";
        let number = |count: usize| f64::from(u32::try_from(count).expect(MOST));
        if self.all == 0 { 100.0 } else { number(self.run) * 100.0 / number(self.all) }
    }
}

/// Shares of lines, functions and branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    pub lines: Share,
    pub functions: Share,
    pub branches: Share,
}

impl Shares {
    fn add(self, other: Self) -> Self {
        Self {
            lines: self.lines.add(other.lines),
            functions: self.functions.add(other.functions),
            branches: self.branches.add(other.branches),
        }
    }
}

/// What was counted in one file, by place.
#[derive(Debug, Default)]
struct Source {
    lines: BTreeMap<usize, u64>,
    /// By the line on which they begin.
    functions: BTreeMap<usize, u64>,
    /// By line, number of the branch in it, and way that it goes.
    branches: BTreeMap<(usize, usize, usize), u64>,
}

impl Source {
    fn shares(&self) -> Shares {
        Shares {
            lines: Share::of(self.lines.values()),
            functions: Share::of(self.functions.values()),
            branches: Share::of(self.branches.values()),
        }
    }

    /// Forgets what stands from a line on.
    fn end_before(&mut self, line: usize) {
        self.lines.retain(|place, _| *place < line);
        self.functions.retain(|place, _| *place < line);
        self.branches.retain(|(place, ..), _| *place < line);
    }

    /// Runs of lines that nothing ran: first and last.
    fn missed(&self) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let mut before = false;
        for (line, count) in &self.lines {
            match (count, runs.last_mut()) {
                (0, Some(run)) if before => run.1 = *line,
                (0, _) => runs.push((*line, *line)),
                _ => {}
            }
            before = *count == 0;
        }
        runs
    }
}

/// Everything counted, by file from the root.
#[derive(Debug, Default)]
pub(super) struct Report {
    files: BTreeMap<String, Source>,
}

impl Report {
    /// Reads llvm-cov's listing in the format of lcov.
    pub fn read(workspace: &Workspace, listing: &str) -> Result<Self> {
        let mut report = Self::parse(workspace.root(), listing)?;
        for (file, source) in &mut report.files {
            let path = workspace.path(file);
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if let Some(line) = tests_begin(&text) {
                source.end_before(line);
            }
        }
        for (name, folders) in CRATES {
            for folder in folders {
                let run = report.shares_below(&[folder]).lines.run;
                ensure!(run > 0, "nothing was counted in {folder} of {name}: are its paths right?");
            }
        }
        Ok(report)
    }

    fn parse(root: &Path, listing: &str) -> Result<Self> {
        let mut report = Self::default();
        let mut source = &mut Source::default();
        let mut other = Source::default();
        let mut functions = BTreeMap::new();
        for line in listing.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let fields: Vec<&str> = value.split(',').collect();
            match (key, fields.as_slice()) {
                ("SF", _) => {
                    functions.clear();
                    source = match ours(root, value) {
                        Some(file) => report.files.entry(file).or_default(),
                        None => &mut other,
                    };
                }
                ("FN", [line, name]) => {
                    functions.insert((*name).to_owned(), number(line)?);
                }
                ("FNDA", [count, name]) => {
                    let line = functions.get(*name).with_context(|| format!("a function without a line: {name}"))?;
                    *source.functions.entry(*line).or_default() += count.parse::<u64>()?;
                }
                ("DA", [line, count]) => *source.lines.entry(number(line)?).or_default() += count.parse::<u64>()?,
                ("BRDA", [line, block, branch, count]) => {
                    let place = (number(line)?, number(block)?, number(branch)?);
                    // A dash: the condition was never looked at.
                    *source.branches.entry(place).or_default() += count.parse::<u64>().unwrap_or(0);
                }
                _ => {}
            }
        }
        Ok(report)
    }

    fn shares_below(&self, folders: &[&str]) -> Shares {
        let below =
            self.files.iter().filter(|(file, _)| folders.iter().any(|folder| Path::new(file).starts_with(folder)));
        below.fold(Shares::default(), |sum, (_, source)| sum.add(source.shares()))
    }

    /// Each crate with its shares.
    pub fn crates(&self) -> impl Iterator<Item = (&'static str, Shares)> {
        CRATES.into_iter().map(|(name, folders)| (name, self.shares_below(folders)))
    }

    fn all(&self) -> Shares {
        self.crates().fold(Shares::default(), |sum, (_, shares)| sum.add(shares))
    }

    /// For people: the crates, and the files, all of them or those with the most lines that nothing ran.
    pub fn table(&self, all_files: bool) -> String {
        const MOST: usize = 10;
        let mut table = row("", &["lines", "", "functions", "", "branches", ""].map(str::to_owned));
        for (name, shares) in self.crates().chain([("all", self.all())]) {
            table += &numbers(name, shares);
        }
        let mut files: Vec<_> = self.files.iter().map(|(file, source)| (file.as_str(), source.shares())).collect();
        if !all_files {
            files.sort_by_key(|(_, shares)| Reverse(shares.lines.all - shares.lines.run));
            files.truncate(MOST);
        }
        table.push('\n');
        for (file, shares) in files {
            table += &numbers(file, shares);
        }
        table
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let crates = self.crates().map(|(name, shares)| (name.to_owned(), json(shares)));
        let files = self.files.iter().map(|(file, source)| {
            let mut entry = json(source.shares());
            entry["missed"] =
                source.missed().into_iter().map(|(first, last)| serde_json::json!([first, last])).collect();
            (file.clone(), entry)
        });
        serde_json::json!({
            "crates": crates.collect::<serde_json::Map<_, _>>(),
            "all": json(self.all()),
            "files": files.collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn number(text: &str) -> Result<usize> {
    text.parse().with_context(|| format!("{text:?} is no number"))
}

/// The path of a source of ours from the root.
fn ours(root: &Path, path: &str) -> Option<String> {
    let path = PathBuf::from(path);
    let relative = path.strip_prefix(root).unwrap_or(&path);
    let is_ours = CRATES.iter().any(|(_, folders)| folders.iter().any(|folder| relative.starts_with(folder)));
    is_ours.then(|| relative.display().to_string())
}

/// The line on which the unit tests of a file begin: by the tree's custom they are at its end.
fn tests_begin(text: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_mark = |line: &str| line.starts_with("#[cfg(") && line.contains("test");
    let is_module = |line: &str| line.starts_with("mod ") && line.ends_with('{');
    lines.windows(2).position(|pair| is_mark(pair[0]) && is_module(pair[1])).map(|index| index + 1)
}

fn json(shares: Shares) -> serde_json::Value {
    let each = |share: Share| serde_json::json!({ "run": share.run, "all": share.all, "percent": share.percent() });
    serde_json::json!({
        "lines": each(shares.lines), "functions": each(shares.functions), "branches": each(shares.branches),
    })
}

fn numbers(name: &str, shares: Shares) -> String {
    let cells = [shares.lines, shares.functions, shares.branches]
        .map(|share| [format!("{:.1} %", share.percent()), format!("{} of {}", share.run, share.all)]);
    let [[lines, line_counts], [functions, function_counts], [branches, branch_counts]] = cells;
    row(name, &[lines, line_counts, functions, function_counts, branches, branch_counts])
}

fn row(name: &str, cells: &[String; 6]) -> String {
    let mut row = format!("{name:<36}");
    for pair in cells.chunks(2) {
        let _ = write!(row, " {:>9} {:>14}", pair[0], pair[1]);
    }
    row.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One function in the image and in a library's tests, of which each ran another half, and a file outside of the tree.
    const LISTING: &str = "SF:/tree/engine/src/a.rs\nFN:3,image\nFN:3,tests\nFN:9,never\nFNDA:1,image\nFNDA:2,tests\nFNDA:0,never\n\
        BRDA:4,0,0,7\nBRDA:4,0,1,0\nBRDA:9,0,0,-\nDA:3,3\nDA:4,7\nDA:5,0\nDA:6,0\nDA:8,0\nDA:9,0\nend_of_record\n\
        SF:/registry/other/lib.rs\nFN:1,other\nFNDA:0,other\nDA:1,0\nend_of_record\n\
        SF:/tree/driver/b.rs\nDA:1,1\nend_of_record\n";

    fn report() -> Report {
        Report::parse(Path::new("/tree"), LISTING).unwrap()
    }

    #[test]
    fn same_place_is_one_thing_and_others_are_not_counted() {
        let engine = report().shares_below(&["engine/src"]);
        assert_eq!(engine.lines, Share { run: 2, all: 6 });
        assert_eq!(engine.functions, Share { run: 1, all: 2 });
        assert_eq!(engine.branches, Share { run: 1, all: 3 });
        assert_eq!(report().all().lines, Share { run: 3, all: 7 });
    }

    #[test]
    fn missed_lines_are_runs_of_lines_that_count() {
        let report = report();
        assert_eq!(report.files["engine/src/a.rs"].missed(), [(5, 9)]);
        assert!(report.files["driver/b.rs"].missed().is_empty());
    }

    #[test]
    fn unit_tests_at_the_end_are_not_counted() {
        let two =
            "fn a() {}\n\n#[cfg(all(test, not(loom)))]\nmod tests {\n}\n#[cfg(all(test, loom))]\nmod models {\n}\n";
        assert_eq!(tests_begin(two), Some(3));
        assert_eq!(tests_begin("#[cfg(test)]\nmod elsewhere;\n#[cfg(test)]\nfn helper() {}\nfn a() {}\n"), None);
        let mut source = Source::default();
        source.lines.extend([(2, 1), (3, 1), (4, 1)]);
        source.branches.extend([((2, 0, 0), 1), ((4, 0, 0), 1)]);
        source.end_before(3);
        assert_eq!((source.lines.len(), source.branches.len()), (1, 1));
    }

    #[test]
    fn listing_that_is_cut_is_an_error() {
        assert!(Report::parse(Path::new("/tree"), "SF:/tree/driver/b.rs\nFNDA:1,unknown\n").is_err());
        assert!(Report::parse(Path::new("/tree"), "SF:/tree/driver/b.rs\nDA:x,1\n").is_err());
    }
}
