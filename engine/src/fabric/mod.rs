//! The top: one engine instance, made of its modules, and the handles of adapter and open that a front end begins with.
//!
//! May use every module; no module uses it. A fabric makes the scheduler, the tables of `memory` and the network of `connection`, and
//! hands each to the objects that need it when they are made. It has no threads: everything leaves the engine through
//! [`Fabric::service_pass`], and the front end decides when a pass runs.
//!
//! Rules: a pass holds no lock and is inside no epoch while a sink method runs; its work is bounded by the budget.

pub(crate) mod adapter;
pub(crate) mod open;

use core::sync::atomic::{AtomicU32, Ordering};

use softndk_cells::{Dispose, NoMemory, Shared};

use crate::adapter::adapter::{AdapterObject, AdapterSettings};
use crate::connection::network::Network;
use crate::error::CreateError;
use crate::fabric::adapter::Adapter;
use crate::limits;
use crate::memory::tables::Tables;
use crate::object::event::{Budget, Pass, Sink};
use crate::object::scheduler::Scheduler;
use crate::platform::Platform;

struct FabricParts<P: Platform> {
    scheduler: Scheduler<P>,
    tables: Shared<Tables<P>>,
    network: Shared<Network<P>>,
    next_adapter: AtomicU32,
}

impl<P: Platform> Dispose for FabricParts<P> {}

impl<P: Platform> Drop for FabricParts<P> {
    fn drop(&mut self) {
        self.scheduler.end();
    }
}

/// One engine instance: the adapters of a driver, their wire, their run queues.
pub struct Fabric<P: Platform>(Shared<FabricParts<P>>);

impl<P: Platform> Clone for Fabric<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Platform> Fabric<P> {
    /// `processors` is the number of processors that may ever call in (more share the lists of others).
    pub fn try_new(platform: P, processors: u32) -> Result<Self, NoMemory> {
        let scheduler = Scheduler::try_new(platform, processors)?;
        let (tables, network) = (Tables::try_new(&scheduler)?, Network::try_new()?);
        Ok(Self(Shared::try_new(FabricParts { scheduler, tables, network, next_adapter: AtomicU32::new(1) })?))
    }

    pub fn platform(&self) -> &P {
        self.0.scheduler.platform()
    }

    /// Adds an adapter without addresses; [`Adapter::remove`] takes it out again.
    pub fn add_adapter(&self, settings: AdapterSettings) -> Result<Adapter<P>, CreateError> {
        let limits = &settings.limits;
        let data = limits.caller_data.max(limits.callee_data) as usize;
        let too_many = limits.receive_sges as usize > limits::RECEIVE_SGES;
        if data > limits::PRIVATE_DATA || limits.registration_size > limits::MAPPING_LENGTH || too_many {
            return Err(CreateError::OverLimit);
        }
        let number = self.0.next_adapter.fetch_add(1, Ordering::Relaxed);
        let adapter = Shared::try_new(AdapterObject::try_new(self.0.scheduler.clone(), number, settings)?)?;
        self.0.network.add_adapter(&adapter)?;
        Ok(Adapter::new(self.clone(), adapter))
    }

    /// Runs a callback of a consumer that is not handed out by [`Self::service_pass`]: at DISPATCH_LEVEL, and so that posts inside it
    /// only enqueue, as inside a pass.
    pub fn callback<R>(&self, call: impl FnOnce() -> R) -> R {
        self.0.scheduler.callback(call)
    }

    /// Works off the list of a processor: call from a DPC or a thread of the front end, at DISPATCH_LEVEL, with no lock held
    /// and not under a dispatch function. After [`Pass::Idle`] the next link schedules a pass; after [`Pass::More`] none does.
    /// Objects whose deadline has passed are served too, see [`Platform::wake_at`].
    pub fn service_pass(&self, processor: u32, budget: Budget, sink: &mut dyn Sink<P>) -> Pass {
        self.0.scheduler.service_pass(processor, budget, sink)
    }
}
