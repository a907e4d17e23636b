//! Steps that make objects, prepare memory, and close.

use core::ptr;

use ndkpi_sys::{
    ndkpi::{NDK_FN_CREATE_COMPLETION, NDK_MR_FLAGS, NDK_OBJECT_HEADER, NDK_PD},
    nt::{FALSE, NTSTATUS, PVOID, SOCKADDR, STATUS_PENDING, STATUS_SUCCESS, TRUE},
};
use softndk_ioctl::{ScriptCode, ScriptEvent, ScriptKind, ScriptName, Status};
use softndk_kernel::pool::PoolBox;

use super::{
    buffer::ScriptBuffer,
    log,
    resource::{Resource, Stop},
    session::{Answer, Arguments, Session},
};
use crate::{
    control::adapter_list,
    session::consumer::{Creation, Tabled, completion, create_done, table_of},
    socket::wire_form,
    tags,
};

/// A create call and its end, inline or not.
fn create<T>(
    call: impl FnOnce(*mut *mut T, Option<NDK_FN_CREATE_COMPLETION>, PVOID) -> NTSTATUS,
) -> Result<Result<*mut T, NTSTATUS>, Stop> {
    let creation = Creation::try_new()?;
    let mut object = ptr::null_mut();
    let status = call(&raw mut object, Some(create_done), creation.context());
    Ok(creation.finish(status, object).map_err(|status| status.0))
}

impl Session<'_> {
    /// Puts what was made into its slot.
    fn made<T>(
        &mut self,
        name: ScriptName,
        open: u32,
        created: Result<*mut T, NTSTATUS>,
        resource: impl FnOnce(*mut T) -> Resource,
    ) -> Result<Answer, Stop> {
        match created {
            Ok(object) => {
                self.slots.put(name, open, resource(object))?;
                Ok(Answer::of(STATUS_SUCCESS))
            }
            Err(status) => Ok(Answer::of(status)),
        }
    }

    fn domain(&self, name: ScriptName) -> Result<(*mut NDK_PD, u32), Stop> {
        match self.slots.get(name)? {
            Resource::Domain { object, privileged } => Ok((*object, *privileged)),
            _ => Err(Stop::Broken),
        }
    }

    fn completion_queue(&self, name: ScriptName) -> Result<*mut ndkpi_sys::ndkpi::NDK_CQ, Stop> {
        match self.slots.get(name)? {
            Resource::CompletionQueue { object } => Ok(*object),
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
        let of = step.name(0)?;
        let adapter = self.adapter(of)?;
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_PD with arguments that live for the call.
            unsafe { (adapter.table().NdkCreatePd)(adapter.as_ptr(), done, asked, place) }
        })?;
        self.made(step.object(), self.slots.open_of(of)?, created, |object| {
            let mut privileged = 0;
            // SAFETY: a domain that has just been made.
            let table = unsafe { table_of(object) };
            // SAFETY: NDKPI: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN with a place for the token.
            unsafe { (table.NdkGetPrivilegedMemoryRegionToken)(object, &raw mut privileged) };
            Resource::Domain { object, privileged }
        })
    }

    fn create_completion_queue(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let (of, depth) = (step.name(0)?, step.short(1)?);
        let adapter = self.adapter(of)?;
        let context = self.slots.context(step.object())?;
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_CQ with arguments that live for the call; the cell outlives the queue.
            unsafe {
                (adapter.table().NdkCreateCq)(
                    adapter.as_ptr(),
                    depth,
                    Some(log::notified),
                    context,
                    ptr::null_mut(),
                    done,
                    asked,
                    place,
                )
            }
        })?;
        self.made(step.object(), self.slots.open_of(of)?, created, |object| Resource::CompletionQueue { object })
    }

    fn create_shared_receive_queue(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (domain, privileged) = self.domain(of)?;
        let (depth, sges, threshold) = (step.short(1)?, step.short(2)?, step.short(3)?);
        let context = self.slots.context(step.object())?;
        // SAFETY: an open domain.
        let table = unsafe { table_of(domain) };
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_SRQ with arguments that live for the call; the cell outlives the queue.
            unsafe {
                (table.NdkCreateSrq)(
                    domain,
                    depth,
                    sges,
                    threshold,
                    Some(log::notified),
                    context,
                    ptr::null_mut(),
                    done,
                    asked,
                    place,
                )
            }
        })?;
        let open = self.slots.open_of(of)?;
        self.made(step.object(), open, created, |object| Resource::SharedReceiveQueue { object, privileged })
    }

    fn create_queue_pair(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (domain, privileged) = self.domain(of)?;
        let (receive, initiator) = (self.completion_queue(step.name(1)?)?, self.completion_queue(step.name(2)?)?);
        let (receives, requests) = (step.short(3)?, step.short(4)?);
        let (receive_sges, sges, inline_data) = (step.short(5)?, step.short(6)?, step.short(7)?);
        let context = ptr::without_provenance_mut(step.object().0 as usize);
        // SAFETY: an open domain.
        let table = unsafe { table_of(domain) };
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_QP with arguments that live for the call.
            unsafe {
                (table.NdkCreateQp)(
                    domain,
                    receive,
                    initiator,
                    context,
                    receives,
                    requests,
                    receive_sges,
                    sges,
                    inline_data,
                    done,
                    asked,
                    place,
                )
            }
        })?;
        let open = self.slots.open_of(of)?;
        self.made(step.object(), open, created, |object| Resource::QueuePair { object, privileged })
    }

    fn create_queue_pair_shared(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (domain, privileged) = self.domain(of)?;
        let (receive, initiator) = (self.completion_queue(step.name(1)?)?, self.completion_queue(step.name(2)?)?);
        let Resource::SharedReceiveQueue { object: shared, .. } = *self.slots.get(step.name(3)?)? else {
            return Err(Stop::Broken);
        };
        let (requests, sges, inline_data) = (step.short(4)?, step.short(5)?, step.short(6)?);
        let context = ptr::without_provenance_mut(step.object().0 as usize);
        // SAFETY: an open domain.
        let table = unsafe { table_of(domain) };
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_QP_WITH_SRQ with arguments that live for the call.
            unsafe {
                (table.NdkCreateQpWithSrq)(
                    domain,
                    receive,
                    initiator,
                    shared,
                    context,
                    requests,
                    sges,
                    inline_data,
                    done,
                    asked,
                    place,
                )
            }
        })?;
        let open = self.slots.open_of(of)?;
        self.made(step.object(), open, created, |object| Resource::QueuePair { object, privileged })
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
        let of = step.name(0)?;
        let (domain, _) = self.domain(of)?;
        let fast = if step.0.code == ScriptCode::CreateFastRegion { TRUE } else { FALSE };
        // SAFETY: an open domain.
        let table = unsafe { table_of(domain) };
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_MR with arguments that live for the call.
            unsafe { (table.NdkCreateMr)(domain, fast, done, asked, place) }
        })?;
        let open = self.slots.open_of(of)?;
        self.made(step.object(), open, created, |object| Resource::Region { object, base: 0 })
    }

    fn create_window(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (domain, _) = self.domain(of)?;
        // SAFETY: an open domain.
        let table = unsafe { table_of(domain) };
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_MW with arguments that live for the call.
            unsafe { (table.NdkCreateMw)(domain, done, asked, place) }
        })?;
        let open = self.slots.open_of(of)?;
        self.made(step.object(), open, created, |object| Resource::Window { object, base: 0 })
    }

    fn create_listener(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (adapter, home) = (self.adapter(of)?, self.home(of)?);
        let context = self.slots.context(step.object())?;
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_LISTENER with arguments that live for the call; the cell outlives the listener.
            unsafe {
                (adapter.table().NdkCreateListener)(adapter.as_ptr(), Some(log::arrived), context, done, asked, place)
            }
        })?;
        self.made(step.object(), self.slots.open_of(of)?, created, |object| Resource::Listener { object, home })
    }

    fn create_connector(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (adapter, home) = (self.adapter(of)?, self.home(of)?);
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_CONNECTOR with arguments that live for the call.
            unsafe { (adapter.table().NdkCreateConnector)(adapter.as_ptr(), done, asked, place) }
        })?;
        self.made(step.object(), self.slots.open_of(of)?, created, |object| Resource::Connector { object, home })
    }

    fn create_endpoint(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let adapter = self.adapter(of)?;
        let (address, length) = wire_form(&self.socket(of, step.port(1)?)?);
        let created = create(|place, done, asked| {
            // SAFETY: NDKPI: NDK_FN_CREATE_SHARED_ENDPOINT with arguments that live for the call.
            unsafe {
                (adapter.table().NdkCreateSharedEndpoint)(
                    adapter.as_ptr(),
                    (&raw const address).cast::<SOCKADDR>(),
                    length,
                    done,
                    asked,
                    place,
                )
            }
        })?;
        self.made(step.object(), self.slots.open_of(of)?, created, |object| Resource::Endpoint { object })
    }

    fn remember(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let of = step.name(0)?;
        let (token, base) = self.remote(of)?;
        self.slots.put(step.object(), self.slots.open_of(of)?, Resource::Token { token, base })?;
        Ok(Answer::NOTHING)
    }

    /// NdkRegisterMr over a part of a buffer.
    pub fn register(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let Resource::Region { object, .. } = *self.slots.get(step.object())? else { return Err(Stop::Broken) };
        let Resource::Buffer(buffer) = self.slots.get(step.name(0)?)? else { return Err(Stop::Broken) };
        let (offset, length) = (step.number(1), step.number(2));
        let rights = NDK_MR_FLAGS::from_bits_retain(step.short(3)?);
        let address = buffer.address().wrapping_add(offset);
        let list = buffer.part(offset, length)?;
        let pages = list.as_ptr();
        self.list = Some(list);
        self.waiter.reset();
        let (done, context) = completion(&self.waiter);
        // SAFETY: an open region.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_REGISTER_MR; the list stays in the session until the request is complete.
        let status = unsafe { (table.NdkRegisterMr)(object, pages, length as usize, rights, done, context) };
        let answer = self.finish(status)?;
        self.list = None;
        if let (STATUS_SUCCESS, Resource::Region { base, .. }) = (answer.status, self.slots.get_mut(step.object())?) {
            *base = address;
        }
        Ok(answer)
    }

    pub fn deregister(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let Resource::Region { object, .. } = *self.slots.get(step.object())? else { return Err(Stop::Broken) };
        self.waiter.reset();
        let (done, context) = completion(&self.waiter);
        // SAFETY: an open region.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_DEREGISTER_MR.
        let status = unsafe { (table.NdkDeregisterMr)(object, done, context) };
        self.finish(status)
    }

    pub fn initialize(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let Resource::Region { object, .. } = *self.slots.get(step.object())? else { return Err(Stop::Broken) };
        let (pages, remote) = (step.short(0)?, if step.number(1) == 0 { FALSE } else { TRUE });
        self.waiter.reset();
        let (done, context) = completion(&self.waiter);
        // SAFETY: an open region.
        let table = unsafe { table_of(object) };
        // SAFETY: NDKPI: NDK_FN_INITIALIZE_FAST_REGISTER_MR.
        let status = unsafe { (table.NdkInitializeFastRegisterMr)(object, pages, remote, done, context) };
        self.finish(status)
    }

    pub fn fill(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let Resource::Buffer(buffer) = self.slots.get(step.object())? else { return Err(Stop::Broken) };
        buffer.fill(step.number(0), step.number(1), step.number(2))?;
        Ok(Answer::NOTHING)
    }

    /// Closes an object; its slot is empty from now on.
    pub fn close(&mut self, name: ScriptName) -> Result<Answer, Stop> {
        let (context, open) = (self.slots.context(name)?, self.slots.open_of(name)?);
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
            Resource::Domain { object, .. } => self.close_object(object, context),
            Resource::CompletionQueue { object } => self.close_object(object, context),
            Resource::SharedReceiveQueue { object, .. } => self.close_object(object, context),
            Resource::QueuePair { object, .. } => self.close_object(object, context),
            Resource::Region { object, .. } => self.close_object(object, context),
            Resource::Window { object, .. } => self.close_object(object, context),
            Resource::Listener { object, .. } => self.close_object(object, context),
            Resource::Connector { object, .. } => self.close_object(object, context),
            Resource::Endpoint { object } => self.close_object(object, context),
        }
        Ok(Answer::NOTHING)
    }

    fn close_object<T: Tabled>(&self, object: *mut T, context: PVOID) {
        // SAFETY: an open object, taken out of its slot.
        let close = T::close(unsafe { table_of(object) });
        self.log.begin_close();
        // SAFETY: closed once; the cell outlives the close.
        let status = unsafe { close(object.cast::<NDK_OBJECT_HEADER>(), Some(log::closed), context) };
        if status != STATUS_PENDING {
            // SAFETY: the cell of the slot; no other context calls it for this close.
            unsafe { log::closed(context) };
        }
    }
}

/// Whether a step makes something.
pub fn makes(code: ScriptCode) -> bool {
    code.verb().makes && code != ScriptCode::Arrive
}

const _: () = assert!(matches!(ScriptCode::Remember.verb().object, Some(ScriptKind::Token)));
