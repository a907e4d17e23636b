//! One seeded bug: a file of `tests/seeded-bugs`.
//!
//! The head, up to the first `--- ` line, has these lines:
//! `What:` the mistake in one sentence, `Rule:` the tags of the rules it offends, `Test:` a test that must notice, as often as
//! there are tests. A trial may be played by seeds (`Test: trial race::x seeds 1-8`): one of these orders has to notice; a case of user-mode NetworkDirect at the driver
//! is an `nd-trial`, one through `softnd.dll` an `nd-client`, a test file of a package with peers across streams `streams PACKAGE/FILE`.
//! The rest is a unified diff against the work tree.

use super::tree::Change;
use crate::{arguments::BorderSuite, rules, workspace::Workspace};
use anyhow::{Context, Result, bail};
use std::{fmt, fs, path::PathBuf};

/// Where a test is found.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Place {
    /// Unit tests of a package's library.
    Library(String),
    /// A test file of a package.
    File(String, String),
    /// The same with peers across streams.
    Streams(String, String),
    /// A trial of a suite, on the loaded image.
    Trial(BorderSuite),
}

/// By which a patch names the trials of a suite.
const WORDS: [(BorderSuite, &str); 3] =
    [(BorderSuite::Contract, "trial"), (BorderSuite::Driver, "nd-trial"), (BorderSuite::Provider, "nd-client")];

/// Before a test file that is built with peers across streams.
const STREAMS: &str = "streams";

/// A test that must fail.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DetectingTest {
    pub place: Place,
    pub name: String,
    /// The first and the last seed of the schedules by which a trial is played.
    pub seeds: Option<(u64, u64)>,
}

impl fmt::Display for DetectingTest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Library(package) => write!(out, "{package} {}", self.name),
            Place::File(package, file) => write!(out, "{package}/{file} {}", self.name),
            Place::Streams(package, file) => write!(out, "{STREAMS} {package}/{file} {}", self.name),
            Place::Trial(suite) => {
                let word = WORDS.iter().find(|(named, _)| named == suite).map_or("", |(_, word)| word);
                write!(out, "{word} {}", self.name)
            }
        }?;
        self.seeds.map_or(Ok(()), |(first, last)| write!(out, " seeds {first}-{last}"))
    }
}

/// A seeded bug.
pub struct Patch {
    pub name: String,
    pub what: String,
    pub rules: Vec<String>,
    pub tests: Vec<DetectingTest>,
    pub change: Change,
}

/// All seeded bugs, by name.
pub fn read_all(workspace: &Workspace) -> Result<Vec<Patch>> {
    let folder = workspace.path("tests/seeded-bugs");
    let known = rules::tags(workspace)?;
    let mut patches = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "patch") {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let contents = fs::read_to_string(&file)?;
            let patch = read(&name, file, &contents).with_context(|| format!("tests/seeded-bugs/{name}.patch"))?;
            if let Some(tag) = patch.rules.iter().find(|tag| !known.contains(*tag)) {
                bail!("tests/seeded-bugs/{name}.patch names {tag}, which docs/rules.md does not have");
            }
            patches.push(patch);
        }
    }
    patches.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(patches)
}

fn read(name: &str, file: PathBuf, contents: &str) -> Result<Patch> {
    let head = contents.lines().take_while(|line| !line.starts_with("--- "));
    let changed = contents.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    let change = Change { diff: file, files: changed.map(|file| file.trim().to_owned()).collect() };
    let mut patch = Patch { name: name.into(), what: String::new(), rules: Vec::new(), tests: Vec::new(), change };
    for line in head {
        match line.split_once(": ") {
            Some(("What", what)) => patch.what = what.trim().into(),
            Some(("Rule", tags)) => patch.rules.extend(tags.split(',').map(|tag| tag.trim().to_owned())),
            Some(("Test", test)) => patch.tests.push(read_test(test.trim())?),
            _ if line.trim().is_empty() || line.starts_with("diff ") || line.starts_with("index ") => {}
            _ => bail!("`{line}` is neither What, Rule nor Test"),
        }
    }
    if patch.what.is_empty() || patch.rules.is_empty() || patch.tests.is_empty() || patch.change.files.is_empty() {
        bail!("a seeded bug needs What, Rule, Test and a diff with a/ and b/");
    }
    Ok(patch)
}

fn read_test(words: &str) -> Result<DetectingTest> {
    let (place, name) = words.split_once(' ').with_context(|| format!("`{words}` names no test"))?;
    if place == STREAMS {
        let (file, name) = name.split_once(' ').with_context(|| format!("`{words}` names no test"))?;
        let (package, file) = file.split_once('/').with_context(|| format!("`{words}` names no test file"))?;
        let place = Place::Streams(package.into(), file.into());
        return Ok(DetectingTest { place, name: name.trim().into(), seeds: None });
    }
    let suite = WORDS.iter().find(|(_, word)| *word == place);
    let place = match (place.split_once('/'), suite) {
        (Some((package, file)), _) => Place::File(package.into(), file.into()),
        (None, Some((suite, _))) => Place::Trial(*suite),
        (None, None) => Place::Library(place.into()),
    };
    let Some((name, seeds)) = name.split_once(" seeds ") else {
        return Ok(DetectingTest { place, name: name.trim().into(), seeds: None });
    };
    let range =
        seeds.split_once('-').and_then(|(first, last)| Some((first.trim().parse().ok()?, last.trim().parse().ok()?)));
    let seeds = range.filter(|(first, last)| first <= last && matches!(place, Place::Trial(_)));
    let seeds = seeds.with_context(|| format!("`{words}`: seeds are FIRST-LAST, for trials"))?;
    Ok(DetectingTest { place, name: name.trim().into(), seeds: Some(seeds) })
}

#[cfg(test)]
mod tests {
    use super::{BorderSuite, Place, read, read_all};
    use crate::workspace::Workspace;

    const TEXT: &str = "What: forgets.\nRule: BUG-1, BUG-2\nTest: softndk-engine/scenarios closing::holds\nTest: trial suite::holds\n\
                        Test: softndk-cells ring::tests::holds\n--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn head_is_read() {
        let patch = read("n", "n.patch".into(), TEXT).unwrap();
        assert_eq!((&*patch.what, patch.rules.len(), patch.change.files.len()), ("forgets.", 2, 1));
        let places = patch.tests.iter().map(|test| test.place.clone()).collect::<Vec<_>>();
        let file = Place::File("softndk-engine".into(), "scenarios".into());
        assert_eq!(places, [file, Place::Trial(BorderSuite::Contract), Place::Library("softndk-cells".into())]);
    }

    #[test]
    fn trials_of_user_mode_have_a_word_of_their_own() {
        let text = TEXT.replace("trial suite::holds", "nd-trial hostile::holds");
        let patch = read("n", "n.patch".into(), &text).unwrap();
        assert_eq!(patch.tests[1].place, Place::Trial(BorderSuite::Driver));
        assert_eq!(patch.tests[1].to_string(), "nd-trial hostile::holds");
        let text = TEXT.replace("trial suite::holds", "nd-client habits::holds");
        let patch = read("x", "x.patch".into(), &text).unwrap();
        assert_eq!(patch.tests[1].to_string(), "nd-client habits::holds");
    }

    #[test]
    fn trial_is_played_by_seeds() {
        let text = TEXT.replace("trial suite::holds", "trial suite::holds seeds 3-9");
        let patch = read("n", "n.patch".into(), &text).unwrap();
        assert_eq!((&*patch.tests[1].name, patch.tests[1].seeds), ("suite::holds", Some((3, 9))));
        assert_eq!(patch.tests[1].to_string(), "trial suite::holds seeds 3-9");
        for wrong in ["trial suite::holds seeds 9-3", "trial suite::holds seeds", "trial suite::holds seeds x-y"] {
            let read = read("n", "n.patch".into(), &TEXT.replace("trial suite::holds", wrong));
            assert!(read.is_err() || read.unwrap().tests[1].seeds.is_none(), "{wrong}");
        }
        assert!(read("n", "n.patch".into(), &TEXT.replace("closing::holds", "closing::holds seeds 1-2")).is_err());
    }

    #[test]
    fn seeded_bug_without_a_test_is_refused() {
        assert!(read("n", "n.patch".into(), "What: x.\nRule: BUG-1\n--- a/x\n+++ b/x\n").is_err());
    }

    /// The patches of the tree: heads that can be read, rules that exist, every class of bugs among them.
    #[test]
    fn every_class_of_bugs_has_a_seeded_bug() {
        let patches = read_all(&Workspace::find().unwrap()).unwrap();
        for class in 1..=9 {
            let tag = format!("BUG-{class}");
            assert!(patches.iter().any(|patch| patch.rules.contains(&tag)), "no seeded bug offends {tag}");
        }
    }
}
