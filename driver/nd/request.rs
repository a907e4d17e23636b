//! What answers of requests have in common: whose request it is, its input and output, the object that it names.

use ndkpi_sys::nt::{NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER};
use softndk_cells::Shared;
use softndk_ioctl::nd::control::Handle;
use softndk_kernel::irp::Buffer;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{context::ProcessContext, file::File, object::HandleKind, status::Answered};

/// A request's surroundings.
pub struct Call {
    pub file: Shared<File>,
    pub context: Shared<ProcessContext>,
}

/// The input as a structure. It may be followed by more.
pub fn input<T: FromBytes + KnownLayout + Immutable>(buffer: &Buffer) -> Result<T, NTSTATUS> {
    T::read_from_prefix(buffer.input()).map(|(value, _)| value).map_err(|_| STATUS_INVALID_PARAMETER)
}

/// Whether a structure fits into the output: asked before anything is done that would have to be undone.
pub fn check_output<T>(buffer: &Buffer) -> Result<(), NTSTATUS> {
    if buffer.output_length() < size_of::<T>() { Err(STATUS_BUFFER_TOO_SMALL) } else { Ok(()) }
}

/// Makes a structure the output.
pub fn answer<T: IntoBytes + Immutable>(buffer: &mut Buffer, value: &T) -> Answered {
    buffer.answer(value.as_bytes()).ok_or(STATUS_BUFFER_TOO_SMALL)
}

/// The object that a request names, and nothing else.
pub fn named<T: HandleKind>(call: &Call, buffer: &Buffer) -> Result<Shared<T>, NTSTATUS> {
    call.context.object::<T>(input::<Handle>(buffer)?.handle)
}

/// An object whose requests can be cancelled together.
pub trait Cancellable {
    /// Ends what pends on it as cancelled, in the order of arrival. PASSIVE_LEVEL, no lock held.
    fn cancel_all(&self);
}
