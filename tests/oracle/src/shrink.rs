//! Shrinks a sequence that differs: proptest takes lines out, then makes numbers smaller, as long as the difference stays.

use proptest::strategy::ValueTree;

use ndkctl::script::{Line, Tail};

/// A sequence on its way to a shorter one.
#[derive(Debug)]
pub struct Lines {
    /// The shortest known to differ.
    kept: Vec<Line>,
    /// What is tried now.
    tried: Vec<Line>,
    /// How many lines are taken out at once, and from where.
    size: usize,
    place: usize,
    /// Scatter/gather lists are shortened after lines are removed.
    trimming: Option<usize>,
}

impl Lines {
    pub fn new(lines: Vec<Line>) -> Self {
        let size = (lines.len() / 2).max(1);
        let place = lines.len().saturating_sub(size);
        Self { tried: lines.clone(), kept: lines, size, place, trimming: None }
    }

    /// The next candidate: from the end towards the beginning, in ever smaller pieces.
    fn propose(&mut self) -> bool {
        loop {
            if let Some(at) = self.trimming {
                if at >= self.kept.len() {
                    return false;
                }
                self.trimming = Some(at + 1);
                if let Tail::Sges(list) = &self.kept[at].tail {
                    let mut list = list.clone();
                    list.pop();
                    self.tried = self.kept.clone();
                    self.tried[at].tail = if list.is_empty() { Tail::Nothing } else { Tail::Sges(list) };
                    return true;
                }
                continue;
            }
            if self.place < self.kept.len() {
                let end = (self.place + self.size).min(self.kept.len());
                self.tried = self.kept.clone();
                self.tried.drain(self.place..end);
                return true;
            }
            if self.size == 1 {
                self.trimming = Some(0);
            } else {
                self.size = (self.size / 2).max(1);
                self.place = self.kept.len().saturating_sub(self.size);
            }
        }
    }

    fn step_back(&mut self) {
        // Beyond the end means: this size is done.
        self.place = if self.place == 0 { usize::MAX } else { self.place.saturating_sub(self.size) };
    }
}

impl ValueTree for Lines {
    type Value = Vec<Line>;

    fn current(&self) -> Vec<Line> {
        self.tried.clone()
    }

    fn simplify(&mut self) -> bool {
        let shorter = self.tried.len() < self.kept.len();
        self.kept = self.tried.clone();
        if shorter && self.trimming.is_none() {
            self.step_back();
        }
        self.propose()
    }

    fn complicate(&mut self) -> bool {
        self.tried = self.kept.clone();
        if self.trimming.is_none() {
            self.step_back();
        }
        self.propose()
    }
}

/// The shortest sequence found on which `differs` still says so.
pub fn shortest(lines: Vec<Line>, differs: impl Fn(&[Line]) -> bool) -> Vec<Line> {
    let mut tree = Lines::new(lines);
    let mut best = tree.current();
    for _ in 0..3 {
        let mut more = tree.simplify();
        while more {
            let tried = tree.current();
            if differs(&tried) {
                best = tried;
                more = tree.simplify();
            } else {
                more = tree.complicate();
            }
        }
        // A line that could not be removed before may be removable now.
        tree = Lines::new(best.clone());
    }
    best
}
