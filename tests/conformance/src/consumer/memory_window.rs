//! A memory window; work requests bind it.

use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::NTSTATUS;

use super::ProtectionDomain;
use super::completion::create;
use super::object::{Object, function};
use super::refusals::call_provider;

pub struct MemoryWindow {
    object: Object<NDK_MW>,
}

impl MemoryWindow {
    pub fn new(domain: &ProtectionDomain) -> Result<Self, NTSTATUS> {
        let object = create("NDK_FN_CREATE_MW", |callback, context, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_MW.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_MW"), domain.object().table().NdkCreateMw => NTSTATUS;
                    domain.object().pointer(), callback, context, out)
            }
        })?;
        Ok(Self { object: Object::adopt(object, domain.object().version()) })
    }

    pub fn object(&self) -> &Object<NDK_MW> {
        &self.object
    }

    pub fn close(&self) {
        self.object.close();
    }

    pub fn remote_token(&self) -> u32 {
        // SAFETY: the argument is that of NDK_FN_GET_REMOTE_TOKEN_FROM_MW.
        unsafe {
            call_provider!(function("NDK_FN_GET_REMOTE_TOKEN_FROM_MW"),
                self.object.table().NdkGetRemoteTokenFromMw => u32; self.object.pointer())
        }
    }
}
