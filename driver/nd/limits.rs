//! How much the driver does for one object, and at a time.

/// Requests that may pend on one object. One more ends with INSUFFICIENT_RESOURCES.
pub const PENDED_REQUESTS: u32 = 4096;

/// Requests that one pass at DISPATCH_LEVEL completes; the mapper's thread completes the others.
pub const COMPLETIONS_A_PASS: u32 = 64;

/// Deregistrations of one region whose requests wait for the mapper. One more request ends at once: the access is gone, and the
/// request that brought the memory pends until that is unmapped.
pub const DEREGISTRATIONS: u32 = 16;

/// Connections that wait for one listener, at most, whatever its program asks for.
pub const BACKLOG: u32 = 4096;
