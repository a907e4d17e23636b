//! One connection pair, closed when the work on it is done or has failed.

use crate::arguments::PairArguments;
use crate::client::Client;
use crate::failure::Failure;
use crate::transport::Device;
use softndk_ioctl::{PairCreateReply, PairCreateRequest, PairEndpoint, PairFlags, RequestHeader};
use std::net::SocketAddr;

/// What a pair must be able to hold.
#[derive(Clone, Copy, Debug)]
pub struct PairSize {
    /// Requests outstanding.
    pub depth: u32,
    /// Scatter/gather elements of one request.
    pub sge: u32,
    /// The server's receives come from a shared receive queue.
    pub shared: bool,
}

/// Connects, works, closes.
///
/// A failure of the work is reported before a failure of the close.
pub fn with_pair<D: Device, T>(
    client: &Client<D>,
    arguments: &PairArguments,
    size: PairSize,
    work: impl FnOnce(&PairCreateReply) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut flags = PairFlags::empty();
    flags.set(PairFlags::NOTIFY, arguments.notify);
    flags.set(PairFlags::SHARED_RECEIVE, size.shared);
    let request = PairCreateRequest {
        header: RequestHeader::of::<PairCreateRequest>(),
        client_adapter: arguments.client,
        server_adapter: arguments.server,
        family: arguments.family.into(),
        port: 0,
        flags,
        initiator_queue_depth: size.depth,
        receive_queue_depth: size.depth,
        max_request_sge: size.sge,
        read_limit: 0,
    };
    let pair = client.create_pair(&request)?;
    let outcome = work(&pair);
    let closed = client.close_pair(pair.pair);
    let value = outcome?;
    closed.map(|()| value)
}

/// "10.0.0.1:49152 to 10.0.0.2:49153".
pub fn ends(pair: &PairCreateReply) -> String {
    format!("{} to {}", end(&pair.client), end(&pair.server))
}

fn end(endpoint: &PairEndpoint) -> String {
    match endpoint.address.ip() {
        Some(address) => SocketAddr::new(address, endpoint.port).to_string(),
        None => format!("address of family {}", endpoint.address.family.0),
    }
}
