//! INDListen.

use softnd_interfaces::{
    Guid, Status,
    v1::{INDListen, INDOverlapped, ListenTable1},
};

use super::{class, connector::V1Connector, overlapped_table};
use crate::{
    argument::{Overlap, Unknown, entry},
    com::Face,
    resources::listener::Listener,
};

pub struct V1Listen(Listener);

impl Face for V1Listen {
    type Table = ListenTable1;
    const TABLE: &'static Self::Table = &ListenTable1 {
        base: overlapped_table!(V1Listen),
        get_connection_request: entry!(
            V1Listen,
            get_connection_request(connector: Unknown, overlapped: Overlap) -> Status
        ),
    };
    const CLASS: Guid = class(7);
    const INTERFACES: &'static [Guid] = &[INDListen::IID, INDOverlapped::IID];
}

impl V1Listen {
    pub fn new(listener: Listener) -> Self {
        Self(listener)
    }

    fn cancel(&self) -> Result<(), Status> {
        self.0.cancel()
    }

    fn get_connection_request(&self, connector: Unknown, overlapped: Overlap) -> Status {
        match connector.recover::<V1Connector>() {
            Some(connector) => self.0.connection_request(connector.connector(), overlapped),
            None => Status::INVALID_PARAMETER_1,
        }
    }
}
