//! Endpoints and connections that go no further: shared, refused, left alone, closed in the wrong order.

use ndkpi_sys::ndkpi::*;

use super::{Connection, Side, Stop, at, check, let_arrive, open};
use crate::consumer::{Buffer, Connector, Listener, Offer, SharedEndpoint};
use crate::machine::Setup;

/// Two connections from one shared endpoint, one of them rejected, and a listener at every address.
pub(super) fn walk(adapters: &[kernel_host::Adapter], setup: &Setup) -> Result<(), Stop> {
    let first = open(adapters, setup, 0)?;
    let second = open(adapters, setup, 1)?;
    let (near, peer) = (Side::new(&first)?, Side::new(&second)?);
    let endpoint = at("CreateSharedEndpoint", SharedEndpoint::new(&first, first.address()))?;
    let everywhere = at("CreateListener", Listener::new(&second))?;
    check("Listen", everywhere.listen("0.0.0.0:0".parse::<std::net::SocketAddr>().expect("an address")))?;
    let listener = at("CreateListener", Listener::new(&second))?;
    check("Listen", listener.listen(second.address_v6()))?;
    let offer = Offer { private_data: &[1, 2, 3, 4], ..Offer::default() };

    let refused = at("CreateConnector", Connector::new(&first))?;
    let port = everywhere.local_address().port();
    let to = std::net::SocketAddr::new(second.address().ip(), port);
    let connecting = refused.begin_connect_shared(&near.queue_pair, &endpoint, to, &offer);
    if connecting.inline() < 0 {
        return Err(("Connect", connecting.inline()));
    }
    let_arrive(&everywhere, &connecting);
    if everywhere.waiting() == 0 {
        check("Connect", connecting.wait())?;
    }
    let offered = everywhere.next();
    check("Reject", offered.reject(&[5, 6]))?;
    let _ = connecting.wait();
    offered.close();
    refused.close();
    let connection = Connection::new(&first, &near.queue_pair, &second, &peer.queue_pair)?;
    connection.disconnect()
}

/// The consumer does not close its objects in an order that suits the provider: receives are posted, a request to connect waits, parents are
/// closed before their children.
pub(super) fn leave_open(adapters: &[kernel_host::Adapter], setup: &Setup) -> Result<(), Stop> {
    const LENGTH: usize = 4_000;
    let first = open(adapters, setup, 0)?;
    let second = open(adapters, setup, 1)?;
    let (near, peer) = (Side::new(&first)?, Side::new(&second)?);
    let waiting = Side::new(&first)?;
    let buffer = Buffer::scattered(LENGTH);
    let region = at("CreateMr", peer.domain.create_region(false))?;
    check("RegisterMr", region.register(&buffer, NDK_MR_FLAG_ALLOW_LOCAL_WRITE))?;
    for request in 0..4 {
        check("Receive", peer.queue_pair.receive(request, &[buffer.whole(region.local_token())]))?;
    }
    let connection = Connection::new(&first, &near.queue_pair, &second, &peer.queue_pair)?;
    let late = at("CreateConnector", Connector::new(&first))?;
    let offer = Offer::default();
    let to = connection.listener.local_address();
    let connecting = late.begin_connect(&waiting.queue_pair, first.address(), to, &offer);
    if connecting.inline() < 0 {
        return Err(("Connect", connecting.inline()));
    }
    let_arrive(&connection.listener, &connecting);
    // Lost, if memory was short at the peer.
    let offered = (connection.listener.waiting() != 0).then(|| connection.listener.next());
    let closes = [
        peer.domain.object().begin_close(),
        near.domain.object().begin_close(),
        connection.listener.object().begin_close(),
    ];
    drop(late);
    let _ = connecting.wait();
    drop(offered);
    drop(connection);
    drop((region, near, peer, waiting));
    for close in closes {
        close.wait();
    }
    Ok(())
}
