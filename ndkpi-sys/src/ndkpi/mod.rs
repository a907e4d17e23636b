//! `ndkpi.h`, NDKPI 2.1: the objects that a provider creates, the dispatch tables they point to, the functions in those tables
//! and the callbacks of the consumer.
//!
//! IRQL: every function and callback may run at IRQL <= DISPATCH_LEVEL unless its documentation differs.
//!
//! The asynchronous contract (NDKPI: "Completing NDK requests"): a create, close or request that returns `STATUS_PENDING` calls
//! its completion exactly once, possibly before the call returned; any other status is final and the completion is never
//! called. After `STATUS_PENDING` the provider no longer writes the caller's out pointer. Work requests (post functions of a
//! queue pair) never pend: success means that a completion queue entry follows, failure means that none does. A close cannot
//! fail: it gives `STATUS_SUCCESS` or `STATUS_PENDING` only.
//!
//! Where both an inline return and the completion can carry a status, the documentation says "inline or completion".

mod callback;
mod dispatch;
mod flag;
mod function;
mod memory;
mod object;
mod result;

pub use callback::*;
pub use dispatch::*;
pub use flag::*;
pub use function::*;
pub use memory::*;
pub use object::*;
pub use result::*;
