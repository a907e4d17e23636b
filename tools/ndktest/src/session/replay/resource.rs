//! The slots of a script: what each holds, and how a name finds it.

use core::net::IpAddr;

use ndkpi_sys::ndkpi::{
    NDK_CONNECTOR, NDK_CQ, NDK_LISTENER, NDK_MR, NDK_MW, NDK_PD, NDK_QP, NDK_SHARED_ENDPOINT, NDK_SRQ,
};
use softndk_ioctl::{SCRIPT_SLOTS, ScriptKind, ScriptName, Status};
use softndk_kernel::pool::{NoMemory, PoolArray, PoolBox};

use super::{
    buffer::ScriptBuffer,
    log::{Cell, Log},
};
use crate::{
    session::{consumer::OpenedAdapter, object::Handle},
    tags,
};

/// Slots of all kinds.
const SLOTS: usize = ScriptKind::ALL.len() * SCRIPT_SLOTS as usize;

/// Why a script does not go on.
#[derive(Clone, Copy)]
pub enum Stop {
    /// The step makes no sense: a slot taken, empty, or of another kind, a number out of range.
    Broken,
    /// The request as a whole has failed.
    Failed(Status),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

/// An object of a slot.
pub type SlotHandle<T> = Handle<'static, T>;

/// What a slot holds. Its objects are open until a step takes it out to close it; handles are not kept from step to step.
pub enum Resource {
    Adapter(PoolBox<OpenedAdapter>),
    Domain { object: SlotHandle<NDK_PD>, privileged: u32 },
    CompletionQueue { object: SlotHandle<NDK_CQ> },
    SharedReceiveQueue { object: SlotHandle<NDK_SRQ>, privileged: u32 },
    QueuePair { object: SlotHandle<NDK_QP>, privileged: u32 },
    Buffer(PoolBox<ScriptBuffer>),
    Region { object: SlotHandle<NDK_MR>, base: u64 },
    Window { object: SlotHandle<NDK_MW>, base: u64 },
    Token { token: u32, base: u64 },
    Listener { object: SlotHandle<NDK_LISTENER>, home: IpAddr },
    Connector { object: SlotHandle<NDK_CONNECTOR>, home: IpAddr },
    Endpoint { object: SlotHandle<NDK_SHARED_ENDPOINT> },
}

impl Resource {
    /// What it is, whatever the slot is for.
    pub fn kind(&self) -> ScriptKind {
        match self {
            Self::Adapter(_) => ScriptKind::Adapter,
            Self::Domain { .. } => ScriptKind::Domain,
            Self::CompletionQueue { .. } => ScriptKind::CompletionQueue,
            Self::SharedReceiveQueue { .. } => ScriptKind::SharedReceiveQueue,
            Self::QueuePair { .. } => ScriptKind::QueuePair,
            Self::Buffer(_) => ScriptKind::Buffer,
            Self::Region { .. } => ScriptKind::Region,
            Self::Window { .. } => ScriptKind::Window,
            Self::Token { .. } => ScriptKind::Token,
            Self::Listener { .. } => ScriptKind::Listener,
            Self::Connector { .. } => ScriptKind::Connector,
            Self::Endpoint { .. } => ScriptKind::Endpoint,
        }
    }
}

/// A slot and the number of the open that its thing belongs to.
#[derive(Default)]
struct Slot {
    resource: Option<Resource>,
    open: u32,
}

/// All slots of a session.
pub struct Slots {
    slots: PoolArray<Slot>,
    cells: PoolArray<Cell>,
}

fn index(name: ScriptName) -> Option<usize> {
    let (kind, number) = name.parts()?;
    Some((kind as usize - 1) * usize::from(SCRIPT_SLOTS) + usize::from(number))
}

fn name_of(index: usize) -> ScriptName {
    let kind = ScriptKind::ALL.get(index / usize::from(SCRIPT_SLOTS));
    kind.map_or(ScriptName::NONE, |(kind, _)| ScriptName::new(*kind, (index % usize::from(SCRIPT_SLOTS)) as u16))
}

impl Slots {
    pub fn try_new(log: &Log) -> Result<Self, Status> {
        let none = |_: NoMemory| Status::INSUFFICIENT_RESOURCES;
        let slots = PoolArray::try_from_fn(tags::SESSION, SLOTS, |_| Ok::<_, NoMemory>(Slot::default()));
        let cells =
            PoolArray::try_from_fn(tags::SESSION, SLOTS, |index| Ok::<_, NoMemory>(Cell::new(log, name_of(index))));
        Ok(Self { slots: slots.map_err(none)?, cells: cells.map_err(none)? })
    }

    /// What a name stands for.
    pub fn get(&self, name: ScriptName) -> Result<&Resource, Stop> {
        index(name).and_then(|index| self.slots.get(index)?.resource.as_ref()).ok_or(Stop::Broken)
    }

    pub fn get_mut(&mut self, name: ScriptName) -> Result<&mut Resource, Stop> {
        index(name).and_then(|index| self.slots.get_mut(index)?.resource.as_mut()).ok_or(Stop::Broken)
    }

    /// The number of the open that a thing belongs to.
    pub fn open_of(&self, name: ScriptName) -> Result<u32, Stop> {
        index(name).and_then(|index| self.slots.get(index)).map(|slot| slot.open).ok_or(Stop::Broken)
    }

    /// The slot is there, and empty: something may be made for it.
    pub fn check_vacant(&self, name: ScriptName) -> Result<(), Stop> {
        let slot = index(name).and_then(|index| self.slots.get(index)).ok_or(Stop::Broken)?;
        if slot.resource.is_none() { Ok(()) } else { Err(Stop::Broken) }
    }

    pub fn put(&mut self, name: ScriptName, open: u32, resource: Resource) -> Result<(), Stop> {
        let slot = index(name).and_then(|index| self.slots.get_mut(index)).ok_or(Stop::Broken)?;
        *slot = Slot { resource: Some(resource), open };
        Ok(())
    }

    pub fn take(&mut self, name: ScriptName) -> Result<Resource, Stop> {
        index(name).and_then(|index| self.slots.get_mut(index)?.resource.take()).ok_or(Stop::Broken)
    }

    /// Where callbacks for a slot are written down.
    pub fn cell(&self, name: ScriptName) -> Result<&Cell, Stop> {
        index(name).and_then(|index| self.cells.get(index)).ok_or(Stop::Broken)
    }

    pub fn completion_queue(&self, name: ScriptName) -> Result<SlotHandle<NDK_CQ>, Stop> {
        match *self.get(name)? {
            Resource::CompletionQueue { object } => Ok(object),
            _ => Err(Stop::Broken),
        }
    }

    /// A shared receive queue, and the privileged token of its domain.
    pub fn shared_receive_queue(&self, name: ScriptName) -> Result<(SlotHandle<NDK_SRQ>, u32), Stop> {
        match *self.get(name)? {
            Resource::SharedReceiveQueue { object, privileged } => Ok((object, privileged)),
            _ => Err(Stop::Broken),
        }
    }

    /// A queue pair, and the privileged token of its domain.
    pub fn queue_pair(&self, name: ScriptName) -> Result<(SlotHandle<NDK_QP>, u32), Stop> {
        match *self.get(name)? {
            Resource::QueuePair { object, privileged } => Ok((object, privileged)),
            _ => Err(Stop::Broken),
        }
    }

    /// A region and its base.
    pub fn region(&self, name: ScriptName) -> Result<(SlotHandle<NDK_MR>, u64), Stop> {
        match *self.get(name)? {
            Resource::Region { object, base } => Ok((object, base)),
            _ => Err(Stop::Broken),
        }
    }

    /// A listener, and where it listens.
    pub fn listener(&self, name: ScriptName) -> Result<(SlotHandle<NDK_LISTENER>, IpAddr), Stop> {
        match *self.get(name)? {
            Resource::Listener { object, home } => Ok((object, home)),
            _ => Err(Stop::Broken),
        }
    }

    /// A connector, and where it connects from.
    pub fn connector(&self, name: ScriptName) -> Result<(SlotHandle<NDK_CONNECTOR>, IpAddr), Stop> {
        match *self.get(name)? {
            Resource::Connector { object, home } => Ok((object, home)),
            _ => Err(Stop::Broken),
        }
    }

    pub fn buffer(&self, name: ScriptName) -> Result<&ScriptBuffer, Stop> {
        match self.get(name)? {
            Resource::Buffer(buffer) => Ok(buffer),
            _ => Err(Stop::Broken),
        }
    }

    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.slots.iter().filter_map(|slot| slot.resource.as_ref())
    }

    /// Whether something of an open is left, apart from the open itself.
    pub fn uses(&self, open: u32) -> bool {
        let mut slots = self.slots.iter().filter(|slot| slot.open == open);
        slots.any(|slot| slot.resource.as_ref().is_some_and(|resource| !matches!(resource, Resource::Adapter(_))))
    }

    /// All names there are.
    pub fn names() -> impl Iterator<Item = ScriptName> {
        (0..SLOTS).map(name_of)
    }

    /// Whether a slot holds a thing of this kind.
    pub fn holds(&self, name: ScriptName, kind: ScriptKind) -> bool {
        self.get(name).is_ok_and(|resource| resource.kind() == kind)
    }
}
