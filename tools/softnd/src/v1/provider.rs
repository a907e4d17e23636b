//! INDProvider.

use core::ffi::c_void;

use softnd_interfaces::{
    Guid, Status,
    structures::SocketAddressList,
    v1::{INDProvider, ProviderTable1},
};

use super::{adapter::V1Adapter, class};
use crate::{
    argument::{Bytes, Own, Place, entry},
    com::{Face, NewInterface, unknown_table},
    resources::provider::Provider,
    socket_address,
};

pub struct V1Provider(Provider);

impl Face for V1Provider {
    type Table = ProviderTable1;
    const TABLE: &'static Self::Table = &ProviderTable1 {
        base: unknown_table::<Self>(),
        query_address_list: entry!(
            V1Provider,
            query_address_list(list: Place<SocketAddressList>, length: Place<usize>) -> Result<(), Status>
        ),
        open_adapter: entry!(
            V1Provider,
            Own,
            open_adapter(address: Bytes, length: usize, out: Place<*mut c_void>) -> Result<(), Status>
        ),
    };
    const CLASS: Guid = class(1);
    const INTERFACES: &'static [Guid] = &[INDProvider::IID];
}

impl V1Provider {
    pub fn new() -> Self {
        Self(Provider::new())
    }

    fn query_address_list(&self, list: Place<SocketAddressList>, length: Place<usize>) -> Result<(), Status> {
        socket_address::write_list(&self.0.addresses()?, list, length)
    }

    fn open_adapter(
        &self,
        own: &Own<Self>,
        address: Bytes,
        length: usize,
        out: Place<*mut c_void>,
    ) -> Result<(), Status> {
        let interface = NewInterface::fixed(out)?;
        let mut address = socket_address::read(address, length)?;
        address.port = [0; 2];
        let adapter = self.0.open_adapter(self.0.resolve(address)?)?;
        interface.give(V1Adapter::new(adapter, address, own.reference()?)?)
    }
}
