//! The cases of a run: each value of the keywords that decide how an adapter answers, with each seed.

use kernel_host::fault::Site;
use kernel_host::inf::Installation;
use softndk_images::driver_run::{DriverRun, fault_word};

/// Keywords with which a consumer has to work whatever they say.
const VARIED: [&str; 2] = ["CompletionMode", "LimitsProfile"];

/// One call to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    pub site: Site,
    /// 1 is the first.
    pub hit: u64,
}

impl Fault {
    pub fn word(self) -> String {
        fault_word((self.site.0, self.hit))
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Varied keywords with their values; those that the user names are not among them.
    pub keywords: Vec<(&'static str, String)>,
    /// "force async, tiny, schedule 3".
    pub label: String,
    pub seed: Option<u64>,
    pub fault: Option<Fault>,
}

impl Case {
    /// The words that ask for this case alone.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (name, value) in &self.keywords {
            words.extend(["--keyword".to_owned(), format!("{name}={value}")]);
        }
        words.extend(self.seed.iter().flat_map(|seed| ["--schedule".to_owned(), seed.to_string()]));
        words.extend(self.fault.iter().flat_map(|fault| ["--fault".to_owned(), fault.word()]));
        words
    }

    /// The same case with a call that fails.
    pub fn with_fault(&self, fault: Fault, export: &str) -> Self {
        let label = format!("{}, hit {} of {export} fails", self.label, fault.hit);
        Self { fault: Some(fault), label, ..self.clone() }
    }
}

/// A value of a keyword, and how it is called.
type Choice = (String, String);

fn choices(keyword: &str, run: &DriverRun, installation: &Installation) -> Vec<Choice> {
    let declared = installation.keywords.iter().find(|known| known.name.eq_ignore_ascii_case(keyword));
    let Some(declared) = declared else { return Vec::new() };
    let all = declared.choices.iter().map(|(value, text)| (value.clone(), text.to_lowercase()));
    match run.pinned(keyword) {
        Some(value) => all.filter(|(known, _)| known == value).collect(),
        None => all.collect(),
    }
}

/// All cases, in the order of the INF's values, each with all seeds.
pub fn all(run: &DriverRun, installation: &Installation) -> Vec<Case> {
    let fault = run.fault.map(|(site, hit)| Fault { site: Site(site), hit });
    let first = Case { keywords: Vec::new(), label: String::new(), seed: None, fault };
    let mut cases = vec![first];
    for keyword in VARIED {
        let choices = choices(keyword, run, installation);
        let varied = |case: &Case, (value, text): &Choice| {
            let mut case = case.clone();
            if run.pinned(keyword).is_none() {
                case.keywords.push((keyword, value.clone()));
            }
            case.label = if case.label.is_empty() { text.clone() } else { format!("{}, {text}", case.label) };
            case
        };
        if !choices.is_empty() {
            cases = cases.iter().flat_map(|case| choices.iter().map(move |choice| varied(case, choice))).collect();
        }
    }
    let seeds: Vec<u64> = run.seeds().collect();
    if seeds.is_empty() {
        return cases;
    }
    let seeded = |case: &Case, seed: u64| Case {
        seed: Some(seed),
        label: format!("{}, schedule {seed}", case.label),
        ..case.clone()
    };
    cases.iter().flat_map(|case| seeds.iter().map(move |seed| seeded(case, *seed))).collect()
}
