//! Win32 error codes of statuses, as `RtlNtStatusToDosError` gives them (winerror.h); what is not here has no code of its own.

use crate::status::{self, NtStatus};

pub(super) const ERROR_INVALID_HANDLE: u32 = 6;
pub(super) const ERROR_INVALID_PARAMETER: u32 = 87;
pub(super) const ERROR_INVALID_ADDRESS: u32 = 487;
pub(super) const ERROR_ABANDONED_WAIT_0: u32 = 735;
pub(super) const ERROR_IO_INCOMPLETE: u32 = 996;
pub(super) const ERROR_NOT_FOUND: u32 = 1168;
pub(super) const WAIT_TIMEOUT: u32 = 258;

/// `ERROR_MR_MID_NOT_FOUND`: a status without a code.
const NO_CODE: u32 = 317;

const CODES: &[(NtStatus, u32)] = &[
    (status::STATUS_SUCCESS, 0),
    (status::STATUS_PENDING, 997),
    (status::STATUS_BUFFER_OVERFLOW, 234),
    (status::STATUS_NO_MORE_ENTRIES, 259),
    (status::STATUS_UNSUCCESSFUL, 31),
    (status::STATUS_NOT_IMPLEMENTED, 1),
    (status::STATUS_ACCESS_VIOLATION, 998),
    (status::STATUS_INVALID_HANDLE, ERROR_INVALID_HANDLE),
    (status::STATUS_INVALID_PARAMETER, ERROR_INVALID_PARAMETER),
    (status::STATUS_NO_SUCH_DEVICE, 2),
    (status::STATUS_INVALID_DEVICE_REQUEST, 1),
    (status::STATUS_ACCESS_DENIED, 5),
    (status::STATUS_BUFFER_TOO_SMALL, 122),
    (status::STATUS_OBJECT_TYPE_MISMATCH, ERROR_INVALID_HANDLE),
    (status::STATUS_OBJECT_NAME_NOT_FOUND, 2),
    (status::STATUS_INSUFFICIENT_RESOURCES, 1450),
    (status::STATUS_NOT_SUPPORTED, 50),
    (status::STATUS_CANCELLED, 995),
    (status::STATUS_NOT_FOUND, ERROR_NOT_FOUND),
];

/// The code of a status.
pub(super) fn of_status(status: NtStatus) -> u32 {
    CODES.iter().find(|(known, _)| *known == status).map_or(NO_CODE, |(_, code)| *code)
}
