//! A queue pair: posting requests. Every scatter/gather list is in memory of its own that is overwritten as soon as the
//! call has returned, so that a provider that keeps the pointer works with garbage.

use std::ffi::c_void;
use std::ptr;

use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{NTSTATUS, PVOID};

use super::border::distort;
use super::completion::{Creating, begin_create, create};
use super::object::{NdkObject, Object, function};
use super::refusals::call_provider;
use super::{CompletionQueue, ProtectionDomain, SharedReceiveQueue};

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairShape {
    pub context: usize,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub receive_sges: u32,
    pub initiator_sges: u32,
    pub inline_size: u32,
}

impl Default for QueuePairShape {
    fn default() -> Self {
        Self {
            context: 0x9000,
            receive_depth: 32,
            initiator_depth: 32,
            receive_sges: 4,
            initiator_sges: 4,
            inline_size: 0,
        }
    }
}

/// The remote memory of a Read or Write.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    pub address: u64,
    pub token: u32,
}

pub struct QueuePair {
    object: Object<NDK_QP>,
}

/// A scatter/gather list that the provider may only see during one call.
pub(super) struct Passing(Vec<NDK_SGE>);

impl Passing {
    pub(super) fn new(sges: &[NDK_SGE]) -> Self {
        let mut sges = sges.to_vec();
        distort("NDK_SGE", &mut sges);
        Self(sges)
    }

    pub(super) fn pointer(&self) -> *const NDK_SGE {
        if self.0.is_empty() { ptr::null() } else { self.0.as_ptr() }
    }

    pub(super) fn count(&self) -> u32 {
        self.0.len() as u32
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let garbage = NDK_SGE {
            Address: NDK_SGE_ADDRESS { VirtualAddress: ptr::without_provenance_mut(0x0BAD_0BAD_0BAD_0BAD) },
            Length: 0x0BAD_0BAD,
            MemoryRegionToken: 0x0BAD_0BAD,
        };
        for sge in &mut self.0 {
            // SAFETY: the entry is ours; volatile, so that the store to memory about to be freed stays.
            unsafe { ptr::from_mut(sge).write_volatile(garbage) };
        }
    }
}

pub(super) fn context(request: u64) -> PVOID {
    ptr::without_provenance_mut(request as usize)
}

impl QueuePair {
    pub fn new(
        domain: &ProtectionDomain,
        receive: &CompletionQueue,
        initiator: &CompletionQueue,
        shape: QueuePairShape,
    ) -> Result<Self, NTSTATUS> {
        Self::adopt(domain, Self::begin_create(domain, receive, initiator, shape))
    }

    /// As [`Self::new`], without the wait.
    pub fn begin_create(
        domain: &ProtectionDomain,
        receive: &CompletionQueue,
        initiator: &CompletionQueue,
        shape: QueuePairShape,
    ) -> Creating<NDK_QP> {
        begin_create("NDK_FN_CREATE_QP", |callback, completion, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_QP.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_QP"), domain.object().table().NdkCreateQp => NTSTATUS;
                    domain.object().pointer(), receive.object().pointer(), initiator.object().pointer(),
                    shape.context as *const c_void, shape.receive_depth, shape.initiator_depth,
                    shape.receive_sges, shape.initiator_sges, shape.inline_size,
                    callback, completion, out)
            }
        })
    }

    /// Waits for a queue pair.
    pub fn adopt(domain: &ProtectionDomain, creating: Creating<NDK_QP>) -> Result<Self, NTSTATUS> {
        Ok(Self { object: Object::adopt(creating.finish()?, domain.object().version()) })
    }

    /// A queue pair that takes its receives from a shared queue; the receive members of the shape are ignored.
    pub fn with_shared(
        domain: &ProtectionDomain,
        receive: &CompletionQueue,
        initiator: &CompletionQueue,
        shared: &SharedReceiveQueue,
        shape: QueuePairShape,
    ) -> Result<Self, NTSTATUS> {
        let object = create("NDK_FN_CREATE_QP_WITH_SRQ", |callback, completion, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_QP_WITH_SRQ.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_QP_WITH_SRQ"),
                    domain.object().table().NdkCreateQpWithSrq => NTSTATUS;
                    domain.object().pointer(), receive.object().pointer(), initiator.object().pointer(),
                    shared.object().pointer(), shape.context as *const c_void, shape.initiator_depth,
                    shape.initiator_sges, shape.inline_size, callback, completion, out)
            }
        })?;
        Ok(Self { object: Object::adopt(object, domain.object().version()) })
    }

    pub fn object(&self) -> &Object<NDK_QP> {
        &self.object
    }

    pub fn close(&self) {
        self.object.close();
    }

    pub fn flush(&self) {
        // SAFETY: the argument is that of NDK_FN_FLUSH.
        unsafe { call_provider!(function("NDK_FN_FLUSH"), self.object.table().NdkFlush => (); self.object.pointer()) }
    }

    pub fn receive(&self, request: u64, sges: &[NDK_SGE]) -> NTSTATUS {
        let list = Passing::new(sges);
        // SAFETY: the arguments are those of NDK_FN_RECEIVE.
        unsafe {
            call_provider!(function("NDK_FN_RECEIVE"), self.object.table().NdkReceive => NTSTATUS;
                self.object.pointer(), context(request), list.pointer(), list.count())
        }
    }

    pub fn send(&self, request: u64, sges: &[NDK_SGE], flags: NDK_OP_FLAGS) -> NTSTATUS {
        let list = Passing::new(sges);
        // SAFETY: the arguments are those of NDK_FN_SEND.
        unsafe {
            call_provider!(function("NDK_FN_SEND"), self.object.table().NdkSend => NTSTATUS;
                self.object.pointer(), context(request), list.pointer(), list.count(), flags.bits())
        }
    }

    pub fn send_and_invalidate(&self, request: u64, sges: &[NDK_SGE], flags: NDK_OP_FLAGS, token: u32) -> NTSTATUS {
        let list = Passing::new(sges);
        // SAFETY: the arguments are those of NDK_FN_SEND_AND_INVALIDATE.
        unsafe {
            call_provider!(function("NDK_FN_SEND_AND_INVALIDATE"), self.object.table().NdkSendAndInvalidate => NTSTATUS;
                self.object.pointer(), context(request), list.pointer(), list.count(), flags.bits(), token)
        }
    }

    pub fn read(&self, request: u64, sges: &[NDK_SGE], remote: Remote, flags: NDK_OP_FLAGS) -> NTSTATUS {
        let list = Passing::new(sges);
        // SAFETY: the arguments are those of NDK_FN_READ.
        unsafe {
            call_provider!(function("NDK_FN_READ"), self.object.table().NdkRead => NTSTATUS;
                self.object.pointer(), context(request), list.pointer(), list.count(), remote.address, remote.token,
                flags.bits())
        }
    }

    pub fn write(&self, request: u64, sges: &[NDK_SGE], remote: Remote, flags: NDK_OP_FLAGS) -> NTSTATUS {
        let list = Passing::new(sges);
        // SAFETY: the arguments are those of NDK_FN_WRITE.
        unsafe {
            call_provider!(function("NDK_FN_WRITE"), self.object.table().NdkWrite => NTSTATUS;
                self.object.pointer(), context(request), list.pointer(), list.count(), remote.address, remote.token,
                flags.bits())
        }
    }

    /// Fast-registers `pages`; the page array is overwritten after the call.
    pub fn fast_register(
        &self,
        request: u64,
        region: &Object<NDK_MR>,
        registration: &FastRegistration<'_>,
        flags: NDK_OP_FLAGS,
    ) -> NTSTATUS {
        let mut pages = registration.pages.to_vec();
        // SAFETY: the arguments are those of NDK_FN_FAST_REGISTER.
        let status = unsafe {
            call_provider!(function("NDK_FN_FAST_REGISTER"), self.object.table().NdkFastRegister => NTSTATUS;
                self.object.pointer(), context(request), region.pointer(), pages.len() as u32, pages.as_ptr(),
                registration.first_byte_offset, registration.length, registration.base as *const c_void, flags.bits())
        };
        pages.fill(0x0BAD_0BAD_0BAD_0000);
        std::hint::black_box(&pages);
        status
    }

    /// Fast-registers whole pages whose list is where it is, for a consumer that writes it meanwhile.
    pub fn fast_register_in_place(
        &self,
        request: u64,
        region: &Object<NDK_MR>,
        (pages, count): (*const u64, usize),
        (base, length): (u64, usize),
        flags: NDK_OP_FLAGS,
    ) -> NTSTATUS {
        // SAFETY: the arguments are those of NDK_FN_FAST_REGISTER.
        unsafe {
            call_provider!(function("NDK_FN_FAST_REGISTER"), self.object.table().NdkFastRegister => NTSTATUS;
                self.object.pointer(), context(request), region.pointer(), count as u32, pages,
                0_u32, length, base as *const c_void, flags.bits())
        }
    }

    /// Binds a window to a stretch of a region.
    pub fn bind(
        &self,
        request: u64,
        region: &Object<NDK_MR>,
        window: &Object<NDK_MW>,
        (address, length): (u64, usize),
        flags: NDK_OP_FLAGS,
    ) -> NTSTATUS {
        // SAFETY: the arguments are those of NDK_FN_BIND.
        unsafe {
            call_provider!(function("NDK_FN_BIND"), self.object.table().NdkBind => NTSTATUS;
                self.object.pointer(), context(request), region.pointer(), window.pointer(),
                address as *const c_void, length, flags.bits())
        }
    }

    pub fn invalidate<T: NdkObject>(&self, request: u64, object: &Object<T>, flags: NDK_OP_FLAGS) -> NTSTATUS {
        // SAFETY: the arguments are those of NDK_FN_INVALIDATE.
        unsafe {
            call_provider!(function("NDK_FN_INVALIDATE"), self.object.table().NdkInvalidate => NTSTATUS;
                self.object.pointer(), context(request), object.pointer(), flags.bits())
        }
    }
}

/// What a fast registration makes visible.
#[derive(Clone, Copy, Debug)]
pub struct FastRegistration<'a> {
    /// Page-aligned logical addresses.
    pub pages: &'a [u64],
    pub first_byte_offset: u32,
    pub length: usize,
    pub base: u64,
}
