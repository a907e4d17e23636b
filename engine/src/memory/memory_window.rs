//! Memory windows: a stretch of a registered region, lent to the peer of one queue pair.
//!
//! A window is the object behind NDK_MW, its binding, and the edge to the region it is bound to. The requester orders the
//! bindings; `access.rs` checks the accesses.
//!
//! Rules (NDKPI: NDK_FN_BIND, NDK_FN_GET_REMOTE_TOKEN_FROM_MW, NDK_FN_INVALIDATE): each bind has a token of its own, known when
//! the call returns and good once the request has been executed; a window is bound to one queue pair at a time; it keeps the
//! close of its region waiting only while it is bound, and Invalidate, the peer's invalidation, its own close and the end of
//! its queue pair all unbind it. Binding allocates nothing.
//!
//! Locks are taken in the order of `engine/README.md`.

use core::sync::atomic::{AtomicU32, Ordering};

use softndk_cells::{Dispose, DoubleBuffer, Removed, Shared, SlotKey, Stamp};

use crate::error::CreateError;
use crate::flags::Rights;
use crate::memory::memory_region::{Edges, RegionObject, TokenEntry};
use crate::memory::protection_domain::DomainObject;
use crate::object::event::{Close, ServicePass};
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::snapshot::{ObjectKind, ObjectState};
use crate::platform::{Lock, Platform};
use crate::token::MemoryToken;

/// What a bound window grants, as readers see it.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    /// The token it is valid under; an older one may still be on its way to a reader.
    pub(crate) token: MemoryToken,
    /// The queue pair whose peer may use it, as the number of its windows.
    pub(crate) pair: usize,
    /// Where the memory is.
    pub(crate) region: SlotKey,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) rights: Rights,
}

impl Binding {
    const NONE: Self = Self {
        token: MemoryToken::NONE,
        pair: 0,
        region: SlotKey { slot: 0, generation: 0 },
        address: 0,
        length: 0,
        rights: Rights::empty(),
    };
}

pub(crate) struct WindowObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) domain: Shared<DomainObject<P>>,
    pub(crate) binding: DoubleBuffer<Binding>,
    /// The token of the newest bind, executed or not; its slot and a first generation before there was any.
    issued: AtomicU32,
    state: P::Lock<WindowState<P>>,
    /// Its neighbours in the list of its queue pair; read and written under that list's lock.
    neighbours: P::Lock<WindowNeighbours<P>>,
}

struct WindowState<P: Platform> {
    /// Under which the table has the window; `None` once it is closed.
    key: Option<SlotKey>,
    bound: Option<WindowBinding<P>>,
    /// Taken out of the table; the readers have not all left.
    leaving: Option<(Removed, Hold<P>)>,
}

/// What a bound window keeps.
struct WindowBinding<P: Platform> {
    region: Shared<RegionObject<P>>,
    /// Which registration of it.
    registration: SlotKey,
    hold: Hold<P>,
    /// The list it is in: that of the queue pair it is bound to.
    windows: Shared<Windows<P>>,
}

impl<P: Platform> WindowBinding<P> {
    /// The edge to the region ends. Call with no lock held.
    fn release(self) {
        self.region.unbound(self.registration, self.hold);
    }
}

struct WindowNeighbours<P: Platform> {
    next: Option<Shared<WindowObject<P>>>,
    previous: Option<Shared<WindowObject<P>>>,
}

/// The windows bound to one queue pair: the first of a list in which each is found without a search. The list stands for the
/// queue pair here; its address is the number of the queue pair, and a bound window keeps it.
pub(crate) struct Windows<P: Platform>(P::Lock<Option<Shared<WindowObject<P>>>>);

impl<P: Platform> Dispose for Windows<P> {}

impl<P: Platform> Windows<P> {
    pub(crate) fn new() -> Self {
        Self(P::Lock::new(None))
    }

    fn add(&self, window: &Shared<WindowObject<P>>) {
        self.0.with(|first| {
            let next = first.replace(window.clone());
            if let Some(next) = &next {
                next.neighbours.with(|neighbours| neighbours.previous = Some(window.clone()));
            }
            window.neighbours.with(|neighbours| neighbours.next = next);
        });
    }

    fn remove(&self, window: &WindowObject<P>) {
        self.0.with(|first| {
            let (next, previous) =
                window.neighbours.with(|neighbours| (neighbours.next.take(), neighbours.previous.take()));
            if let Some(next) = &next {
                next.neighbours.with(|neighbours| neighbours.previous.clone_from(&previous));
            }
            match previous {
                Some(previous) => previous.neighbours.with(|neighbours| neighbours.next = next),
                None => *first = next,
            }
        });
    }

    fn first(&self) -> Option<Shared<WindowObject<P>>> {
        self.0.with(|first| first.clone())
    }
}

/// A memory window.
pub struct MemoryWindow<P: Platform>(pub(crate) Shared<WindowObject<P>>);

impl<P: Platform> Clone for MemoryWindow<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Why a binding did not take effect.
pub(crate) enum NotBound {
    /// Bound already, or closed.
    Occupied,
    /// Both places for a binding are still being read: try again when this has passed.
    Wait(Stamp),
}

impl<P: Platform> MemoryWindow<P> {
    pub(crate) fn create(
        domain: &Shared<DomainObject<P>>,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let adapter = &domain.open.adapter;
        adapter.ready()?;
        let vacant = domain.tables.tokens.vacant()?;
        let key = vacant.key();
        let window = Shared::try_new(WindowObject {
            core: adapter.core(
                ObjectKind::MemoryWindow,
                Some(consumer_object),
                Antecedents::none().with(Object::of(domain)),
            ),
            domain: domain.clone(),
            binding: DoubleBuffer::new(Binding::NONE, Binding::NONE, adapter.scheduler.epoch().clone()),
            issued: AtomicU32::new(domain.tables.seal.token(key).0),
            state: P::Lock::new(WindowState { key: Some(key), bound: None, leaving: None }),
            neighbours: P::Lock::new(WindowNeighbours { next: None, previous: None }),
        })?;
        adapter.register(&Object::of(&window))?;
        vacant.fill(TokenEntry::Window(window.clone()));
        Ok(Self(window))
    }

    /// For the peer: the token of the newest bind, from the moment it was posted. Never zero; before the first bind it is a
    /// token that is never valid.
    pub fn remote_token(&self) -> MemoryToken {
        MemoryToken(self.0.issued.load(Ordering::Relaxed))
    }

    /// Keeps the close from completing while the front end's own asynchronous request on it is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    /// Unbinds the window and closes it.
    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        let window = &self.0;
        window.core.close(Some(callback), || {
            if let Some((_, bound)) = take_bound(window, |_| true) {
                // The window was bound to it until now, so it is closed before the region is.
                window.core.depend_on(Object::of(&bound.region));
                bound.release();
            }
            let hold = self.hold();
            let left = window.state.with(|state| window.withdraw(state, hold));
            if left.is_none() {
                // A context may still be inside: a service pass looks again, and waits for it if it must.
                window.core.scheduler.link(&Object::of(window));
            }
        })
    }
}

impl<P: Platform> WindowObject<P> {
    /// Bound is listed as registered memory is: usable through a token.
    pub(crate) fn listed_state(&self) -> ObjectState {
        self.state.with(|state| if state.bound.is_some() { ObjectState::Registered } else { ObjectState::Idle })
    }

    /// Gives the next bind its token.
    pub(crate) fn issue(&self) -> MemoryToken {
        let tables = &self.domain.tables;
        let next = |token: u32| {
            let key = tables.seal.key(MemoryToken(token));
            tables.seal.token(SlotKey { generation: tables.tokens.generation_after(key.generation), ..key })
        };
        // Two binds at a time violate the contract, and still have two tokens.
        let before = self.issued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |token| Some(next(token).0));
        next(before.unwrap_or_else(|token| token))
    }

    /// Takes the entry out of the table, with the newest token so that the slot's next window never gets one of its tokens.
    fn withdraw(&self, state: &mut WindowState<P>, hold: Hold<P>) -> Option<(TokenEntry<P>, Hold<P>)> {
        let tables = &self.domain.tables;
        let key = state.key.take()?;
        let newest = tables.seal.key(MemoryToken(self.issued.load(Ordering::Relaxed))).generation;
        let tokens = &tables.tokens;
        let removed = tokens.remove(tokens.renew(key, newest).unwrap_or(key))?;
        match tokens.reclaim(removed) {
            Ok(entry) => Some((entry, hold)),
            Err(removed) => {
                state.leaving = Some((removed, hold));
                None
            }
        }
    }
}

/// Lets a binding take effect. `region` and `hold` are its edge to the region; they are returned when it does not.
pub(crate) fn bind<P: Platform>(
    window: &Shared<WindowObject<P>>,
    binding: Binding,
    windows: &Shared<Windows<P>>,
    edge: (Shared<RegionObject<P>>, Hold<P>),
) -> Result<(), (NotBound, Hold<P>)> {
    window.state.with(|state| {
        let (region, hold) = edge;
        // A close marks the window before it takes the state: either the close finds this binding, or this check sees the mark.
        let free = state.bound.is_none() && !window.core.is_closing();
        let Some(key) = state.key.filter(|_| free) else { return Err((NotBound::Occupied, hold)) };
        window.binding.reclaim();
        let Some(mut draft) = window.binding.draft() else {
            return Err((NotBound::Wait(window.core.scheduler.epoch().retire()), hold));
        };
        *draft = binding;
        let ready = draft.finish();
        // Nothing is current while nothing is bound, so this cannot be refused; if it were, nothing would be granted.
        if let Err(ready) = window.binding.publish(ready) {
            window.binding.discard(ready);
            return Err((NotBound::Occupied, hold));
        }
        let tables = &window.domain.tables;
        state.key = tables.tokens.renew(key, tables.seal.key(binding.token).generation).or(Some(key));
        windows.add(window);
        let registration = binding.region;
        state.bound = Some(WindowBinding { region, registration, hold, windows: windows.clone() });
        Ok(())
    })
}

/// Removes the binding if there is one that `fits`; its readers have left when the stamp has passed.
pub(crate) fn unbind<P: Platform>(
    window: &Shared<WindowObject<P>>,
    fits: impl FnOnce(&Shared<Windows<P>>) -> bool,
) -> Option<Stamp> {
    let (stamp, bound) = take_bound(window, fits)?;
    bound.release();
    // A bound window has a current buffer.
    stamp
}

fn take_bound<P: Platform>(
    window: &Shared<WindowObject<P>>,
    fits: impl FnOnce(&Shared<Windows<P>>) -> bool,
) -> Option<(Option<Stamp>, WindowBinding<P>)> {
    window.state.with(|state| {
        let bound = state.bound.take_if(|bound| fits(&bound.windows))?;
        bound.windows.remove(window);
        Some((window.binding.withdraw(), bound))
    })
}

/// The queue pair has ended: unbinds up to `most` of its windows; true when some may be left.
pub(crate) fn unbind_all<P: Platform>(windows: &Shared<Windows<P>>, most: usize) -> bool {
    for _ in 0..most {
        let Some(window) = windows.first() else { return false };
        unbind(&window, |bound| bound.is(windows));
    }
    true
}

object!(WindowObject {
    fn work(&self, _pass: &mut ServicePass<'_, P>) {
        service(self);
    }

    fn snapshot_state(&self) -> ObjectState {
        self.listed_state()
    }
});

/// Ends the access of a closed window when no context is inside the epoch any more.
fn service<P: Platform>(window: &Shared<WindowObject<P>>) {
    let tokens = &window.domain.tables.tokens;
    let (left, wait) = window.state.with(|state| {
        let Some((removed, hold)) = state.leaving.take() else { return (None, None) };
        match tokens.reclaim(removed) {
            Ok(entry) => (Some((entry, hold)), None),
            Err(removed) => {
                let stamp = removed.stamp();
                state.leaving = Some((removed, hold));
                (None, Some(stamp))
            }
        }
    });
    if let Some(stamp) = wait {
        window.core.scheduler.park(&Object::of(window), stamp);
    }
    // The entry and the hold end here, outside the lock.
    drop(left);
}
