//! Replay: a script of operations and observations, run through the dispatch tables in one request.
//!
//! The script is a consumer like any other: it may ask for anything that a consumer may ask for, in any order, and with wrong
//! numbers, but never with a pointer of its own. What it leaves open is closed when it ends, however it ends.

mod buffer;
mod connect;
mod create;
mod log;
mod observe;
mod post;
mod resource;
mod session;

use softndk_ioctl::{
    ABI_VERSION, RequestHeader, SCRIPT_LENGTH_MAX, ScriptCode, ScriptItem, ScriptReply, ScriptRequest, Status,
    next_script_step,
};
use softndk_kernel::{
    irp::{Buffer, Request},
    pool::PoolSlice,
};
use zerocopy::{FromBytes, IntoBytes};

use self::{
    resource::Stop,
    session::{Answer, Arguments, Session},
};
use super::request::RequestWait;
use crate::{driver::Driver, tags};

/// The steps of a request, checked as bytes, in memory that user mode does not reach.
pub struct Script {
    bytes: PoolSlice<u8>,
}

impl Script {
    /// Reads a request. Malformed bytes are refused before anything is done.
    pub fn read(input: &[u8]) -> Result<Self, Status> {
        let (header, _) = RequestHeader::read_from_prefix(input).map_err(|_| Status::INFO_LENGTH_MISMATCH)?;
        if header.version != ABI_VERSION {
            return Err(Status::REVISION_MISMATCH);
        }
        let (request, steps) = ScriptRequest::read_from_prefix(input).map_err(|_| Status::INFO_LENGTH_MISMATCH)?;
        let whole = header.size as usize == input.len() && request.length as usize == steps.len();
        if !whole {
            return Err(Status::INFO_LENGTH_MISMATCH);
        }
        if request.reserved != 0 || request.length > SCRIPT_LENGTH_MAX {
            return Err(Status::INVALID_PARAMETER);
        }
        let bytes = PoolSlice::try_filled(tags::SESSION, steps.len(), 0_u8);
        let mut bytes = bytes.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        bytes.copy_from_slice(steps);
        let mut rest: &[u8] = &bytes;
        while next_script_step(&mut rest)?.is_some() {}
        Ok(Self { bytes })
    }
}

/// Runs a script and answers how it went. PASSIVE_LEVEL.
#[inline(never)]
pub fn run(
    driver: &'static Driver,
    request: &Request,
    script: &Script,
    request_wait: &RequestWait<'_>,
) -> Result<usize, Status> {
    let mut buffer = Buffer::of(request);
    if buffer.output_length() < size_of::<ScriptReply>() {
        return Err(Status::BUFFER_TOO_SMALL);
    }
    let mut session = Session::try_new(driver, *request_wait)?;
    let mut rest: &[u8] = &script.bytes;
    let mut reply = ScriptReply::default();
    let mut seen = 0;
    while let Some(item) = next_script_step(&mut rest)? {
        session.give_up()?;
        reply.steps += 1;
        let step = Arguments(&item);
        match session.step(&step) {
            Ok(answer) => {
                let status_differs = step.has_status() && answer.status != item.step.status;
                if status_differs || !answer.agrees {
                    (reply.differs, reply.status, reply.values) = (ScriptReply::DIFFERS, answer.status, answer.values);
                    seen = answer.seen;
                    break;
                }
            }
            Err(Stop::Broken) => {
                reply.differs = ScriptReply::BROKEN;
                break;
            }
            Err(Stop::Failed(status)) => return Err(status),
        }
    }
    if reply.differs != 0 {
        // A script on an adapter that went has failed as a whole, whatever its step answered.
        session.check_adapters()?;
    }
    answer(&mut buffer, &session, reply, seen)
}

/// Writes the reply and as many entries as there are and fit.
fn answer(buffer: &mut Buffer, session: &Session<'_>, reply: ScriptReply, seen: usize) -> Result<usize, Status> {
    let output = buffer.output();
    let (head, tail) = output.split_at_mut_checked(size_of::<ScriptReply>()).ok_or(Status::BUFFER_TOO_SMALL)?;
    let places = tail.chunks_exact_mut(size_of::<session::Entry>());
    let mut count = 0_u32;
    for (place, entry) in places.zip(session.seen.iter().take(seen)) {
        place.copy_from_slice(entry);
        count += 1;
    }
    // At most SEEN_MAX entries.
    let length = size_of::<ScriptReply>() + count as usize * size_of::<session::Entry>();
    let header = RequestHeader { version: ABI_VERSION, size: length as u32 };
    head.copy_from_slice(ScriptReply { header, seen: count, ..reply }.as_bytes());
    Ok(length)
}

impl Session<'_> {
    fn step(&mut self, step: &Arguments<'_>) -> Result<Answer, Stop> {
        let ScriptItem { code, .. } = *step.0;
        match code {
            _ if create::makes(code) => self.create(step),
            ScriptCode::Fill => self.fill(step),
            ScriptCode::Register => self.register(step),
            ScriptCode::Deregister => self.deregister(step),
            ScriptCode::Initialize => self.initialize(step),
            ScriptCode::Send
            | ScriptCode::SendAndInvalidate
            | ScriptCode::Receive
            | ScriptCode::Read
            | ScriptCode::Write => self.transfer(step),
            ScriptCode::SharedReceive => self.shared_receive(step),
            ScriptCode::FastRegister => self.fast_register(step),
            ScriptCode::Bind => self.bind(step),
            ScriptCode::Invalidate => self.invalidate(step),
            ScriptCode::Flush => self.flush(step),
            ScriptCode::Arm | ScriptCode::Resize | ScriptCode::Moderate => self.completion_queue_step(step),
            ScriptCode::Modify => self.modify(step),
            ScriptCode::Listen => self.listen(step),
            ScriptCode::Pause => self.pause(step),
            ScriptCode::Connect => self.connect(step),
            ScriptCode::ConnectShared => self.connect_shared(step),
            ScriptCode::Arrive => self.arrive(step),
            ScriptCode::Accept => self.accept(step),
            ScriptCode::Reject => self.reject(step),
            ScriptCode::Complete | ScriptCode::Disconnect => self.connection_step(step),
            ScriptCode::Close => self.close(step.object()),
            ScriptCode::Poll => self.poll(step),
            ScriptCode::Events => self.events(step),
            ScriptCode::Bytes => self.bytes(step),
            ScriptCode::Limits => self.limits(step),
            _ => Err(Stop::Broken),
        }
    }
}
