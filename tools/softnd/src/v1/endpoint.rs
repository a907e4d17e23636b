//! INDEndpoint: a queue pair.

use core::ffi::c_void;

use softnd_interfaces::{
    Guid, Status,
    constants::operation_flag as flag,
    v1::{EndpointTable1, INDEndpoint, Result1, Sge1, WindowDescriptor},
    v2::Sge,
};
use softndk_ioctl::nd::control::ReadLimits;

use super::{class, count, memory_window::V1MemoryWindow, regions::Regions};
use crate::{
    argument::{Bytes, Given, Place, Unknown, entry},
    com::{Face, unknown_table},
    resources::queue_pair::{QueuePair, Transfer, TransferKind},
    shared::Shared,
};

/// The most SGEs of a request: they are translated on the stack.
pub const MOST_SGES: usize = 32;

pub struct V1Endpoint {
    pair: QueuePair,
    regions: Shared<Regions>,
    read_limits: ReadLimits,
}

impl Face for V1Endpoint {
    type Table = EndpointTable1;
    const TABLE: &'static Self::Table = &EndpointTable1 {
        base: unknown_table::<Self>(),
        flush: entry!(V1Endpoint, flush() -> Result<(), Status>),
        start_request_batch: entry!(V1Endpoint, start_request_batch() -> ()),
        submit_request_batch: entry!(V1Endpoint, submit_request_batch() -> ()),
        send: entry!(
            V1Endpoint,
            send(result: Place<Result1>, sges: Given<Sge1>, count: usize, flags: u32) -> Result<(), Status>
        ),
        send_and_invalidate: entry!(
            V1Endpoint,
            send_and_invalidate(
                result: Place<Result1>,
                sges: Given<Sge1>,
                count: usize,
                remote_window: Given<WindowDescriptor>,
                flags: u32,
            ) -> Result<(), Status>
        ),
        receive: entry!(
            V1Endpoint,
            receive(result: Place<Result1>, sges: Given<Sge1>, count: usize) -> Result<(), Status>
        ),
        bind: entry!(
            V1Endpoint,
            bind(
                result: Place<Result1>,
                region: *mut c_void,
                window: Unknown,
                buffer: Bytes,
                length: usize,
                flags: u32,
                descriptor: Place<WindowDescriptor>,
            ) -> Result<(), Status>
        ),
        invalidate: entry!(
            V1Endpoint,
            invalidate(result: Place<Result1>, window: Unknown, flags: u32) -> Result<(), Status>
        ),
        read: entry!(
            V1Endpoint,
            read(
                result: Place<Result1>,
                sges: Given<Sge1>,
                count: usize,
                remote_window: Given<WindowDescriptor>,
                offset: u64,
                flags: u32,
            ) -> Result<(), Status>
        ),
        write: entry!(
            V1Endpoint,
            write(
                result: Place<Result1>,
                sges: Given<Sge1>,
                count: usize,
                remote_window: Given<WindowDescriptor>,
                offset: u64,
                flags: u32,
            ) -> Result<(), Status>
        ),
    };
    const CLASS: Guid = class(5);
    const INTERFACES: &'static [Guid] = &[INDEndpoint::IID];
}

/// The scatter/gather list of a request, as version 2 has it.
struct Translated {
    sges: [Sge; MOST_SGES],
    count: u32,
    total: u64,
    /// Some memory with bytes has no registration: it can only be copied.
    unregistered: bool,
}

/// Where remote memory begins, and its token.
fn remote(descriptor: Given<WindowDescriptor>, offset: u64, total: u64) -> Result<(u64, u32), Status> {
    let Some(descriptor) = descriptor.get() else {
        // A request of no bytes tells whether the peer is there; it needs no window.
        return if total == 0 { Ok((0, 0)) } else { Err(Status::INVALID_PARAMETER_4) };
    };
    let (base, length) = (u64::from_be(descriptor.base), u64::from_be(descriptor.length));
    if offset.checked_add(total).is_none_or(|end| end > length) {
        return Err(Status::REMOTE_ERROR);
    }
    Ok((base.wrapping_add(offset), descriptor.token))
}

impl V1Endpoint {
    pub fn new(pair: QueuePair, regions: Shared<Regions>, read_limits: ReadLimits) -> Self {
        Self { pair, regions, read_limits }
    }

    pub fn pair(&self) -> &QueuePair {
        &self.pair
    }

    pub fn read_limits(&self) -> ReadLimits {
        self.read_limits
    }

    /// INVALID_PARAMETER_2 for no list with entries, DATA_OVERRUN for more SGEs than any adapter has.
    fn translate(&self, sges: Given<Sge1>, entries: usize) -> Result<Translated, Status> {
        if sges.is_none() && entries > 0 {
            return Err(Status::INVALID_PARAMETER_2);
        }
        if entries > MOST_SGES {
            return Err(Status::DATA_OVERRUN);
        }
        let none = Sge { buffer: core::ptr::null_mut(), buffer_length: 0, memory_region_token: 0 };
        let mut made = Translated { sges: [none; MOST_SGES], count: count(entries), total: 0, unregistered: false };
        for (sge, place) in sges.list(entries).zip(&mut made.sges) {
            *place = Sge {
                buffer: sge.address,
                // What does not fit is more than any transfer may have.
                buffer_length: count(sge.length),
                memory_region_token: self.regions.token(sge.region),
            };
            made.total = made.total.saturating_add(sge.length as u64);
            made.unregistered |= sge.region.is_null() && sge.length > 0;
        }
        Ok(made)
    }

    /// Posts a Send or a Write, with its data copied where that is possible, or a Read.
    fn transfer(
        &self,
        kind: TransferKind,
        (result, list): (Place<Result1>, &Translated),
        (remote_address, remote_token): (u64, u32),
        flags: u32,
    ) -> Result<(), Status> {
        if flags & flag::INLINE != 0 {
            // There is no such flag in version 1.
            return Err(kind.flags().1);
        }
        let mut value = result.read().ok_or(Status::INVALID_PARAMETER_1)?;
        let fits = list.total <= u64::from(self.pair.inline_limit());
        let inline = kind != TransferKind::Read && fits;
        if list.unregistered && !inline {
            return Err(Status::DATA_OVERRUN);
        }
        // Before the post: the result may be filled by another thread right after it.
        value.bytes_transferred = list.total as usize;
        result.offer(value);
        let transfer = Transfer {
            context: result.number(),
            sges: Given::of_slice(&list.sges),
            count: list.count,
            flags: if inline { flags | flag::INLINE } else { flags },
            remote_address,
            remote_token,
            immediate: 0,
        };
        self.pair.transfer(kind, &transfer)
    }

    fn flush(&self) -> Result<(), Status> {
        self.pair.flush()
    }

    fn start_request_batch(&self) {
        self.pair.queue().start_batch();
    }

    fn submit_request_batch(&self) {
        self.pair.queue().submit_batch();
    }

    fn send(&self, result: Place<Result1>, sges: Given<Sge1>, count: usize, flags: u32) -> Result<(), Status> {
        let list = self.translate(sges, count)?;
        self.transfer(TransferKind::Send, (result, &list), (0, 0), flags)
    }

    /// A Send after which the peer's window is invalid. INVALID_PARAMETER_4 for no descriptor.
    fn send_and_invalidate(
        &self,
        result: Place<Result1>,
        sges: Given<Sge1>,
        count: usize,
        remote_window: Given<WindowDescriptor>,
        flags: u32,
    ) -> Result<(), Status> {
        let window = remote_window.get().ok_or(Status::INVALID_PARAMETER_4)?;
        let list = self.translate(sges, count)?;
        self.transfer(TransferKind::SendAndInvalidate, (result, &list), (0, window.token), flags)
    }

    fn receive(&self, result: Place<Result1>, sges: Given<Sge1>, count: usize) -> Result<(), Status> {
        if result.is_none() {
            return Err(Status::INVALID_PARAMETER_1);
        }
        let list = self.translate(sges, count)?;
        self.pair.receive(result.number(), Given::of_slice(&list.sges), list.count)
    }

    #[allow(clippy::too_many_arguments, reason = "the interface has as many")]
    fn bind(
        &self,
        result: Place<Result1>,
        region: *mut c_void,
        window: Unknown,
        buffer: Bytes,
        length: usize,
        flags: u32,
        descriptor: Place<WindowDescriptor>,
    ) -> Result<(), Status> {
        if result.is_none() {
            return Err(Status::INVALID_PARAMETER_1);
        }
        let region = self.regions.get(region).ok_or(Status::INVALID_PARAMETER_2)?;
        let window = window.recover::<V1MemoryWindow>().ok_or(Status::INVALID_PARAMETER_3)?;
        if descriptor.is_none() {
            return Err(Status::INVALID_PARAMETER_7);
        }
        self.pair.bind(result.number(), &region, window.window(), (buffer, length), flags)?;
        descriptor.write(WindowDescriptor {
            base: buffer.address().to_be(),
            length: (length as u64).to_be(),
            token: window.bound(),
        })
    }

    fn invalidate(&self, result: Place<Result1>, window: Unknown, flags: u32) -> Result<(), Status> {
        if result.is_none() {
            return Err(Status::INVALID_PARAMETER_1);
        }
        let window = window.recover::<V1MemoryWindow>().ok_or(Status::INVALID_PARAMETER_2)?;
        self.pair.invalidate(result.number(), window.window(), flags)
    }

    fn read(
        &self,
        result: Place<Result1>,
        sges: Given<Sge1>,
        count: usize,
        remote_window: Given<WindowDescriptor>,
        offset: u64,
        flags: u32,
    ) -> Result<(), Status> {
        let list = self.translate(sges, count)?;
        let remote = remote(remote_window, offset, list.total)?;
        self.transfer(TransferKind::Read, (result, &list), remote, flags)
    }

    fn write(
        &self,
        result: Place<Result1>,
        sges: Given<Sge1>,
        count: usize,
        remote_window: Given<WindowDescriptor>,
        offset: u64,
        flags: u32,
    ) -> Result<(), Status> {
        let list = self.translate(sges, count)?;
        let remote = remote(remote_window, offset, list.total)?;
        self.transfer(TransferKind::Write, (result, &list), remote, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_memory_is_base_and_offset_within_the_length() {
        let descriptor = [WindowDescriptor { base: 0x1000_u64.to_be(), length: 64_u64.to_be(), token: 9 }];
        let given = Given::of_slice(&descriptor);
        // SAFETY: no descriptor.
        let none = unsafe { <Given<WindowDescriptor> as crate::argument::Argument>::of(core::ptr::null()) };
        for (given, offset, total, expected) in [
            (given, 0, 64, Ok((0x1000, 9))),
            (given, 60, 4, Ok((0x103C, 9))),
            (given, 64, 0, Ok((0x1040, 9))),
            (given, 60, 5, Err(Status::REMOTE_ERROR)),
            (given, u64::MAX, 1, Err(Status::REMOTE_ERROR)),
            (none, 5, 0, Ok((0, 0))),
            (none, 0, 1, Err(Status::INVALID_PARAMETER_4)),
        ] {
            assert_eq!(remote(given, offset, total), expected, "{offset} {total}");
        }
    }
}
