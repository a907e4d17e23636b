//! Bytes on their way to TCP: frames are built at one end, handed to the system in order, and freed when the system is done with them.
//!
//! A frame lies in one piece. Where the rest of the memory is too short for it, that rest is skipped. All that is there is shorter than
//! the memory, so there is one skip at most.
//!
//! Rule: some bytes stay free for the last frame of a stream, which says why it ends.

/// See the module. Positions count on and on; a byte lies at its position modulo the size.
#[derive(Clone, Debug)]
pub struct SendRing<B> {
    memory: B,
    size: u64,
    /// Built until here; handed over until here; done with until here.
    tail: u64,
    next: u64,
    head: u64,
    /// Positions that hold nothing: from, to.
    skip: Option<(u64, u64)>,
    reserve: usize,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> SendRing<B> {
    /// An empty ring; `reserve` bytes are for [`Self::build_last`] only.
    pub fn new(memory: B, reserve: usize) -> Self {
        let size = memory.as_ref().len() as u64;
        Self { memory, size, tail: 0, next: 0, head: 0, skip: None, reserve }
    }

    /// Whether the system is done with everything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Whether so many bytes can be built now.
    #[must_use]
    pub fn has_space(&self, length: usize) -> bool {
        self.start(length, self.reserve).is_some()
    }

    /// Builds so many bytes; `None` where there is no space for them now, or `build` fails.
    pub fn build<R>(&mut self, length: usize, build: impl FnOnce(&mut [u8]) -> Option<R>) -> Option<R> {
        self.build_within(length, self.reserve, build)
    }

    /// The same for what ends the stream, in the bytes that are kept for it.
    pub fn build_last<R>(&mut self, length: usize, build: impl FnOnce(&mut [u8]) -> Option<R>) -> Option<R> {
        self.build_within(length, 0, build)
    }

    fn build_within<R>(
        &mut self,
        length: usize,
        reserve: usize,
        build: impl FnOnce(&mut [u8]) -> Option<R>,
    ) -> Option<R> {
        let start = self.start(length, reserve)?;
        let at = self.offset(start);
        let result = build(self.memory.as_mut().get_mut(at..at.checked_add(length)?)?)?;
        if start != self.tail {
            self.skip = Some((self.tail, start));
            self.next = self.behind_skip(self.next);
            self.head = self.behind_skip(self.head);
            self.skip = self.skip.filter(|(_, to)| *to > self.head);
        }
        self.tail = start.saturating_add(length as u64);
        Some(result)
    }

    /// Where so many bytes begin.
    fn start(&self, length: usize, reserve: usize) -> Option<u64> {
        let to_end = self.size.checked_sub(self.offset(self.tail) as u64)?;
        let start = if length as u64 <= to_end { self.tail } else { self.tail.checked_add(to_end)? };
        // What the reserve is for may have to skip the rest as well: it is as long as the reserve at most.
        let wanted = (length as u64).checked_add((reserve as u64).checked_mul(2)?)?;
        (start.checked_add(wanted)?.checked_sub(self.head)? <= self.size).then_some(start)
    }

    fn offset(&self, position: u64) -> usize {
        position.checked_rem(self.size).unwrap_or(0) as usize
    }

    /// The next bytes for the system, in one piece; empty when there are none.
    #[must_use]
    pub fn next_piece(&self) -> &[u8] {
        let to_end = self.size.saturating_sub(self.offset(self.next) as u64);
        let until = self.tail.min(self.next.saturating_add(to_end));
        let until =
            self.skip.map(|(from, _)| from).filter(|from| *from > self.next).map_or(until, |from| until.min(from));
        let at = self.offset(self.next);
        let length = until.saturating_sub(self.next) as usize;
        self.memory.as_ref().get(at..at.saturating_add(length)).unwrap_or_default()
    }

    /// So many of them have been handed over.
    pub fn handed_over(&mut self, length: usize) {
        let length = length.min(self.next_piece().len());
        self.next = self.behind_skip(self.next.saturating_add(length as u64));
    }

    /// The system is done with so many of what has been handed over.
    pub fn done(&mut self, length: usize) {
        let mut left = length as u64;
        while left > 0 && self.head < self.next {
            let until =
                self.skip.map(|(from, _)| from).filter(|from| *from > self.head).unwrap_or(self.next).min(self.next);
            let step = left.min(until.saturating_sub(self.head));
            self.head = self.behind_skip(self.head.saturating_add(step));
            left -= step;
            if self.skip.is_some_and(|(_, to)| to == self.head) {
                self.skip = None;
            }
        }
    }

    /// The position behind the skip, where this one is at its beginning.
    fn behind_skip(&self, position: u64) -> u64 {
        self.skip.filter(|(from, _)| *from == position).map_or(position, |(_, to)| to)
    }
}

#[cfg(test)]
mod tests {
    use super::SendRing;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Random frames in, random pieces out, some of them not done with: the same bytes, in their order.
    #[test]
    fn what_goes_in_comes_out() {
        let mut random = fastrand::Rng::with_seed(3);
        for size in [64, 100, 256, 1000] {
            let mut ring = SendRing::new(vec![0_u8; size], 8);
            let (mut sent, mut out, mut not_done): (Vec<u8>, Vec<u8>, usize) = (Vec::new(), Vec::new(), 0);
            let mut refusals = 0;
            for _ in 0..20_000 {
                match random.u8(..3) {
                    0 => {
                        let length = random.usize(1..=size / 3);
                        let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                        let had_space = ring.has_space(length);
                        let built = ring.build(length, |into| {
                            into.copy_from_slice(&bytes);
                            Some(())
                        });
                        assert_eq!(built.is_some(), had_space);
                        // Whatever is there, the last frame finds its space.
                        assert!(ring.clone().build_last(8, |_| Some(())).is_some());
                        if built.is_some() { sent.extend(bytes) } else { refusals += 1 }
                    }
                    1 => {
                        let piece = ring.next_piece();
                        let length = random.usize(..=piece.len());
                        out.extend_from_slice(&piece[..length]);
                        ring.handed_over(length);
                        not_done += length;
                    }
                    _ => {
                        let length = random.usize(..=not_done);
                        ring.done(length);
                        not_done -= length;
                    }
                }
                assert!(sent.starts_with(&out));
                assert!(sent.len() - out.len() + not_done <= size);
            }
            loop {
                let length = ring.next_piece().len();
                out.extend_from_slice(ring.next_piece());
                ring.handed_over(length);
                ring.done(length + not_done);
                not_done = 0;
                if length == 0 {
                    break;
                }
            }
            assert_eq!(out, sent);
            assert!(ring.is_empty() && sent.len() > 10 * size && refusals > 0);
        }
    }

    /// What is not done with is not written over.
    #[test]
    fn bytes_stay_until_the_system_is_done() {
        let mut ring = SendRing::new(vec![0_u8; 16], 0);
        let build = |ring: &mut SendRing<Vec<u8>>, value: u8| {
            ring.build(8, |into| {
                into.fill(value);
                Some(())
            })
        };
        assert!(build(&mut ring, 1).is_some() && build(&mut ring, 2).is_some());
        ring.handed_over(8);
        assert!(!ring.is_empty());
        assert_eq!(build(&mut ring, 3), None);
        ring.done(8);
        assert!(build(&mut ring, 3).is_some());
        assert_eq!(ring.next_piece(), [2; 8]);
        ring.handed_over(8);
        assert_eq!(ring.next_piece(), [3; 8]);
        assert_eq!(ring.build(17, |_| Some(())), None);
        ring.handed_over(99);
        ring.done(99);
        assert!(ring.is_empty());
        assert_eq!(ring.build(4, |_| None::<()>), None, "a build that fails adds nothing");
        assert!(ring.next_piece().is_empty());
    }
}
