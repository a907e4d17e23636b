//! A protection domain and the memory regions in it.

use std::ffi::c_void;
use std::ptr;

use ndkpi_sys::ndkpi::*;
use ndkpi_sys::nt::{MDL, NTSTATUS};

use super::completion::{Creating, Started, begin_create, begin_request, inline_request, no_request_callback, request};
use super::object::{Object, function};
use super::refusals::call_provider;
use super::{Adapter, Buffer};

pub struct ProtectionDomain {
    object: Object<NDK_PD>,
}

impl ProtectionDomain {
    pub fn new(adapter: &Adapter) -> Result<Self, NTSTATUS> {
        Ok(Self { object: Object::adopt(Self::begin_create(adapter).finish()?, adapter.version()) })
    }

    /// As [`Self::new`], without the wait.
    pub fn begin_create(adapter: &Adapter) -> Creating<NDK_PD> {
        begin_create("NDK_FN_CREATE_PD", |callback, context, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_PD.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_PD"), adapter.table().NdkCreatePd => NTSTATUS;
                    adapter.pointer(), callback, context, out)
            }
        })
    }

    pub fn object(&self) -> &Object<NDK_PD> {
        &self.object
    }

    pub fn close(&self) {
        self.object.close();
    }

    /// The local token for raw logical addresses.
    pub fn privileged_token(&self) -> u32 {
        let mut token = 0_u32;
        // SAFETY: the arguments are those of NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN.
        unsafe {
            call_provider!(function("NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN"),
                self.object.table().NdkGetPrivilegedMemoryRegionToken => ();
                self.object.pointer(), &raw mut token);
        }
        token
    }

    pub fn create_region(&self, fast_register: bool) -> Result<MemoryRegion, NTSTATUS> {
        self.adopt_region(self.begin_create_region(fast_register))
    }

    /// As [`Self::create_region`], without the wait.
    pub fn begin_create_region(&self, fast_register: bool) -> Creating<NDK_MR> {
        begin_create("NDK_FN_CREATE_MR", |callback, context, out| {
            // SAFETY: the arguments are those of NDK_FN_CREATE_MR.
            unsafe {
                call_provider!(function("NDK_FN_CREATE_MR"), self.object.table().NdkCreateMr => NTSTATUS;
                    self.object.pointer(), fast_register, callback, context, out)
            }
        })
    }

    /// Waits for a region.
    pub fn adopt_region(&self, creating: Creating<NDK_MR>) -> Result<MemoryRegion, NTSTATUS> {
        Ok(MemoryRegion { object: Object::adopt(creating.finish()?, self.object.version()) })
    }

    /// A region over a whole buffer.
    pub fn register(&self, buffer: &Buffer, flags: NDK_MR_FLAGS) -> MemoryRegion {
        let region = self.create_region(false).expect("a region");
        assert_eq!(region.register(buffer, flags), 0, "registering {} bytes", buffer.length());
        region
    }

    /// A fast-register region that is ready for requests.
    pub fn fast_region(&self, pages: u32, remote: bool) -> MemoryRegion {
        let region = self.create_region(true).expect("a region");
        assert_eq!(region.initialize_fast_register(pages, remote), 0);
        region
    }
}

pub struct MemoryRegion {
    object: Object<NDK_MR>,
}

impl MemoryRegion {
    pub fn object(&self) -> &Object<NDK_MR> {
        &self.object
    }

    pub fn close(&self) {
        self.object.close();
    }

    /// Registers a buffer through a memory list that is freed and overwritten as soon as registration has completed.
    pub fn register(&self, buffer: &Buffer, flags: NDK_MR_FLAGS) -> NTSTATUS {
        let list = buffer.memory_list();
        self.register_list(list.pointer(), buffer.length(), flags)
    }

    pub fn register_list(&self, list: *mut MDL, length: usize, flags: NDK_MR_FLAGS) -> NTSTATUS {
        self.begin_register_list(list, length, flags).wait()
    }

    /// The list exists until registration has completed.
    pub fn begin_register_list(&self, list: *mut MDL, length: usize, flags: NDK_MR_FLAGS) -> Started {
        begin_request("NDK_FN_REGISTER_MR", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_REGISTER_MR.
            unsafe {
                call_provider!(function("NDK_FN_REGISTER_MR"), self.object.table().NdkRegisterMr => NTSTATUS;
                    self.object.pointer(), list, length, flags.bits(), callback, context)
            }
        })
    }

    pub fn begin_deregister(&self) -> Started {
        begin_request("NDK_FN_DEREGISTER_MR", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_DEREGISTER_MR.
            unsafe {
                call_provider!(function("NDK_FN_DEREGISTER_MR"), self.object.table().NdkDeregisterMr => NTSTATUS;
                    self.object.pointer(), callback, context)
            }
        })
    }

    pub fn deregister(&self) -> NTSTATUS {
        self.begin_deregister().wait()
    }

    pub fn initialize_fast_register(&self, pages: u32, remote: bool) -> NTSTATUS {
        request("NDK_FN_INITIALIZE_FAST_REGISTER_MR", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_INITIALIZE_FAST_REGISTER_MR.
            unsafe {
                call_provider!(function("NDK_FN_INITIALIZE_FAST_REGISTER_MR"),
                    self.object.table().NdkInitializeFastRegisterMr => NTSTATUS;
                    self.object.pointer(), pages, remote, callback, context)
            }
        })
    }

    pub fn local_token(&self) -> u32 {
        // SAFETY: the argument is that of NDK_FN_GET_LOCAL_TOKEN_FROM_MR.
        unsafe {
            call_provider!(function("NDK_FN_GET_LOCAL_TOKEN_FROM_MR"), self.object.table().NdkGetLocalTokenFromMr => u32;
                self.object.pointer())
        }
    }

    pub fn remote_token(&self) -> u32 {
        // SAFETY: the argument is that of NDK_FN_GET_REMOTE_TOKEN_FROM_MR.
        unsafe {
            call_provider!(function("NDK_FN_GET_REMOTE_TOKEN_FROM_MR"),
                self.object.table().NdkGetRemoteTokenFromMr => u32; self.object.pointer())
        }
    }
}

/// A logical address mapping of a buffer, in memory of the consumer.
pub struct Mapping<'a> {
    adapter: &'a Adapter,
    words: Vec<u64>,
    first_byte_offset: u32,
}

impl<'a> Mapping<'a> {
    /// Maps a whole buffer; the memory list is freed at once.
    pub fn build(adapter: &'a Adapter, buffer: &Buffer) -> Result<Self, NTSTATUS> {
        Self::build_list(adapter, buffer.memory_list().pointer(), buffer.length())
    }

    /// Maps what a chain of memory lists describes.
    pub fn build_list(adapter: &'a Adapter, list: *mut MDL, length: usize) -> Result<Self, NTSTATUS> {
        let mut size = 0_u32;
        let mut offset = 0_u32;
        let probe = Self::call(adapter, list, length, None, &mut size, &mut offset);
        assert_eq!(probe, ndkpi_sys::nt::STATUS_BUFFER_TOO_SMALL, "a size probe");
        let mut words = vec![0_u64; size as usize / 8];
        match Self::call(adapter, list, length, Some(&mut words), &mut size, &mut offset) {
            0 => Ok(Self { adapter, words, first_byte_offset: offset }),
            failure => Err(failure),
        }
    }

    /// As [`Self::build`], with a completion function that takes no context: the consumer counts on an inline answer.
    pub fn build_without_context(adapter: &'a Adapter, buffer: &Buffer) -> Result<Self, NTSTATUS> {
        let list = buffer.memory_list();
        let (mut size, mut offset) = (0_u32, 0_u32);
        Self::call(adapter, list.pointer(), buffer.length(), None, &mut size, &mut offset);
        let mut words = vec![0_u64; size as usize / 8];
        let none: *const c_void = ptr::null();
        // SAFETY: the arguments are those of NDK_FN_BUILD_LAM.
        let status = inline_request(|| unsafe {
            call_provider!(function("NDK_FN_BUILD_LAM"), adapter.table().NdkBuildLAM => NTSTATUS;
                adapter.pointer(), list.pointer(), buffer.length(), no_request_callback(), none, words.as_mut_ptr(),
                &raw mut size, &raw mut offset)
        });
        if status == 0 { Ok(Self { adapter, words, first_byte_offset: offset }) } else { Err(status) }
    }

    /// As [`Self::build`], with a completion: what the call itself answered, and the mapping.
    pub fn build_with_completion(adapter: &'a Adapter, buffer: &Buffer) -> (NTSTATUS, Result<Self, NTSTATUS>) {
        let list = buffer.memory_list();
        let (mut size, mut offset) = (0_u32, 0_u32);
        let probe = Self::call(adapter, list.pointer(), buffer.length(), None, &mut size, &mut offset);
        assert_eq!(probe, ndkpi_sys::nt::STATUS_BUFFER_TOO_SMALL, "a size probe");
        let mut words = vec![0_u64; size as usize / 8];
        let started = begin_request("NDK_FN_BUILD_LAM", |callback, context| {
            // SAFETY: the arguments are those of NDK_FN_BUILD_LAM; the buffers outlive the wait below.
            unsafe {
                call_provider!(function("NDK_FN_BUILD_LAM"), adapter.table().NdkBuildLAM => NTSTATUS;
                    adapter.pointer(), list.pointer(), buffer.length(), callback, context, words.as_mut_ptr(),
                    &raw mut size, &raw mut offset)
            }
        });
        let built = match started.wait() {
            0 => Ok(Self { adapter, words, first_byte_offset: offset }),
            failure => Err(failure),
        };
        (started.inline(), built)
    }

    pub fn call(
        adapter: &Adapter,
        list: *mut MDL,
        length: usize,
        words: Option<&mut Vec<u64>>,
        size: &mut u32,
        offset: &mut u32,
    ) -> NTSTATUS {
        let mapping = words.map_or(ptr::null_mut(), Vec::as_mut_ptr);
        let none: *const c_void = ptr::null();
        // SAFETY: the arguments are those of NDK_FN_BUILD_LAM; without a callback it completes inline.
        inline_request(|| unsafe {
            call_provider!(function("NDK_FN_BUILD_LAM"), adapter.table().NdkBuildLAM => NTSTATUS;
                adapter.pointer(), list, length, none, none, mapping, ptr::from_mut(size), ptr::from_mut(offset))
        })
    }

    /// The logical address of each page: a mapping is its own word, the page count, then the pages.
    pub fn pages(&self) -> &[u64] {
        let count = self.words[1] as u32 as usize;
        &self.words[2..2 + count]
    }

    pub fn first_byte_offset(&self) -> u32 {
        self.first_byte_offset
    }

    /// Asks an open to release the mapping, whichever open built it. The call has no result, so an unknown mapping is not distinguished.
    pub fn release_through(&mut self, adapter: &Adapter) {
        // SAFETY: the arguments are those of NDK_FN_RELEASE_LAM.
        unsafe {
            call_provider!(function("NDK_FN_RELEASE_LAM"), adapter.table().NdkReleaseLAM => ();
                adapter.pointer(), self.words.as_mut_ptr());
        }
    }

    /// So many of the first `most` bytes of the buffer are in pages that adjoin: what one element may name.
    pub fn first_run(&self, most: usize) -> usize {
        let adjoining = self.pages().windows(2).take_while(|two| two[0] + 4096 == two[1]).count();
        most.min((adjoining + 1) * 4096 - self.first_byte_offset as usize)
    }

    /// The logical address of a byte of the buffer.
    pub fn address_of(&self, offset: usize) -> u64 {
        let position = self.first_byte_offset as usize + offset;
        self.pages()[position / 4096] + (position % 4096) as u64
    }
}

impl Drop for Mapping<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.release_through(self.adapter);
        }
    }
}
