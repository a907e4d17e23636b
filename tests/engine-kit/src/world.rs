//! A fabric with two adapters, which runs when a test says so.

use crate::{
    events::{Event, Events},
    harness::{ConsumerObject, Harness, HarnessCounters},
    memory::{Buffer, Mapped},
    network::{MESSAGE_DELAY, NETWORK, Travel},
};
use softndk_engine::{
    Adapter, AdapterSettings, Budget, ConnectError, Fabric, Limits, Pass, Platform, Requested, Rights, Transport,
};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::atomic::Ordering,
};

pub const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub const EVERYTHING: Rights = Rights::all();

/// A fabric with two adapters on one wire.
pub struct World {
    pub fabric: Fabric<Harness>,
    pub first: Adapter<Harness>,
    pub second: Adapter<Harness>,
    pub events: Events,
    pub counters: HarnessCounters,
}

impl World {
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Self {
        Self::try_new(limits).unwrap()
    }

    pub fn with_settings(settings: AdapterSettings) -> Self {
        Self::try_with(settings).unwrap()
    }

    /// Across streams on which bytes travel.
    pub fn with_travel(travel: Travel, settings: AdapterSettings) -> Self {
        let world = Self::with_settings(settings);
        world.harness().network.set_travel(travel);
        world
    }

    pub fn try_new(limits: Limits) -> Option<Self> {
        Self::try_with(AdapterSettings { limits, ..Default::default() })
    }

    fn try_with(settings: AdapterSettings) -> Option<Self> {
        let transport = if cfg!(feature = "streams") { Transport::Stream } else { settings.transport };
        let settings = AdapterSettings { transport, ..settings };
        let harness = Harness::default();
        harness.network.set_hosts(vec![FIRST, SECOND]);
        let counters = HarnessCounters { blocks: harness.blocks.clone(), mappings: harness.mappings.clone() };
        let fabric = Fabric::try_new(harness, 2).ok()?;
        let first = fabric.add_adapter(settings).ok()?;
        let Ok(second) = fabric.add_adapter(settings) else {
            first.remove();
            return None;
        };
        let addressed = first.set_addresses(&[FIRST]).is_ok() && second.set_addresses(&[SECOND]).is_ok();
        if !addressed {
            first.remove();
            second.remove();
            return None;
        }
        let events = Events::new(counters.clone());
        Some(Self { fabric, first, second, events, counters })
    }

    pub fn harness(&self) -> &Harness {
        self.fabric.platform()
    }

    pub fn consumer_object(&self, id: u64) -> ConsumerObject {
        self.counters.consumer_object(id)
    }

    pub fn map(&self, buffer: &Buffer) -> Mapped {
        self.counters.map(buffer)
    }

    /// One service pass with a small budget on both processors; true when something is left.
    pub fn step(&mut self, bytes: u64) -> bool {
        let budget = Budget { bytes, items: 1 };
        let service_passes = [0, 1].map(|processor| self.fabric.service_pass(processor, budget, &mut self.events));
        service_passes.contains(&Pass::More)
    }

    /// Runs until nothing is left to do and answers what came out.
    pub fn run(&mut self) -> Vec<Event> {
        let budget = Budget { bytes: 1 << 20, items: 64 };
        let mut service_passes = 0;
        loop {
            self.harness().scheduled.store(false, Ordering::SeqCst);
            let outcome = [0, 1].map(|processor| self.fabric.service_pass(processor, budget, &mut self.events));
            service_passes += 1;
            assert!(service_passes < 100_000, "the engine never comes to rest");
            let is_idle = outcome == [Pass::Idle; 2] && !self.harness().scheduled.load(Ordering::SeqCst);
            if is_idle && !self.wait_for_message() {
                return std::mem::take(&mut self.events.seen);
            }
        }
    }

    /// Has the processors serve what they were scheduled for, and nothing else: work that a processor was not told of stays undone.
    pub fn run_what_is_scheduled(&mut self) -> Vec<Event> {
        let budget = Budget { bytes: 1 << 20, items: 64 };
        let mut rounds = 0;
        while self.harness().scheduled.swap(false, Ordering::SeqCst) {
            for processor in [0, 1] {
                while self.fabric.service_pass(processor, budget, &mut self.events) == Pass::More {}
            }
            rounds += 1;
            assert!(rounds < 10_000, "the engine never comes to rest");
        }
        std::mem::take(&mut self.events.seen)
    }

    /// Lets the messages between connectors arrive, where they take time. What comes out is kept for the next run.
    pub fn deliver_messages(&mut self) {
        if MESSAGE_DELAY != 0 {
            self.events.seen = self.run();
        }
    }

    /// What a Connect answers: at once, or where messages take time by the completion of its callback, which is then taken out.
    pub fn answer(&mut self, asked: Result<Requested, ConnectError>, callback: u64) -> Result<Requested, ConnectError> {
        self.deliver_messages();
        let refused = |event: &Event| matches!(event, Event::Completed(of, Err(_)) if *of == callback);
        let place = self.events.seen.iter().position(refused).filter(|_| MESSAGE_DELAY != 0 && asked.is_ok());
        match place.map(|place| self.events.seen.remove(place)) {
            Some(Event::Completed(_, Err(error))) => Err(error),
            _ => asked,
        }
    }

    pub fn now(&self) -> u64 {
        self.harness().now()
    }

    /// Lets time pass until the next message between connectors may arrive, where messages take time; false when none is on
    /// its way.
    fn wait_for_message(&self) -> bool {
        let now = self.harness().now();
        let mut wakes = self.harness().wakes.lock().unwrap();
        let due = wakes.iter().map(|(&processor, &at)| (at, processor)).min();
        let Some((at, processor)) = due.filter(|(at, _)| *at <= now + MESSAGE_DELAY && MESSAGE_DELAY != 0) else {
            return false;
        };
        wakes.remove(&processor);
        drop(wakes);
        self.harness().timer_queue.fetch_max(at, Ordering::SeqCst);
        if processor == NETWORK {
            self.harness().network.arrive();
        }
        true
    }

    /// Lets time pass: every processor gets a service pass at its deadline, none without one. Returns the events with their
    /// times.
    pub fn advance(&mut self, nanoseconds: u64) -> Vec<(u64, Event)> {
        let end = self.harness().timer_queue.load(Ordering::SeqCst) + nanoseconds;
        let mut seen = Vec::new();
        loop {
            let due = self.harness().wakes.lock().unwrap().iter().map(|(&processor, &at)| (at, processor)).min();
            let Some((at, processor)) = due.filter(|(at, _)| *at <= end) else { break };
            self.harness().wakes.lock().unwrap().remove(&processor);
            let now = self.harness().timer_queue.fetch_max(at, Ordering::SeqCst).max(at);
            let budget = Budget { bytes: 1 << 20, items: 64 };
            if processor == NETWORK {
                self.harness().network.arrive();
            }
            for processor in if processor == NETWORK { 0..2 } else { processor..processor + 1 } {
                while self.fabric.service_pass(processor, budget, &mut self.events) == Pass::More {}
            }
            seen.extend(std::mem::take(&mut self.events.seen).into_iter().map(|event| (now, event)));
        }
        self.harness().timer_queue.fetch_max(end, Ordering::SeqCst);
        seen
    }

    /// No object is left in the engine.
    pub fn assert_empty(&mut self) {
        self.run();
        assert_eq!(self.counters.blocks.load(Ordering::SeqCst), 0, "blocks are left");
        assert_eq!(self.counters.mappings.load(Ordering::SeqCst), 0, "mappings are left");
        let mut objects = 0;
        self.first.objects(&mut |_| objects += 1);
        self.second.objects(&mut |_| objects += 1);
        assert_eq!(objects, 0, "objects are left");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.first.remove();
        self.second.remove();
    }
}
