//! Steps that look: what is in a completion queue, what has happened, which bytes are there.

use ndkpi_sys::{
    ndkpi::{NDK_CQ, NDK_RESULT_EX, NdkOperationTypeReceiveAndInvalidate},
    nt::STATUS_SUCCESS,
};
use softndk_ioctl::{ScriptName, ScriptOccurrence, ScriptResult, Status};
use zerocopy::IntoBytes;

use super::{
    resource::{SlotHandle, Stop},
    session::{Answer, Arguments, Entry, Session},
};

impl Session<'_> {
    fn show(&mut self, index: usize, bytes: &[u8]) {
        if let (Some(place), Ok(entry)) = (self.seen.get_mut(index), Entry::try_from(bytes)) {
            *place = entry;
        }
    }

    /// Takes all results: exactly those expected, in their order.
    pub fn poll(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let queue = self.slots.completion_queue(step.object())?;
        let expected = usize::from(step.0.step.tail);
        let (mut count, mut agrees) = (0, true);
        self.rest_until(|session| {
            agrees &= session.take_results(queue, step, &mut count);
            Ok(count >= expected)
        })?;
        agrees &= count == expected;
        Ok(Answer { agrees, seen: count, ..Answer::NOTHING })
    }

    /// Takes the results that there are, the first of them as number `count` of the step; whether they are the expected ones.
    fn take_results(&mut self, queue: SlotHandle<NDK_CQ>, step: &Arguments<'_>, count: &mut usize) -> bool {
        let mut agrees = true;
        loop {
            let taken = queue.poll(&mut self.results) as usize;
            for index in 0..taken {
                let Some(result) = self.results.get(index).copied() else { break };
                let expected: Option<ScriptResult> = step.0.entry(*count);
                let (seen, same) = self.compare(&result, expected.as_ref());
                self.show(*count, seen.as_bytes());
                agrees &= same;
                *count += 1;
            }
            if taken == 0 {
                return agrees;
            }
        }
    }

    /// A result in the script's terms, and whether it is the expected one.
    fn compare(&self, result: &NDK_RESULT_EX, expected: Option<&ScriptResult>) -> (ScriptResult, bool) {
        let received = result.Type.is_receive() && result.Status == STATUS_SUCCESS;
        let mut seen = ScriptResult {
            context: result.RequestContext.addr() as u64,
            queue_pair: ScriptName(result.QPContext.addr() as u32),
            operation: result.Type.0.cast_unsigned(),
            status: result.Status,
            bytes: if received { result.BytesTransferred } else { 0 },
            invalidated: ScriptName::NONE,
            reserved: 0,
        };
        let Some(expected) = expected else { return (seen, false) };
        if result.Type == NdkOperationTypeReceiveAndInvalidate && expected.invalidated != ScriptName::NONE {
            let token = self.remote(expected.invalidated).ok().map(|(token, _)| token as usize);
            if token == Some(result.TypeSpecificCompletionOutput) {
                seen.invalidated = expected.invalidated;
            }
        }
        (seen, seen == *expected)
    }

    /// Everything that happened since the last look: exactly those expected, in any order.
    pub fn events(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let expected = usize::from(step.0.step.tail);
        self.rest_until(|session| Ok(session.log.occurrences() >= expected))?;
        let (count, whole) = self.log.drain(&mut self.occurrences);
        if !whole {
            return Err(Status::BUFFER_OVERFLOW.into());
        }
        for index in 0..count {
            if let Some(occurrence) = self.occurrences.get(index).copied() {
                self.show(index, occurrence.as_bytes());
            }
        }
        let mut agrees = count == usize::from(step.0.step.tail);
        // Each expected one takes a seen one away.
        let mut left = count;
        for index in 0..usize::from(step.0.step.tail) {
            let expected: ScriptOccurrence = step.0.entry(index).ok_or(Stop::Broken)?;
            let rest = self.occurrences.get_mut(..left).ok_or(Stop::Broken)?;
            match rest.iter().position(|seen| *seen == expected) {
                Some(found) => {
                    left -= 1;
                    rest.swap(found, left);
                }
                None => agrees = false,
            }
        }
        Ok(Answer { agrees, seen: count, ..Answer::NOTHING })
    }

    pub fn bytes(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (expected, mut digest) = (step.number(2), 0);
        self.rest_until(|session| {
            digest = session.slots.buffer(step.object())?.digest(step.number(0), step.number(1))?;
            Ok(digest == expected)
        })?;
        Ok(Answer { agrees: digest == expected, values: [digest, 0], ..Answer::NOTHING })
    }
}
