//! Reads failures from the output of test binaries: of libtest and of trials that are listed the same way.

/// Lines of a failed trial's own words that an excerpt shows.
const WORDS: usize = 25;

/// Lines at the end of the output that an excerpt shows, where compilers and commands say what went wrong.
const END: usize = 30;

/// The trials that an output names as failed, in alphabetical order.
pub fn failed_trials(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        verdict.trim().starts_with("FAILED").then(|| name.trim().to_owned())
    };
    let mut names = text.lines().filter_map(name).collect::<Vec<_>>();
    // Output of a test's own child process stands below the list and may repeat a name.
    names.sort();
    names.dedup();
    names
}

/// The counts of test binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Binaries that had a trial to run.
    pub binaries: usize,
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
}

/// The sums over all test binaries of an output; none when no binary came to its end.
pub fn totals(text: &str) -> Option<Totals> {
    let mut sums = None;
    for result in text.lines().filter_map(|line| line.trim_start().strip_prefix("test result: ")) {
        let of = |what: &str| -> Option<usize> {
            result.split([';', '.']).find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
        };
        let (passed, failed) = (of("passed").unwrap_or(0), of("failed").unwrap_or(0));
        let sums: &mut Totals = sums.get_or_insert_default();
        sums.binaries += usize::from(passed + failed > 0);
        sums.passed += passed;
        sums.failed += failed;
        sums.ignored += of("ignored").unwrap_or(0);
    }
    sums
}

/// The failed trials with what each said, and the end of the output.
pub fn excerpt(text: &str) -> String {
    let lines = text.lines().collect::<Vec<_>>();
    let failed = failed_trials(text);
    let mut shown = failed.iter().map(|name| format!("FAILED {name}")).collect::<Vec<_>>();
    for name in &failed {
        let is_head = |line: &str| line.strip_prefix("---- ").is_some_and(|head| head.split(' ').next() == Some(name));
        if let Some(start) = lines.iter().position(|line| is_head(line)) {
            let words = lines.iter().skip(start).take(WORDS);
            // Up to the next trial's words.
            let words = words.enumerate().take_while(|(index, line)| *index == 0 || !line.starts_with("---- "));
            shown.extend(words.map(|(_, line)| (*line).to_owned()));
        }
    }
    shown.push("the end of the output:".to_owned());
    shown.extend(lines.iter().skip(lines.len().saturating_sub(END)).map(|line| (*line).to_owned()));
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_trials_are_read_from_both_kinds_of_binaries() {
        let libtest = "running 2 tests\ntest a::one ... ok\ntest a::two ... FAILED\n\nfailures:\n    a::two\n";
        assert_eq!(failed_trials(libtest), ["a::two"]);
        let mimic = "test suite::three            ... FAILED\ntest suite::four ... ignored\n";
        assert_eq!(failed_trials(mimic), ["suite::three"]);
    }

    #[test]
    fn totals_are_those_of_all_binaries() {
        let suite = "test result: ok. 108 passed; 0 failed; 3 ignored; 0 measured; 1 filtered out; finished in 4.00s\n";
        let other =
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n";
        let documentation =
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let all = totals(&[suite, other, documentation].concat());
        assert_eq!(all, Some(Totals { binaries: 2, passed: 112, failed: 2, ignored: 3 }));
        assert_eq!(totals(documentation), Some(Totals::default()));
        assert_eq!(totals("error: could not compile"), None);
    }

    #[test]
    fn failure_far_from_the_end_is_shown_with_its_words() {
        let mut text =
            "test a::two ... FAILED\ntest b::three ... FAILED\n\n---- a::two stdout ----\nleft: 1\n".to_owned();
        text += "---- b::three ----\nright: 2\n\n";
        text += &"test c::many ... ok\n".repeat(200);
        let shown = excerpt(&text);
        let lines = shown.lines().collect::<Vec<_>>();
        assert_eq!(lines[..2], ["FAILED a::two", "FAILED b::three"]);
        assert_eq!(lines[2..4], ["---- a::two stdout ----", "left: 1"]);
        assert_eq!(lines[4..6], ["---- b::three ----", "right: 2"]);
        assert!(lines.len() < 70 && shown.ends_with("test c::many ... ok"), "{shown}");
    }
}
