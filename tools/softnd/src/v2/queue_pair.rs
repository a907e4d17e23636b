//! IND2QueuePair, and IND2ManaQueuePair, which extends it by requests with immediate data.

use softnd_interfaces::{
    Guid, Status,
    v2::{IND2ManaQueuePair, IND2QueuePair, ManaQueuePairTable, QueuePairTable2, Sge},
};

use super::{class, memory_region::V2MemoryRegion, memory_window::V2MemoryWindow};
use crate::{
    argument::{Bytes, Context, Given, Unknown, entry},
    com::{Face, unknown_table},
    resources::queue_pair::{QueuePair, Transfer, TransferKind},
};

pub struct V2QueuePair(QueuePair);

impl Face for V2QueuePair {
    type Table = ManaQueuePairTable;
    const TABLE: &'static Self::Table = &ManaQueuePairTable {
        base: Self::TABLE_2,
        send_with_immediate: entry!(
            V2QueuePair,
            send_with_immediate(
                context: Context,
                sges: Given<Sge>,
                count: u32,
                flags: u32,
                immediate: u32,
            ) -> Result<(), Status>
        ),
        write_with_immediate: entry!(
            V2QueuePair,
            write_with_immediate(
                context: Context,
                sges: Given<Sge>,
                count: u32,
                remote_address: u64,
                remote_token: u32,
                flags: u32,
                immediate: u32,
            ) -> Result<(), Status>
        ),
    };
    const CLASS: Guid = class(7);
    const INTERFACES: &'static [Guid] = &[IND2QueuePair::IID, IND2ManaQueuePair::IID];
}

impl V2QueuePair {
    const TABLE_2: QueuePairTable2 = QueuePairTable2 {
        base: unknown_table::<Self>(),
        flush: entry!(V2QueuePair, flush() -> Result<(), Status>),
        send: entry!(
            V2QueuePair,
            send(context: Context, sges: Given<Sge>, count: u32, flags: u32) -> Result<(), Status>
        ),
        receive: entry!(V2QueuePair, receive(context: Context, sges: Given<Sge>, count: u32) -> Result<(), Status>),
        bind: entry!(
            V2QueuePair,
            bind(
                context: Context,
                region: Unknown,
                window: Unknown,
                buffer: Bytes,
                length: usize,
                flags: u32,
            ) -> Result<(), Status>
        ),
        invalidate: entry!(
            V2QueuePair,
            invalidate(context: Context, window: Unknown, flags: u32) -> Result<(), Status>
        ),
        read: entry!(
            V2QueuePair,
            read(
                context: Context,
                sges: Given<Sge>,
                count: u32,
                remote_address: u64,
                remote_token: u32,
                flags: u32,
            ) -> Result<(), Status>
        ),
        write: entry!(
            V2QueuePair,
            write(
                context: Context,
                sges: Given<Sge>,
                count: u32,
                remote_address: u64,
                remote_token: u32,
                flags: u32,
            ) -> Result<(), Status>
        ),
    };

    pub fn new(pair: QueuePair) -> Self {
        Self(pair)
    }

    pub fn pair(&self) -> &QueuePair {
        &self.0
    }

    fn flush(&self) -> Result<(), Status> {
        self.0.flush()
    }

    fn send(&self, context: Context, sges: Given<Sge>, count: u32, flags: u32) -> Result<(), Status> {
        let context = context.number();
        let transfer = Transfer { context, sges, count, flags, ..Transfer::default() };
        self.0.transfer(TransferKind::Send, &transfer)
    }

    fn receive(&self, context: Context, sges: Given<Sge>, count: u32) -> Result<(), Status> {
        self.0.receive(context.number(), sges, count)
    }

    fn bind(
        &self,
        context: Context,
        region: Unknown,
        window: Unknown,
        buffer: Bytes,
        length: usize,
        flags: u32,
    ) -> Result<(), Status> {
        let region = region.recover::<V2MemoryRegion>().ok_or(Status::INVALID_PARAMETER_2)?;
        let window = window.recover::<V2MemoryWindow>().ok_or(Status::INVALID_PARAMETER_3)?;
        self.0.bind(context.number(), region.region(), window.window(), (buffer, length), flags)
    }

    fn invalidate(&self, context: Context, window: Unknown, flags: u32) -> Result<(), Status> {
        let window = window.recover::<V2MemoryWindow>().ok_or(Status::INVALID_PARAMETER_2)?;
        self.0.invalidate(context.number(), window.window(), flags)
    }

    fn read(
        &self,
        context: Context,
        sges: Given<Sge>,
        count: u32,
        remote_address: u64,
        remote_token: u32,
        flags: u32,
    ) -> Result<(), Status> {
        let context = context.number();
        let transfer = Transfer { context, sges, count, flags, remote_address, remote_token, immediate: 0 };
        self.0.transfer(TransferKind::Read, &transfer)
    }

    fn write(
        &self,
        context: Context,
        sges: Given<Sge>,
        count: u32,
        remote_address: u64,
        remote_token: u32,
        flags: u32,
    ) -> Result<(), Status> {
        let context = context.number();
        let transfer = Transfer { context, sges, count, flags, remote_address, remote_token, immediate: 0 };
        self.0.transfer(TransferKind::Write, &transfer)
    }

    fn send_with_immediate(
        &self,
        context: Context,
        sges: Given<Sge>,
        count: u32,
        flags: u32,
        immediate: u32,
    ) -> Result<(), Status> {
        let context = context.number();
        let transfer = Transfer { context, sges, count, flags, immediate, ..Transfer::default() };
        self.0.transfer(TransferKind::SendWithImmediate, &transfer)
    }

    #[allow(clippy::too_many_arguments, reason = "the interface has as many")]
    fn write_with_immediate(
        &self,
        context: Context,
        sges: Given<Sge>,
        count: u32,
        remote_address: u64,
        remote_token: u32,
        flags: u32,
        immediate: u32,
    ) -> Result<(), Status> {
        let context = context.number();
        let transfer = Transfer { context, sges, count, flags, remote_address, remote_token, immediate };
        self.0.transfer(TransferKind::WriteWithImmediate, &transfer)
    }
}
