//! What NDIS learns about the driver: the miniport characteristics and, in SetOptions, the NDK provider's.

use ndkpi_sys::{
    ndis::{
        MINIPORT_DRIVER_UNLOAD, NDIS_HANDLE, NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2, NDIS_MINIPORT_DRIVER_FLAGS, NDIS_OBJECT_HEADER,
        NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS,
        NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2, NDIS_STATUS, NdisSetOptionalHandlers,
    },
    ndisndk::{
        NDIS_NDK_PROVIDER_CHARACTERISTICS, NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
        NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
    },
};

use super::{data_path, halt, initialize, ndk, oid, state};
use crate::version;

/// The miniport characteristics, revision 2: the direct OID pair is what an RDMA miniport must have.
pub fn miniport(unload: MINIPORT_DRIVER_UNLOAD) -> NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
    NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS,
            Revision: NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2,
            Size: NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2,
        },
        MajorNdisVersion: version::NDIS_CONTRACT.0,
        MinorNdisVersion: version::NDIS_CONTRACT.1,
        MajorDriverVersion: version::DRIVER.0,
        MinorDriverVersion: version::DRIVER.1,
        Flags: NDIS_MINIPORT_DRIVER_FLAGS::empty(),
        SetOptionsHandler: Some(set_options),
        InitializeHandlerEx: Some(initialize::initialize),
        HaltHandlerEx: Some(halt::halt),
        UnloadHandler: Some(unload),
        PauseHandler: Some(state::pause),
        RestartHandler: Some(state::restart),
        OidRequestHandler: Some(oid::request),
        SendNetBufferListsHandler: Some(data_path::send),
        ReturnNetBufferListsHandler: Some(data_path::give_back),
        CancelSendHandler: Some(data_path::cancel_send),
        CheckForHangHandlerEx: None,
        ResetHandlerEx: None,
        DevicePnPEventNotifyHandler: Some(state::pnp_event),
        ShutdownHandlerEx: Some(state::shutdown),
        CancelOidRequestHandler: Some(oid::cancel),
        DirectOidRequestHandler: Some(oid::direct_request),
        CancelDirectOidRequestHandler: Some(oid::cancel),
    }
}

/// NDIS: MiniportSetOptions. Inside the registration, PASSIVE_LEVEL: the only place where the NDK handlers can be given.
unsafe extern "C" fn set_options(driver_handle: NDIS_HANDLE, _context: NDIS_HANDLE) -> NDIS_STATUS {
    let mut characteristics = NDIS_NDK_PROVIDER_CHARACTERISTICS {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS,
            Revision: NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
            Size: NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
        },
        Flags: 0,
        OpenNDKAdapterHandler: Some(ndk::open),
        CloseNDKAdapterHandler: Some(ndk::close),
    };
    // SAFETY: NDIS calls the driver inside the registration with its driver handle; it copies the complete characteristics.
    unsafe { NdisSetOptionalHandlers(driver_handle, (&raw mut characteristics).cast()) }
}
