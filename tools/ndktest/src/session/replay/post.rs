//! Steps that post, and those on completion and shared receive queues.

use ndkpi_sys::{
    ndkpi::{NDK_OP_FLAGS, NDK_QP, NDK_SGE, NDK_SGE_ADDRESS},
    nt::{NTSTATUS, STATUS_SUCCESS},
};
use softndk_ioctl::{ScriptCode, ScriptName, ScriptSge};

use super::{
    resource::{Resource, Stop},
    session::{Answer, Arguments, Session},
};
use crate::session::consumer::{completion, table_of};

impl Session<'_> {
    fn queue_pair(&self, name: ScriptName) -> Result<(*mut NDK_QP, u32), Stop> {
        match self.slots.get(name)? {
            Resource::QueuePair { object, privileged } => Ok((*object, *privileged)),
            _ => Err(Stop::Broken),
        }
    }

    /// The remote token that an object has now, and the base it is good for.
    pub fn remote(&self, name: ScriptName) -> Result<(u32, u64), Stop> {
        match *self.slots.get(name)? {
            Resource::Region { object, base } => {
                // SAFETY: an open region.
                let table = unsafe { table_of(object) };
                // SAFETY: NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MR.
                Ok((unsafe { (table.NdkGetRemoteTokenFromMr)(object) }, base))
            }
            Resource::Window { object, base } => {
                // SAFETY: an open window.
                let table = unsafe { table_of(object) };
                // SAFETY: NDKPI: NDK_FN_GET_REMOTE_TOKEN_FROM_MW.
                Ok((unsafe { (table.NdkGetRemoteTokenFromMw)(object) }, base))
            }
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

    /// Translates the elements of a step; how many.
    fn gather(&mut self, step: &Arguments<'_>, privileged: u32, inline: bool) -> Result<u32, Stop> {
        let count = step.0.step.tail;
        for index in 0..usize::from(count) {
            let sge: ScriptSge = step.0.entry(index).ok_or(Stop::Broken)?;
            if sge.reserved != 0 {
                return Err(Stop::Broken);
            }
            let translated = self.sge(&sge, privileged, inline)?;
            *self.sges.get_mut(index).ok_or(Stop::Broken)? = translated;
        }
        Ok(u32::from(count))
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
                Resource::Region { object, .. } => {
                    // SAFETY: an open region.
                    let table = unsafe { table_of(object) };
                    // SAFETY: NDKPI: NDK_FN_GET_LOCAL_TOKEN_FROM_MR.
                    unsafe { (table.NdkGetLocalTokenFromMr)(object) }
                }
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
        let (pair, privileged) = self.queue_pair(step.object())?;
        let receive = step.0.code == ScriptCode::Receive;
        let flags = if receive { NDK_OP_FLAGS::empty() } else { step.flags(1)? };
        let count = self.gather(step, privileged, flags.contains(NDK_OP_FLAGS::INLINE))?;
        let (context, sges) = (step.context(0), self.sges.as_ptr());
        // SAFETY: an open queue pair.
        let table = unsafe { table_of(pair) };
        let status = match step.0.code {
            // SAFETY: NDKPI: NDK_FN_RECEIVE; the list stays as it is for the call.
            ScriptCode::Receive => unsafe { (table.NdkReceive)(pair, context, sges, count) },
            // SAFETY: NDKPI: NDK_FN_SEND; as above; inline data lie in a buffer of the script.
            ScriptCode::Send => unsafe { (table.NdkSend)(pair, context, sges, count, flags) },
            ScriptCode::SendAndInvalidate => {
                let (_, token) = self.place(step, 2)?;
                // SAFETY: NDKPI: NDK_FN_SEND_AND_INVALIDATE; as above.
                unsafe { (table.NdkSendAndInvalidate)(pair, context, sges, count, flags, token) }
            }
            ScriptCode::Read => {
                let (address, token) = self.place(step, 2)?;
                // SAFETY: NDKPI: NDK_FN_READ; as above.
                unsafe { (table.NdkRead)(pair, context, sges, count, address, token, flags) }
            }
            _ => {
                let (address, token) = self.place(step, 2)?;
                // SAFETY: NDKPI: NDK_FN_WRITE; as above.
                unsafe { (table.NdkWrite)(pair, context, sges, count, address, token, flags) }
            }
        };
        Ok(Answer::of(status))
    }

    pub fn shared_receive(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let Resource::SharedReceiveQueue { object, privileged } = *self.slots.get(step.object())? else {
            return Err(Stop::Broken);
        };
        let count = self.gather(step, privileged, false)?;
        // SAFETY: an open shared receive queue.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_SRQ_RECEIVE; the list stays as it is for the call.
        Ok(Answer::of(unsafe { (table.NdkSrqReceive)(object, step.context(0), self.sges.as_ptr(), count) }))
    }

    pub fn fast_register(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (pair, _) = self.queue_pair(step.object())?;
        let flags = step.flags(1)?;
        let region = step.name(2)?;
        let Resource::Region { object, .. } = *self.slots.get(region)? else { return Err(Stop::Broken) };
        let Resource::Buffer(buffer) = self.slots.get(step.name(3)?)? else { return Err(Stop::Broken) };
        let (first, count) = (step.short(4)? as usize, step.short(5)?);
        let (first_byte, length, base) = (step.short(6)?, step.number(7), step.number(8));
        let end = first.checked_add(count as usize).ok_or(Stop::Broken)?;
        let pages = buffer.pages().get(first..end).ok_or(Stop::Broken)?.as_ptr();
        let label = core::ptr::without_provenance_mut(base as usize);
        // SAFETY: an open queue pair.
        let table = unsafe { table_of(pair) };
        // SAFETY: NDKPI: NDK_FN_FAST_REGISTER with a page list that stays as it is for the call.
        let status = unsafe {
            (table.NdkFastRegister)(
                pair,
                step.context(0),
                object,
                count,
                pages,
                first_byte,
                length as usize,
                label,
                flags,
            )
        };
        self.based(region, status, base)
    }

    pub fn bind(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (pair, _) = self.queue_pair(step.object())?;
        let flags = step.flags(1)?;
        let window = step.name(3)?;
        let Resource::Region { object, base } = *self.slots.get(step.name(2)?)? else { return Err(Stop::Broken) };
        let Resource::Window { object: bound, .. } = *self.slots.get(window)? else { return Err(Stop::Broken) };
        let (address, length) = (base.wrapping_add(step.number(4)), step.number(5));
        let label = core::ptr::without_provenance_mut(address as usize);
        // SAFETY: an open queue pair.
        let table = unsafe { table_of(pair) };
        // SAFETY: NDKPI: NDK_FN_BIND of objects that are open.
        let status = unsafe { (table.NdkBind)(pair, step.context(0), object, bound, label, length as usize, flags) };
        self.based(window, status, address)
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
        let (pair, _) = self.queue_pair(step.object())?;
        let flags = step.flags(1)?;
        let target = match *self.slots.get(step.name(2)?)? {
            Resource::Region { object, .. } => object.cast(),
            Resource::Window { object, .. } => object.cast(),
            _ => return Err(Stop::Broken),
        };
        // SAFETY: an open queue pair.
        let table = unsafe { table_of(pair) };
        // SAFETY: NDKPI: NDK_FN_INVALIDATE of an object that is open.
        Ok(Answer::of(unsafe { (table.NdkInvalidate)(pair, step.context(0), target, flags) }))
    }

    pub fn flush(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (pair, _) = self.queue_pair(step.object())?;
        // SAFETY: an open queue pair.
        let table = unsafe { table_of(pair) };
        // SAFETY: NDKPI: NDK_FN_FLUSH.
        unsafe { (table.NdkFlush)(pair) };
        Ok(Answer::NOTHING)
    }

    /// Arm, resize, moderate.
    pub fn completion_queue_step(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let Resource::CompletionQueue { object } = *self.slots.get(step.object())? else { return Err(Stop::Broken) };
        let number = step.short(0)?;
        // SAFETY: an open completion queue.
        let table = unsafe { table_of(object) };
        match step.0.code {
            ScriptCode::Arm => {
                // SAFETY: NDKPI: NDK_FN_ARM_CQ.
                unsafe { (table.NdkArmCq)(object, number) };
                Ok(Answer::NOTHING)
            }
            ScriptCode::Resize => {
                self.waiter.reset();
                let (done, context) = completion(&self.waiter);
                // SAFETY: NDKPI: NDK_FN_RESIZE_CQ.
                let status = unsafe { (table.NdkResizeCq)(object, number, done, context) };
                self.finish(status)
            }
            _ => {
                let count = step.short(1)?;
                // SAFETY: NDKPI: NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION.
                Ok(Answer::of(unsafe { (table.NdkControlCqInterruptModeration)(object, number, count) }))
            }
        }
    }

    pub fn modify(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let Resource::SharedReceiveQueue { object, .. } = *self.slots.get(step.object())? else {
            return Err(Stop::Broken);
        };
        let (depth, threshold) = (step.short(0)?, step.short(1)?);
        self.waiter.reset();
        let (done, context) = completion(&self.waiter);
        // SAFETY: an open shared receive queue.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_MODIFY_SRQ.
        let status = unsafe { (table.NdkModifySrq)(object, depth, threshold, done, context) };
        self.finish(status)
    }
}
