//! The engine as the system under test: the smallest front end that understands scripts.
//!
//! It keeps slots of engine handles, makes one call a line and runs service passes until no work is left. It shares no code with
//! the driver: errors become statuses by a table of its own, written from `docs/decisions.md`.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use ndkctl::script::{Line, Tail, name_text};
use softndk_engine::{
    Accept, Arm, Close, CompletionQueue, Connect, ConnectError, Connector, CreateError, Deregistered, FastRegistration,
    Listener, LogicalAddress, MemoryRegion, MemoryToken, MemoryWindow, Open, Operation, Outcome, PostError,
    ProtectionDomain, QueuePair, QueuePairSettings, ReadLimits, RegionError, Registration, RequestFlags, Requested,
    ResizeError, Rights, Semantics, Sge, SharedEndpoint, SharedReceiveQueue, SharedReceiveQueueSettings, Source,
};
use softndk_ioctl::{
    ScriptCode, ScriptEvent, ScriptKind, ScriptName, ScriptOccurrence, ScriptResult, ScriptSge, ScriptStep, Status,
    script_byte, script_digest,
};

use crate::model::{ACROSS_STREAMS, Column, Expected};
use softndk_engine_kit::{Buffer, Event, FIRST, Harness, SECOND, World, polled};

enum Handle {
    Adapter(Open<Harness>, IpAddr),
    Domain(ProtectionDomain<Harness>),
    Shared(SharedReceiveQueue<Harness>, ProtectionDomain<Harness>),
    Queue(CompletionQueue<Harness>),
    Pair(QueuePair<Harness>, ProtectionDomain<Harness>),
    Buffer(Buffer, LogicalAddress, Open<Harness>),
    Region { region: MemoryRegion<Harness>, base: u64 },
    Window { window: MemoryWindow<Harness>, base: u64 },
    Endpoint(SharedEndpoint<Harness>),
    Token(MemoryToken, u64),
    Listener(Listener<Harness>, VecDeque<Connector<Harness>>, IpAddr),
    Connector(Connector<Harness>, IpAddr),
}

/// The engine with a consumer's objects.
pub struct Engine {
    world: World,
    column: Column,
    handles: BTreeMap<ScriptName, Handle>,
    occurrences: Vec<ScriptOccurrence>,
    /// The queue pairs that connectors have accepted with.
    accepted: BTreeMap<ScriptName, ScriptName>,
    /// Whose token a number is.
    tokens: BTreeMap<u32, ScriptName>,
    /// All service passes run after every line, or only so many.
    pub lazy: Option<u32>,
}

fn occurrence(event: ScriptEvent, object: ScriptName, status: Status) -> ScriptOccurrence {
    ScriptOccurrence { event: event as u32, object, status: status.0, reserved: [0; 5] }
}

/// The number of a callback, by kind and object.
fn callback(event: ScriptEvent, object: ScriptName) -> u64 {
    (event as u64) << 32 | u64::from(object.0)
}

impl Engine {
    pub fn new(column: Column) -> Self {
        Self {
            world: World::new(),
            column,
            handles: BTreeMap::new(),
            occurrences: Vec::new(),
            accepted: BTreeMap::new(),
            tokens: BTreeMap::new(),
            lazy: None,
        }
    }

    /// Does what the line says, and answers what it gave.
    pub fn apply(&mut self, line: &Line) -> Expected {
        let Some(code) = ScriptCode::from_number(line.step.code) else { return Expected::Skip };
        let seen = self.dispatch(code, line).unwrap_or(Expected::Skip);
        match self.lazy {
            None => self.rest(),
            Some(passes) => {
                for _ in 0..passes {
                    self.world.step(64);
                }
                let events = std::mem::take(&mut self.world.events.seen);
                self.take(events);
            }
        }
        seen
    }

    /// Service passes until no work is left.
    pub fn rest(&mut self) {
        let events = self.world.run();
        let accepted = |event: &Event| match event {
            Event::Completed(number, Ok(())) if number >> 32 == ScriptEvent::Accept as u64 => Some(*number as u32),
            _ => None,
        };
        let speakers: Vec<_> = events.iter().filter_map(accepted).map(ScriptName).collect();
        self.take(events);
        if ACROSS_STREAMS && !speakers.is_empty() {
            for connector in speakers {
                self.speak(connector);
            }
            self.rest();
        }
    }

    /// Sends something that no consumer sees: an initiator that has received nothing ends in another way than the model says.
    fn speak(&self, connector: ScriptName) {
        let Some(pair) = self.accepted.get(&connector).and_then(|name| self.pair(*name)) else { return };
        let nowhere = MemoryToken(1);
        let sent = pair.write(0, RequestFlags::SILENT_SUCCESS, std::iter::empty(), 0, nowhere);
        assert_eq!(sent, Ok(()), "nothing has been posted before");
    }

    /// What was called back since the last look.
    pub fn take_occurrences(&mut self) -> Expected {
        Expected::Occurrences(std::mem::take(&mut self.occurrences))
    }

    /// Whether the consumer has it.
    pub fn has(&self, name: ScriptName) -> bool {
        self.handles.contains_key(&name)
    }

    /// What the consumer has of one kind.
    pub fn names(&self, kind: ScriptKind) -> Vec<ScriptName> {
        let range = ScriptName::new(kind, 0)..=ScriptName::new(kind, u16::MAX);
        self.handles.range(range).map(|(name, _)| *name).collect()
    }

    fn take(&mut self, events: Vec<Event>) {
        let mut arrived = std::mem::take(&mut self.world.events.arrived).into_iter();
        for event in events {
            let (number, status) = match event {
                Event::Notified(number, result) => {
                    (number, if result.is_ok() { Status::SUCCESS } else { Status::BUFFER_OVERFLOW })
                }
                Event::Completed(number, result) => {
                    (number, result.map_or_else(self.of_connect(), |()| Status::SUCCESS))
                }
                Event::Disconnected(number) | Event::Closed(number, _) => (number, Status::SUCCESS),
                Event::Requested(number) => {
                    let name = ScriptName(number as u32);
                    if let (Some(Handle::Listener(_, waiting, _)), Some(connector)) =
                        (self.handles.get_mut(&name), arrived.next())
                    {
                        waiting.push_back(connector);
                    }
                    (number, Status::SUCCESS)
                }
                Event::Retired(_) => continue,
            };
            self.record(number, status);
        }
    }

    fn record(&mut self, number: u64, status: Status) {
        let object = ScriptName(number as u32);
        if object != ScriptName::NONE {
            let event = (number >> 32) as u32;
            self.occurrences.push(ScriptOccurrence { event, object, status: status.0, reserved: [0; 5] });
        }
    }

    fn of_connect(&self) -> impl Fn(ConnectError) -> Status + use<> {
        |error| match error {
            ConnectError::InvalidAddress => Status::INVALID_ADDRESS,
            ConnectError::AddressInUse => Status::SHARING_VIOLATION,
            ConnectError::NoPorts => Status::TOO_MANY_ADDRESSES,
            ConnectError::HostUnreachable => Status::HOST_UNREACHABLE,
            ConnectError::Refused => Status::CONNECTION_REFUSED,
            ConnectError::Aborted => Status::CONNECTION_ABORTED,
            ConnectError::AlreadyConnected => Status::CONNECTION_ACTIVE,
            ConnectError::InvalidState => Status::CONNECTION_INVALID,
            ConnectError::PrivateDataTooLong => Status::INVALID_BUFFER_SIZE,
            ConnectError::Foreign => Status::INVALID_PARAMETER,
            ConnectError::TupleInUse => Status::ADDRESS_ALREADY_EXISTS,
            ConnectError::AdapterGone => Status::DEVICE_REMOVED,
            _ => Status::INSUFFICIENT_RESOURCES,
        }
    }

    fn of_outcome(&self, outcome: Outcome) -> Status {
        let nd = self.column == Column::Nd;
        match outcome {
            Outcome::Success => Status::SUCCESS,
            Outcome::Cancelled => Status::CANCELLED,
            Outcome::LocalAccess | Outcome::RemoteAccess => Status::ACCESS_VIOLATION,
            Outcome::ReceiveTooSmall if nd => Status::DATA_OVERRUN,
            Outcome::ReceiveTooSmall => Status::BUFFER_OVERFLOW,
            Outcome::InvalidRequest => Status::INVALID_DEVICE_REQUEST,
            Outcome::NotReady => Status::IO_TIMEOUT,
            Outcome::RemoteError => Status::REMOTE_RESOURCES,
        }
    }

    fn open(&self, number: u64) -> Option<(&Open<Harness>, IpAddr)> {
        match self.handles.get(&ScriptName(number as u32))? {
            Handle::Adapter(open, address) => Some((open, *address)),
            _ => None,
        }
    }

    fn domain(&self, number: u64) -> Option<&ProtectionDomain<Harness>> {
        match self.handles.get(&ScriptName(number as u32))? {
            Handle::Domain(domain) => Some(domain),
            _ => None,
        }
    }

    fn queue(&self, number: u64) -> Option<&CompletionQueue<Harness>> {
        match self.handles.get(&ScriptName(number as u32))? {
            Handle::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    fn pair(&self, name: ScriptName) -> Option<&QueuePair<Harness>> {
        match self.handles.get(&name)? {
            Handle::Pair(pair, _) => Some(pair),
            _ => None,
        }
    }

    fn region(&self, name: ScriptName) -> Option<&MemoryRegion<Harness>> {
        match self.handles.get(&name)? {
            Handle::Region { region, .. } => Some(region),
            _ => None,
        }
    }

    fn buffer(&self, name: ScriptName) -> Option<(&Buffer, LogicalAddress)> {
        match self.handles.get(&name)? {
            Handle::Buffer(buffer, first, _) => Some((buffer, *first)),
            _ => None,
        }
    }

    fn connector(&self, name: ScriptName) -> Option<(&Connector<Harness>, IpAddr)> {
        match self.handles.get(&name)? {
            Handle::Connector(connector, address) => Some((connector, *address)),
            _ => None,
        }
    }

    fn make(&mut self, name: ScriptName, made: Result<Handle, CreateError>) -> Option<Expected> {
        Some(Expected::Status(match made {
            Ok(handle) => {
                self.handles.insert(name, handle);
                Status::SUCCESS
            }
            Err(CreateError::OverLimit | CreateError::Foreign) => Status::INVALID_PARAMETER,
            Err(_) => Status::INSUFFICIENT_RESOURCES,
        }))
    }

    fn dispatch(&mut self, code: ScriptCode, line: &Line) -> Option<Expected> {
        use ScriptCode as Do;
        let (name, step) = (line.step.object, &line.step);
        let consumer_object = self.world.consumer_object(1);
        let [first, second, third, ..] = step.arguments;
        match code {
            Do::Open => {
                let (adapter, address) =
                    if first == 0 { (&self.world.first, FIRST) } else { (&self.world.second, SECOND) };
                let semantics = if self.column == Column::Ndk { Semantics::NDK } else { Semantics::ND };
                let made = adapter.open(semantics, consumer_object).map(|open| Handle::Adapter(open, address));
                self.make(name, made)
            }
            Do::CreateDomain => {
                let made = self.open(first)?.0.create_protection_domain(consumer_object).map(Handle::Domain);
                self.make(name, made)
            }
            Do::CreateCompletionQueue => {
                let notify = Some(callback(ScriptEvent::Notify, name));
                let queue = self.open(first)?.0.create_completion_queue(second as u32, notify, None, consumer_object);
                self.make(name, queue.map(Handle::Queue))
            }
            Do::CreateQueuePair | Do::CreateQueuePairShared => self.create_pair(code, name, step),
            Do::CreateSharedReceiveQueue => {
                let domain = self.domain(first)?.clone();
                let settings = SharedReceiveQueueSettings {
                    depth: second as u32,
                    sges: third as u32,
                    threshold: step.arguments[3] as u32,
                    notify: Some(callback(ScriptEvent::Notify, name)),
                    processor: None,
                };
                let made = SharedReceiveQueue::create(&domain, settings, consumer_object);
                self.make(name, made.map(|queue| Handle::Shared(queue, domain)))
            }
            Do::Modify => {
                let Handle::Shared(queue, _) = self.handles.get(&name)? else { return None };
                Some(resize_status(queue.modify(first as u32, second as u32)))
            }
            Do::SharedReceive => {
                let sges = self.sges(line, false)?;
                let Handle::Shared(queue, _) = self.handles.get(&name)? else { return None };
                Some(post_status(queue.receive(first, sges.into_iter())))
            }
            Do::CreateBuffer => {
                let bytes: Vec<u8> = (0..second).map(|offset| script_byte(third, offset)).collect();
                let buffer = Buffer::new(bytes.len(), 0);
                buffer.write(0, &bytes);
                let open = self.open(first)?.0.clone();
                let mapping = open.build_mapping(self.world.map(&buffer)).ok()?;
                self.handles.insert(name, Handle::Buffer(buffer, mapping.first, open));
                Some(Expected::Status(Status::SUCCESS))
            }
            Do::Fill => {
                let bytes: Vec<u8> = (first..first + second).map(|offset| script_byte(third, offset)).collect();
                self.buffer(name)?.0.write(first as usize, &bytes);
                Some(Expected::Nothing)
            }
            Do::CreateRegion | Do::CreateFastRegion => {
                let region = self.domain(first)?.create_memory_region(code == Do::CreateFastRegion, consumer_object);
                self.make(name, region.map(|region| Handle::Region { region, base: 0 }))
            }
            Do::CreateWindow => {
                let window = self.domain(first)?.create_memory_window(consumer_object);
                self.make(name, window.map(|window| Handle::Window { window, base: 0 }))
            }
            Do::CreateEndpoint => {
                let (open, address) = self.open(first)?;
                let made = open.create_shared_endpoint(SocketAddr::new(address, second as u16), consumer_object);
                Some(Expected::Status(match made {
                    Ok(endpoint) => {
                        self.handles.insert(name, Handle::Endpoint(endpoint));
                        Status::SUCCESS
                    }
                    Err(error) => self.of_connect()(error),
                }))
            }
            Do::Resize => Some(resize_status(self.queue(u64::from(name.0))?.resize(first as u32))),
            Do::Bind => self.bind(step),
            Do::Register => self.register(name, step),
            Do::Deregister => {
                let answer = self.region(name)?.deregister(0);
                Some(region_status(match answer {
                    Ok(Deregistered::Done(_) | Deregistered::Pending) => Ok(()),
                    Err(error) => Err(error),
                }))
            }
            Do::Initialize => {
                let region = self.region(name)?;
                let answer = region.initialize_fast_register(first as u32, second != 0);
                let token = region.remote_token();
                self.tokens.insert(token.0, name);
                Some(region_status(answer))
            }
            Do::Remember => {
                let (token, base) = self.remote(first, 0)?;
                self.handles.insert(name, Handle::Token(token, base));
                Some(Expected::Nothing)
            }
            Do::CreateListener => {
                let arrived = callback(ScriptEvent::Arrived, name);
                let (open, address) = self.open(first)?;
                let listener = open.create_listener(arrived, consumer_object);
                self.make(name, listener.map(|listener| Handle::Listener(listener, VecDeque::new(), address)))
            }
            Do::CreateConnector => {
                let (open, address) = self.open(first)?;
                let connector = open.create_connector(consumer_object);
                self.make(name, connector.map(|connector| Handle::Connector(connector, address)))
            }
            Do::Send | Do::SendAndInvalidate | Do::Read | Do::Write => self.post_transfer(code, line),
            Do::FastRegister => self.fast_register(step),
            Do::Receive => {
                let sges = self.sges(line, false)?;
                Some(post_status(self.pair(name)?.receive(first, sges.into_iter())))
            }
            Do::Invalidate => {
                let pair = self.pair(name)?;
                let Some((flags, _)) = request_flags(second, false) else { return Some(refuse(pair)) };
                Some(post_status(match self.handles.get(&ScriptName(third as u32))? {
                    Handle::Region { region, .. } => pair.invalidate(first, flags, region),
                    Handle::Window { window, .. } => pair.invalidate_window(first, flags, window),
                    _ => return None,
                }))
            }
            Do::Flush => {
                self.pair(name)?.flush();
                Some(Expected::Nothing)
            }
            Do::Arm => {
                let arm = [Arm::Errors, Arm::Any, Arm::Solicited];
                self.queue(u64::from(name.0))?.arm(*arm.get(first as usize)?);
                Some(Expected::Nothing)
            }
            Do::Listen => {
                let Handle::Listener(listener, _, address) = self.handles.get(&name)? else { return None };
                let answer = listener.listen(SocketAddr::new(*address, first as u16), 0);
                Some(Expected::Status(answer.map_or_else(self.of_connect(), |_| Status::SUCCESS)))
            }
            Do::Pause => {
                let Handle::Listener(listener, ..) = self.handles.get(&name)? else { return None };
                listener.pause(first != 0);
                Some(Expected::Nothing)
            }
            Do::Connect | Do::ConnectShared => self.connect(code, name, step),
            Do::Arrive => {
                let Some(Handle::Listener(_, waiting, _)) = self.handles.get_mut(&ScriptName(first as u32)) else {
                    return None;
                };
                let Some(connector) = waiting.pop_front() else { return Some(Expected::Status(Status::NOT_FOUND)) };
                let address = connector.local_address().map_or(FIRST, |address| address.ip());
                self.handles.insert(name, Handle::Connector(connector, address));
                Some(Expected::Status(Status::SUCCESS))
            }
            Do::Accept => {
                self.accepted.insert(name, ScriptName(first as u32));
                let (connector, _) = self.connector(name)?;
                let answer = connector.accept(Accept {
                    queue_pair: self.pair(ScriptName(first as u32))?,
                    limits: ReadLimits { inbound: second as u32, outbound: third as u32 },
                    private_data: &vec![7; step.arguments[3] as usize],
                    disconnect: Some(callback(ScriptEvent::Gone, name)),
                    callback: callback(ScriptEvent::Accept, name),
                });
                self.requested(ScriptEvent::Accept, name, answer)
            }
            Do::Complete => {
                let gone = Some(callback(ScriptEvent::Gone, name));
                let answer = self.connector(name)?.0.complete_connect(gone, callback(ScriptEvent::Complete, name));
                self.requested(ScriptEvent::Complete, name, answer)
            }
            Do::Reject => {
                let answer = self.connector(name)?.0.reject(&vec![7; first as usize]);
                Some(Expected::Status(answer.map_or_else(self.of_connect(), |()| Status::SUCCESS)))
            }
            Do::Disconnect => {
                let answer = self.connector(name)?.0.disconnect(callback(ScriptEvent::Disconnect, name));
                self.requested(ScriptEvent::Disconnect, name, answer)
            }
            Do::Close => self.close(name),
            Do::Poll => Some(Expected::Results(self.poll(name)?)),
            Do::Events => Some(self.take_occurrences()),
            Do::Bytes => {
                let bytes = self.buffer(name)?.0.read(first as usize, second as usize);
                Some(Expected::Digest(script_digest(&bytes)))
            }
            Do::Limits => {
                let data = self.connector(name)?.0.connection_data(&mut [0; 256]).ok()?;
                Some(Expected::Limits(data.limits.inbound, data.limits.outbound))
            }
            Do::Moderate => None,
        }
    }

    fn create_pair(&mut self, code: ScriptCode, name: ScriptName, step: &ScriptStep) -> Option<Expected> {
        let [domain, receive, initiator, numbers @ ..] = step.arguments;
        let domain = self.domain(domain)?.clone();
        let shared = match self.handles.get(&ScriptName(numbers[0] as u32)) {
            Some(Handle::Shared(queue, _)) if code == ScriptCode::CreateQueuePairShared => Some(queue),
            _ => None,
        };
        let [receive_depth, initiator_depth, receive_sges, initiator_sges, inline_data] = match shared {
            None => [0, 1, 2, 3, 4].map(|index| numbers[index] as u32),
            Some(_) => [0, numbers[1] as u32, 0, numbers[2] as u32, numbers[3] as u32],
        };
        let settings = QueuePairSettings {
            receive_queue: self.queue(receive)?,
            initiator_queue: self.queue(initiator)?,
            context: u64::from(name.0),
            shared,
            receive_depth,
            initiator_depth,
            receive_sges,
            initiator_sges,
            inline_data,
        };
        let made = QueuePair::create(&domain, settings, self.world.consumer_object(1));
        self.make(name, made.map(|pair| Handle::Pair(pair, domain)))
    }

    fn register(&mut self, name: ScriptName, step: &ScriptStep) -> Option<Expected> {
        let [buffer, offset, length, rights, ..] = step.arguments;
        let (buffer, _) = self.buffer(ScriptName(buffer as u32))?;
        // A memory list describes memory that is there.
        (offset <= buffer.length()).then_some(())?;
        let base = buffer.address() + offset;
        // The engine maps from the first byte of what is registered on.
        let memory = self.world.counters.map_from(buffer, offset as usize);
        let Handle::Region { region, base: label } = self.handles.get_mut(&name)? else { return None };
        let rights = Rights::from_bits_truncate((rights & 7) as u8);
        let answer = region.register(Registration { memory, base, length, rights });
        *label = base;
        Some(region_status(answer.map_err(|(error, _)| error)))
    }

    fn sges(&self, line: &Line, inline: bool) -> Option<Vec<Sge>> {
        let Tail::Sges(list) = &line.tail else { return Some(Vec::new()) };
        let (Handle::Pair(_, domain) | Handle::Shared(_, domain)) = self.handles.get(&line.step.object)? else {
            return None;
        };
        list.iter().map(|sge| self.sge(sge, domain, inline)).collect()
    }

    fn sge(&self, sge: &ScriptSge, domain: &ProtectionDomain<Harness>, inline: bool) -> Option<Sge> {
        let base = match sge.base {
            ScriptName::NONE => 0,
            base => match self.handles.get(&base)? {
                Handle::Buffer(buffer, ..) if inline => buffer.address(),
                Handle::Buffer(_, first, _) => first.0,
                Handle::Region { base, .. } => *base,
                _ => return None,
            },
        };
        let token = match sge.token {
            ScriptName::NONE => MemoryToken(sge.raw_token),
            token => match self.handles.get(&token)? {
                Handle::Buffer(..) => domain.privileged_token(),
                Handle::Region { region, .. } => region.local_token(),
                _ => return None,
            },
        };
        Some(Sge { address: base.wrapping_add(sge.offset), length: sge.length, token })
    }

    fn remote(&self, first: u64, offset: u64) -> Option<(MemoryToken, u64)> {
        let name = ScriptName(first as u32);
        if name == ScriptName::NONE {
            return Some((MemoryToken((first >> 32) as u32), offset));
        }
        let (token, base) = match self.handles.get(&name)? {
            Handle::Region { region, base } => (region.remote_token(), *base),
            Handle::Window { window, base } => (window.remote_token(), *base),
            Handle::Token(token, base) => (*token, *base),
            _ => return None,
        };
        Some((token, base.wrapping_add(offset)))
    }

    fn post_transfer(&mut self, code: ScriptCode, line: &Line) -> Option<Expected> {
        let [context, flags, first, second, ..] = line.step.arguments;
        let pair = self.pair(line.step.object)?;
        let Some((flags, _)) = request_flags(flags, false) else { return Some(refuse(pair)) };
        let sges = self.sges(line, flags.contains(RequestFlags::INLINE))?.into_iter();
        let posted = if code == ScriptCode::Send {
            pair.send(context, flags, sges)
        } else {
            let (token, address) = self.remote(first, second)?;
            match code {
                ScriptCode::SendAndInvalidate => pair.send_and_invalidate(context, flags, sges, token),
                ScriptCode::Read => pair.read(context, flags, sges, address, token),
                _ => pair.write(context, flags, sges, address, token),
            }
        };
        Some(post_status(posted))
    }

    fn fast_register(&mut self, step: &ScriptStep) -> Option<Expected> {
        let [context, flags, region, buffer, page, pages, first_byte, length, base, _] = step.arguments;
        let pair = self.pair(step.object)?;
        let (_, start) = self.buffer(ScriptName(buffer as u32))?;
        let of = self.region(ScriptName(region as u32))?;
        let Some((flags, rights)) = request_flags(flags, true) else { return Some(refuse(pair)) };
        let registration = FastRegistration { first_byte_offset: first_byte as u32, length, base, rights };
        let list = (0..pages as u32).map(|index| LogicalAddress(start.0 + (page + u64::from(index)) * 4096));
        let posted = pair.fast_register(context, flags, of, registration, list);
        if posted.is_ok()
            && let Some(Handle::Region { base: label, .. }) = self.handles.get_mut(&ScriptName(region as u32))
        {
            *label = base;
        }
        Some(post_status(posted))
    }

    fn bind(&mut self, step: &ScriptStep) -> Option<Expected> {
        let [context, flags, region, window, offset, length, ..] = step.arguments;
        let pair = self.pair(step.object)?;
        let Handle::Region { region, base } = self.handles.get(&ScriptName(region as u32))? else { return None };
        let name = ScriptName(window as u32);
        let Handle::Window { window, .. } = self.handles.get(&name)? else { return None };
        let Some((flags, rights)) = request_flags(flags, true) else { return Some(refuse(pair)) };
        let address = base.wrapping_add(offset);
        let posted = pair.bind(context, flags, region, window, address, length, rights);
        let token = window.remote_token();
        if posted.is_ok()
            && let Some(Handle::Window { base, .. }) = self.handles.get_mut(&name)
        {
            *base = address;
            self.tokens.insert(token.0, name);
        }
        Some(post_status(posted))
    }

    fn connect(&mut self, code: ScriptCode, name: ScriptName, step: &ScriptStep) -> Option<Expected> {
        let shared = code == ScriptCode::ConnectShared;
        let [pair, first, second, third, fourth, inbound, outbound, data, ..] = step.arguments;
        let (to, host, port) = if shared { (second, third, fourth) } else { (first, second, third) };
        let destination = match self.handles.get(&ScriptName(to as u32)) {
            Some(Handle::Listener(listener, ..)) => listener.local_address()?,
            _ => SocketAddr::new(self.open(host)?.1, port as u16),
        };
        let (connector, address) = self.connector(name)?;
        let source = match self.handles.get(&ScriptName(first as u32)) {
            Some(Handle::Endpoint(endpoint)) if shared => Source::Shared(endpoint),
            _ => Source::Address(SocketAddr::new(address, fourth as u16)),
        };
        let answer = connector.connect(Connect {
            queue_pair: self.pair(ScriptName(pair as u32))?,
            source,
            destination,
            limits: ReadLimits { inbound: inbound as u32, outbound: outbound as u32 },
            private_data: &vec![7; data as usize],
            callback: callback(ScriptEvent::Connect, name),
        });
        self.requested(ScriptEvent::Connect, name, answer)
    }

    fn requested(
        &mut self,
        event: ScriptEvent,
        name: ScriptName,
        answer: Result<Requested, ConnectError>,
    ) -> Option<Expected> {
        let status = match answer {
            Ok(Requested::Pending) => return Some(Expected::Nothing),
            Ok(Requested::Done) => Status::SUCCESS,
            Err(error) => self.of_connect()(error),
        };
        self.occurrences.push(occurrence(event, name, status));
        Some(Expected::Nothing)
    }

    fn close(&mut self, name: ScriptName) -> Option<Expected> {
        let number = callback(ScriptEvent::Closed, name);
        let done: Close<Harness> = match self.handles.remove(&name)? {
            Handle::Adapter(open, _) => {
                let done = open.close(number);
                if matches!(done, Close::Done(_)) {
                    self.record(number, Status::SUCCESS);
                }
                return Some(Expected::Nothing);
            }
            Handle::Buffer(_, first, open) => {
                open.release_mapping(first);
                self.record(number, Status::SUCCESS);
                return Some(Expected::Nothing);
            }
            Handle::Token(..) => {
                self.record(number, Status::SUCCESS);
                return Some(Expected::Nothing);
            }
            Handle::Domain(domain) => domain.close(number),
            Handle::Shared(queue, _) => queue.close(number),
            Handle::Queue(queue) => queue.close(number),
            Handle::Pair(pair, _) => pair.close(number),
            Handle::Region { region, .. } => region.close(number),
            Handle::Window { window, .. } => window.close(number),
            Handle::Endpoint(endpoint) => endpoint.close(number),
            Handle::Connector(connector, _) => connector.close(number),
            Handle::Listener(listener, waiting, _) => {
                for connector in waiting {
                    drop(connector.close(0));
                }
                listener.close(number)
            }
        };
        if matches!(done, Close::Done(_)) {
            self.record(number, Status::SUCCESS);
        }
        Some(Expected::Nothing)
    }

    fn poll(&self, name: ScriptName) -> Option<Vec<ScriptResult>> {
        let queue = self.queue(u64::from(name.0))?;
        let entry = |entry: &softndk_engine::Completion| {
            let receive = entry.operation.is_receive();
            let good = entry.outcome == Outcome::Success;
            let invalidated = entry.operation == Operation::ReceiveAndInvalidate;
            ScriptResult {
                context: entry.context,
                queue_pair: ScriptName(entry.queue_pair_context as u32),
                operation: operation_number(entry.operation),
                status: self.of_outcome(entry.outcome).0,
                bytes: if receive && good { entry.bytes } else { 0 },
                invalidated: if invalidated { self.tokens.get(&entry.output).copied() } else { None }
                    .unwrap_or_default(),
                reserved: 0,
            }
        };
        Some(polled(queue).iter().map(entry).collect())
    }

    /// What is left of the consumer's objects or in the engine at the end.
    pub fn leftovers(&mut self) -> Option<String> {
        self.rest();
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        let (blocks, mappings) = (count(&self.world.counters.blocks), count(&self.world.counters.mappings));
        let mut objects = 0;
        self.world.first.objects(&mut |_| objects += 1);
        self.world.second.objects(&mut |_| objects += 1);
        let names: Vec<String> = self.handles.keys().map(|name| name_text(*name)).collect();
        self.occurrences.clear();
        self.tokens.clear();
        let clean = blocks == 0 && mappings == 0 && objects == 0 && names.is_empty();
        (!clean).then(|| format!("{blocks} blocks, {mappings} mappings, {objects} objects left, slots {names:?}"))
    }
}

fn operation_number(operation: Operation) -> u32 {
    match operation {
        // Immediate data is no kernel consumer's.
        Operation::Receive | Operation::ReceiveImmediate | Operation::ReceiveWriteImmediate => 1,
        Operation::ReceiveAndInvalidate => 0x8001,
        Operation::Send | Operation::SendAndInvalidate | Operation::SendImmediate => 2,
        Operation::FastRegister => 4,
        Operation::Bind => 8,
        Operation::Invalidate => 16,
        Operation::Read => 32,
        Operation::Write | Operation::WriteImmediate => 64,
    }
}

fn post_status(posted: Result<(), PostError>) -> Expected {
    Expected::Status(match posted {
        Ok(()) => Status::SUCCESS,
        Err(PostError::QueueFull) => Status::NO_MORE_ENTRIES,
        Err(PostError::TooManySges) => Status::DATA_OVERRUN,
        Err(PostError::TooMuchData) => Status::BUFFER_OVERFLOW,
        Err(PostError::NotConnected) => Status::CONNECTION_INVALID,
        Err(PostError::AccessDenied) => Status::ACCESS_VIOLATION,
        Err(PostError::NoResources) => Status::INSUFFICIENT_RESOURCES,
        Err(_) => Status::INVALID_PARAMETER,
    })
}

fn resize_status(answer: Result<(), ResizeError>) -> Expected {
    Expected::Status(match answer {
        Ok(()) => Status::SUCCESS,
        Err(ResizeError::OverLimit) => Status::INVALID_PARAMETER,
        Err(ResizeError::Occupied) => Status::BUFFER_OVERFLOW,
        Err(_) => Status::INSUFFICIENT_RESOURCES,
    })
}

fn region_status(answer: Result<(), RegionError>) -> Expected {
    Expected::Status(match answer {
        Ok(()) => Status::SUCCESS,
        Err(RegionError::TooManyPages) => Status::IMPLEMENTATION_LIMIT,
        Err(RegionError::NoResources) => Status::INSUFFICIENT_RESOURCES,
        Err(_) => Status::INVALID_PARAMETER,
    })
}

/// The front end refuses by itself: what was held back runs.
fn refuse(pair: &QueuePair<Harness>) -> Expected {
    pair.schedule_held();
    Expected::Status(Status::INVALID_PARAMETER)
}

/// NDK_OP_FLAG_* taken apart; none for unknown bits.
fn request_flags(bits: u64, grants: bool) -> Option<(RequestFlags, Rights)> {
    let mut flags = RequestFlags::empty();
    let mut rights = Rights::empty();
    let mut rest = bits;
    for (bit, flag) in [
        (0x1, RequestFlags::SILENT_SUCCESS),
        (0x2, RequestFlags::READ_FENCE),
        (0x4, RequestFlags::SOLICIT),
        (0x40, RequestFlags::INLINE),
        (0x100, RequestFlags::LOCAL_INVALIDATE),
        (0x200, RequestFlags::DEFER),
    ] {
        if rest & bit != 0 {
            flags |= flag;
            rest &= !bit;
        }
    }
    if grants {
        rights.set(Rights::REMOTE_READ, rest & 0x8 != 0);
        rights.set(Rights::LOCAL_WRITE, rest & 0x10 != 0);
        rights.set(Rights::REMOTE_WRITE, rest & 0x20 != 0);
        rest &= !0xB8;
    }
    (rest == 0).then_some((flags, rights))
}
