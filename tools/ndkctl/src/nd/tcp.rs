//! The bytes of Reads and Writes by the system's own TCP, between the same two programs: what a connection across a stream is compared with.
//!
//! A Read is a request of as many bytes as a Read has on the wire, and its bytes as the answer. Writes are one way, and one answer follows
//! the last of them.

use super::peer::Measured;
use super::proposal::Proposal;
use super::stop::{Cut, Stop};
use crate::failure::{Failure, Kind};
use crate::transport::Machine;
use softndk_ioctl::{Histogram, Operation};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a Read Request in its frame.
const REQUEST: usize = 52;

/// For how long nothing may come, and the client may stay away.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// The server's side: made before the client is answered, so that the answer has the port.
#[derive(Debug)]
pub struct Server(TcpListener);

impl Server {
    /// Listens at any port of the address at which the system has that of an adapter.
    pub fn listen(machine: &Machine, at: IpAddr) -> Result<Self, Failure> {
        let address = SocketAddr::new(machine.tcp_address(at), 0);
        TcpListener::bind(address).map(Self).map_err(|error| failed("listen", &error))
    }

    pub fn port(&self) -> Result<u16, Failure> {
        self.0.local_addr().map(|address| address.port()).map_err(|error| failed("listen", &error))
    }

    /// Takes the client's connection and serves what was proposed.
    pub fn serve(self, machine: &Machine, proposal: &Proposal, operation: Operation, stop: &Stop) -> Result<(), Cut> {
        machine.while_waiting(|| {
            let mut stream = self.accept(stop)?;
            let work = if operation == Operation::READ { answer } else { take };
            work(&mut stream, proposal).map_err(|error| broken("serve", &error))
        })
    }

    fn accept(self, stop: &Stop) -> Result<TcpStream, Cut> {
        let begun = Instant::now();
        let connection = self.0.set_nonblocking(true).and_then(|()| {
            loop {
                match self.0.accept() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    accepted => return accepted,
                }
                if stop.is_raised() {
                    return Err(ErrorKind::Interrupted.into());
                }
                if begun.elapsed() > LONGEST_WAIT {
                    return Err(ErrorKind::TimedOut.into());
                }
                thread::sleep(BETWEEN_LOOKS);
            }
        });
        match connection.and_then(|(stream, _)| prepared(stream)) {
            Ok(stream) => Ok(stream),
            Err(_) if stop.is_raised() => Err(Cut::Stopped),
            Err(error) => Err(failed("accept", &error).into()),
        }
    }
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LONGEST_WAIT))?;
    stream.set_write_timeout(Some(LONGEST_WAIT))?;
    Ok(stream)
}

fn buffer(proposal: &Proposal) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(proposal.size as usize).map_err(|_| ErrorKind::OutOfMemory)?;
    bytes.resize(proposal.size as usize, 0x5A);
    Ok(bytes)
}

/// Serves Reads.
fn answer(stream: &mut TcpStream, proposal: &Proposal) -> io::Result<()> {
    let (bytes, mut request) = (buffer(proposal)?, [0; REQUEST]);
    for _ in 0..proposal.count {
        stream.read_exact(&mut request)?;
        stream.write_all(&bytes)?;
    }
    Ok(())
}

/// Serves Writes.
fn take(stream: &mut TcpStream, proposal: &Proposal) -> io::Result<()> {
    let mut bytes = buffer(proposal)?;
    for _ in 0..proposal.count {
        stream.read_exact(&mut bytes)?;
    }
    stream.write_all(&[0])
}

/// The client's side.
pub fn work(machine: &Machine, server: SocketAddr, proposal: &Proposal, operation: Operation) -> Result<Measured, Cut> {
    let address = SocketAddr::new(machine.tcp_address(server.ip()), server.port());
    let measure = if operation == Operation::READ { read } else { write };
    let elapsed = machine.while_waiting(|| {
        let mut stream = prepared(TcpStream::connect_timeout(&address, LONGEST_WAIT)?)?;
        let mut bytes = buffer(proposal)?;
        let begun = Instant::now();
        measure(&mut stream, proposal, &mut bytes)?;
        Ok(begun.elapsed())
    });
    let elapsed = elapsed.map_err(|error: io::Error| broken("work with the server", &error))?;
    Ok(Measured { elapsed, latency: Box::new(Histogram::EMPTY), compared: 0, control_requests: None })
}

fn read(stream: &mut TcpStream, proposal: &Proposal, bytes: &mut [u8]) -> io::Result<()> {
    let request = [0; REQUEST];
    for _ in 0..proposal.depth.min(proposal.count) {
        stream.write_all(&request)?;
    }
    for done in 0..proposal.count {
        stream.read_exact(bytes)?;
        if proposal.count - done > proposal.depth {
            stream.write_all(&request)?;
        }
    }
    Ok(())
}

fn write(stream: &mut TcpStream, proposal: &Proposal, bytes: &mut [u8]) -> io::Result<()> {
    for _ in 0..proposal.count {
        stream.write_all(bytes)?;
    }
    stream.read_exact(&mut [0])
}

/// The same of a connection: the other end may have gone.
fn broken(what: &str, error: &io::Error) -> Cut {
    match error.kind() {
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::WriteZero => Cut::Gone(Failure::new(
            Kind::Refused,
            format!("cannot {what} by plain TCP"),
            format!("the other end has gone: {error}"),
            "look at what the other end says, and start both again",
        )),
        _ => failed(what, error).into(),
    }
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::new(
        Kind::Unreachable,
        format!("cannot {what} by plain TCP"),
        error.to_string(),
        "look whether a firewall lets this program through, or leave --beside-tcp out",
    )
}

#[cfg(test)]
mod tests {
    use super::{Cut, Kind, Proposal, TcpStream, answer, broken, read, take, write};
    use crate::nd::proposal::Work;
    use softndk_ioctl::Operation;
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    type Side<'a> = fn(&mut TcpStream, &Proposal, &mut [u8]) -> std::io::Result<()>;

    /// Both sides move what was proposed and nothing else.
    fn is_moved(
        operation: Operation,
        depth: u32,
        client: Side<'_>,
        server: fn(&mut TcpStream, &Proposal) -> std::io::Result<()>,
    ) {
        let proposal = Proposal { work: Work::Tcp(operation), size: 3000, depth, count: 50, more: false, session: 0 };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            server(&mut stream, &proposal).unwrap();
            stream.read(&mut [0]).unwrap()
        });
        let mut bytes = vec![0; 3000];
        client(&mut TcpStream::connect(address).unwrap(), &proposal, &mut bytes).unwrap();
        assert_eq!(other.join().unwrap(), 0, "bytes that are too many");
        if operation == Operation::READ {
            assert!(bytes.iter().all(|byte| *byte == 0x5A), "the server's bytes have come");
        }
    }

    #[test]
    fn other_end_that_goes_is_no_matter_of_a_firewall() {
        for work in [answer, take] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            drop(client);
            let proposal =
                Proposal { work: Work::Tcp(Operation::READ), size: 3000, depth: 1, count: 5, more: false, session: 0 };
            let error = work(&mut server, &proposal).unwrap_err();
            let Cut::Gone(failure) = broken("serve", &error) else { panic!("{error}") };
            assert_eq!(failure.kind, Kind::Refused);
            assert!(failure.cause.contains("has gone") && !failure.next_step.contains("firewall"), "{failure}");
        }
        let late = broken("serve", &std::io::ErrorKind::TimedOut.into());
        assert!(matches!(late, Cut::Failed(failure) if failure.kind == Kind::Unreachable));
    }

    #[test]
    fn bytes_go_the_way_of_the_operation() {
        for depth in [1, 16, 200] {
            is_moved(Operation::READ, depth, read, answer);
            is_moved(Operation::WRITE, depth, write, take);
        }
    }
}
