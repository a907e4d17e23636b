//! All mutants in one image, of which a number chooses one: building is what costs, so it is done once.
//!
//! The body of a function with mutants becomes a chain: `if` the first is chosen, its body; `else if` the second, its; `else` what
//! is written. What the compiler refuses is taken out, and the rest compiled again: those mutants are unviable. A function in which
//! the question cannot be asked (a `const fn`) keeps its mutants for images of their own. The number lies in the image behind a mark.

use super::Mutant;
use crate::{
    arch::Arch,
    breaks::{proof, tree::Tree},
    driver,
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

const MARK: &[u8; 16] = b"chosen mutant is";

/// The module that is added to the driver.
const CHOICE: &str = r#"//! Which mutant is chosen.
#[repr(C)]
pub struct Choice([u8; 16], u32);
#[used]
pub static CHOICE: Choice = Choice(*b"chosen mutant is", u32::MAX);
#[inline(never)]
pub fn is(number: u32) -> bool {
    // Volatile: the number is changed in the image.
    unsafe { (&raw const CHOICE.1).read_volatile() == number }
}
"#;

/// What became of the mutants of the image.
pub struct Together {
    image: Vec<u8>,
    /// By their place in the list.
    pub inside: BTreeSet<usize>,
    pub alone: BTreeSet<usize>,
    pub unviable: BTreeSet<usize>,
}

/// A function that has mutants: where its body is in the file, and their bodies.
struct Function {
    body: Range<usize>,
    bodies: Vec<(usize, String)>,
}

/// The functions with mutants of each file, and the file as it is written.
type Files = BTreeMap<&'static str, (String, Vec<Function>)>;

/// Where each mutant is in the file that was written.
type Places = BTreeMap<&'static str, Vec<(Range<usize>, usize)>>;

impl Together {
    /// Builds the image in a copy of the tree, which is not fit for anything else afterwards.
    pub fn build(tree: &Tree, mutants: &[&Mutant]) -> Result<Self> {
        let files = functions(tree, mutants)?;
        let workspace = Workspace::at(tree.root());
        let library = tree.root().join("driver/lib.rs");
        let text = fs::read_to_string(&library)?.replace("mod mapper;", "mod mapper;\nmod mutant;");
        fs::write(&library, text)?;
        fs::write(tree.root().join("driver/mutant.rs"), CHOICE)?;
        let mut together = Self {
            image: Vec::new(),
            inside: (0..mutants.len()).collect(),
            alone: BTreeSet::new(),
            unviable: BTreeSet::new(),
        };
        loop {
            let places = together.write(tree, &files)?;
            let refused = refused(&workspace, &places)?;
            if refused.is_empty() {
                break;
            }
            for (number, constant) in refused {
                together.inside.remove(&number);
                if constant { &mut together.alone } else { &mut together.unviable }.insert(number);
            }
        }
        driver::build(&workspace, Arch::X64, driver::Profile::Debug).or_else(|error| {
            // What the check says of this image is no matter.
            if proof::image(tree).exists() { Ok(proof::image(tree)) } else { Err(error) }
        })?;
        together.image = fs::read(proof::image(tree))?;
        Ok(together)
    }

    /// Writes the files with the mutants that are still inside; where each of them is, by file.
    fn write(&self, tree: &Tree, files: &Files) -> Result<Places> {
        let mut places = BTreeMap::new();
        for (file, (text, functions)) in files {
            let (mut written, mut position) = (String::new(), 0);
            let mut ranges = Vec::new();
            for Function { body, bodies } in functions {
                written.push_str(&text[position..body.start]);
                position = body.end;
                for (number, changed) in bodies.iter().filter(|(number, _)| self.inside.contains(number)) {
                    write!(written, "\nif crate::mutant::is({number}) {{")?;
                    let start = written.len();
                    written.push_str(changed);
                    ranges.push((start..written.len(), *number));
                    written.push_str("} else ");
                }
                writeln!(written, "{{{}}}", &text[body.clone()])?;
            }
            written.push_str(&text[position..]);
            write_if_changed(&tree.root().join(file), written.as_bytes())?;
            places.insert(*file, ranges);
        }
        Ok(places)
    }

    /// Writes the image in which this mutant, or none, is chosen.
    pub fn choose(&self, number: Option<usize>, path: &Path) -> Result<PathBuf> {
        let mut image = self.image.clone();
        let found = image.windows(MARK.len()).position(|bytes| bytes == MARK).context("the image has no choice")?;
        let choice = number.map_or(u32::MAX, |number| number as u32).to_le_bytes();
        image.get_mut(found + MARK.len()..found + MARK.len() + 4).context("a cut image")?.copy_from_slice(&choice);
        fs::write(path, image).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.to_owned())
    }
}

/// The functions that have mutants, by file and in their order.
fn functions(tree: &Tree, mutants: &[&Mutant]) -> Result<Files> {
    let mut files = Files::new();
    for (number, mutant) in mutants.iter().enumerate() {
        let path = tree.root().join(mutant.file);
        let (text, functions) = files.entry(mutant.file).or_insert((fs::read_to_string(&path)?, Vec::new()));
        let body = body(text, &mutant.function).with_context(|| format!("no function around {}", mutant.name))?;
        let changed = tree.with(&mutant.change, || Ok(fs::read_to_string(&path)?))?;
        let end = changed.len() - (text.len() - body.end);
        let changed = changed.get(body.start..end).context("a mutant outside of its function")?.to_owned();
        match functions.iter_mut().find(|function| function.body == body) {
            Some(function) => function.bodies.push((number, changed)),
            None => functions.push(Function { body, bodies: vec![(number, changed)] }),
        }
    }
    for (_, functions) in files.values_mut() {
        functions.sort_by_key(|function| function.body.start);
        let nested = functions.windows(2).any(|pair| pair[0].body.end > pair[1].body.start);
        if nested {
            bail!("a function with mutants lies in another");
        }
    }
    Ok(files)
}

/// What lies between the braces of a function that goes from one line and column to another (from 1).
fn body(text: &str, span: &[(usize, usize); 2]) -> Option<Range<usize>> {
    let offset = |(line, column): (usize, usize)| {
        let before = text.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
        let rest = text.get(before..)?;
        Some(before + rest.char_indices().nth(column - 1).map_or(rest.len(), |(index, _)| index))
    };
    let (start, end) = (offset(span[0])?, offset(span[1])?);
    let braces = braces(text.get(start..end)?);
    let (open, close) = braces.last()?;
    Some(start + open + 1..start + close)
}

/// Every pair of braces of some code that is not in a comment, a string or a character, in the order of their ends.
fn braces(code: &str) -> Vec<(usize, usize)> {
    let bytes = code.as_bytes();
    let (mut open, mut pairs, mut at) = (Vec::new(), Vec::new(), 0);
    let until = |from: usize, end: &str| code[from..].find(end).map_or(bytes.len(), |found| from + found + end.len());
    while at < bytes.len() {
        match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => at = until(at, "\n"),
            b'"' => {
                at += 1;
                while bytes.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            // A character, not a lifetime.
            b'\'' if bytes.get(at + 2) == Some(&b'\'') => at += 3,
            b'\'' if bytes.get(at + 1) == Some(&b'\\') => at = until(at + 3, "'"),
            b'{' => {
                open.push(at);
                at += 1;
            }
            b'}' => {
                pairs.extend(open.pop().map(|start| (start, at)));
                at += 1;
            }
            _ => at += 1,
        }
    }
    pairs
}

/// The mutants that the compiler refuses now, and whether only because they are in a constant function.
fn refused(workspace: &Workspace, places: &Places) -> Result<BTreeMap<usize, bool>> {
    let mut cargo = driver::cargo(workspace, "build", Arch::X64)?;
    let done = cargo.args(["--message-format", "json"]).output()?;
    let said = String::from_utf8_lossy(&done.stdout);
    let mut refused = BTreeMap::new();
    let mut words = String::new();
    for line in said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()) {
        let message = &line["message"];
        if message["level"] != "error" {
            continue;
        }
        words.push_str(message["rendered"].as_str().unwrap_or_default());
        let constant = message["code"]["code"] == "E0015";
        for span in message["spans"].as_array().into_iter().flatten().filter(|span| span["is_primary"] == true) {
            let file = span["file_name"].as_str().unwrap_or_default();
            let place = |key: &str| span[key].as_u64().and_then(|place| usize::try_from(place).ok());
            let (Some(ranges), Some(start)) = (places.get(file), place("byte_start")) else { continue };
            // The question itself stands before its mutant.
            let mutant = ranges.iter().find(|(range, _)| start < range.end && (constant || start >= range.start));
            if let Some((_, number)) = mutant {
                refused.insert(*number, constant);
            }
        }
    }
    if !done.status.success() && refused.is_empty() {
        bail!("the driver with its mutants does not build, and not because of one of them:\n{words}");
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::{body, braces};

    #[test]
    fn braces_in_words_do_not_count() {
        let code = "fn f<'a>() { \"}\\\"{\"; '{'; '\\''; // }\n { } }";
        let pairs = braces(code);
        assert_eq!(pairs.last(), Some(&(11, code.len() - 1)));
        assert_eq!(pairs.len(), 2);
    }

    #[test]
    fn body_is_what_the_function_has_in_its_last_braces() {
        let text = "use a;\n    fn f(x: [u8; { 2 }]) -> u8 { 1 }\nfn g() {}\n";
        assert_eq!(body(text, &[(2, 5), (2, 38)]).map(|range| &text[range]), Some(" 1 "));
    }
}
