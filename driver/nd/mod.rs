//! User-mode NetworkDirect: what `softnd.dll` sends to `\\.\SoftNd`, in the ABI of `softndk_ioctl::nd`.
//!
//! A process has a context with a table of handles, shared by the files that are bound to it. A handle names an object: a counted
//! pointer, held by the table, by the engine while its own object lives, and by every request that pends. Requests are answered at
//! PASSIVE_LEVEL in the thread of the process; what pends is completed by the engine's callbacks at DISPATCH_LEVEL.
//!
//! Rules: every length is checked and every input copied before it is believed; of memory that a process shares with the driver
//! only `rings` reads and writes; no request is completed and no object closed with a lock held; whatever a process writes into its
//! rings ends at most its own queue.

pub mod account;
pub mod adapter;
pub mod completion_queue;
pub mod connector;
pub mod context;
pub mod device;
pub mod dispatch;
pub mod endpoint;
pub mod file;
pub mod handles;
pub mod limits;
pub mod listener;
pub mod memory_region;
pub mod memory_window;
pub mod notify;
pub mod object;
pub mod pending;
pub mod poller;
pub mod queue_pair;
mod refused;
pub mod request;
pub mod request_memory;
pub mod rings;
pub mod security;
pub mod shared_receive_queue;
pub mod socket;
pub mod status;
