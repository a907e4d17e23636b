//! A source file with all its mutants at once: each function asks at run time which of its bodies it has.
//!
//! What it is: text in, text out. A function with mutants becomes `match crate::mutant() { 7 => {…} 8 => {…} _ => {…} }`, with
//! a copy of the body for each of them and the body as it was for everybody else; where the number comes from is the crate's
//! matter. What it is not: a parser; it finds the body of a function by its first brace, and what it cannot switch (constants,
//! constant functions, a function that returns an unnamed type) is tried alone.

use super::described::{Mutant, Position};
use std::{collections::BTreeMap, ops::Range};

/// Who is to blame for a line that does not compile.
#[derive(Debug, Eq, PartialEq)]
pub enum Blame {
    NoMutant,
    One(u32),
    /// All mutants of a function, which itself does not compile beside them.
    All(Vec<u32>),
}

/// A switched file: its text, and which of its lines belong to which mutant.
pub struct Switched {
    pub text: String,
    /// By the first line, with the last.
    lines: BTreeMap<usize, (usize, Blame)>,
}

impl Switched {
    pub fn blamed(&self, line: usize) -> &Blame {
        let before = self.lines.range(..=line).next_back();
        before.filter(|(_, (end, _))| line <= *end).map_or(&Blame::NoMutant, |(_, (_, blame))| blame)
    }
}

/// A file with one mutant and nothing else.
pub fn changed(source: &str, mutant: &Mutant) -> String {
    let place = Places::of(source).range(&mutant.place);
    [&source[..place.start], &mutant.replacement, " ", &source[place.end..]].concat()
}

/// Whether the mutant lies in a function, and one that can ask for a number: a constant function cannot.
pub fn is_switchable(source: &str, mutant: &Mutant) -> bool {
    let Some(function) = &mutant.function else { return false };
    let range = Places::of(source).range(function);
    body(source, &range).is_some_and(|body| !source[range.start..body.start].contains("const fn "))
}

/// Switches the mutants of one file, by their numbers.
pub fn switch(source: &str, mutants: &[(u32, &Mutant)]) -> Switched {
    let places = Places::of(source);
    let mut functions = BTreeMap::<usize, (Range<usize>, Vec<(u32, &Mutant)>)>::new();
    let mut ranges = mutants
        .iter()
        .filter_map(|(number, mutant)| Some((places.range(mutant.function.as_ref()?), *number, *mutant)))
        .collect::<Vec<_>>();
    // Outer functions before those inside of them, whose mutants are theirs too.
    ranges.sort_by_key(|(range, number, _)| (range.start, std::cmp::Reverse(range.end), *number));
    for (range, number, mutant) in ranges {
        match functions.values_mut().next_back() {
            Some((outer, inside)) if outer.end >= range.end => inside.push((number, mutant)),
            _ => drop(functions.insert(range.start, (range, vec![(number, mutant)]))),
        }
    }
    let mut out = Switched { text: String::new(), lines: BTreeMap::new() };
    let mut done = 0;
    for (range, mutants) in functions.into_values() {
        let Some(body) = body(source, &range) else { continue };
        out.text.push_str(&source[done..body.start]);
        out.function(source, &places, &body, &mutants);
        done = range.end;
    }
    out.text.push_str(&source[done..]);
    out
}

impl Switched {
    fn line(&self) -> usize {
        self.text.matches('\n').count() + 1
    }

    fn function(&mut self, source: &str, places: &Places, body: &Range<usize>, mutants: &[(u32, &Mutant)]) {
        let all = mutants.iter().map(|(number, _)| *number).collect::<Vec<_>>();
        self.text.push_str("{ match crate::mutant() {\n");
        for (number, mutant) in mutants {
            let place = places.range(&mutant.place);
            let changed =
                [&source[body.start + 1..place.start], &mutant.replacement, " ", &source[place.end..body.end - 1]];
            self.arm(&number.to_string(), &changed.concat(), Blame::One(*number));
        }
        self.arm("_", &source[body.start + 1..body.end - 1], Blame::All(all));
        self.text.push_str("} }");
    }

    fn arm(&mut self, pattern: &str, body: &str, blame: Blame) {
        let first = self.line();
        self.text.extend([pattern, " => {", body, "\n}\n"]);
        self.lines.insert(first, (self.line() - 1, blame));
    }
}

/// From the brace that opens a function's body to the one that closes it.
fn body(source: &str, function: &Range<usize>) -> Option<Range<usize>> {
    let mut comment = false;
    let text = source.get(function.clone())?;
    for (at, letter) in text.char_indices() {
        comment = letter != '\n' && (comment || text[at..].starts_with("//"));
        if letter == '{' && !comment {
            return Some(function.start + at..function.end);
        }
    }
    None
}

/// Where the lines of a text begin.
struct Places<'a> {
    lines: Vec<(usize, &'a str)>,
}

impl<'a> Places<'a> {
    fn of(source: &'a str) -> Self {
        let mut start = 0;
        let lines = source.split_inclusive('\n').map(|line| {
            start += line.len();
            (start - line.len(), line)
        });
        Self { lines: lines.collect() }
    }

    fn at(&self, (line, column): Position) -> usize {
        let (start, text) = self.lines[line - 1];
        start + text.char_indices().nth(column - 1).map_or(text.len(), |(at, _)| at)
    }

    fn range(&self, range: &Range<Position>) -> Range<usize> {
        self.at(range.start)..self.at(range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::super::described::{Mutant, Position};
    use super::{Blame, Switched, changed, is_switchable, switch};
    use std::ops::Range;

    const SOURCE: &str = "const X: u32 = 1 + 2;\n\n/// Not a { brace.\npub fn sum(a: u32, b: u32) -> u32 {\n    a + b\n}\n\n\
                          fn outer(x: u32) -> bool {\n    fn inner(x: u32) -> bool {\n        x < 1\n    }\n    !inner(x)\n}\n\n\
                          pub const fn two() -> u32 {\n    1 + 1\n}\n";

    fn mutant(function: Option<Range<Position>>, place: Range<Position>, replacement: &str) -> Mutant {
        Mutant { name: String::new(), file: String::new(), function, place, replacement: replacement.into() }
    }

    fn switched(mutants: &[Mutant]) -> Switched {
        let numbered = (7..).zip(mutants).collect::<Vec<_>>();
        switch(SOURCE, &numbered)
    }

    #[test]
    fn each_mutant_is_a_copy_of_the_body_and_blamed_for_its_lines() {
        let function = Some((3, 1)..(6, 2));
        let done = switched(&[
            mutant(function.clone(), (5, 7)..(5, 8), "-"),
            mutant(function, (5, 5)..(5, 10), "Default::default()"),
        ]);
        assert!(
            done.text.contains("pub fn sum(a: u32, b: u32) -> u32 { match crate::mutant() {\n7 => {\n    a -  b\n")
        );
        assert!(done.text.contains("8 => {\n    Default::default() \n"));
        assert!(done.text.contains("_ => {\n    a + b\n\n}\n} }\n\nfn outer"));
        let lines = done.text.lines().collect::<Vec<_>>();
        let blamed = |part: &str| done.blamed(lines.iter().position(|line| line.contains(part)).unwrap() + 1);
        assert_eq!((blamed("a -  b"), blamed("Default")), (&Blame::One(7), &Blame::One(8)));
        assert_eq!(blamed("a + b"), &Blame::All(vec![7, 8]));
        assert_eq!((blamed("const X"), blamed("fn outer")), (&Blame::NoMutant, &Blame::NoMutant));
    }

    #[test]
    fn mutants_of_a_function_inside_another_are_switched_with_the_outer_one() {
        let done = switched(&[
            mutant(Some((8, 1)..(13, 2)), (12, 5)..(12, 6), ""),
            mutant(Some((9, 5)..(11, 6)), (10, 11)..(10, 12), ">"),
        ]);
        assert_eq!(done.text.matches("match crate::mutant()").count(), 1);
        assert!(done.text.contains("8 => {\n    fn inner(x: u32) -> bool {\n        x >  1\n    }\n    !inner(x)\n"));
    }

    #[test]
    fn what_is_constant_is_not_switched() {
        let outside = mutant(None, (1, 18)..(1, 19), "-");
        assert!(changed(SOURCE, &outside).starts_with("const X: u32 = 1 -  2;\n\n///"));
        let constant = mutant(Some((15, 1)..(17, 2)), (16, 7)..(16, 8), "-");
        assert!(changed(SOURCE, &constant).contains("{\n    1 -  1\n}"));
        assert!(!is_switchable(SOURCE, &outside) && !is_switchable(SOURCE, &constant));
        assert!(is_switchable(SOURCE, &mutant(Some((3, 1)..(6, 2)), (5, 7)..(5, 8), "-")));
    }
}
