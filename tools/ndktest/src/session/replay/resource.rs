//! The slots of a script: what each holds, and how a name finds it.

use core::net::IpAddr;

use ndkpi_sys::{
    ndkpi::{NDK_CONNECTOR, NDK_CQ, NDK_LISTENER, NDK_MR, NDK_MW, NDK_PD, NDK_QP, NDK_SHARED_ENDPOINT, NDK_SRQ},
    nt::PVOID,
};
use softndk_ioctl::{SCRIPT_SLOTS, ScriptKind, ScriptName, Status};
use softndk_kernel::pool::{NoMemory, PoolArray, PoolBox};

use super::{
    buffer::ScriptBuffer,
    log::{Cell, Log},
};
use crate::{session::consumer::OpenedAdapter, tags};

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

/// What a slot holds. Pointers are open objects.
pub enum Resource {
    Adapter(PoolBox<OpenedAdapter>),
    Domain { object: *mut NDK_PD, privileged: u32 },
    CompletionQueue { object: *mut NDK_CQ },
    SharedReceiveQueue { object: *mut NDK_SRQ, privileged: u32 },
    QueuePair { object: *mut NDK_QP, privileged: u32 },
    Buffer(PoolBox<ScriptBuffer>),
    Region { object: *mut NDK_MR, base: u64 },
    Window { object: *mut NDK_MW, base: u64 },
    Token { token: u32, base: u64 },
    Listener { object: *mut NDK_LISTENER, home: IpAddr },
    Connector { object: *mut NDK_CONNECTOR, home: IpAddr },
    Endpoint { object: *mut NDK_SHARED_ENDPOINT },
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

    /// The context of callbacks for a slot.
    pub fn context(&self, name: ScriptName) -> Result<PVOID, Stop> {
        index(name).and_then(|index| self.cells.get(index)).map(Cell::context).ok_or(Stop::Broken)
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
