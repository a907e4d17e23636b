//! What every object is: its header and static table, how it is closed, listed and scheduled, and what a service pass hands out.
//!
//! May use the ground only. It knows objects by their headers: no type of a module above is named here. What one object reports to
//! another goes through the table of [`AnyObject`](header::AnyObject) or over the run queue.

pub(crate) mod allowance;
pub(crate) mod event;
pub(crate) mod header;
pub(crate) mod registry;
pub(crate) mod run_queue;
pub(crate) mod scheduler;
pub(crate) mod snapshot;
pub(crate) mod timer;
pub(crate) mod waker;
