//! Counters of one adapter, as OID_NDK_STATISTICS reports them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    pub connect: u64,
    pub accept: u64,
    pub connect_failure: u64,
    pub connection_error: u64,
    pub active_connection: u64,
    pub completion_queue_error: u64,
    pub octets_in: u64,
    pub octets_out: u64,
    pub frames_in: u64,
    pub frames_out: u64,
}
