//! Datagrams to and from hosts in other processes, by sockets of Linux with the same ports as those inside.

use std::net::{SocketAddr, UdpSocket};

use super::super::datagram::Arrival;
use super::super::{Network, NetworkError, PortId, exists};
use super::{Outside, linux, machines, reason};
use crate::capture;

/// A socket for a bound port, under one of its addresses.
pub(in super::super) struct OutsidePort {
    socket: UdpSocket,
    address: SocketAddr,
}

/// Longer than every datagram.
const BUFFER: usize = 1 << 16;

impl Outside {
    /// Opens the sockets for a port that is about to be bound.
    pub(in super::super) fn open_datagrams(&self, bound: SocketAddr) -> Result<Vec<OutsidePort>, NetworkError> {
        let open = |address: SocketAddr| {
            let mut real = self.stand_in(address.ip()).ok_or(NetworkError::NotLocal)?;
            real.set_port(address.port());
            let socket = linux::datagrams(real).map_err(|error| reason(&error))?;
            Ok(OutsidePort { socket, address })
        };
        self.own_addresses(bound).into_iter().map(open).collect()
    }

    /// The port is bound.
    pub(in super::super) fn keep_datagrams(&mut self, port: PortId, sockets: Vec<OutsidePort>) {
        for each in &sockets {
            // Where Linux makes no queue, nothing comes.
            let _ = self.happenings().and_then(|happenings| happenings.add_source(&each.socket, port.0));
        }
        if !sockets.is_empty() {
            self.datagram_ports.insert(port, sockets);
        }
    }

    /// Sends a datagram to another host. It is lost where there is none, or no space.
    pub(in super::super) fn send_datagram(&self, port: PortId, to: SocketAddr, bytes: &[u8]) {
        let sockets = self.datagram_ports.get(&port).map_or(&[][..], Vec::as_slice);
        let from = sockets.iter().find(|socket| socket.address.is_ipv4() == to.is_ipv4());
        if let (Some(from), Some(mut real)) = (from, self.stand_in(to.ip())) {
            real.set_port(to.port());
            capture::datagram(from.address, to, bytes);
            let _ = from.socket.send_to(bytes, real);
        }
    }
}

impl Network {
    /// Takes what has come to a port from outside, if it has sockets there.
    pub(super) fn take_datagrams(&mut self, port: PortId) -> bool {
        let Some(sockets) = self.outside.datagram_ports.remove(&port) else { return false };
        let mut buffer = vec![0; BUFFER];
        for each in &sockets {
            while let Ok((count, from)) = each.socket.recv_from(&mut buffer) {
                self.take_datagram(port, each.address, from, &buffer[..count]);
            }
        }
        self.outside.datagram_ports.insert(port, sockets);
        true
    }

    fn take_datagram(&mut self, port: PortId, local: SocketAddr, from: SocketAddr, bytes: &[u8]) {
        let sender = machines::outside_address_of(&self.outside.machines, from.ip(), exists);
        if let Some(sender) = sender.filter(|_| exists(local.ip()) && !self.is_silent(local.ip())) {
            let from = SocketAddr::new(sender, from.port());
            capture::datagram(from, local, bytes);
            self.arrive(port, Arrival::Datagram { from, bytes: bytes.to_vec() });
        }
    }
}
