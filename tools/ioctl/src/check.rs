//! Reading a request from the bytes user mode gave: length first, then version, then the copy.

use crate::header::{ABI_VERSION, Request, RequestHeader};
use crate::status::Status;
use zerocopy::FromBytes;

/// Copies a request out of the input buffer.
///
/// The copy is what must be checked and used: the buffer may be overwritten by the reply.
///
/// # Errors
/// [`Status::INFO_LENGTH_MISMATCH`]: the input is shorter or longer than `T`, or its header's size is not its length.
/// [`Status::REVISION_MISMATCH`]: its version is not [`ABI_VERSION`].
pub fn read_request<T: Request>(input: &[u8]) -> Result<T, Status> {
    let header = read_header(input)?;
    if header.version != ABI_VERSION {
        return Err(Status::REVISION_MISMATCH);
    }
    read_body(input, header)
}

/// As [`read_request`], without a check of the version: for the version request.
///
/// # Errors
/// [`Status::INFO_LENGTH_MISMATCH`] as above.
pub fn read_request_of_any_version<T: Request>(input: &[u8]) -> Result<T, Status> {
    let header = read_header(input)?;
    read_body(input, header)
}

/// How many entries of a list fit an output of this length, behind the fixed part of its reply.
///
/// # Errors
/// [`Status::BUFFER_TOO_SMALL`]: not even one.
pub const fn list_capacity<Reply, Entry>(output_length: usize) -> Result<usize, Status> {
    let capacity = output_length.saturating_sub(size_of::<Reply>()) / size_of::<Entry>();
    if capacity == 0 { Err(Status::BUFFER_TOO_SMALL) } else { Ok(capacity) }
}

fn read_header(input: &[u8]) -> Result<RequestHeader, Status> {
    match RequestHeader::read_from_prefix(input) {
        Ok((header, _)) => Ok(header),
        Err(_) => Err(Status::INFO_LENGTH_MISMATCH),
    }
}

fn read_body<T: Request>(input: &[u8], header: RequestHeader) -> Result<T, Status> {
    if usize::try_from(header.size) != Ok(input.len()) {
        return Err(Status::INFO_LENGTH_MISMATCH);
    }
    T::read_from_bytes(input).map_err(|_| Status::INFO_LENGTH_MISMATCH)
}

#[cfg(test)]
mod tests {
    use super::{read_request, read_request_of_any_version};
    use crate::{ABI_VERSION, PairCloseRequest, RequestHeader, Status, VersionRequest};
    use zerocopy::IntoBytes;

    fn close() -> PairCloseRequest {
        PairCloseRequest { header: RequestHeader::of::<PairCloseRequest>(), pair: 7, reserved: 0 }
    }

    #[test]
    fn a_request_survives_the_round_trip() {
        assert_eq!(read_request::<PairCloseRequest>(close().as_bytes()), Ok(close()));
    }

    #[test]
    fn every_wrong_length_is_a_length_mismatch() {
        let bytes = close();
        let bytes = bytes.as_bytes();
        for length in 0..bytes.len() {
            assert_eq!(
                read_request::<PairCloseRequest>(&bytes[..length]),
                Err(Status::INFO_LENGTH_MISMATCH),
                "{length}"
            );
        }
        let mut long = [0_u8; 24];
        long[..16].copy_from_slice(bytes);
        assert_eq!(read_request::<PairCloseRequest>(&long), Err(Status::INFO_LENGTH_MISMATCH));
        long[4..8].copy_from_slice(&24_u32.to_ne_bytes());
        assert_eq!(read_request::<PairCloseRequest>(&long), Err(Status::INFO_LENGTH_MISMATCH));
    }

    #[test]
    fn a_size_that_lies_is_a_length_mismatch() {
        for size in [0, 15, 17, u32::MAX] {
            let mut request = close();
            request.header.size = size;
            assert_eq!(read_request::<PairCloseRequest>(request.as_bytes()), Err(Status::INFO_LENGTH_MISMATCH));
        }
    }

    #[test]
    fn another_version_is_a_revision_mismatch_except_where_it_is_asked_for() {
        for version in [0, ABI_VERSION - 1, ABI_VERSION + 1, u32::MAX] {
            let mut request = close();
            request.header.version = version;
            assert_eq!(read_request::<PairCloseRequest>(request.as_bytes()), Err(Status::REVISION_MISMATCH));
            let mut question = VersionRequest { header: RequestHeader::of::<VersionRequest>() };
            question.header.version = version;
            assert_eq!(read_request_of_any_version::<VersionRequest>(question.as_bytes()), Ok(question));
        }
    }
}
