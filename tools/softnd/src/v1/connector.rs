//! INDConnector.

use core::ffi::c_void;

use softnd_interfaces::{
    Guid, Status,
    v1::{ConnectorTable1, INDConnector, INDOverlapped},
};
use softndk_ioctl::nd::control::{ReadLimits, SocketAddress};

use super::{
    class, completion_queue::V1CompletionQueue, count, endpoint::V1Endpoint, overlapped_table, own_status,
    regions::Regions,
};
use crate::{
    argument::{Bytes, Overlap, Place, Target, Unknown, entry},
    com::{Face, Held, NewInterface},
    resources::{
        completion_queue::CompletionQueue,
        connector::Connector,
        queue_pair::{QueuePair, QueuePairWish, Receives},
    },
    shared::Shared,
    socket_address,
};

pub struct V1Connector {
    connector: Connector,
    regions: Shared<Regions>,
    /// The adapter's, to which the connector is bound when it connects.
    address: SocketAddress,
}

impl Face for V1Connector {
    type Table = ConnectorTable1;
    const TABLE: &'static Self::Table = &ConnectorTable1 {
        base: overlapped_table!(V1Connector),
        create_endpoint: entry!(
            V1Connector,
            create_endpoint(
                inbound_queue: Unknown,
                outbound_queue: Unknown,
                inbound_entries: usize,
                outbound_entries: usize,
                inbound_sges: usize,
                outbound_sges: usize,
                inbound_read_limit: usize,
                outbound_read_limit: usize,
                inline_data: Place<usize>,
                out: Place<*mut c_void>,
            ) -> Result<(), Status>
        ),
        connect: entry!(
            V1Connector,
            connect(
                endpoint: Unknown,
                address: Bytes,
                address_length: usize,
                protocol: i32,
                local_port: u16,
                private_data: Bytes,
                private_data_length: usize,
                overlapped: Overlap,
            ) -> Status
        ),
        complete_connect: entry!(V1Connector, complete_connect(overlapped: Overlap) -> Status),
        accept: entry!(
            V1Connector,
            accept(
                endpoint: Unknown,
                private_data: Bytes,
                private_data_length: usize,
                overlapped: Overlap,
            ) -> Status
        ),
        reject: entry!(
            V1Connector,
            reject(private_data: Bytes, private_data_length: usize) -> Result<(), Status>
        ),
        get_connection_data: entry!(
            V1Connector,
            get_connection_data(
                inbound: Place<usize>,
                outbound: Place<usize>,
                private_data: Target,
                length: Place<usize>,
            ) -> Result<(), Status>
        ),
        get_local_address: entry!(
            V1Connector,
            get_local_address(address: Target, length: Place<usize>) -> Result<(), Status>
        ),
        get_peer_address: entry!(
            V1Connector,
            get_peer_address(address: Target, length: Place<usize>) -> Result<(), Status>
        ),
        notify_disconnect: entry!(V1Connector, notify_disconnect(overlapped: Overlap) -> Status),
        disconnect: entry!(V1Connector, disconnect(overlapped: Overlap) -> Status),
    };
    const CLASS: Guid = class(6);
    const INTERFACES: &'static [Guid] = &[INDConnector::IID, INDOverlapped::IID];
}

/// A number within a limit, or `otherwise`.
fn within(asked: usize, most: u32, otherwise: Status) -> Result<u32, Status> {
    u32::try_from(asked).ok().filter(|asked| *asked <= most).ok_or(otherwise)
}

impl V1Connector {
    pub fn new(connector: Connector, regions: Shared<Regions>, address: SocketAddress) -> Self {
        Self { connector, regions, address }
    }

    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    fn cancel(&self) -> Result<(), Status> {
        self.connector.cancel()
    }

    /// A completion queue of this provider, or `otherwise`.
    fn queue(&self, queue: Unknown, otherwise: Status) -> Result<Shared<CompletionQueue>, Status> {
        let queue = queue.recover::<V1CompletionQueue>().map(|queue| queue.queue().clone());
        queue.filter(|queue| queue.shares_handles(self.connector.adapter())).ok_or(otherwise)
    }

    /// INVALID_PARAMETER_1 to _6 by position. Read limits are capped to the adapter's without a word.
    #[allow(clippy::too_many_arguments, reason = "the interface has as many")]
    fn create_endpoint(
        &self,
        inbound_queue: Unknown,
        outbound_queue: Unknown,
        inbound_entries: usize,
        outbound_entries: usize,
        inbound_sges: usize,
        outbound_sges: usize,
        inbound_read_limit: usize,
        outbound_read_limit: usize,
        inline_data: Place<usize>,
        out: Place<*mut c_void>,
    ) -> Result<(), Status> {
        let interface = NewInterface::fixed(out)?;
        let adapter = self.connector.adapter();
        let info = adapter.info();
        let inline = info.inline_request_threshold.min(info.max_inline_data_size);
        let wish = QueuePairWish {
            receive_queue: &self.queue(inbound_queue, Status::INVALID_PARAMETER_1)?,
            initiator_queue: &self.queue(outbound_queue, Status::INVALID_PARAMETER_2)?,
            receives: Receives::Own {
                depth: within(inbound_entries, info.max_receive_queue_depth, Status::INVALID_PARAMETER_3)?,
                sges: within(inbound_sges, info.max_receive_sge, Status::INVALID_PARAMETER_5)?,
            },
            context: 0,
            initiator_depth: within(outbound_entries, info.max_initiator_queue_depth, Status::INVALID_PARAMETER_4)?,
            initiator_sges: within(outbound_sges, info.max_initiator_sge, Status::INVALID_PARAMETER_6)?,
            inline_data: inline,
        };
        let read_limits = ReadLimits {
            inbound: count(inbound_read_limit).min(info.max_inbound_read_limit),
            outbound: count(outbound_read_limit).min(info.max_outbound_read_limit),
        };
        let pair = QueuePair::new(adapter, &wish)?;
        inline_data.offer(inline as usize);
        interface.give(V1Endpoint::new(pair, self.regions.clone(), read_limits))
    }

    /// An endpoint of this provider. INVALID_PARAMETER_1.
    fn endpoint(&self, endpoint: Unknown) -> Result<Held<V1Endpoint>, Status> {
        let endpoint = endpoint.recover::<V1Endpoint>();
        endpoint.filter(|it| it.pair().shares_handles(self.connector.adapter())).ok_or(Status::INVALID_PARAMETER_1)
    }

    /// Binds the connector to the adapter's address, if it is not, and asks the peer. The protocol is not looked at; the port is in
    /// network order.
    #[allow(clippy::too_many_arguments, reason = "the interface has as many")]
    fn connect(
        &self,
        endpoint: Unknown,
        address: Bytes,
        address_length: usize,
        _protocol: i32,
        local_port: u16,
        private_data: Bytes,
        private_data_length: usize,
        overlapped: Overlap,
    ) -> Status {
        let arguments = || {
            let endpoint = self.endpoint(endpoint)?;
            let destination = socket_address::read(address, address_length)?;
            match self.connector.bind(SocketAddress { port: local_port.to_le_bytes(), ..self.address }) {
                // A second try after one that was refused or took too long.
                Ok(()) | Err(Status::ADDRESS_ALREADY_ASSOCIATED) => Ok((endpoint, destination)),
                Err(status) => Err(status),
            }
        };
        match arguments() {
            Ok((endpoint, destination)) => own_status(self.connector.connect(
                endpoint.pair(),
                destination,
                endpoint.read_limits(),
                (private_data, private_data_length),
                overlapped,
            )),
            Err(status) => status,
        }
    }

    fn complete_connect(&self, overlapped: Overlap) -> Status {
        own_status(self.connector.complete_connect(overlapped))
    }

    fn accept(
        &self,
        endpoint: Unknown,
        private_data: Bytes,
        private_data_length: usize,
        overlapped: Overlap,
    ) -> Status {
        match self.endpoint(endpoint) {
            Ok(endpoint) => own_status(self.connector.accept(
                endpoint.pair(),
                endpoint.read_limits(),
                (private_data, private_data_length),
                overlapped,
            )),
            Err(status) => status,
        }
    }

    fn reject(&self, private_data: Bytes, private_data_length: usize) -> Result<(), Status> {
        self.connector.reject((private_data, private_data_length)).map_err(own_status)
    }

    /// Each place may be none.
    fn get_connection_data(
        &self,
        inbound: Place<usize>,
        outbound: Place<usize>,
        private_data: Target,
        length: Place<usize>,
    ) -> Result<(), Status> {
        let limits = self.connector.read_limits()?;
        inbound.offer(limits.inbound as usize);
        outbound.offer(limits.outbound as usize);
        if length.is_none() { Ok(()) } else { self.connector.private_data(private_data, length) }
    }

    fn get_local_address(&self, address: Target, length: Place<usize>) -> Result<(), Status> {
        socket_address::write(&self.connector.local_address()?, address, length)
    }

    fn get_peer_address(&self, address: Target, length: Place<usize>) -> Result<(), Status> {
        socket_address::write(&self.connector.peer_address()?, address, length)
    }

    fn notify_disconnect(&self, overlapped: Overlap) -> Status {
        own_status(self.connector.notify_disconnect(overlapped))
    }

    fn disconnect(&self, overlapped: Overlap) -> Status {
        own_status(self.connector.disconnect(overlapped))
    }
}
