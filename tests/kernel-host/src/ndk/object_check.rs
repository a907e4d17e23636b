//! What must hold for every NDK object that a provider hands out: header, reserved words, and a dispatch table that is complete,
//! constant and in the provider's image (NDKPI: NDK_OBJECT_HEADER and the dispatch tables).

use ndkpi_sys::ndkinfo::NDK_VERSION;
use ndkpi_sys::ndkpi::{NDK_ADAPTER, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE};

use crate::image;

/// The kinds of NDK objects, with the number of slots of their dispatch tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NdkObjectKind {
    Adapter,
    QueuePair,
    CompletionQueue,
    MemoryRegion,
    MemoryWindow,
    ProtectionDomain,
    SharedEndpoint,
    Connector,
    Listener,
    SharedReceiveQueue,
}

impl NdkObjectKind {
    pub(super) const ALL: [Self; 10] = [
        Self::Adapter,
        Self::QueuePair,
        Self::CompletionQueue,
        Self::MemoryRegion,
        Self::MemoryWindow,
        Self::ProtectionDomain,
        Self::SharedEndpoint,
        Self::Connector,
        Self::Listener,
        Self::SharedReceiveQueue,
    ];

    fn object_type(self) -> NDK_OBJECT_TYPE {
        NDK_OBJECT_TYPE(match self {
            Self::Adapter => 1,
            Self::QueuePair => 2,
            Self::CompletionQueue => 3,
            Self::MemoryRegion => 4,
            Self::MemoryWindow => 5,
            Self::ProtectionDomain => 6,
            Self::SharedEndpoint => 7,
            Self::Connector => 8,
            Self::Listener => 9,
            Self::SharedReceiveQueue => 10,
        })
    }

    pub(super) fn slots(self) -> usize {
        match self {
            Self::Adapter => 9,
            Self::QueuePair => 11,
            Self::CompletionQueue | Self::MemoryRegion => 7,
            Self::MemoryWindow | Self::SharedEndpoint => 3,
            Self::ProtectionDomain => 8,
            Self::Connector => 13,
            Self::Listener => 5,
            Self::SharedReceiveQueue => 4,
        }
    }
}

/// A new adapter: the object's rules, and a version that satisfies the request.
pub fn check_adapter(adapter: *mut NDK_ADAPTER, asked: NDK_VERSION) -> Result<NDK_VERSION, String> {
    // SAFETY: the provider says that this is an adapter; a wild address is reported by the fault handler.
    let version = unsafe { (&raw const (*adapter).Header.Version).read_unaligned() };
    if version.Major != asked.Major || version.Minor < asked.Minor {
        return Err(format!(
            "opened with version {}.{} for a consumer that needs {}.{}",
            version.Major, version.Minor, asked.Major, asked.Minor
        ));
    }
    // SAFETY: as above.
    unsafe { check_object(NdkObjectKind::Adapter, adapter.cast(), version) }.map(|()| version)
}

/// A new object of any kind, of an adapter that runs `version`.
///
/// # Safety
///
/// `object` is what a provider handed out as an object of that kind: a header with a dispatch pointer behind it.
pub unsafe fn check_object(
    kind: NdkObjectKind,
    object: *const NDK_OBJECT_HEADER,
    version: NDK_VERSION,
) -> Result<(), String> {
    if !(object as usize).is_multiple_of(align_of::<NDK_OBJECT_HEADER>()) {
        return Err(format!("the {kind:?} object {object:p} is not aligned"));
    }
    // SAFETY: the caller's contract.
    let (header, table) = unsafe { (object.read(), object.add(1).cast::<*const usize>().read()) };
    if (header.Version.Major, header.Version.Minor) != (version.Major, version.Minor) {
        return Err(format!(
            "Header.Version of the {kind:?} object is {}.{}",
            header.Version.Major, header.Version.Minor
        ));
    }
    if header.ObjectType != kind.object_type() {
        return Err(format!("Header.ObjectType of the {kind:?} object is {:?}", header.ObjectType));
    }
    if header.NdkReserved.rf.iter().any(|word| !word.is_null()) {
        return Err(format!("Header.NdkReserved of the {kind:?} object is not zero"));
    }
    check_table(kind, table)
}

fn check_table(kind: NdkObjectKind, table: *const usize) -> Result<(), String> {
    if table.is_null() {
        return Err(format!("Dispatch of the {kind:?} object is NULL"));
    }
    for slot in 0..kind.slots() {
        // SAFETY: the provider says that its table is here; a wild address is reported by the fault handler.
        let function = unsafe { table.add(slot).read() };
        if function == 0 {
            return Err(format!("slot {slot} of the {kind:?} dispatch table is NULL; a provider fills every slot"));
        }
        if !image::contains_code(function) {
            return Err(format!("slot {slot} of the {kind:?} dispatch table holds {function:#x}, which is no code"));
        }
    }
    if !image::contains_read_only(table as usize, kind.slots() * size_of::<usize>()) {
        return Err(format!("the dispatch table of the {kind:?} object is not in read-only memory of an image"));
    }
    Ok(())
}
