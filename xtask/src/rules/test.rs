//! The tests of a source file that name rules: `case!(name: "TAG")` in the conformance trials, and everywhere else a comment
//! `Rule: TAG, TAG` above a function.
//!
//! It reads lines, not Rust: a marked function has to look like one of the tree's tests, which is a `#[test]` or a function
//! that its own file lists by name.

use super::list;

/// A test that names rules.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RuleTest {
    pub name: String,
    pub file: String,
    pub line: usize,
    pub tags: Vec<String>,
    /// Why this is not a test, or not a way to name rules.
    pub defect: Option<String>,
}

impl RuleTest {
    /// As a person finds it: the file without its ending, and the name.
    pub fn shown(&self) -> String {
        let file = self.file.strip_suffix(".rs").unwrap_or(&self.file);
        let file = file.strip_prefix("tests/conformance/tests/").unwrap_or(file);
        format!("{file}::{}", self.name)
    }
}

pub fn read(file: &str, text: &str) -> Vec<RuleTest> {
    let mut tests = cases(file, text);
    tests.extend(marked(file, text));
    tests
}

/// The trials of the conformance suites.
fn cases(file: &str, text: &str) -> Vec<RuleTest> {
    let mut tests = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let code = line.trim_start();
        // In a text or a comment it is no case.
        let Some(start) = code.find("case!(").filter(|start| !code[..*start].contains(['"', '/', '`'])) else {
            continue;
        };
        let mut body = code[start + "case!(".len()..].to_owned();
        while !body.contains(')') {
            let Some((_, more)) = lines.next() else { break };
            body.push_str(more.trim());
        }
        let Some((name, tags)) = body.split_once(':') else { continue };
        // Every other piece between quotation marks.
        let tags = tags.split('"').skip(1).step_by(2).map(str::to_owned).collect();
        tests.push(RuleTest { name: name.trim().into(), file: file.into(), line: number + 1, tags, defect: None });
    }
    tests
}

/// The functions with a comment that names rules.
fn marked(file: &str, text: &str) -> Vec<RuleTest> {
    let lines = text.lines().collect::<Vec<_>>();
    let mut tests = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(tags) = line.trim_start().strip_prefix("// Rule: ") else { continue };
        let tags = tags.split(',').map(|tag| tag.trim().to_owned()).collect::<Vec<_>>();
        let between = lines.iter().skip(number + 1).take_while(|line| is_above_a_function(line)).count();
        let head = lines.get(number + 1 + between).copied().unwrap_or_default();
        let attributes = lines.get(number + 1..number + 1 + between).unwrap_or_default();
        let name = function_name(head).unwrap_or_default().to_owned();
        let defect = defect(&name, &tags, attributes, &lines);
        tests.push(RuleTest { name, file: file.into(), line: number + 1, tags, defect });
    }
    tests
}

/// Attributes, comments and nothing at all may stand between the mark and the function.
fn is_above_a_function(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[") || line.starts_with("//")
}

fn function_name(line: &str) -> Option<&str> {
    let after = line
        .trim_start()
        .trim_start_matches("pub ")
        .trim_start_matches("pub(crate) ")
        .trim_start_matches("pub(super) ");
    let after = after.strip_prefix("fn ")?;
    after.split(['(', '<']).next()
}

fn defect(name: &str, tags: &[String], attributes: &[&str], lines: &[&str]) -> Option<String> {
    if name.is_empty() {
        return Some("no function follows the comment that names a rule".into());
    }
    if let Some(tag) = tags.iter().find(|tag| !list::is_tag(tag)) {
        return Some(format!("{tag:?} is not a tag"));
    }
    let is_test = attributes.iter().any(|line| line.trim_start().starts_with("#[test]"));
    (!is_test && !is_listed(name, lines)).then(|| "names a rule and is neither a test nor listed as one".into())
}

/// Whether the file mentions the function besides defining it.
fn is_listed(name: &str, lines: &[&str]) -> bool {
    let whole = |line: &&&str| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + name.len()..].chars().next();
            let joins = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
            !joins(before) && !joins(after)
        })
    };
    lines.iter().filter(whole).count() > 1
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn cases_over_one_line_and_over_many() {
        let text = "const C: &[Case] = &[\n    case!(one: \"A-1\", \"A-2\"),\n    case!(\n        two:\n        \"A-3\",\n    ),\n    // case!(not: \"A-4\"),\n];\n";
        let tests = read("tests/conformance/tests/contract/x.rs", text);
        let found = tests.iter().map(|test| (test.shown(), test.tags.join(" "))).collect::<Vec<_>>();
        assert_eq!(found, [("contract/x::one".into(), "A-1 A-2".into()), ("contract/x::two".into(), "A-3".to_owned())]);
    }

    #[test]
    fn mark_above_attributes_names_the_function() {
        let tests = read("engine/tests/x.rs", "    // Rule: A-1, A-2\n    #[test]\n    #[ignore]\n    fn holds() {\n");
        assert_eq!(tests.len(), 1);
        assert_eq!((&*tests[0].name, tests[0].tags.len(), &tests[0].defect), ("holds", 2, &None));
    }

    #[test]
    fn function_that_is_no_test_is_a_defect() {
        let tests = read("engine/tests/x.rs", "// Rule: A-1\nfn helper() {\n}\n");
        assert!(tests[0].defect.is_some());
    }

    #[test]
    fn listed_function_is_a_test() {
        let tests = read("tools/x.rs", "const CASES: &[Case] = cases![other, holds];\n// Rule: A-1\nfn holds() {\n}\n");
        assert_eq!(tests[0].defect, None);
    }

    #[test]
    fn mark_above_nothing_is_a_defect() {
        assert!(read("x.rs", "// Rule: A-1\nconst X: u32 = 1;\n")[0].defect.is_some());
        assert!(read("x.rs", "// Rule: some words\n#[test]\nfn x() {}\n")[0].defect.is_some());
    }
}
