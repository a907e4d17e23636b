//! Shared endpoints of the consumer.

use std::net::SocketAddr;

use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::NTSTATUS;

use super::Adapter;
use super::completion::create;
use super::connection::{SocketAddress, query_address};
use super::object::{Object, function};
use super::refusals::call_provider;

pub struct SharedEndpoint {
    object: Object<NDK_SHARED_ENDPOINT>,
}

impl SharedEndpoint {
    pub fn new(adapter: &Adapter, address: impl Into<SocketAddress>) -> Result<Self, NTSTATUS> {
        let address: SocketAddress = address.into();
        let object = create("NDK_FN_CREATE_SHARED_ENDPOINT", |callback, context, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_SHARED_ENDPOINT.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_SHARED_ENDPOINT"),
                    adapter.table().NdkCreateSharedEndpoint => NTSTATUS;
                    adapter.pointer(), address.pointer(), address.length(), callback, context, out)
            }
        })?;
        Ok(Self { object: Object::adopt(object, adapter.version()) })
    }

    pub fn object(&self) -> &Object<NDK_SHARED_ENDPOINT> {
        &self.object
    }

    pub fn close(&self) {
        self.object.close();
    }

    pub fn local_address(&self) -> SocketAddr {
        query_address(|address, length| {
            // SAFETY: the arguments are those of NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS.
            unsafe {
                call_provider!(function("NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS"),
                    self.object.table().NdkGetLocalAddress => NTSTATUS; self.object.pointer(), address, length)
            }
        })
    }
}
