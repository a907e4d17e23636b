//! The tunnel end points of the driver: one for each port and family that uplinks use.

use core::{ops::Deref, ptr::NonNull};

use softndk_kernel::{
    event::Mutex,
    pool::{NoMemory, PoolArray, PoolBox},
    work::Task,
};

use super::end_point::{EndPoint, Surroundings, TunnelPort};
use crate::tags;

/// An adapter uses one at most.
pub const END_POINT_MAX: usize = 32;

pub struct EndPoints(Mutex<PoolArray<Option<Shared>>>);

/// An end point, and how many uplinks use it.
struct Shared {
    end_point: PoolBox<Task<EndPoint>>,
    users: usize,
}

impl EndPoints {
    /// PASSIVE_LEVEL.
    pub fn try_new() -> Result<Self, NoMemory> {
        let places = PoolArray::try_from_fn::<NoMemory>(tags::UPLINK, END_POINT_MAX, |_| Ok(None))?;
        Mutex::try_new(tags::EVENT, places).map(Self)
    }

    /// The end point with this port, which is made if it is not there. PASSIVE_LEVEL.
    pub fn hold(&'static self, at: TunnelPort, surroundings: Surroundings) -> Result<EndPointHold, NoMemory> {
        let mut places = self.0.lock();
        if let Some(shared) = places.iter_mut().flatten().find(|shared| shared.end_point.at() == at) {
            shared.users = shared.users.saturating_add(1);
            return Ok(EndPointHold { end_point: NonNull::from(&*shared.end_point), owner: self });
        }
        let place = places.iter_mut().find(|place| place.is_none()).ok_or(NoMemory)?;
        let shared = place.insert(Shared { end_point: EndPoint::try_new(at, surroundings)?, users: 1 });
        Ok(EndPointHold { end_point: NonNull::from(&*shared.end_point), owner: self })
    }

    /// One user less. The socket of the last one is closed before another adapter can ask for the same port.
    fn release(&self, end_point: NonNull<Task<EndPoint>>) {
        let mut places = self.0.lock();
        let is_it = |shared: &Shared| NonNull::from(&*shared.end_point) == end_point;
        let Some(place) = places.iter_mut().find(|place| place.as_ref().is_some_and(is_it)) else { return };
        let Some(shared) = place else { return };
        shared.users = shared.users.saturating_sub(1);
        if shared.users == 0 {
            EndPoint::stop(&shared.end_point);
            *place = None;
        }
    }
}

/// An uplink's use of an end point. Dropped at PASSIVE_LEVEL.
pub struct EndPointHold {
    end_point: NonNull<Task<EndPoint>>,
    owner: &'static EndPoints,
}

// SAFETY: an end point may be used from every thread.
unsafe impl Send for EndPointHold {}
// SAFETY: as above.
unsafe impl Sync for EndPointHold {}

impl Deref for EndPointHold {
    type Target = Task<EndPoint>;

    fn deref(&self) -> &Task<EndPoint> {
        // SAFETY: it is counted, so the end point is there.
        unsafe { self.end_point.as_ref() }
    }
}

impl Drop for EndPointHold {
    fn drop(&mut self) {
        self.owner.release(self.end_point);
    }
}
