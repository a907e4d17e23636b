//! The documents: every link leads somewhere, every page is in the book, every command line of ours is one, and the README fits a
//! screen.

use clap::{Parser, error::ErrorKind};
use pulldown_cmark::{CodeBlockKind, Event, Options, Tag, TagEnd};
use softndk_images::workspace::Workspace;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).root().to_owned()
}

/// Every page that is kept, by its path from the top.
fn pages() -> BTreeMap<String, String> {
    let root = root();
    let listed = Command::new("git").args(["ls-files", "--", "*.md"]).current_dir(&root).output().expect("git runs");
    let names = String::from_utf8(listed.stdout).expect("names are text");
    let pages: BTreeMap<_, _> =
        names.lines().map(|name| (name.to_owned(), fs::read_to_string(root.join(name)).expect("a page"))).collect();
    assert!(pages.len() > 30, "there are pages: {}", pages.len());
    pages
}

fn events(page: &str) -> pulldown_cmark::Parser<'_> {
    pulldown_cmark::Parser::new_ext(page, Options::ENABLE_TABLES)
}

/// The targets of a page's links and pictures.
fn links(page: &str) -> Vec<String> {
    let target = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    };
    events(page).filter_map(target).collect()
}

/// The names of a page's headings as links have them: in small letters, with hyphens, without punctuation.
fn anchors(page: &str) -> BTreeSet<String> {
    let (mut anchors, mut heading) = (BTreeSet::new(), None);
    for event in events(page) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                anchors.extend(heading.take().map(|heading| anchor(&heading)));
            }
            _ => {}
        }
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// What is wrong with a link of a page.
fn broken(root: &Path, page: &str, own: &str, target: &str) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, part) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() { root.join(page) } else { root.join(page).parent()?.join(path) };
    if !file.exists() {
        return Some(format!("{page}: {target}: no such file"));
    }
    let text = if path.is_empty() { own.to_owned() } else { fs::read_to_string(&file).unwrap_or_default() };
    let is_there = part.is_empty() || file.extension().is_none_or(|own| own != "md") || anchors(&text).contains(part);
    (!is_there).then(|| format!("{page}: {target}: no such heading"))
}

#[test]
fn every_link_leads_somewhere() {
    let root = root();
    let mut count = 0;
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        // The first page of the book is the README, which `cargo xtask book` copies beside the others.
        for target in links(&text)
            .into_iter()
            .filter(|target| (page.as_str(), target.as_str()) != ("docs/SUMMARY.md", "README.md"))
        {
            count += 1;
            wrong.extend(broken(&root, &page, &text, &target));
        }
    }
    assert!(count > 100, "links were found: {count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn broken_links_are_noticed() {
    let root = root();
    let text = "# A heading: `code`, and more\n";
    let of = |target| broken(&root, "docs/limits.md", text, target);
    assert_eq!(of("#a-heading-code-and-more"), None);
    assert!(of("#another").is_some());
    assert_eq!(of("rules.md"), None);
    assert!(of("no-such-page.md").is_some());
    assert!(of("rules.md#no-such-heading").is_some());
}

/// `{{#include FILE}}` of mdBook, by the page's folder.
#[test]
fn every_included_file_is_there() {
    let (root, mut count) = (root(), 0);
    for (page, text) in pages() {
        for rest in text.split("{{#include ").skip(1) {
            let name = rest.split_once("}}").unwrap_or_else(|| panic!("{page}: an include without an end")).0;
            let file = root.join(&page).parent().expect("a folder").join(name);
            assert!(file.is_file(), "{page} includes {name}: no such file");
            count += 1;
        }
    }
    assert!(count > 0, "includes were found");
}

#[test]
fn every_page_of_the_folder_is_in_the_book() {
    let pages = pages();
    let listed: BTreeSet<_> = links(&pages["docs/SUMMARY.md"]).into_iter().collect();
    let there: BTreeSet<_> = pages
        .keys()
        .filter_map(|page| page.strip_prefix("docs/"))
        .filter(|page| *page != "SUMMARY.md" && !page.contains('/'))
        .map(str::to_owned)
        .chain(["README.md".to_owned()])
        .collect();
    assert_eq!(listed, there);
}

#[test]
fn readme_fits_a_screen() {
    let readme = &pages()["README.md"];
    assert!(readme.lines().count() <= 80, "{} lines", readme.lines().count());
    let long: Vec<_> = readme.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(long.is_empty(), "longer than 100 characters: {long:#?}");
    assert!(readme.contains("cargo xtask demo") && readme.contains("cargo xtask test"));
}

/// Where a command stands: in a block to be pasted, or named in a sentence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Block,
    Sentence,
}

/// The code of a page by lines, continued lines joined.
fn code_lines(page: &str) -> Vec<(String, Place)> {
    let (mut lines, mut is_code) = (Vec::new(), false);
    for event in events(page) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => is_code = true,
            Event::End(TagEnd::CodeBlock) => is_code = false,
            Event::Code(text) => lines.push((text.to_string(), Place::Sentence)),
            Event::Text(text) if is_code => {
                lines.extend(text.replace("\\\n", " ").lines().map(|line| (line.to_owned(), Place::Block)));
            }
            _ => {}
        }
    }
    lines
}

/// The words of a command line after the program's name, without its comment and what is done with its output.
fn words(line: &str, program: &str) -> Option<Vec<String>> {
    let command = line.trim().trim_start_matches("- run: ").strip_prefix(program)?.strip_prefix(' ')?;
    let command = command.split(" # ").next().unwrap_or_default();
    let command = command.split([';', '|', '>', ',']).next().unwrap_or_default();
    let words = shlex::split(command).unwrap_or_default();
    // A pattern of a command is no command.
    let is_pattern = command.contains(['[', '…', '<']) || words.iter().any(|word| is_placeholder(word));
    (!words.is_empty() && !is_pattern).then_some(words)
}

fn is_placeholder(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_uppercase())
        && word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '-')
}

/// What is wrong with a command line of a program; one word is the name of a command. A sentence need not say all that a command takes.
fn cannot_be_typed<A: Parser>(program: &str, words: &[String], place: Place) -> Option<String> {
    if let [name] = words {
        let command = A::command();
        let is_one = name.starts_with("--") || command.find_subcommand(name).is_some();
        return (!is_one).then(|| "no such command".to_owned());
    }
    let line = [program].into_iter().chain(words.iter().map(String::as_str));
    let error = A::try_parse_from(line).err()?;
    let is_a_part = matches!(error.kind(), ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand);
    (!is_a_part || place == Place::Block).then(|| error.to_string())
}

fn check_command_lines<A: Parser>(program: &str, least: usize) {
    let (mut count, mut wrong) = (0, Vec::new());
    for (page, text) in pages() {
        for (line, place) in code_lines(&text) {
            let Some(words) = words(&line, program) else { continue };
            count += 1;
            wrong.extend(cannot_be_typed::<A>(program, &words, place).map(|error| format!("{page}: {line}\n{error}")));
        }
    }
    assert!(count > least, "commands were found: {count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_command_of_xtask_can_be_typed() {
    check_command_lines::<xtask::Arguments>("cargo xtask", 60);
}

#[test]
fn every_command_of_ndkctl_can_be_typed() {
    check_command_lines::<ndkctl::arguments::Arguments>("ndkctl", 40);
}

/// The commands of xtask that stand in blocks, and what runs each: a file, and what is in it.
const RUN_BY: [(&str, &str, &str); 8] = [
    ("demo", "tools/ndkctl/tests/tool/commands.rs", "the_demonstration_ends_with_nothing_left"),
    ("oracle", "tests/oracle/tests/image.rs", "#[test]"),
    ("own-driver", "xtask/tests/tree/own_driver.rs", "docs/own-driver.md"),
    ("own-program", "tests/networkdirect/tests/own_programs/trials.rs", "pingpong"),
    ("package", "xtask/src/package/archive.rs", "#[test]"),
    ("prune", "xtask/src/prune.rs", "#[test]"),
    ("setup", ".ci/run", "cargo xtask setup"),
    ("test", ".ci/run", "cargo xtask test"),
];

#[test]
fn every_command_of_xtask_in_a_block_is_run_somewhere() {
    let mut found = BTreeSet::new();
    for (page, text) in pages() {
        for (line, place) in code_lines(&text) {
            let Some(words) = words(&line, "cargo xtask").filter(|_| place == Place::Block) else { continue };
            let known = RUN_BY.iter().find(|(name, ..)| *name == words[0]);
            let (name, file, part) = known.unwrap_or_else(|| panic!("{page}: what runs `{line}`?"));
            let runs = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(runs.contains(part), "{page}: `{line}`: {file} should run it");
            found.insert(*name);
        }
    }
    assert_eq!(found.len(), RUN_BY.len(), "only {found:?} stand in blocks");
}

/// A provider's number comes from its name.
#[cfg(unix)]
#[test]
fn the_trace_profile_and_its_pages_have_the_provider_s_number() {
    let driver = fs::read_to_string(root().join("driver/runtime/event.rs")).expect("the driver's events");
    let name = driver.split_once("define_provider!(PROVIDER, \"").and_then(|(_, rest)| rest.split_once('"'));
    let name = name.expect("the provider has a name").0;
    let number = tracelogging::Guid::from_name(name).to_utf8_bytes();
    let number = String::from_utf8_lossy(&number).to_lowercase();
    for file in ["inf/softndk.wprp", "docs/windows.md", "docs/ioctl.md"] {
        let text = fs::read_to_string(root().join(file)).expect("it is kept");
        assert!(text.contains(&number) && text.contains(name), "{file} should name {name}, {number}");
    }
    let profile = fs::read_to_string(root().join("inf/softndk.wprp")).expect("the profile");
    assert!(profile.contains(&format!("Name=\"{number}\"")), "the profile enables it");
}
