//! An open NDK adapter and the addresses of its interface.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::ptr;

use kernel_host::ndk::NdkAdapter;
use ndkpi_sys::ndkinfo::{NDK_ADAPTER_INFO, NDK_VERSION};
use ndkpi_sys::ndkpi::{NDK_ADAPTER, NDK_ADAPTER_DISPATCH};
use ndkpi_sys::nt::NTSTATUS;

use super::QueuePairShape;
use super::border::distort;
use super::object::{Object, function};
use super::refusals::call_provider;

pub struct Adapter {
    object: ManuallyDrop<Object<NDK_ADAPTER>>,
    /// Closes the adapter when dropped; the close handler blocks until everything under it is closed.
    _opened: NdkAdapter,
    addresses: Vec<SocketAddr>,
}

impl Adapter {
    pub fn new(opened: NdkAdapter, addresses: Vec<SocketAddr>) -> Self {
        let object = ManuallyDrop::new(Object::adopt(opened.as_pointer(), opened.version()));
        Self { object, _opened: opened, addresses }
    }

    pub fn object(&self) -> &Object<NDK_ADAPTER> {
        &self.object
    }

    pub fn pointer(&self) -> *mut NDK_ADAPTER {
        self.object.pointer()
    }

    pub fn table(&self) -> &NDK_ADAPTER_DISPATCH {
        self.object.table()
    }

    /// The version in force.
    pub fn version(&self) -> NDK_VERSION {
        self.object.version()
    }

    /// The first IPv4 address of the interface, with port 0.
    pub fn address(&self) -> SocketAddr {
        *self.addresses.iter().find(|address| address.is_ipv4()).expect("an IPv4 address")
    }

    /// The first IPv6 address of the interface, with port 0.
    pub fn address_v6(&self) -> SocketAddr {
        *self.addresses.iter().find(|address| address.is_ipv6()).expect("an IPv6 address")
    }

    /// NDK_FN_QUERY_ADAPTER_INFO as it is.
    pub fn query_info(&self, buffer: Option<&mut [u8]>, size: &mut u32) -> NTSTATUS {
        let info = buffer.map_or(ptr::null_mut(), <[u8]>::as_mut_ptr);
        // SAFETY: the arguments are those of NDK_FN_QUERY_ADAPTER_INFO.
        unsafe {
            call_provider!(function("NDK_FN_QUERY_ADAPTER_INFO"), self.table().NdkQueryAdapterInfo => NTSTATUS;
                self.pointer(), info, ptr::from_mut(size))
        }
    }

    /// As much of a shape as the adapter gives.
    pub fn fit(&self, wanted: QueuePairShape) -> QueuePairShape {
        let info = self.info();
        QueuePairShape {
            context: wanted.context,
            receive_depth: wanted.receive_depth.min(info.MaxReceiveQueueDepth),
            initiator_depth: wanted.initiator_depth.min(info.MaxInitiatorQueueDepth),
            receive_sges: wanted.receive_sges.min(info.MaxReceiveRequestSge),
            initiator_sges: wanted.initiator_sges.min(info.MaxInitiatorRequestSge),
            inline_size: wanted.inline_size.min(info.MaxInlineDataSize),
        }
    }

    /// As many bytes of `wanted` as one registration and one transfer take.
    pub fn fit_registered(&self, wanted: usize) -> usize {
        let info = self.info();
        wanted.min(info.MaxRegistrationSize).min(info.MaxTransferLength as usize)
    }

    /// As many bytes of `wanted` as one fast registration takes, wherever in its page the first one lies.
    pub fn fit_fast(&self, wanted: usize) -> usize {
        self.fit_registered(wanted).min((self.info().FRMRPageCount as usize - 1) * 4096 + 1)
    }

    /// What the adapter can do. Of a version 1 adapter the last field is zero.
    pub fn info(&self) -> NDK_ADAPTER_INFO {
        let mut info = NDK_ADAPTER_INFO::zeroed();
        let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
        // SAFETY: the arguments are those of NDK_FN_QUERY_ADAPTER_INFO.
        let status = unsafe {
            call_provider!(function("NDK_FN_QUERY_ADAPTER_INFO"), self.table().NdkQueryAdapterInfo => NTSTATUS;
                self.pointer(), &raw mut info, &raw mut size)
        };
        assert_eq!(status, 0, "NDK_FN_QUERY_ADAPTER_INFO");
        distort("NDK_ADAPTER_INFO", std::slice::from_mut(&mut info));
        info
    }
}
