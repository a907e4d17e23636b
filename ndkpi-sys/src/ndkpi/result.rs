//! Completion queue entries.

use crate::abi::{layout, open_enum, zeroed};
use crate::nt::{NTSTATUS, PVOID, ULONG, ULONG_PTR};

open_enum! {
    /// Which request completed. Both receive kinds have bit 0 set; a SendAndInvalidate completes as a Send.
    pub enum NDK_OPERATION_TYPE {
        NdkOperationTypeReceive = 1,
        NdkOperationTypeReceiveAndInvalidate = 0x8001,
        NdkOperationTypeSend = 2,
        NdkOperationTypeFastRegister = 4,
        NdkOperationTypeBind = 8,
        NdkOperationTypeInvalidate = 16,
        NdkOperationTypeRead = 32,
        NdkOperationTypeWrite = 64,
    }
}

impl NDK_OPERATION_TYPE {
    /// True for both receive kinds, as consumers test it.
    #[must_use]
    pub const fn is_receive(self) -> bool {
        self.0 & NdkOperationTypeReceive.0 != 0
    }
}

/// An entry of `NdkGetCqResults`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_RESULT {
    pub Status: NTSTATUS,
    /// Meaningful for receives only.
    pub BytesTransferred: ULONG,
    /// The context given when the queue pair was created.
    pub QPContext: PVOID,
    /// The context given with the request.
    pub RequestContext: PVOID,
}
layout!(NDK_RESULT, size 24, align 8, { Status: 0, BytesTransferred: 4, QPContext: 8, RequestContext: 16 });

/// An entry of `NdkGetCqResultsEx` (NDKPI 1.2).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NDK_RESULT_EX {
    pub Status: NTSTATUS,
    /// Meaningful for receives only.
    pub BytesTransferred: ULONG,
    /// The context given when the queue pair was created.
    pub QPContext: PVOID,
    /// The context given with the request.
    pub RequestContext: PVOID,
    pub Type: NDK_OPERATION_TYPE,
    /// NDKPI 2.1, padding before: 0 with success, otherwise 0 for none or a number of the provider's own.
    pub ProviderErrorCode: ULONG,
    /// The invalidated token of a ReceiveAndInvalidate; otherwise 0.
    pub TypeSpecificCompletionOutput: ULONG_PTR,
}
layout!(NDK_RESULT_EX, size 40, align 8, {
    Status: 0, BytesTransferred: 4, QPContext: 8, RequestContext: 16, Type: 24, ProviderErrorCode: 28,
    TypeSpecificCompletionOutput: 32,
});

zeroed!(NDK_RESULT, NDK_RESULT_EX);

#[cfg(test)]
mod tests {
    use super::*;

    /// Some symbol dumps sign-extend the 16-bit value; the header's is positive.
    #[test]
    fn receive_and_invalidate_is_positive_and_a_receive() {
        assert_eq!(NdkOperationTypeReceiveAndInvalidate.0, 32769);
        assert!(NdkOperationTypeReceiveAndInvalidate.is_receive());
        assert!(NdkOperationTypeReceive.is_receive());
        for initiator in [
            NdkOperationTypeSend,
            NdkOperationTypeFastRegister,
            NdkOperationTypeBind,
            NdkOperationTypeInvalidate,
            NdkOperationTypeRead,
            NdkOperationTypeWrite,
        ] {
            assert!(!initiator.is_receive());
        }
    }
}
