//! Calls of the provider's methods: each in one place, with its arguments as safe code has them.

use super::address::RawAddress;
use super::interface::Interface;
use super::memory::Pages;
use super::proposal::Refusal;
use super::request::{HasRequests, Request};
use super::stop::{Cut, Stop};
use super::system::{Handle, System};
use crate::failure::{self, Failure};
use softnd_interfaces::constants::{VERSION_2, notify, region_flag};
use softnd_interfaces::structures::{SocketAddressEntry, SocketAddressList};
use softnd_interfaces::v2::{
    AdapterInfo, IND2Adapter, IND2CompletionQueue, IND2Connector, IND2Listener, IND2MemoryRegion, IND2Overlapped,
    IND2Provider, IND2QueuePair, RequestResult, Sge,
};
use softnd_interfaces::{Guid, Status};
use std::ffi::c_void;
use std::mem::offset_of;
use std::net::SocketAddr;
use std::ptr;
use std::time::Instant;

/// How often a list that has grown meanwhile is asked for again.
const ATTEMPTS: usize = 8;

/// A call that the provider refused, or a request that failed. The meanings that the control device has for a status are not the
/// provider's.
pub fn refused(what: impl Into<String>, status: Status) -> Failure {
    let mut failure = Failure::refused(what, softndk_ioctl::Status(status.0));
    failure.cause = match status.name() {
        Some(name) if name.starts_with("COM_") => format!("{name} (0x{:08X})", status.0),
        Some(name) => format!("ND_{name} (0x{:08X})", status.0),
        None => format!("status 0x{:08X}", status.0),
    };
    let known = next_step(status).or(failure::known_next_step(softndk_ioctl::Status(status.0)));
    known.unwrap_or(ANY_STATUS).clone_into(&mut failure.next_step);
    failure
}

/// A call or request that failed because of the other end, where the status says so.
pub fn refused_by_other(what: impl Into<String>, status: Status) -> Cut {
    let failure = refused(what, status);
    match status {
        Status::CANCELED
        | Status::CONNECTION_REFUSED
        | Status::CONNECTION_ABORTED
        | Status::CONNECTION_DISCONNECTED
        | Status::CONNECTION_INVALID => Cut::Gone(failure),
        _ => Cut::Failed(failure),
    }
}

/// The next step where nothing is known of the status.
const ANY_STATUS: &str = "look at what the other end says, and compare the options with \"ndkctl nd info\"";

/// What usually helps, where it is not what helps with the control device.
fn next_step(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::CONNECTION_REFUSED => {
            "start the server first, and give both the same address and port; where it has started it refused: look at what it says"
        }
        Status::IO_TIMEOUT => {
            "nothing answers there: look whether a firewall is between, whether another service has the port, and whether the server serves another client"
        }
        Status::CONNECTION_ABORTED => {
            "the other end has gone, or speaks no iWARP: look at what it says, and whether the port is that of the server"
        }
        Status::BAD_NETWORK_NAME | Status::HOST_UNREACHABLE | Status::NETWORK_UNREACHABLE => {
            "compare the address with \"ndkctl nd info\" there; the ends need one wire number, or Transport 1 (auto) where they are two machines"
        }
        Status::CANCELED | Status::CONNECTION_DISCONNECTED | Status::CONNECTION_INVALID => {
            "the connection has ended; look at what the other end says"
        }
        Status::INVALID_ADDRESS => "choose an address that \"ndkctl nd info\" lists",
        Status::SHARING_VIOLATION | Status::ADDRESS_ALREADY_EXISTS => "choose another port",
        Status::DEVICE_NOT_READY => "install the driver and its adapters with setup.ps1 -Install",
        Status::COM_NO_INTERFACE | Status::COM_NO_CLASS => "give a provider of NetworkDirect version 2 with --dll",
        Status::INVALID_BUFFER_SIZE | Status::INVALID_PARAMETER => "compare sizes and depths with \"ndkctl nd info\"",
        _ if (Status::INVALID_PARAMETER_1.0..=Status::INVALID_PARAMETER_10.0).contains(&status.0) => {
            "compare sizes and depths with \"ndkctl nd info\""
        }
        _ => return None,
    })
}

/// What a call that makes an object gives.
fn made<'s, I>(what: &str, call: impl FnOnce(*mut *mut c_void) -> Status) -> Result<Interface<'s, I>, Failure> {
    let mut out = ptr::null_mut();
    let status = call(&raw mut out);
    if !status.is_success() {
        return Err(refused(format!("cannot make {what}"), status));
    }
    // SAFETY: a method that succeeds gives a reference to an interface of the identifier that it was asked for.
    unsafe { Interface::from_raw(out) }.ok_or_else(|| refused(format!("cannot make {what}"), Status::INTERNAL_ERROR))
}

fn succeeded(what: &str, status: Status) -> Result<(), Failure> {
    if status.is_success() { Ok(()) } else { Err(refused(what, status)) }
}

/// The same of a call that needs the other end.
fn connected(what: impl Into<String>, status: Status) -> Result<(), Cut> {
    if status.is_success() { Ok(()) } else { Err(refused_by_other(what, status)) }
}

/// Ends what pends on an object.
pub(super) fn cancel(object: &impl HasRequests) {
    // SAFETY: a live interface.
    unsafe { IND2Overlapped::cancel_overlapped_requests(object.base()) };
}

/// The result of a request that has ended.
pub(super) fn result_of(object: &impl HasRequests, request: &Request<'_>) -> Status {
    // SAFETY: a live interface, and the OVERLAPPED of a request on it.
    unsafe { IND2Overlapped::get_overlapped_result(object.base(), request.overlapped(), 0) }
}

/// The provider of a loaded DLL.
pub struct Provider<'s> {
    system: &'s System<'s>,
    interface: Interface<'s, IND2Provider>,
}

impl<'s> Provider<'s> {
    pub fn load(system: &'s System<'s>) -> Result<Self, Failure> {
        // Which class a DLL has for its provider is its own matter: clients pass what the catalogue says.
        let class = Guid::new(super::catalog::entry::Generation::Version2.provider_id());
        let interface = made("a provider", |out| {
            // SAFETY: a place for a pointer.
            unsafe { system.class_object(&class, &IND2Provider::IID, out) }
        })?;
        Ok(Self { system, interface })
    }

    /// The addresses of all adapters.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        read_list(self.system, |list, length| {
            // SAFETY: a live interface, and as many bytes as the length says.
            unsafe { IND2Provider::query_address_list(self.interface.this(), list, length) }
        })
    }

    pub fn identifier_of(&self, address: SocketAddr) -> Result<u64, Failure> {
        let raw = RawAddress::from(address);
        let mut identifier = 0;
        // SAFETY: a live interface, a sockaddr of this length, a place for a number.
        let status = unsafe {
            IND2Provider::resolve_address(self.interface.this(), raw.as_ptr().cast(), raw.length(), &raw mut identifier)
        };
        succeeded(&format!("cannot find the adapter of {}", address.ip()), status)?;
        Ok(identifier)
    }

    /// What the provider answers to an open of an adapter that no machine has: why it has none.
    pub fn answer_to_an_open(&self) -> Status {
        let mut out = ptr::null_mut();
        // SAFETY: a live interface, an identifier, a place for a pointer.
        let status = unsafe { IND2Provider::open_adapter(self.interface.this(), &IND2Adapter::IID, 0, &raw mut out) };
        // SAFETY: what a call that succeeds has given.
        drop(unsafe { Interface::<IND2Adapter>::from_raw(out) });
        status
    }

    pub fn open(&self, identifier: u64) -> Result<OpenAdapter<'s>, Failure> {
        let interface = made(&format!("an open of adapter {identifier:#x}"), |out| {
            // SAFETY: a live interface, an identifier, a place for a pointer.
            unsafe { IND2Provider::open_adapter(self.interface.this(), &IND2Adapter::IID, identifier, out) }
        })?;
        Ok(OpenAdapter { system: self.system, interface })
    }
}

/// A list of addresses, with the addresses behind it.
fn read_list(
    system: &System<'_>,
    query: impl Fn(*mut SocketAddressList, *mut u32) -> Status,
) -> Result<Vec<SocketAddr>, Failure> {
    let mut length = 0;
    let mut status = query(ptr::null_mut(), &raw mut length);
    for _ in 0..ATTEMPTS {
        if status != Status::BUFFER_OVERFLOW {
            break;
        }
        let pages = Pages::allocate(system, length as usize)?;
        status = query(pages.address().cast(), &raw mut length);
        if status.is_success() {
            return Ok(entries(&pages));
        }
    }
    Err(refused("cannot list the addresses of the adapters", status))
}

/// The addresses of a list that a provider has written into these pages.
fn entries(pages: &Pages<'_>) -> Vec<SocketAddr> {
    let list = pages.address();
    // SAFETY: the list begins with a count.
    let count = unsafe { list.cast::<i32>().read_unaligned() };
    let most =
        pages.length().saturating_sub(offset_of!(SocketAddressList, addresses)) / size_of::<SocketAddressEntry>();
    let entry = |index: usize| -> Option<SocketAddr> {
        let at = offset_of!(SocketAddressList, addresses) + index * size_of::<SocketAddressEntry>();
        // SAFETY: inside of the pages: there are at most so many.
        let place = unsafe { list.byte_add(at) };
        // SAFETY: an entry, which the provider has written.
        let entry: SocketAddressEntry = unsafe { place.cast::<SocketAddressEntry>().read_unaligned() };
        let mut bytes = vec![0_u8; usize::try_from(entry.length).ok()?.min(64)];
        // SAFETY: the entry says that so many bytes are there.
        unsafe { ptr::copy_nonoverlapping(entry.address.cast::<u8>().cast_const(), bytes.as_mut_ptr(), bytes.len()) };
        RawAddress::read(&bytes)
    };
    (0..usize::try_from(count).unwrap_or(0).min(most)).filter_map(entry).collect()
}

/// An open adapter.
pub struct OpenAdapter<'s> {
    system: &'s System<'s>,
    interface: Interface<'s, IND2Adapter>,
}

impl<'s> OpenAdapter<'s> {
    pub fn info(&self) -> Result<AdapterInfo, Failure> {
        let mut info = AdapterInfo { info_version: VERSION_2, ..AdapterInfo::default() };
        let mut length = size_of::<AdapterInfo>() as u32;
        // SAFETY: a live interface, and as many bytes as the length says.
        let status = unsafe { IND2Adapter::query(self.interface.this(), &raw mut info, &raw mut length) };
        succeeded("cannot query the adapter", status)?;
        Ok(info)
    }

    pub fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        read_list(self.system, |list, length| {
            // SAFETY: a live interface, and as many bytes as the length says.
            unsafe { IND2Adapter::query_address_list(self.interface.this(), list, length) }
        })
    }

    pub fn file(&self) -> Result<AdapterFile<'s>, Failure> {
        let mut handle = ptr::null_mut();
        // SAFETY: a live interface, a place for a handle.
        let status = unsafe { IND2Adapter::create_overlapped_file(self.interface.this(), &raw mut handle) };
        succeeded("cannot open a file of the adapter", status)?;
        Ok(AdapterFile { system: self.system, handle })
    }

    pub fn completion_queue(&self, file: &AdapterFile<'_>, depth: u32) -> Result<CompletionQueue<'s>, Failure> {
        let interface = made(&format!("a completion queue of {depth} entries"), |out| {
            let this = self.interface.this();
            // SAFETY: a live interface, an open file, no affinity, a place for a pointer.
            unsafe {
                IND2Adapter::create_completion_queue(this, &IND2CompletionQueue::IID, file.handle, depth, 0, 0, out)
            }
        })?;
        Ok(CompletionQueue(interface))
    }

    /// A region that is registered with these pages, for all kinds of access, until it is dropped.
    pub fn region(&self, file: &AdapterFile<'_>, pages: Pages<'s>, stop: &Stop) -> Result<Region<'s>, Cut> {
        let interface = made("a memory region", |out| {
            // SAFETY: a live interface, an open file, a place for a pointer.
            unsafe {
                IND2Adapter::create_memory_region(self.interface.this(), &IND2MemoryRegion::IID, file.handle, out)
            }
        })?;
        let request = Request::new(self.system)?;
        let rights = region_flag::ALLOW_REMOTE_READ | region_flag::ALLOW_REMOTE_WRITE;
        let (address, length) = (pages.address().cast_const(), pages.length());
        let region: Interface<'s, IND2MemoryRegion> = interface;
        // SAFETY: a live interface; the pages and the OVERLAPPED stay until the region is deregistered.
        let first = unsafe { IND2MemoryRegion::register(region.this(), address, length, rights, request.overlapped()) };
        let status = request.finish(&region, first, stop)?;
        succeeded(&format!("cannot register {length} bytes"), status)?;
        Ok(Region { interface: region, request, pages })
    }

    pub fn queue_pair(
        &self,
        queue: &CompletionQueue<'_>,
        receive_depth: u32,
        initiator_depth: u32,
    ) -> Result<QueuePair<'s>, Failure> {
        let what = format!("a queue pair of {receive_depth} receives and {initiator_depth} requests");
        let interface = made(&what, |out| {
            let (this, queue) = (self.interface.this(), queue.0.unknown());
            // SAFETY: live interfaces, a place for a pointer.
            unsafe {
                IND2Adapter::create_queue_pair(
                    this,
                    &IND2QueuePair::IID,
                    queue,
                    queue,
                    ptr::null_mut(),
                    receive_depth,
                    initiator_depth,
                    1,
                    1,
                    0,
                    out,
                )
            }
        })?;
        Ok(QueuePair(interface))
    }

    pub fn connector(&self, file: &AdapterFile<'_>) -> Result<Connector<'s>, Failure> {
        let interface = made("a connector", |out| {
            // SAFETY: a live interface, an open file, a place for a pointer.
            unsafe { IND2Adapter::create_connector(self.interface.this(), &IND2Connector::IID, file.handle, out) }
        })?;
        Ok(Connector { interface, request: Request::new(self.system)? })
    }

    /// A listener that listens at this address.
    pub fn listener(&self, file: &AdapterFile<'_>, address: SocketAddr) -> Result<Listener<'s>, Failure> {
        let interface: Interface<'s, IND2Listener> = made("a listener", |out| {
            // SAFETY: a live interface, an open file, a place for a pointer.
            unsafe { IND2Adapter::create_listener(self.interface.this(), &IND2Listener::IID, file.handle, out) }
        })?;
        let raw = RawAddress::from(address);
        // SAFETY: a live interface, a sockaddr of this length.
        let status = unsafe { IND2Listener::bind(interface.this(), raw.as_ptr().cast(), raw.length()) };
        succeeded(&format!("cannot bind a listener to {address}"), status)?;
        // SAFETY: a live interface; no limit of the backlog.
        let status = unsafe { IND2Listener::listen(interface.this(), 0) };
        succeeded(&format!("cannot listen at {address}"), status)?;
        Ok(Listener { interface, request: Request::new(self.system)? })
    }
}

/// A file of an adapter, for overlapped requests.
pub struct AdapterFile<'s> {
    system: &'s System<'s>,
    handle: Handle,
}

impl Drop for AdapterFile<'_> {
    fn drop(&mut self) {
        // SAFETY: its own handle; objects have handles of their own.
        unsafe { self.system.close(self.handle) };
    }
}

pub struct CompletionQueue<'s>(Interface<'s, IND2CompletionQueue>);

impl CompletionQueue<'_> {
    /// Takes what there is, up to so many.
    pub fn results<'r>(&self, room: &'r mut [RequestResult]) -> &'r [RequestResult] {
        // SAFETY: a live interface, and as many places as the number says.
        let count = unsafe { IND2CompletionQueue::get_results(self.0.this(), room.as_mut_ptr(), room.len() as u32) };
        &room[..(count as usize).min(room.len())]
    }

    /// Waits until a result comes.
    pub fn wait(&self, request: &Request<'_>, stop: &Stop) -> Result<(), Cut> {
        // SAFETY: a live interface; the OVERLAPPED is waited for.
        let first = unsafe { IND2CompletionQueue::notify(self.0.this(), notify::ANY, request.overlapped()) };
        let status = request.finish(&self.0, first, stop)?;
        Ok(succeeded("cannot wait for a result", status)?)
    }
}

/// Registered memory.
pub struct Region<'s> {
    interface: Interface<'s, IND2MemoryRegion>,
    request: Request<'s>,
    pages: Pages<'s>,
}

impl<'s> Region<'s> {
    #[must_use]
    pub const fn pages(&self) -> &Pages<'s> {
        &self.pages
    }

    /// A piece of it for a request.
    #[must_use]
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        let buffer = self.pages.address().wrapping_byte_add(offset);
        // SAFETY: a live interface.
        let memory_region_token = unsafe { IND2MemoryRegion::get_local_token(self.interface.this()) };
        Sge { buffer, buffer_length: length, memory_region_token }
    }

    #[must_use]
    pub fn remote_token(&self) -> u32 {
        // SAFETY: a live interface.
        unsafe { IND2MemoryRegion::get_remote_token(self.interface.this()) }
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // SAFETY: a live interface; the OVERLAPPED is waited for.
        let first = unsafe { IND2MemoryRegion::deregister(self.interface.this(), self.request.overlapped()) };
        // Nothing stops this one: the pages go next.
        let _ = self.request.finish(&self.interface, first, &Stop::default());
    }
}

pub struct QueuePair<'s>(Interface<'s, IND2QueuePair>);

impl QueuePair<'_> {
    pub fn send(&self, sge: Sge) -> Status {
        // SAFETY: a live interface, one SGE.
        unsafe { IND2QueuePair::send(self.0.this(), ptr::null_mut(), &raw const sge, 1, 0) }
    }

    pub fn receive(&self, sge: Sge) -> Status {
        // SAFETY: a live interface, one SGE.
        unsafe { IND2QueuePair::receive(self.0.this(), ptr::null_mut(), &raw const sge, 1) }
    }

    pub fn read(&self, sge: Sge, address: u64, token: u32) -> Status {
        // SAFETY: a live interface, one SGE.
        unsafe { IND2QueuePair::read(self.0.this(), ptr::null_mut(), &raw const sge, 1, address, token, 0) }
    }

    pub fn write(&self, sge: Sge, address: u64, token: u32) -> Status {
        // SAFETY: a live interface, one SGE.
        unsafe { IND2QueuePair::write(self.0.this(), ptr::null_mut(), &raw const sge, 1, address, token, 0) }
    }
}

pub struct Connector<'s> {
    interface: Interface<'s, IND2Connector>,
    request: Request<'s>,
}

/// Reads outstanding that a connection asks for; the provider caps it.
const READ_LIMIT: u32 = 16;

impl Connector<'_> {
    /// Connects from any port of an address; the server's private data.
    pub fn connect(
        &self,
        pair: &QueuePair<'_>,
        from: SocketAddr,
        to: SocketAddr,
        data: &[u8],
        stop: &Stop,
    ) -> Result<[u8; 16], Cut> {
        let own = RawAddress::from(SocketAddr::new(from.ip(), 0));
        let this = self.interface.this();
        // SAFETY: a live interface, a sockaddr of this length.
        let status = unsafe { IND2Connector::bind(this, own.as_ptr().cast(), own.length()) };
        succeeded(&format!("cannot bind a connector to {}", from.ip()), status)?;
        let peer = RawAddress::from(to);
        // SAFETY: live interfaces, a sockaddr and data of these lengths; the OVERLAPPED is waited for.
        let first = unsafe {
            IND2Connector::connect(
                this,
                pair.0.unknown(),
                peer.as_ptr().cast(),
                peer.length(),
                READ_LIMIT,
                READ_LIMIT,
                data.as_ptr().cast(),
                data.len() as u32,
                self.request.overlapped(),
            )
        };
        let what = format!("cannot connect {} to {to}", from.ip());
        let status = self.request.finish(&self.interface, first, stop)?;
        if !status.is_success() {
            return Err(self.not_connected(what, status));
        }
        let answer = self.private_data()?;
        // SAFETY: a live interface; the OVERLAPPED is waited for.
        let first = unsafe { IND2Connector::complete_connect(this, self.request.overlapped()) };
        connected(what, self.request.finish(&self.interface, first, stop)?)?;
        Ok(answer)
    }

    /// The reason, too, where the server has refused and says one.
    fn not_connected(&self, what: String, status: Status) -> Cut {
        let said = (status == Status::CONNECTION_REFUSED).then(|| self.private_data().ok()).flatten();
        let Some(refusal) = said.and_then(Refusal::decode) else { return refused_by_other(what, status) };
        let (cause, next_step) = refusal.of_server();
        let failure = refused(what, status);
        Cut::Gone(Failure { cause: format!("{}: {cause}", failure.cause), next_step: next_step.to_owned(), ..failure })
    }

    /// The peer's private data, zeroes behind them.
    pub fn private_data<const LENGTH: usize>(&self) -> Result<[u8; LENGTH], Failure> {
        let mut data = [0; LENGTH];
        let mut length = data.len() as u32;
        // SAFETY: a live interface, and as many bytes as the length says.
        let status = unsafe {
            IND2Connector::get_private_data(self.interface.this(), data.as_mut_ptr().cast(), &raw mut length)
        };
        // More than these is the transport's padding.
        if status != Status::BUFFER_OVERFLOW {
            succeeded("cannot read what the peer says", status)?;
        }
        Ok(data)
    }

    /// Accepts the connection request that the listener has given it.
    pub fn accept(&self, pair: &QueuePair<'_>, data: &[u8; 16], stop: &Stop) -> Result<(), Cut> {
        // SAFETY: live interfaces, data of this length; the OVERLAPPED is waited for.
        let first = unsafe {
            IND2Connector::accept(
                self.interface.this(),
                pair.0.unknown(),
                READ_LIMIT,
                READ_LIMIT,
                data.as_ptr().cast(),
                data.len() as u32,
                self.request.overlapped(),
            )
        };
        connected("cannot accept the connection", self.request.finish(&self.interface, first, stop)?)
    }

    /// Refuses the connection request that the listener has given it, and says why.
    pub fn reject(&self, refusal: Refusal) {
        let data = refusal.encode();
        // SAFETY: a live interface, data of this length.
        unsafe { IND2Connector::reject(self.interface.this(), data.as_ptr().cast(), data.len() as u32) };
    }

    /// The peer's address, where there is one.
    pub fn peer(&self) -> Option<SocketAddr> {
        let mut raw = RawAddress::EMPTY;
        let mut length = raw.length();
        // SAFETY: a live interface, and as many bytes as the length says.
        let status =
            unsafe { IND2Connector::get_peer_address(self.interface.this(), raw.as_mut_ptr().cast(), &raw mut length) };
        if status.is_success() { raw.socket() } else { None }
    }

    /// Waits until the connection has ended, in order or not.
    pub fn wait_for_end(&self, stop: &Stop) -> Result<(), Cut> {
        // SAFETY: a live interface; the OVERLAPPED is waited for.
        let first = unsafe { IND2Connector::notify_disconnect(self.interface.this(), self.request.overlapped()) };
        match self.request.finish(&self.interface, first, stop)? {
            // It may have ended before it was asked for.
            Status::CONNECTION_INVALID | Status::CONNECTION_DISCONNECTED | Status::CONNECTION_ABORTED => Ok(()),
            status => Ok(succeeded("cannot wait for the end of the connection", status)?),
        }
    }

    pub fn disconnect(&self, stop: &Stop) -> Result<(), Cut> {
        // SAFETY: a live interface; the OVERLAPPED is waited for.
        let first = unsafe { IND2Connector::disconnect(self.interface.this(), self.request.overlapped()) };
        Ok(succeeded("cannot disconnect", self.request.finish(&self.interface, first, stop)?)?)
    }
}

pub struct Listener<'s> {
    interface: Interface<'s, IND2Listener>,
    request: Request<'s>,
}

impl Listener<'_> {
    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr, Failure> {
        let mut raw = RawAddress::EMPTY;
        let mut length = raw.length();
        // SAFETY: a live interface, and as many bytes as the length says.
        let status =
            unsafe { IND2Listener::get_local_address(self.interface.this(), raw.as_mut_ptr().cast(), &raw mut length) };
        succeeded("cannot find where the listener listens", status)?;
        raw.socket().ok_or_else(|| refused("cannot find where the listener listens", Status::INVALID_ADDRESS))
    }

    /// Waits for a client, until then where that is given; its request is the connector's then. Whether one came.
    pub fn take_request(&self, connector: &Connector<'_>, until: Option<Instant>, stop: &Stop) -> Result<bool, Cut> {
        let this = self.interface.this();
        // SAFETY: live interfaces; the OVERLAPPED is waited for.
        let first = unsafe {
            IND2Listener::get_connection_request(this, connector.interface.unknown(), self.request.overlapped())
        };
        let Some(status) = self.request.finish_until(&self.interface, first, stop, until)? else { return Ok(false) };
        succeeded("cannot take a connection request", status)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::refused;
    use crate::failure::Kind;
    use softnd_interfaces::Status;

    #[test]
    fn refusals_have_a_name_and_a_next_step() {
        let known = refused("cannot connect", Status::CONNECTION_REFUSED);
        assert!(known.cause.starts_with("ND_CONNECTION_REFUSED (0xC0000236)"), "{known}");
        assert!(known.next_step.contains("start the server"), "{known}");
        let ended = refused("a Receive failed", Status::CANCELED);
        assert!(ended.next_step.contains("the other end"), "{ended}");
        let own = refused("cannot make a queue pair", Status::INVALID_PARAMETER_5);
        assert_eq!(own.cause, "ND_INVALID_PARAMETER_5 (0xC00000F3)");
        assert!(own.next_step.contains("nd info"), "{own}");
        let unknown = refused("cannot do it", Status(0x1234_5678 | i32::MIN));
        assert_eq!((unknown.cause.as_str(), unknown.kind), ("status 0x92345678", Kind::Refused));
    }

    /// A trace of ndktest.sys has nothing of a provider's client.
    #[test]
    fn next_step_is_of_this_command() {
        for (status, part) in [
            (Status::IO_TIMEOUT, "firewall"),
            (Status::CONNECTION_ABORTED, "no iWARP"),
            (Status::BAD_NETWORK_NAME, "nd info"),
            (Status::HOST_UNREACHABLE, "Transport 1"),
            (Status::INSUFFICIENT_RESOURCES, "smaller"),
            (Status::INTERNAL_ERROR, "the other end"),
            (Status(0x1234_5678 | i32::MIN), "the other end"),
        ] {
            let next_step = refused("cannot connect", status).next_step;
            assert!(next_step.contains(part) && !next_step.contains("--trace"), "{status:?}: {next_step}");
        }
    }
}
