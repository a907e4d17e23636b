//! The frames between an adapter and its stack: received and not yet processed, processed and not yet sent.

use std::collections::VecDeque;

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

use super::HEADER;

/// Frames that wait for the stack; those beyond are lost, as in a protocol driver that is short of memory.
const MOST_RECEIVED: usize = 4096;

/// What smoltcp sees of an adapter.
pub(super) struct FrameQueues {
    received: VecDeque<Vec<u8>>,
    sending: Vec<Vec<u8>>,
    mtu: usize,
}

impl FrameQueues {
    pub(super) fn new(mtu: usize) -> Self {
        Self { received: VecDeque::new(), sending: Vec::new(), mtu }
    }

    pub(super) fn push_received(&mut self, frame: Vec<u8>) {
        if self.received.len() < MOST_RECEIVED {
            self.received.push_back(frame);
        }
    }

    pub(super) fn take_sending(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sending)
    }
}

/// A frame that smoltcp processes.
pub(super) struct FrameReceived(Vec<u8>);

/// Where smoltcp puts a frame.
pub(super) struct FrameSlot<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for FrameReceived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, process: F) -> R {
        process(&self.0)
    }
}

impl TxToken for FrameSlot<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = vec![0; length];
        let result = fill(&mut frame);
        self.0.push(frame);
        result
    }
}

impl Device for FrameQueues {
    type RxToken<'a> = FrameReceived;
    type TxToken<'a> = FrameSlot<'a>;

    fn receive(&mut self, _: Instant) -> Option<(FrameReceived, FrameSlot<'_>)> {
        let frame = self.received.pop_front()?;
        Some((FrameReceived(frame), FrameSlot(&mut self.sending)))
    }

    fn transmit(&mut self, _: Instant) -> Option<FrameSlot<'_>> {
        Some(FrameSlot(&mut self.sending))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + HEADER;
        capabilities
    }
}
