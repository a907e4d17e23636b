//! What an event leaves to do, outside the lock. A front end that carries it out drops nothing under the lock.

use ndkpi_sys::nt::NTSTATUS;

use super::state::MachineTypes;

/// What an event leaves to do.
pub struct ConnectorEffects<T: MachineTypes> {
    /// What a call goes on with. A refused call has no other effect than to give back what it brought.
    pub answer: Result<Proceed<T>, NTSTATUS>,
    pub engine: EngineEffect<T>,
    pub queue_pair: QueuePairEffect<T>,
    /// A request completes with its status.
    pub request: Option<(T::Request, NTSTATUS)>,
    /// The requests that wait for the end of the connection complete with this.
    pub notified: Option<NTSTATUS>,
    /// Only dropped.
    pub endpoint: Option<T::Endpoint>,
}

/// What a call goes on with.
pub struct Proceed<T: MachineTypes> {
    /// The engine's connector, where there is one.
    pub engine: Option<T::Engine>,
    /// The number of the attempt, 0 where none has begun.
    pub number: u64,
}

pub enum EngineEffect<T: MachineTypes> {
    Nothing,
    /// Its attempt or connection is wanted no more.
    Close(T::Engine),
    /// The connection ends, and no request waits for that.
    Disconnect(T::Engine),
}

pub enum QueuePairEffect<T: MachineTypes> {
    Nothing,
    /// The process sees its new state.
    Publish(T::QueuePair),
    /// The connector needs it no more.
    Release(T::QueuePair),
}

impl<T: MachineTypes> Proceed<T> {
    /// The call is over.
    pub const fn done() -> Self {
        Self { engine: None, number: 0 }
    }

    pub const fn with(engine: T::Engine, number: u64) -> Self {
        Self { engine: Some(engine), number }
    }
}

impl<T: MachineTypes> QueuePairEffect<T> {
    pub fn release(pair: Option<T::QueuePair>) -> Self {
        pair.map_or(Self::Nothing, Self::Release)
    }
}

impl<T: MachineTypes> ConnectorEffects<T> {
    pub const fn none() -> Self {
        Self {
            answer: Ok(Proceed::done()),
            engine: EngineEffect::Nothing,
            queue_pair: QueuePairEffect::Nothing,
            request: None,
            notified: None,
            endpoint: None,
        }
    }

    pub fn refused(status: NTSTATUS) -> Self {
        Self { answer: Err(status), ..Self::none() }
    }

    /// The call goes on in the engine.
    pub fn proceeds(engine: T::Engine, number: u64) -> Self {
        Self { answer: Ok(Proceed::with(engine, number)), ..Self::none() }
    }

    /// A request completes.
    pub fn completes(request: T::Request, status: NTSTATUS) -> Self {
        Self { request: Some((request, status)), ..Self::none() }
    }
}
