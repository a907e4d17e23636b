//! IND2Provider.

use core::ffi::c_void;

use softnd_interfaces::{
    Guid, Status,
    structures::SocketAddressList,
    v2::{IND2Provider, ProviderTable2},
};

use super::{adapter::V2Adapter, class};
use crate::{
    argument::{Bytes, Given, Own, Place, entry},
    com::{Face, NewInterface, unknown_table},
    resources::provider::Provider,
    socket_address,
};

pub struct V2Provider(Provider);

impl Face for V2Provider {
    type Table = ProviderTable2;
    const TABLE: &'static Self::Table = &ProviderTable2 {
        base: unknown_table::<Self>(),
        query_address_list: entry!(
            V2Provider,
            query_address_list(list: Place<SocketAddressList>, length: Place<u32>) -> Result<(), Status>
        ),
        resolve_address: entry!(
            V2Provider,
            resolve_address(address: Bytes, length: u32, id: Place<u64>) -> Result<(), Status>
        ),
        open_adapter: entry!(
            V2Provider,
            Own,
            open_adapter(iid: Given<Guid>, id: u64, out: Place<*mut c_void>) -> Result<(), Status>
        ),
    };
    const CLASS: Guid = class(1);
    const INTERFACES: &'static [Guid] = &[IND2Provider::IID];
}

impl V2Provider {
    pub fn new() -> Self {
        Self(Provider::new())
    }

    fn query_address_list(&self, list: Place<SocketAddressList>, length: Place<u32>) -> Result<(), Status> {
        socket_address::write_list(&self.0.addresses()?, list, length)
    }

    fn resolve_address(&self, address: Bytes, length: u32, id: Place<u64>) -> Result<(), Status> {
        let mut address = socket_address::read(address, length as usize)?;
        // Adapters have addresses, not ports.
        address.port = [0; 2];
        id.write(self.0.resolve(address)?)
    }

    fn open_adapter(&self, own: &Own<Self>, iid: Given<Guid>, id: u64, out: Place<*mut c_void>) -> Result<(), Status> {
        let interface = NewInterface::new(iid, out)?;
        interface.give(V2Adapter::new(self.0.open_adapter(id)?, own.reference()?))
    }
}
