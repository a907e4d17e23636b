//! IND2Listener.

use softnd_interfaces::{
    Guid, Status,
    v2::{IND2Listener, IND2Overlapped, ListenerTable2},
};

use super::{class, connector::V2Connector, overlapped_table};
use crate::{
    argument::{Bytes, Overlap, Place, Target, Unknown, entry},
    com::Face,
    resources::listener::Listener,
    socket_address,
};

pub struct V2Listener(Listener);

impl Face for V2Listener {
    type Table = ListenerTable2;
    const TABLE: &'static Self::Table = &ListenerTable2 {
        base: overlapped_table!(V2Listener),
        bind: entry!(V2Listener, bind(address: Bytes, length: u32) -> Result<(), Status>),
        listen: entry!(V2Listener, listen(backlog: u32) -> Result<(), Status>),
        get_local_address: entry!(
            V2Listener,
            get_local_address(address: Target, length: Place<u32>) -> Result<(), Status>
        ),
        get_connection_request: entry!(
            V2Listener,
            get_connection_request(connector: Unknown, overlapped: Overlap) -> Status
        ),
    };
    const CLASS: Guid = class(9);
    const INTERFACES: &'static [Guid] = &[IND2Listener::IID, IND2Overlapped::IID];
}

impl V2Listener {
    pub fn new(listener: Listener) -> Self {
        Self(listener)
    }

    fn cancel(&self) -> Result<(), Status> {
        self.0.cancel()
    }

    fn bind(&self, address: Bytes, length: u32) -> Result<(), Status> {
        self.0.bind(socket_address::read(address, length as usize)?)
    }

    fn listen(&self, backlog: u32) -> Result<(), Status> {
        self.0.listen(backlog)
    }

    fn get_local_address(&self, address: Target, length: Place<u32>) -> Result<(), Status> {
        socket_address::write(&self.0.local_address()?, address, length)
    }

    fn get_connection_request(&self, connector: Unknown, overlapped: Overlap) -> Status {
        match connector.recover::<V2Connector>() {
            Some(connector) => self.0.connection_request(connector.connector(), overlapped),
            None => Status::INVALID_PARAMETER_1,
        }
    }
}
