//! Steps that post, and those on completion and shared receive queues.

use ndkpi_sys::{
    ndkpi::{NDK_OP_FLAGS, NDK_SGE, NDK_SGE_ADDRESS},
    nt::{NTSTATUS, STATUS_SUCCESS},
};
use softndk_ioctl::{ScriptCode, ScriptName, ScriptSge};

use super::{
    resource::{Resource, Stop},
    session::{Answer, Arguments, Session},
};
use crate::session::object::{FastRegistration, SgeList};

impl Session<'_> {
    /// The remote token that an object has now, and the base it is good for.
    pub fn remote(&self, name: ScriptName) -> Result<(u32, u64), Stop> {
        match *self.slots.get(name)? {
            Resource::Region { object, base } => Ok((object.remote_token(), base)),
            Resource::Window { object, base } => Ok((object.remote_token(), base)),
            Resource::Token { token, base } => Ok((token, base)),
            _ => Err(Stop::Broken),
        }
    }

    /// A remote place: name in the lower and raw token in the upper half of one argument, offset in the next.
    fn place(&self, step: &Arguments<'_>, index: usize) -> Result<(u64, u32), Stop> {
        let (word, offset) = (step.number(index), step.number(index + 1));
        let name = ScriptName(word as u32);
        if name == ScriptName::NONE {
            return Ok((offset, (word >> 32) as u32));
        }
        let (token, base) = self.remote(name)?;
        Ok((base.wrapping_add(offset), token))
    }

    /// Translates the elements of a step.
    fn gather(&mut self, step: &Arguments<'_>, privileged: u32, inline: bool) -> Result<SgeList, Stop> {
        let count = step.0.step.tail;
        for index in 0..usize::from(count) {
            let sge: ScriptSge = step.0.entry(index).ok_or(Stop::Broken)?;
            if sge.reserved != 0 {
                return Err(Stop::Broken);
            }
            let translated = self.sge(&sge, privileged, inline)?;
            *self.sges.get_mut(index).ok_or(Stop::Broken)? = translated;
        }
        let sges = self.sges.get(..usize::from(count)).ok_or(Stop::Broken)?;
        // SAFETY: the list stays as it is for the call; what its tokens name, inline data too, is memory that a script's buffer
        // keeps until every object is closed.
        Ok(unsafe { SgeList::new(sges) })
    }

    fn sge(&self, sge: &ScriptSge, privileged: u32, inline: bool) -> Result<NDK_SGE, Stop> {
        let base = match sge.base {
            ScriptName::NONE => 0,
            name => match self.slots.get(name)? {
                Resource::Buffer(buffer) if inline => buffer.address(),
                Resource::Buffer(buffer) => buffer.logical_address(),
                Resource::Region { base, .. } | Resource::Window { base, .. } | Resource::Token { base, .. } => *base,
                _ => return Err(Stop::Broken),
            },
        };
        let address = base.wrapping_add(sge.offset);
        // Inline data are read where they are, without a token: nothing but a buffer of the script may be named.
        if inline && sge.length != 0 && !self.is_ours(address, sge.length) {
            return Err(Stop::Broken);
        }
        let token = match sge.token {
            ScriptName::NONE => sge.raw_token,
            name => match *self.slots.get(name)? {
                Resource::Buffer(_) => privileged,
                Resource::Token { token, .. } => token,
                Resource::Region { object, .. } => object.local_token(),
                _ => return Err(Stop::Broken),
            },
        };
        let address = NDK_SGE_ADDRESS { VirtualAddress: core::ptr::with_exposed_provenance_mut(address as usize) };
        Ok(NDK_SGE { Address: address, Length: sge.length, MemoryRegionToken: token })
    }

    fn is_ours(&self, address: u64, length: u32) -> bool {
        self.slots
            .resources()
            .any(|resource| matches!(resource, Resource::Buffer(buffer) if buffer.contains(address, length)))
    }

    /// Requests with elements.
    pub fn transfer(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (pair, privileged) = self.slots.queue_pair(step.object())?;
        let receive = step.0.code == ScriptCode::Receive;
        let flags = if receive { NDK_OP_FLAGS::empty() } else { step.flags(1)? };
        let sges = self.gather(step, privileged, flags.contains(NDK_OP_FLAGS::INLINE))?;
        let context = step.context(0);
        let status = match step.0.code {
            ScriptCode::Receive => pair.receive(context, sges),
            ScriptCode::Send => pair.send(context, sges, flags),
            ScriptCode::SendAndInvalidate => {
                let (_, token) = self.place(step, 2)?;
                pair.send_and_invalidate(context, sges, flags, token)
            }
            ScriptCode::Read => {
                let (address, token) = self.place(step, 2)?;
                pair.read(context, sges, address, token, flags)
            }
            _ => {
                let (address, token) = self.place(step, 2)?;
                pair.write(context, sges, address, token, flags)
            }
        };
        Ok(Answer::of(status))
    }

    pub fn shared_receive(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (shared, privileged) = self.slots.shared_receive_queue(step.object())?;
        let sges = self.gather(step, privileged, false)?;
        Ok(Answer::of(shared.receive(step.context(0), sges)))
    }

    pub fn fast_register(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (pair, _) = self.slots.queue_pair(step.object())?;
        let flags = step.flags(1)?;
        let name = step.name(2)?;
        let (region, _) = self.slots.region(name)?;
        let buffer = self.slots.buffer(step.name(3)?)?;
        let (first, count) = (step.short(4)? as usize, step.short(5)?);
        let (first_byte_offset, length, base) = (step.short(6)?, step.number(7) as usize, step.number(8));
        let end = first.checked_add(count as usize).ok_or(Stop::Broken)?;
        let pages = buffer.pages().get(first..end).ok_or(Stop::Broken)?;
        let registration = FastRegistration { region, pages, first_byte_offset, length, base };
        // SAFETY: the memory of a script's buffer stays until every object is closed.
        let status = unsafe { pair.fast_register(step.context(0), &registration, flags) };
        self.based(name, status, base)
    }

    pub fn bind(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (pair, _) = self.slots.queue_pair(step.object())?;
        let flags = step.flags(1)?;
        let name = step.name(3)?;
        let (region, base) = self.slots.region(step.name(2)?)?;
        let Resource::Window { object: window, .. } = *self.slots.get(name)? else { return Err(Stop::Broken) };
        let (address, length) = (base.wrapping_add(step.number(4)), step.number(5));
        let status = pair.bind(step.context(0), region, window, address, length as usize, flags);
        self.based(name, status, address)
    }

    /// What was posted gives a region or window a new base.
    fn based(&mut self, name: ScriptName, status: NTSTATUS, at: u64) -> Result<Answer, Stop> {
        if status == STATUS_SUCCESS
            && let Resource::Region { base, .. } | Resource::Window { base, .. } = self.slots.get_mut(name)?
        {
            *base = at;
        }
        Ok(Answer::of(status))
    }

    pub fn invalidate(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (pair, _) = self.slots.queue_pair(step.object())?;
        let (context, flags) = (step.context(0), step.flags(1)?);
        let status = match *self.slots.get(step.name(2)?)? {
            Resource::Region { object, .. } => pair.invalidate(context, object, flags),
            Resource::Window { object, .. } => pair.invalidate(context, object, flags),
            _ => return Err(Stop::Broken),
        };
        Ok(Answer::of(status))
    }

    pub fn flush(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (pair, _) = self.slots.queue_pair(step.object())?;
        pair.flush();
        Ok(Answer::NOTHING)
    }

    /// Arm, resize, moderate.
    pub fn completion_queue_step(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let queue = self.slots.completion_queue(step.object())?;
        let number = step.short(0)?;
        match step.0.code {
            ScriptCode::Arm => {
                queue.arm(number);
                Ok(Answer::NOTHING)
            }
            ScriptCode::Resize => self.request(|done| queue.resize(number, done)),
            _ => Ok(Answer::of(queue.moderate(number, step.short(1)?))),
        }
    }

    pub fn modify(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (shared, _) = self.slots.shared_receive_queue(step.object())?;
        let (depth, threshold) = (step.short(0)?, step.short(1)?);
        self.request(|done| shared.modify(depth, threshold, done))
    }
}
