//! Safe owners of the kernel primitives the driver uses: pool blocks, spin locks, events, rundown references, DPCs,
//! timers and system threads. Each file wraps one primitive and keeps its rules (fixed address, IRQL, who may free it when); nothing
//! here knows NDIS, NDK or the engine.

pub mod dpc;
pub mod event;
pub mod irql;
pub mod pool;
pub mod rundown;
pub mod spin_lock;
pub mod thread;
pub mod timer;
