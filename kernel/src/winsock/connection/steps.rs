//! The way to an open connection: a socket, its local address, the port of it where the system has given one, the peer.

use ndkpi_sys::nt::{
    NTSTATUS, SOCKADDR_INET, STATUS_ACCESS_DENIED, STATUS_ADDRESS_ALREADY_EXISTS, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_UNSUCCESSFUL,
};

use super::{Connection, Finish, Phase, STEP};
use crate::pool::NoMemory;
use crate::{
    address,
    winsock::{
        Wake,
        block::socket_of,
        packet::Outcome,
        socket::{Socket, SocketKind, Spare},
    },
};

/// What is done or to be done next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Make,
    Bind,
    /// Which port the system has given.
    Ask,
    Connect,
}

impl<W: Wake> Connection<W> {
    /// Begins a step, unless it is under way.
    pub(super) fn issue_step(&mut self, step: Step) -> bool {
        if !self.block.is_idle(STEP) || self.new_port.is_some() {
            return false;
        }
        let begun = match step {
            Step::Make => self
                .remote
                .as_ref()
                .ok_or(STATUS_UNSUCCESSFUL)
                .and_then(|remote| self.block.make_socket(STEP, remote, SocketKind::CONNECTION)),
            Step::Bind | Step::Ask | Step::Connect => self.address_step(step),
        };
        if let Err(status) = begun {
            self.phase = Phase::Failed(status);
        }
        begun.is_ok()
    }

    /// The steps that have an address, which is in the block until the step is done.
    fn address_step(&self, step: Step) -> Result<(), NTSTATUS> {
        let socket = self.socket.as_ref().ok_or(STATUS_UNSUCCESSFUL)?;
        // SAFETY: made as a connection.
        let table = unsafe { socket.connection() };
        let given = match step {
            Step::Connect => self.remote,
            _ => self.local,
        };
        let place = self.block.body().address.get();
        let form = given.as_ref().map_or(SOCKADDR_INET::zeroed(), address::inet);
        // SAFETY: the request of the steps is idle, so the place is ours.
        unsafe { place.write(form) };
        let socket = socket.as_ptr();
        self.block.issue(STEP, |packet| match step {
            // SAFETY: an open socket, not bound yet; the address stays in the block; a packet for this call.
            Step::Make | Step::Bind => unsafe { (table.WskBind)(socket, place.cast(), 0, packet) },
            // SAFETY: as above, bound; the address is written into the block.
            Step::Ask => unsafe { (table.WskGetLocalAddress)(socket, place.cast(), packet) },
            // SAFETY: as above, bound and not connected.
            Step::Connect => unsafe { (table.WskConnect)(socket, place.cast(), 0, packet) },
        });
        Ok(())
    }

    pub(super) fn step_done(&mut self, outcome: Outcome) {
        let Phase::Under(step) = self.phase else { return self.finish_done(outcome) };
        self.phase = match (step, outcome.result()) {
            (Step::Make, Ok(_)) => self.made(outcome),
            // Access is denied where a socket has the port at every address. A connect says it where TCP remembers both ends.
            (Step::Bind | Step::Connect, Err(STATUS_ADDRESS_ALREADY_EXISTS | STATUS_ACCESS_DENIED))
                if self.ports_left != 0 =>
            {
                self.ask_for_other_port()
            }
            (Step::Bind, Ok(_)) if self.local.is_some_and(|local| local.port() == 0) => Phase::Under(Step::Ask),
            (Step::Ask, Ok(_)) => self.learn_port(),
            (Step::Bind, Ok(_)) => Phase::Under(Step::Connect),
            (Step::Connect, Ok(_)) => Phase::Open,
            (_, Err(status)) => Phase::Failed(status),
        };
    }

    /// Another port is as good as any; the peer sees it. That a socket is bound twice is promised nowhere.
    fn ask_for_other_port(&mut self) -> Phase {
        self.ports_left = self.ports_left.saturating_sub(1);
        if let Some(local) = &mut self.local {
            local.set_port(0);
        }
        drop(self.socket.take());
        let spare = Spare::try_new(self.tag).map_err(|NoMemory| STATUS_INSUFFICIENT_RESOURCES);
        match spare.and_then(|mut spare| spare.arm(self.client).map(|()| spare)) {
            Ok(spare) => {
                self.spare = Some(spare);
                Phase::Under(Step::Make)
            }
            Err(status) => Phase::Failed(status),
        }
    }

    /// The owner takes the port before the connection is asked for.
    fn learn_port(&mut self) -> Phase {
        // SAFETY: the request of the steps is idle, so the place is ours, and it is plain data.
        let given = unsafe { self.block.body().address.get().read() };
        let Some(given) = address::socket_address(&given) else { return Phase::Failed(STATUS_UNSUCCESSFUL) };
        self.new_port = Some(given.port());
        Phase::Under(Step::Connect)
    }

    fn made(&mut self, outcome: Outcome) -> Phase {
        if let (Some(socket), Some(spare)) = (socket_of(outcome), self.spare.take()) {
            self.socket = Some(Socket::new(spare, socket));
            return Phase::Under(Step::Bind);
        }
        Phase::Failed(STATUS_UNSUCCESSFUL)
    }

    /// The end of this side was sent.
    fn finish_done(&mut self, outcome: Outcome) {
        self.finish = Finish::Done;
        if let Err(status) = outcome.result() {
            self.broke(status);
        }
    }
}
