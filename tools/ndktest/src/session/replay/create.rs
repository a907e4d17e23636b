//! Steps that make objects, prepare memory, and close.

use core::ptr;

use ndkpi_sys::{
    ndkpi::{NDK_MR_FLAGS, NDK_PD},
    nt::{STATUS_PENDING, STATUS_SUCCESS},
};
use softndk_ioctl::{ScriptCode, ScriptEvent, ScriptKind, ScriptName, Status};
use softndk_kernel::pool::PoolBox;

use super::{
    buffer::ScriptBuffer,
    resource::{Resource, SlotHandle, Stop},
    session::{Answer, Arguments, Session},
};
use crate::{
    control::adapter_list,
    session::{
        consumer::Waiter,
        object::{Closable, PendingCall, QueuePairShape, Reporting},
    },
    socket::wire_form,
    tags,
};

impl Session<'_> {
    /// Puts what was made of argument 0 into its slot.
    fn made<T: Closable>(
        &mut self,
        step: &Arguments<'_>,
        created: Result<SlotHandle<T>, Status>,
        resource: impl FnOnce(SlotHandle<T>) -> Resource,
    ) -> Result<Answer, Stop> {
        match created {
            Ok(object) => {
                self.slots.put(step.object(), self.slots.open_of(step.name(0)?)?, resource(object))?;
                Ok(Answer::of(STATUS_SUCCESS))
            }
            Err(status) => Ok(Answer::of(status.0)),
        }
    }

    fn domain(&self, name: ScriptName) -> Result<(SlotHandle<NDK_PD>, u32), Stop> {
        match *self.slots.get(name)? {
            Resource::Domain { object, privileged } => Ok((object, privileged)),
            _ => Err(Stop::Broken),
        }
    }

    pub fn create(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        self.slots.check_vacant(step.object())?;
        match step.0.code {
            ScriptCode::Open => self.open(step),
            ScriptCode::CreateDomain => self.create_domain(step),
            ScriptCode::CreateCompletionQueue => self.create_completion_queue(step),
            ScriptCode::CreateSharedReceiveQueue => self.create_shared_receive_queue(step),
            ScriptCode::CreateQueuePair => self.create_queue_pair(step),
            ScriptCode::CreateQueuePairShared => self.create_queue_pair_shared(step),
            ScriptCode::CreateBuffer => self.create_buffer(step),
            ScriptCode::CreateRegion | ScriptCode::CreateFastRegion => self.create_region(step),
            ScriptCode::CreateWindow => self.create_window(step),
            ScriptCode::CreateListener => self.create_listener(step),
            ScriptCode::CreateConnector => self.create_connector(step),
            ScriptCode::CreateEndpoint => self.create_endpoint(step),
            _ => self.remember(step),
        }
    }

    fn open(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let index = step.short(0)?;
        self.opens = self.opens.wrapping_add(1);
        match adapter_list::open(self.driver, index) {
            Err(Status::DEVICE_DOES_NOT_EXIST) => Err(Status::DEVICE_DOES_NOT_EXIST.into()),
            Ok(opened) => {
                let opened = PoolBox::try_new(tags::SESSION, opened).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
                self.slots.put(step.object(), self.opens, Resource::Adapter(opened))?;
                Ok(Answer::of(STATUS_SUCCESS))
            }
            Err(status) => Ok(Answer::of(status.0)),
        }
    }

    fn create_domain(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let adapter = self.adapter(step.name(0)?)?.handle();
        let created = Waiter::try_new()?.create(|done| adapter.create_protection_domain(done));
        self.made(step, created, |object| Resource::Domain { object, privileged: object.privileged_token() })
    }

    fn create_completion_queue(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (of, depth) = (step.name(0)?, step.short(1)?);
        let adapter = self.adapter(of)?.handle();
        let notification = self.slots.cell(step.object())?.notified();
        let created =
            Waiter::try_new()?.create(|done| adapter.create_completion_queue(depth, &notification, None, done));
        self.made(step, created, |object| Resource::CompletionQueue { object })
    }

    fn create_shared_receive_queue(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (domain, privileged) = self.domain(step.name(0)?)?;
        let (depth, sges, threshold) = (step.short(1)?, step.short(2)?, step.short(3)?);
        let notification = self.slots.cell(step.object())?.notified();
        let created = Waiter::try_new()?
            .create(|done| domain.create_shared_receive_queue(depth, sges, threshold, &notification, done));
        self.made(step, created, |object| Resource::SharedReceiveQueue { object, privileged })
    }

    /// The completion queues of arguments 1 and 2; results name the slot.
    fn reporting(&self, step: &Arguments<'_>) -> Result<Reporting<'static>, Stop> {
        Ok(Reporting {
            receive: self.slots.completion_queue(step.name(1)?)?,
            initiator: self.slots.completion_queue(step.name(2)?)?,
            context: ptr::without_provenance_mut(step.object().0 as usize),
        })
    }

    fn create_queue_pair(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (domain, privileged) = self.domain(step.name(0)?)?;
        let to = self.reporting(step)?;
        let shape = QueuePairShape {
            receive_depth: step.short(3)?,
            initiator_depth: step.short(4)?,
            receive_sges: step.short(5)?,
            initiator_sges: step.short(6)?,
            inline_data: step.short(7)?,
        };
        let created = Waiter::try_new()?.create(|done| domain.create_queue_pair(to, shape, done));
        self.made(step, created, |object| Resource::QueuePair { object, privileged })
    }

    fn create_queue_pair_shared(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (domain, privileged) = self.domain(step.name(0)?)?;
        let to = self.reporting(step)?;
        let (shared, _) = self.slots.shared_receive_queue(step.name(3)?)?;
        let shape = QueuePairShape {
            receive_depth: 0,
            initiator_depth: step.short(4)?,
            receive_sges: 0,
            initiator_sges: step.short(5)?,
            inline_data: step.short(6)?,
        };
        let created = Waiter::try_new()?.create(|done| domain.create_queue_pair_shared(to, shared, shape, done));
        self.made(step, created, |object| Resource::QueuePair { object, privileged })
    }

    fn create_buffer(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (of, length) = (step.name(0)?, step.number(1));
        let size = ScriptBuffer::size_of(length)?;
        let left = self.memory_left.checked_sub(size).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        let mut buffer = ScriptBuffer::try_new(length, step.number(2))?;
        if let Err(status) = buffer.build(self.adapter(of)?) {
            return Ok(Answer::of(status.0));
        }
        let buffer = PoolBox::try_new(tags::SESSION, buffer).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        self.slots.put(step.object(), self.slots.open_of(of)?, Resource::Buffer(buffer))?;
        self.memory_left = left;
        Ok(Answer::of(STATUS_SUCCESS))
    }

    fn create_region(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (domain, _) = self.domain(step.name(0)?)?;
        let fast_register = step.0.code == ScriptCode::CreateFastRegion;
        let created = Waiter::try_new()?.create(|done| domain.create_memory_region(fast_register, done));
        self.made(step, created, |object| Resource::Region { object, base: 0 })
    }

    fn create_window(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (domain, _) = self.domain(step.name(0)?)?;
        let created = Waiter::try_new()?.create(|done| domain.create_memory_window(done));
        self.made(step, created, |object| Resource::Window { object, base: 0 })
    }

    fn create_listener(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (adapter, home) = (self.adapter(of)?.handle(), self.home(of)?);
        let event = self.slots.cell(step.object())?.arrived();
        let created = Waiter::try_new()?.create(|done| adapter.create_listener(&event, done));
        self.made(step, created, |object| Resource::Listener { object, home })
    }

    fn create_connector(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (adapter, home) = (self.adapter(of)?.handle(), self.home(of)?);
        let created = Waiter::try_new()?.create(|done| adapter.create_connector(done));
        self.made(step, created, |object| Resource::Connector { object, home })
    }

    fn create_endpoint(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let adapter = self.adapter(of)?.handle();
        let address = wire_form(&self.socket(of, step.port(1)?)?);
        let created = Waiter::try_new()?.create(|done| adapter.create_shared_endpoint(&address, done));
        self.made(step, created, |object| Resource::Endpoint { object })
    }

    fn remember(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (token, base) = self.remote(of)?;
        self.slots.put(step.object(), self.slots.open_of(of)?, Resource::Token { token, base })?;
        Ok(Answer::NOTHING)
    }

    /// NdkRegisterMr over a part of a buffer.
    pub fn register(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (region, _) = self.slots.region(step.object())?;
        let buffer = self.slots.buffer(step.name(0)?)?;
        let (offset, length) = (step.number(1), step.number(2));
        let rights = NDK_MR_FLAGS::from_bits_retain(step.short(3)?);
        let address = buffer.address().wrapping_add(offset);
        let list = buffer.part(offset, length)?;
        let pages = list.as_ptr();
        self.list = Some(list);
        // SAFETY: the list stays in the session until the request is complete, the buffer's memory until every object is closed.
        let answer = self.request(|done| unsafe { region.register((pages, length as usize), rights, done) })?;
        self.list = None;
        if let (STATUS_SUCCESS, Resource::Region { base, .. }) = (answer.status, self.slots.get_mut(step.object())?) {
            *base = address;
        }
        Ok(answer)
    }

    pub fn deregister(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (region, _) = self.slots.region(step.object())?;
        self.request(|done| region.deregister(done))
    }

    pub fn initialize(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (region, _) = self.slots.region(step.object())?;
        let (pages, remote) = (step.short(0)?, step.number(1) != 0);
        self.request(|done| region.initialize(pages, remote, done))
    }

    pub fn fill(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        self.slots.buffer(step.object())?.fill(step.number(0), step.number(1), step.number(2))?;
        Ok(Answer::NOTHING)
    }

    /// Closes an object; its slot is empty from now on.
    pub fn close(&mut self, name: ScriptName) -> Result<Answer, Stop> {
        let open = self.slots.open_of(name)?;
        // Room first: an adapter that is taken out and has no place to wait in would wait here, for what this thread closes later.
        let capacity = match self.slots.get(name)? {
            Resource::Buffer(_) => self.can_bury(),
            Resource::Adapter(_) => self.can_close_deferred(),
            _ => true,
        };
        if !capacity {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        match self.slots.take(name)? {
            Resource::Adapter(adapter) => self.close_adapter(adapter, open, name)?,
            Resource::Buffer(mut buffer) => {
                buffer.release();
                self.bury(buffer)?;
                self.log.record(ScriptEvent::Closed, name, STATUS_SUCCESS);
            }
            Resource::Token { .. } => self.log.record(ScriptEvent::Closed, name, STATUS_SUCCESS),
            Resource::Domain { object, .. } => self.close_object(object, name)?,
            Resource::CompletionQueue { object } => self.close_object(object, name)?,
            Resource::SharedReceiveQueue { object, .. } => self.close_object(object, name)?,
            Resource::QueuePair { object, .. } => self.close_object(object, name)?,
            Resource::Region { object, .. } => self.close_object(object, name)?,
            Resource::Window { object, .. } => self.close_object(object, name)?,
            Resource::Listener { object, .. } => self.close_object(object, name)?,
            Resource::Connector { object, .. } => self.close_object(object, name)?,
            Resource::Endpoint { object } => self.close_object(object, name)?,
        }
        Ok(Answer::NOTHING)
    }

    fn close_object<T: Closable>(&self, object: SlotHandle<T>, name: ScriptName) -> Result<(), Stop> {
        let cell = self.slots.cell(name)?;
        self.log.begin_close();
        // SAFETY: an object that was taken out of its slot, so closed once.
        if unsafe { object.close(cell.closed()) } != STATUS_PENDING {
            cell.end_close();
        }
        Ok(())
    }
}

/// Whether a step makes something.
pub fn makes(code: ScriptCode) -> bool {
    code.verb().makes && code != ScriptCode::Arrive
}

const _: () = assert!(matches!(ScriptCode::Remember.verb().object, Some(ScriptKind::Token)));
