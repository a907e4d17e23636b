//! `xtask/lists/walks.md`: a part between two marks for each walk, and words around them.

use softndk_images::workspace::Workspace;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use super::Walk;
use super::sources::{Entered, FOLDERS, folder_of};

const PAGE: &str = "xtask/lists/walks.md";
const END: &str = "<!-- end -->";
const HEAD: &str = "| | file | first function | purpose |\n|---|---|---|---|\n";

/// What a child writes of its walk, and [`parse`] reads.
pub fn print(walk: &Walk) {
    for (call, entered) in walk {
        println!("{call}");
        for Entered { file, function } in entered {
            println!("\t{file}\t{function}");
        }
    }
}

/// The calls of a walk with their files.
pub fn parse(text: &str) -> Vec<(String, Vec<Entered>)> {
    let mut walk: Vec<(String, Vec<Entered>)> = Vec::new();
    for line in text.lines() {
        let Some((file, function)) = line.strip_prefix('\t').and_then(|line| line.split_once('\t')) else {
            walk.push((line.to_owned(), Vec::new()));
            continue;
        };
        let (_, of_call) = walk.last_mut().expect("a call stands before its files");
        of_call.push(Entered { file: file.to_owned(), function: function.to_owned() });
    }
    walk
}

/// What is wrong with the page's part on a walk, if it is not to be written.
pub fn compare(workspace: &Workspace, name: &str, walk: &[(String, Vec<Entered>)]) -> Result<(), String> {
    let path = workspace.path(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    let begin = format!("<!-- recorded: {name} -->\n");
    let (before, rest) = page.split_once(&begin).ok_or_else(|| format!("{PAGE} has no {}", begin.trim_end()))?;
    let (part, after) = rest.split_once(END).ok_or_else(|| format!("{PAGE} has no {END} behind {name}"))?;
    let recorded = text(workspace, walk);
    if std::env::var_os("WALKS_BLESS").is_some() {
        let page = format!("{before}{begin}{recorded}{END}{after}");
        return fs::write(&path, page).map_err(|error| format!("{PAGE}: {error}"));
    }
    if part == recorded {
        return Ok(());
    }
    let changes = missing(part, &recorded, "-") + &missing(&recorded, part, "+");
    Err(format!("{PAGE} is out of date for {name}; WALKS_BLESS=1 writes it\n{changes}"))
}

/// The lines that another text does not have, whatever their numbers.
fn missing(text: &str, other: &str, mark: &str) -> String {
    let words = |line: &str| line.trim_start_matches(|letter: char| "| 0123456789".contains(letter)).to_owned();
    let known: BTreeSet<String> = other.lines().map(words).collect();
    let lines = text.lines().filter(|line| !known.contains(&words(line)));
    lines.flat_map(|line| [mark, " ", line, "\n"]).collect()
}

/// The part: counts, and a table for each call.
fn text(workspace: &Workspace, walk: &[(String, Vec<Entered>)]) -> String {
    let all: Vec<&Entered> = walk.iter().flat_map(|(_, entered)| entered).collect();
    let of_folder = |folder| all.iter().filter(|it| folder_of(&it.file) == Some(folder)).count();
    let counts = FOLDERS.map(|folder| (folder.rsplit('/').next().unwrap_or(folder), of_folder(folder)));
    let counts = counts.iter().filter(|(_, count)| *count != 0).map(|(folder, count)| format!("{folder} {count}"));
    let mut text = format!("\n**{} files**: {}.\n", all.len(), counts.collect::<Vec<_>>().join(", "));
    let mut number = 0;
    for (call, entered) in walk {
        let more = if number == 0 { "" } else { " more" };
        write!(text, "\n{call} enters {}{more}:\n\n{HEAD}", entered.len()).expect("a string");
        for Entered { file, function } in entered {
            number += 1;
            let purpose = purpose(&fs::read_to_string(workspace.path(file)).unwrap_or_default());
            writeln!(text, "| {number} | `{file}` | `{function}` | {purpose} |").expect("a string");
        }
    }
    text.push('\n');
    text
}

/// The first sentence of a module's own description.
pub fn purpose(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let sentence = paragraph.split_once(". ").map_or(paragraph.as_str(), |(sentence, _)| sentence);
    sentence.trim_end_matches('.').replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}
