//! What a poll of a completion queue gave.

use std::fmt::Write as _;

use ndkpi_sys::ndkpi::{
    NDK_OPERATION_TYPE, NDK_RESULT, NDK_RESULT_EX, NdkOperationTypeBind, NdkOperationTypeFastRegister,
    NdkOperationTypeInvalidate, NdkOperationTypeRead, NdkOperationTypeReceive, NdkOperationTypeReceiveAndInvalidate,
    NdkOperationTypeSend, NdkOperationTypeWrite,
};

use crate::status;

/// One result.
pub(super) struct TakenResult {
    pub status: i32,
    pub context: usize,
    pub queue_pair_context: usize,
    /// Which request; known of the extended form only.
    pub operation: Option<NDK_OPERATION_TYPE>,
    bytes: u32,
}

impl TakenResult {
    /// `a Read`, or `a request` where the form of the result does not say which.
    #[expect(non_upper_case_globals, reason = "NDKPI's names")]
    pub(super) fn request(&self) -> &'static str {
        match self.operation {
            Some(NdkOperationTypeReceive | NdkOperationTypeReceiveAndInvalidate) => "a Receive",
            Some(NdkOperationTypeSend) => "a Send",
            Some(NdkOperationTypeFastRegister) => "a FastRegister",
            Some(NdkOperationTypeBind) => "a Bind",
            Some(NdkOperationTypeInvalidate) => "an Invalidate",
            Some(NdkOperationTypeRead) => "a Read",
            Some(NdkOperationTypeWrite) => "a Write",
            _ => "a request",
        }
    }
}

impl TakenResult {
    /// The function that posted the request; a SendAndInvalidate completes as a Send.
    #[expect(non_upper_case_globals, reason = "NDKPI's names")]
    pub(super) fn function(&self) -> Option<&'static str> {
        Some(match self.operation? {
            NdkOperationTypeReceive | NdkOperationTypeReceiveAndInvalidate => "NdkReceive",
            NdkOperationTypeSend => "NdkSend",
            NdkOperationTypeFastRegister => "NdkFastRegister",
            NdkOperationTypeBind => "NdkBind",
            NdkOperationTypeInvalidate => "NdkInvalidate",
            NdkOperationTypeRead => "NdkRead",
            NdkOperationTypeWrite => "NdkWrite",
            _ => return None,
        })
    }
}

/// The first results of an array of `NDK_RESULT`.
///
/// # Safety
///
/// There are so many.
pub(super) unsafe fn plain(array: u64, count: u32) -> Vec<TakenResult> {
    let read = |index: usize| {
        // SAFETY: the caller's contract.
        let result = unsafe { (array as *const NDK_RESULT).add(index).read_unaligned() };
        TakenResult {
            status: result.Status,
            context: result.RequestContext as usize,
            queue_pair_context: result.QPContext as usize,
            operation: None,
            bytes: result.BytesTransferred,
        }
    };
    (0..count as usize).map(read).collect()
}

/// As [`plain`], of `NDK_RESULT_EX`.
///
/// # Safety
///
/// There are so many.
pub(super) unsafe fn extended(array: u64, count: u32) -> Vec<TakenResult> {
    let read = |index: usize| {
        // SAFETY: the caller's contract.
        let result = unsafe { (array as *const NDK_RESULT_EX).add(index).read_unaligned() };
        TakenResult {
            status: result.Status,
            context: result.RequestContext as usize,
            queue_pair_context: result.QPContext as usize,
            operation: Some(result.Type),
            bytes: result.BytesTransferred,
        }
    };
    (0..count as usize).map(read).collect()
}

/// For a trace: the first of them.
pub(super) fn text(taken: &[TakenResult]) -> String {
    const SHOWN: usize = 4;
    let mut text = format!("{} results", taken.len());
    for TakenResult { status, bytes, context, .. } in taken.iter().take(SHOWN) {
        let _ = write!(text, ", {} {bytes} bytes RequestContext={context:#x}", status::name(*status));
    }
    if taken.len() > SHOWN {
        text.push_str(", …");
    }
    text
}
