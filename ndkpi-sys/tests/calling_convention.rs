//! The function pointer types mean the Windows calling convention, also where the host's C convention is another one.
//! Each assignment below compiles only if the type is exactly the one named.

use ndkpi_sys::ndis::{MINIPORT_INITIALIZE_HANDLER, NDIS_HANDLE, NDIS_MINIPORT_INIT_PARAMETERS, NDIS_STATUS};
use ndkpi_sys::ndkpi::{
    NDK_FN_CLOSE_COMPLETION, NDK_FN_CLOSE_OBJECT, NDK_FN_GET_REMOTE_TOKEN_FROM_MW, NDK_FN_QUERY_EXTENSION_INTERFACE,
    NDK_FN_SEND, NDK_MW, NDK_MW_DISPATCH, NDK_OBJECT_HEADER, NDK_OP_FLAGS, NDK_QP, NDK_SGE, NdkObjectTypeMw,
};
use ndkpi_sys::nt::{GUID, NTSTATUS, PVOID, STATUS_NOT_SUPPORTED, STATUS_SUCCESS, ULONG};
use ndkpi_sys::{ndkinfo::NDK_VERSION, ndkpi::NDK_EXTENSION_INTERFACE, windows_abi};

macro_rules! check_types {
    ($abi:literal) => {
        unsafe extern $abi fn send(_: *mut NDK_QP, _: PVOID, _: *const NDK_SGE, _: ULONG, _: NDK_OP_FLAGS) -> NTSTATUS {
            STATUS_NOT_SUPPORTED
        }

        unsafe extern $abi fn initialize(
            _: NDIS_HANDLE,
            _: NDIS_HANDLE,
            _: *mut NDIS_MINIPORT_INIT_PARAMETERS,
        ) -> NDIS_STATUS {
            STATUS_NOT_SUPPORTED
        }

        #[test]
        fn function_pointer_types_have_the_windows_convention() {
            let _: NDK_FN_SEND = send;
            let _: MINIPORT_INITIALIZE_HANDLER = initialize;
        }
    };
}

#[cfg(all(target_arch = "x86_64", not(target_os = "windows")))]
check_types!("win64");
#[cfg(not(all(target_arch = "x86_64", not(target_os = "windows"))))]
check_types!("C");

windows_abi! {
    unsafe fn close(object: *mut NDK_OBJECT_HEADER, _: Option<NDK_FN_CLOSE_COMPLETION>, context: PVOID) -> NTSTATUS {
        if object.is_null() || context.is_null() { STATUS_NOT_SUPPORTED } else { STATUS_SUCCESS }
    }

    unsafe fn query_extension(
        _: *mut NDK_OBJECT_HEADER,
        _: *mut GUID,
        version: NDK_VERSION,
        _: *mut NDK_EXTENSION_INTERFACE,
    ) -> NTSTATUS {
        NTSTATUS::from(version.Major) << 16 | NTSTATUS::from(version.Minor)
    }

    unsafe fn remote_token(window: *mut NDK_MW) -> u32 {
        // SAFETY: the test passes a live window.
        let header = unsafe { &(*window).Header };
        u32::from(header.Version.Minor)
    }
}

static WINDOW_FUNCTIONS: NDK_MW_DISPATCH =
    NDK_MW_DISPATCH { NdkCloseMw: close, NdkQueryExtension: query_extension, NdkGetRemoteTokenFromMw: remote_token };

/// A call through a table, with a structure by value and a NULL callback, arrives as it was sent.
#[test]
fn a_call_through_a_dispatch_table_carries_its_arguments() {
    let version = NDK_VERSION { Major: 2, Minor: 1 };
    let mut window =
        NDK_MW { Header: NDK_OBJECT_HEADER::new(version, NdkObjectTypeMw), Dispatch: &raw const WINDOW_FUNCTIONS };
    let close: NDK_FN_CLOSE_OBJECT = WINDOW_FUNCTIONS.NdkCloseMw;
    let query: NDK_FN_QUERY_EXTENSION_INTERFACE = WINDOW_FUNCTIONS.NdkQueryExtension;
    let token: NDK_FN_GET_REMOTE_TOKEN_FROM_MW = WINDOW_FUNCTIONS.NdkGetRemoteTokenFromMw;

    let header = (&raw mut window).cast::<NDK_OBJECT_HEADER>();
    let null = core::ptr::null_mut();
    // SAFETY: the functions above only look at what the test owns.
    assert_eq!(unsafe { query(header, core::ptr::null_mut(), version, core::ptr::null_mut()) }, 0x2_0001);
    // SAFETY: the window lives until the end of the test.
    assert_eq!(unsafe { token(&raw mut window) }, 1);
    // SAFETY: as above; a missing completion is a value, not undefined behaviour.
    assert_eq!(unsafe { close(header, None, null) }, STATUS_NOT_SUPPORTED);
    // SAFETY: as above.
    assert_eq!(unsafe { close(header, None, header.cast()) }, STATUS_SUCCESS);
}
