//! Byte streams to peers: one end of a connection of TCP, with what is said on it.
//!
//! May use `adapter`, `object` and the ground. A stream knows its connector and its queue pair as objects of unknown kind, which it
//! links when there is something for them.
//!
//! | phase | who takes what is received | what it is |
//! |---|---|---|
//! | `Start` | the stream itself | start-up frames; [`News`] for the connector |
//! | `Open` | the requester of the queue pair | frames |
//! | `Over` | the stream itself | thrown away, until the peer's end or its Terminate |
//!
//! Rules: one context at a time has the [`Wire`]; what others want of it they leave as a wish, and the one that has it looks again.
//! Nothing is allocated after the stream is made, or accepted. Neither a lock nor the wire is held while a connector is notified.

mod news;
mod wire;

pub(crate) use news::{News, StartData, reason_of};
use wire::OpenMemory;
pub(crate) use wire::{Received, Wire};

use bitflags::bitflags;
use softndk_cells::{Dispose, NoMemory, Serialized, Shared, View};
use softndk_iwarp::stream::{End, Event, Owner, Taken};
use softndk_iwarp::terminate::{Code, Echo};

use crate::adapter::adapter::AdapterObject;
use crate::error::DisconnectReason;
use crate::limits::{REQUEST_LIMIT, STEP_REQUESTS};
use crate::object::event::ServicePass;
use crate::object::header::{AnyObject, Core, Object};
use crate::object::run_queue::Lane;
use crate::object::scheduler::Scheduler;
use crate::object::timer::Timer;
use crate::object::waker::Waker;
use crate::platform::socket::Socket as _;
use crate::platform::{Lock, Platform};

use news::Mail;

/// See the module.
pub(crate) struct StreamObject<P: Platform> {
    scheduler: Scheduler<P>,
    wire: Serialized<Wire<P>>,
    mail: P::Lock<Mail<P>>,
    timer: Timer<P>,
}

/// See the table of the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Start,
    Open,
    Over,
}

bitflags! {
    /// What a connector wants of its stream.
    #[derive(Clone, Copy, Default)]
    pub(crate) struct Wishes: u8 {
        /// Answer the Request.
        const ACCEPT = 1;
        const REJECT = 1 << 1;
        /// Send the first frame, and read.
        const OPEN = 1 << 2;
        /// End when everything has been sent.
        const FINISH = 1 << 3;
        /// End now; the peer hears that a request has failed.
        const TERMINATE = 1 << 4;
        /// End now.
        const ABORT = 1 << 5;
        /// The queue pair takes and sends nothing any more.
        const LEAVE = 1 << 6;
        /// End now, unless the Request has come.
        const MAKE_ROOM = 1 << 7;
    }
}

impl<P: Platform> StreamObject<P> {
    fn try_new(adapter: &AdapterObject<P>, wire: Wire<P>) -> Result<Shared<Self>, NoMemory> {
        let scheduler = adapter.scheduler.clone();
        // Not always on the processor of the consumer.
        let timer = Timer::try_new(&scheduler, scheduler.next_object() as u32)?;
        Shared::try_new(Self { scheduler, wire: Serialized::new(wire), mail: P::Lock::new(Mail::new()), timer })
    }

    /// The active end, with its Request. `None` where the private data is too long for the wire.
    pub(crate) fn connect(
        adapter: &AdapterObject<P>,
        socket: P::Socket,
        start: &StartData,
    ) -> Result<Option<Shared<Self>>, NoMemory> {
        Wire::connect(adapter, socket, start)?.map(|wire| Self::try_new(adapter, wire)).transpose()
    }

    /// The passive end.
    // On a frame of its own, because its parts are moved.
    #[inline(never)]
    pub(crate) fn listen(adapter: &AdapterObject<P>, socket: P::Socket) -> Result<Shared<Self>, NoMemory> {
        let mut wire = Wire::listen(adapter, socket)?;
        wire.deadline = Some(adapter.scheduler.platform().now().saturating_add(REQUEST_LIMIT));
        Self::try_new(adapter, wire)
    }

    /// Who hears of what the peer says. Before the stream is attached.
    pub(crate) fn set_connector(&self, connector: Object<P>) {
        let before = self.mail.with(|mail| mail.connector.replace(connector));
        drop(before);
    }

    /// Whose requests and receives go over it.
    pub(crate) fn set_queue_pair(&self, pair: Object<P>) {
        let before = self.mail.with(|mail| mail.queue_pair.replace(pair));
        drop(before);
    }

    /// Has the socket link the stream, which the two keep from then on until both ends are over.
    pub(crate) fn attach(stream: &Shared<Self>) {
        // No other context has it yet.
        if let Some(mut held) = stream.wire.raise() {
            held.socket.attach(Waker::new(&stream.scheduler, Object::of(stream)));
        }
        stream.scheduler.link(&Object::of(stream));
    }

    /// What has happened, in its order.
    pub(crate) fn take_news(&self) -> Option<News> {
        self.mail.with(Mail::take_news)
    }

    /// The same where no connector is yet. What comes behind the Request is for the connector that it makes.
    pub(crate) fn take_first_news(&self) -> Option<News> {
        self.mail.with(|mail| {
            let news = if mail.has_made_connector { None } else { mail.take_news() };
            mail.has_made_connector |= news == Some(News::Requested);
            news
        })
    }

    /// Allocates what the stream needs when its Request is accepted; twice is once.
    pub(crate) fn prepare(&self, adapter: &AdapterObject<P>) -> Result<(), NoMemory> {
        let memory = OpenMemory::try_new(adapter)?;
        let before = self.mail.with(|mail| mail.memory.replace(memory));
        drop(before);
        Ok(())
    }

    /// Answers the Request: with an acceptance, for which the stream is prepared, or a rejection.
    pub(crate) fn answer(stream: &Shared<Self>, accepts: bool, start: StartData) {
        stream.mail.with(|mail| mail.answer = Some(start));
        Self::wish(stream, if accepts { Wishes::ACCEPT } else { Wishes::REJECT });
    }

    /// No listener takes the connection.
    pub(crate) fn refuse(stream: &Shared<Self>) {
        Self::wish(stream, Wishes::ABORT);
    }

    pub(crate) fn wish(stream: &Shared<Self>, wishes: Wishes) {
        stream.mail.with(|mail| mail.wishes.insert(wishes));
        Self::drive(stream, |_| {});
        stream.scheduler.link(&Object::of(stream));
    }

    /// Takes the wire for `act`; false when another context has it, which then looks again at what has been wished for.
    pub(crate) fn drive(stream: &Shared<Self>, act: impl FnMut(&mut Wire<P>)) -> bool {
        // Who has the wire must not be preempted.
        stream.scheduler.platform().raised(|_| Self::drive_raised(stream, act))
    }

    /// The same for a queue pair, which is linked when another context that has the wire is through.
    pub(crate) fn drive_for(stream: &Shared<Self>, pair: &Object<P>, mut act: impl FnMut(&mut Wire<P>)) {
        if !Self::drive(stream, &mut act) {
            let before = stream.mail.with(|mail| mail.waiting.replace(pair.clone()));
            drop(before);
            Self::drive(stream, act);
        }
    }

    fn drive_raised(stream: &Shared<Self>, mut act: impl FnMut(&mut Wire<P>)) -> bool {
        let Some(mut held) = stream.wire.raise() else { return false };
        for _ in 0..STEP_REQUESTS {
            Self::advance(stream, &mut held);
            Self::carry_out(stream, &mut held);
            act(&mut held);
            if held.flush() {
                continue;
            }
            if held.phase == Phase::Over && held.socket.is_over() {
                stream.leave();
                held.socket.close();
            } else {
                held.bound_last_sends(|| stream.now());
                if held.send_nudge(|| stream.now()) {
                    held.flush();
                }
                if let Some(deadline) = held.next_deadline() {
                    Self::keep_time(stream, &mut held, deadline);
                }
            }
            match held.finish() {
                Some(again) => held = again,
                None => return true,
            }
        }
        // Released first: a context that finds it held leaves.
        drop(held);
        stream.scheduler.link(&Object::of(stream));
        true
    }

    /// Has the socket go on. The connector knows a new port before the peer can see it.
    fn advance(stream: &Shared<Self>, wire: &mut Wire<P>) {
        wire.socket.advance();
        while let Some(port) = wire.socket.take_new_port() {
            if let Some(connector) = stream.mail.with(|mail| mail.connector.clone()) {
                connector.connects_from(&Object::of(stream), port);
            }
            wire.socket.advance();
        }
    }

    /// Breaks a connection whose time is up.
    fn keep_time(stream: &Shared<Self>, wire: &mut Wire<P>, deadline: u64) {
        if stream.now() < deadline || wire.deadline != Some(deadline) {
            return stream.timer.set(&Object::of(stream), deadline);
        }
        wire.deadline = None;
        wire.socket.abort();
        stream.scheduler.link(&Object::of(stream));
    }

    pub(crate) fn now(&self) -> u64 {
        self.scheduler.platform().now()
    }

    /// Does what has been wished for meanwhile.
    fn carry_out(stream: &Shared<Self>, wire: &mut Wire<P>) {
        let (wishes, waiting) = stream.mail.with(|mail| (core::mem::take(&mut mail.wishes), mail.waiting.take()));
        if let Some(pair) = waiting {
            stream.scheduler.link(&pair);
        }
        if wishes.intersects(Wishes::ACCEPT | Wishes::REJECT) {
            Self::reply(stream, wire, wishes.contains(Wishes::ACCEPT));
        }
        if wishes.contains(Wishes::MAKE_ROOM) && wire.waits_for_request() {
            stream.end(wire);
            wire.socket.abort();
        }
        if wishes.contains(Wishes::OPEN) {
            wire.open();
        }
        if wishes.contains(Wishes::LEAVE) {
            wire.is_left = true;
            if wire.phase == Phase::Open {
                stream.end(wire);
            }
        }
        if wishes.contains(Wishes::FINISH) {
            wire.is_finishing = true;
            // What was posted before may only be queued: the next step of the queue pair looks.
            wire.is_idle = false;
        }
        // Where both sides have disconnected nothing is left to be said of a failure.
        let have_both_ended = wire.is_finishing && wire.has_heard_notice;
        if wishes.contains(Wishes::TERMINATE)
            && !have_both_ended
            && wire.phase == Phase::Open
            && wire.stream.end().is_none()
        {
            wire.stream.terminate(Code::LOCAL_CATASTROPHIC, Echo::Nothing);
        }
        if wishes.intersects(Wishes::TERMINATE | Wishes::ABORT | Wishes::REJECT) {
            let is_too_early = wire.is_between_reply_and_first_frame();
            let has_words_left = wire.stream.end().is_some() || is_too_early;
            // What the peer sends from now on it sends to nothing.
            wire.is_closed |= is_too_early && wire.is_active && wire.stream.end().is_none();
            // A reset overtakes an end that has been sent; after it nothing else says that a request has failed.
            let ends_gently = if wire.has_finished() {
                wire.has_heard_notice || !wishes.contains(Wishes::TERMINATE)
            } else {
                has_words_left || wire.is_finishing
            };
            stream.end(wire);
            if ends_gently {
                wire.is_closed |= wire.is_finishing;
                wire.linger(stream.now());
            } else {
                wire.socket.abort();
            }
        }
    }

    /// Answers the Request.
    // On a frame of its own, because the memory is moved.
    #[inline(never)]
    fn reply(stream: &Shared<Self>, wire: &mut Wire<P>, accepts: bool) {
        let (start, memory) = stream.mail.with(|mail| (mail.answer.take(), mail.memory.take()));
        let answered = match (start, memory) {
            (Some(start), Some(memory)) if accepts => wire.accept(&start, memory),
            (Some(start), _) if !accepts => wire.reject(&start),
            _ => None,
        };
        if answered.is_none() {
            stream.say(News::Ended(DisconnectReason::Closed));
            stream.end(wire);
            wire.socket.abort();
        } else if accepts && wire.is_ready_with_its_reply() {
            wire.begin();
            stream.say(News::Ready);
        }
    }

    /// Nothing more is taken for the queue pair.
    pub(crate) fn end(&self, wire: &mut Wire<P>) {
        wire.phase = Phase::Over;
        let pair = self.mail.with(|mail| mail.queue_pair.take());
        drop(pair);
    }

    /// The connection of TCP is over.
    fn leave(&self) {
        self.timer.clear();
        let (connector, pair) = self.mail.with(|mail| (mail.connector.take(), mail.queue_pair.take()));
        drop((connector, pair));
    }

    /// Has the connector hear of something.
    pub(crate) fn say(&self, news: News) {
        let connector = self.mail.with(|mail| {
            mail.add(news);
            mail.connector.clone()
        });
        if let Some(connector) = connector {
            self.scheduler.link(&connector);
        }
    }

    /// Takes start-up frames, until nothing is left or the stream is open.
    fn start(&self, wire: &mut Wire<P>) {
        loop {
            let event = match wire.receive(&mut NoOwner) {
                Received::Event(event) => event,
                Received::Nothing => return,
                Received::Finished if wire.is_between_reply_and_first_frame() => {
                    let news = wire.news_of_early_end();
                    self.end(wire);
                    wire.has_heard_notice = true;
                    wire.linger(self.now());
                    return self.say(news);
                }
                Received::Finished | Received::Reset => {
                    let news = wire.news_of_early_end();
                    self.end(wire);
                    wire.socket.abort();
                    return self.say(news);
                }
            };
            match event {
                Event::Requested => {
                    wire.deadline = None;
                    self.timer.clear();
                    let start = wire.peer_start();
                    self.mail.with(|mail| mail.start = start);
                    self.say(News::Requested);
                }
                Event::Replied => {
                    let start = wire.peer_start();
                    self.mail.with(|mail| mail.start = start);
                    if wire.stream.end() == Some(End::Rejected) {
                        self.end(wire);
                        wire.socket.abort();
                        return self.say(News::Rejected);
                    }
                    self.say(News::Accepted);
                }
                Event::Ready => {
                    wire.begin();
                    wire.has_received = true;
                    return self.say(News::Ready);
                }
                Event::Ended(_) => {
                    let news = wire.news_of_early_end();
                    self.end(wire);
                    wire.linger(self.now());
                    return self.say(news);
                }
                // A start-up frame is short.
                Event::More => {}
                Event::Asked | Event::Held | Event::Paused => return,
            }
        }
    }

    /// What the peer has sent at the beginning.
    pub(crate) fn start_data(&self) -> Option<StartData> {
        self.mail.with(|mail| mail.start.take())
    }
}

/// There is no queue pair: start-up frames have nothing for one, and what comes after its end is thrown away.
struct NoOwner;

impl Owner for NoOwner {
    fn write(&mut self, _stag: u32, _offset: u64, _data: &[u8], _is_last: bool) -> Result<(), Code> {
        Ok(())
    }

    fn send(&mut self, _part: &softndk_iwarp::hold::SendPart<'_>) -> Result<Taken, Code> {
        Ok(Taken::Done)
    }

    fn allow_read(&mut self, _stag: u32, _offset: u64, _length: u32) -> Result<(), Code> {
        Err(Code::REMOTE_INVALID_STAG)
    }

    fn load(&mut self, _stag: u32, _offset: u64, _into: &mut [u8]) -> Result<(), Code> {
        Err(Code::REMOTE_INVALID_STAG)
    }

    fn answered(&mut self, _length: u32) {}

    fn response(&mut self, _offset: u32, _data: &[u8], _is_last: bool) -> Result<Taken, Code> {
        Ok(Taken::Done)
    }
}

impl<P: Platform> Dispose for StreamObject<P> {}

impl<P: Platform> View for StreamObject<P> {
    type As = dyn AnyObject<P>;

    fn view(object: &Shared<Self>) -> &Self::As {
        object
    }
}

impl<P: Platform> AnyObject<P> for Shared<StreamObject<P>> {
    fn core(&self) -> Option<&Core<P>> {
        None
    }

    fn lane(&self) -> Lane {
        Lane::Requests
    }

    fn service_requests(&self, _processor: u32, bytes: &mut u64) {
        *bytes = bytes.saturating_sub(StreamObject::look(self));
    }

    fn work(&self, pass: &mut ServicePass<'_, P>) {
        *pass.bytes = pass.bytes.saturating_sub(StreamObject::look(self));
    }
}

impl<P: Platform> StreamObject<P> {
    /// Takes what has come, or has the queue pair take it; what that has cost, as part of a bound in bytes.
    fn look(stream: &Shared<Self>) -> u64 {
        let (mut is_open, mut has_more, mut cost) = (false, false, 0_u64);
        Self::drive(stream, |wire| {
            match wire.phase {
                Phase::Start => stream.start(wire),
                Phase::Open => {}
                Phase::Over => has_more = wire.discard(stream),
            }
            cost = cost.saturating_add(wire.take_cost());
            is_open |= wire.phase == Phase::Open && !wire.has_only_a_nudge_due(|| stream.now());
        });
        if has_more {
            stream.scheduler.link(&Object::of(stream));
        }
        if is_open {
            let pair = stream.mail.with(|mail| mail.queue_pair.clone());
            if let Some(pair) = pair {
                stream.scheduler.link(&pair);
            }
        }
        cost
    }
}
