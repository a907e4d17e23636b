//! IND2Connector.

use softnd_interfaces::{
    Guid, Status,
    v2::{ConnectorTable2, IND2Connector, IND2Overlapped},
};
use softndk_ioctl::nd::control::ReadLimits;

use super::{class, overlapped_table, queue_pair::V2QueuePair};
use crate::{
    argument::{Bytes, Overlap, Place, Target, Unknown, entry},
    com::{Face, Held},
    resources::connector::Connector,
    socket_address,
};

pub struct V2Connector(Connector);

impl Face for V2Connector {
    type Table = ConnectorTable2;
    const TABLE: &'static Self::Table = &ConnectorTable2 {
        base: overlapped_table!(V2Connector),
        bind: entry!(V2Connector, bind(address: Bytes, length: u32) -> Result<(), Status>),
        connect: entry!(
            V2Connector,
            connect(
                pair: Unknown,
                destination: Bytes,
                destination_length: u32,
                inbound: u32,
                outbound: u32,
                private_data: Bytes,
                private_data_length: u32,
                overlapped: Overlap,
            ) -> Status
        ),
        complete_connect: entry!(V2Connector, complete_connect(overlapped: Overlap) -> Status),
        accept: entry!(
            V2Connector,
            accept(
                pair: Unknown,
                inbound: u32,
                outbound: u32,
                private_data: Bytes,
                private_data_length: u32,
                overlapped: Overlap,
            ) -> Status
        ),
        reject: entry!(
            V2Connector,
            reject(private_data: Bytes, private_data_length: u32) -> Result<(), Status>
        ),
        get_read_limits: entry!(
            V2Connector,
            get_read_limits(inbound: Place<u32>, outbound: Place<u32>) -> Result<(), Status>
        ),
        get_private_data: entry!(
            V2Connector,
            get_private_data(private_data: Target, length: Place<u32>) -> Result<(), Status>
        ),
        get_local_address: entry!(
            V2Connector,
            get_local_address(address: Target, length: Place<u32>) -> Result<(), Status>
        ),
        get_peer_address: entry!(
            V2Connector,
            get_peer_address(address: Target, length: Place<u32>) -> Result<(), Status>
        ),
        notify_disconnect: entry!(V2Connector, notify_disconnect(overlapped: Overlap) -> Status),
        disconnect: entry!(V2Connector, disconnect(overlapped: Overlap) -> Status),
    };
    const CLASS: Guid = class(8);
    const INTERFACES: &'static [Guid] = &[IND2Connector::IID, IND2Overlapped::IID];
}

impl V2Connector {
    pub fn new(connector: Connector) -> Self {
        Self(connector)
    }

    pub fn connector(&self) -> &Connector {
        &self.0
    }

    fn cancel(&self) -> Result<(), Status> {
        self.0.cancel()
    }

    fn bind(&self, address: Bytes, length: u32) -> Result<(), Status> {
        self.0.bind(socket_address::read(address, length as usize)?)
    }

    /// A queue pair of this provider. INVALID_PARAMETER_1.
    fn pair(&self, pair: Unknown) -> Result<Held<V2QueuePair>, Status> {
        let pair = pair.recover::<V2QueuePair>().filter(|pair| pair.pair().shares_handles(self.0.adapter()));
        pair.ok_or(Status::INVALID_PARAMETER_1)
    }

    #[allow(clippy::too_many_arguments, reason = "the interface has as many")]
    fn connect(
        &self,
        pair: Unknown,
        destination: Bytes,
        destination_length: u32,
        inbound: u32,
        outbound: u32,
        private_data: Bytes,
        private_data_length: u32,
        overlapped: Overlap,
    ) -> Status {
        let arguments = || Ok((self.pair(pair)?, socket_address::read(destination, destination_length as usize)?));
        match arguments() {
            Ok((pair, destination)) => self.0.connect(
                pair.pair(),
                destination,
                ReadLimits { inbound, outbound },
                (private_data, private_data_length as usize),
                overlapped,
            ),
            Err(status) => status,
        }
    }

    fn complete_connect(&self, overlapped: Overlap) -> Status {
        self.0.complete_connect(overlapped)
    }

    fn accept(
        &self,
        pair: Unknown,
        inbound: u32,
        outbound: u32,
        private_data: Bytes,
        private_data_length: u32,
        overlapped: Overlap,
    ) -> Status {
        match self.pair(pair) {
            Ok(pair) => self.0.accept(
                pair.pair(),
                ReadLimits { inbound, outbound },
                (private_data, private_data_length as usize),
                overlapped,
            ),
            Err(status) => status,
        }
    }

    fn reject(&self, private_data: Bytes, private_data_length: u32) -> Result<(), Status> {
        self.0.reject((private_data, private_data_length as usize))
    }

    fn get_read_limits(&self, inbound: Place<u32>, outbound: Place<u32>) -> Result<(), Status> {
        let limits = self.0.read_limits()?;
        inbound.offer(limits.inbound);
        outbound.offer(limits.outbound);
        Ok(())
    }

    fn get_private_data(&self, private_data: Target, length: Place<u32>) -> Result<(), Status> {
        self.0.private_data(private_data, length)
    }

    fn get_local_address(&self, address: Target, length: Place<u32>) -> Result<(), Status> {
        socket_address::write(&self.0.local_address()?, address, length)
    }

    fn get_peer_address(&self, address: Target, length: Place<u32>) -> Result<(), Status> {
        socket_address::write(&self.0.peer_address()?, address, length)
    }

    fn notify_disconnect(&self, overlapped: Overlap) -> Status {
        self.0.notify_disconnect(overlapped)
    }

    fn disconnect(&self, overlapped: Overlap) -> Status {
        self.0.disconnect(overlapped)
    }
}
