//! Memory regions: registered memory, and fast-register regions whose pages change by work request.
//!
//! A region is the object behind NDK_MR in both kinds, and the table entry that transfers read. Access checks are in
//! `access.rs`.
//!
//! Rules (NDKPI: NDK_FN_REGISTER_MR, NDK_FN_FAST_REGISTER, NDK_FN_INVALIDATE): the base address is a label; a registered region
//! has a new token each time, a fast-register region keeps one over all its cycles; taking access away is complete only when no
//! context that could have seen the region is inside any more.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use softndk_cells::{Dispose, DoubleBuffer, NoMemory, Once, Removed, Shared, SlotKey};

use crate::error::{CreateError, PostError, RegionError};
use crate::flags::Rights;
use crate::limits::PAGE;
use crate::memory::access::inside;
use crate::memory::memory_window::WindowObject;
use crate::memory::protection_domain::DomainObject;
use crate::object::event::{Close, Deregistered, Retired, ServicePass, Sink};
use crate::object::header::{Antecedents, Core, Hold, Object, object};
use crate::object::snapshot::{ObjectKind, ObjectState};
use crate::platform::{Lock, Memory, Platform};
use crate::token::{LogicalAddress, MemoryToken};

/// What a memory token names.
pub(crate) enum TokenEntry<P: Platform> {
    /// Any logical address of an adapter, for local use in one domain.
    Privileged {
        domain: MemoryToken,
        adapter: u32,
    },
    Registered(Registered<P>),
    Fast(Shared<FastRegion>),
    Window(Shared<WindowObject<P>>),
}

/// Registered memory as readers see it.
pub(crate) struct Registered<P: Platform> {
    pub(crate) memory: P::Memory,
    pub(crate) base: u64,
    pub(crate) length: u64,
    pub(crate) rights: Rights,
    pub(crate) domain: MemoryToken,
}

/// A fast-register region as readers see it.
pub(crate) struct FastRegion {
    pub(crate) buffers: DoubleBuffer<PageList>,
    pub(crate) domain: MemoryToken,
    pub(crate) adapter: u32,
    pub(crate) remote_access: bool,
    pub(crate) most_pages: u32,
}

impl Dispose for FastRegion {}

/// The pages of a fast registration, as the front end has them.
pub trait Pages {
    fn count(&self) -> usize;

    /// Copies the pages out, each read once; `into` has as many places.
    fn read(self, into: &mut [u64]);
}

impl<I: ExactSizeIterator<Item = LogicalAddress>> Pages for I {
    fn count(&self) -> usize {
        self.len()
    }

    fn read(self, into: &mut [u64]) {
        for (place, page) in into.iter_mut().zip(self) {
            *place = page.0;
        }
    }
}

/// One page list of a fast-register region's double buffer.
pub(crate) struct PageList {
    /// Places for as many pages as the region may have.
    pages: Box<[u64]>,
    count: usize,
    /// The pages follow one another: the first says where all are.
    is_run: bool,
    pub(crate) first_byte_offset: u64,
    pub(crate) base: u64,
    pub(crate) length: u64,
    pub(crate) rights: Rights,
}

impl PageList {
    fn try_new(pages: usize) -> Result<Self, NoMemory> {
        let mut list = Vec::new();
        list.try_reserve_exact(pages)?;
        list.extend((0..pages).map(|_| 0));
        let pages = list.into_boxed_slice();
        let rights = Rights::empty();
        Ok(Self { pages, count: 0, is_run: false, first_byte_offset: 0, base: 0, length: 0, rights })
    }

    /// Replaces the pages.
    pub(crate) fn fill(&mut self, pages: impl Pages) -> Result<(), PostError> {
        let count = pages.count();
        let list = self.pages.get_mut(..count).ok_or(PostError::NoResources)?;
        pages.read(list);
        let first = *list.first().ok_or(PostError::BadParameter)?;
        // What differs from a run of pages, by bits: no branch a page. What is no page differs from one, or is the first.
        let (mut strays, mut expected) = (0, first);
        for page in &*list {
            strays |= *page ^ expected;
            expected = expected.wrapping_add(PAGE);
        }
        (self.count, self.is_run) = (count, strays == 0);
        if (strays | first).is_multiple_of(PAGE) { Ok(()) } else { Err(PostError::BadParameter) }
    }

    /// Where the registered bytes begin, if they are one run.
    pub(crate) fn whole(&self) -> Option<LogicalAddress> {
        let first = self.pages.first().filter(|_| self.is_run)?;
        Some(LogicalAddress(first.wrapping_add(self.first_byte_offset)))
    }

    /// Where the byte at an offset is, and how many of the `most` bytes from there on follow it.
    pub(crate) fn run_from(&self, at: u64, most: u64) -> Option<(LogicalAddress, u64)> {
        let inside = at % PAGE;
        let mut following = self.pages.get((at / PAGE) as usize..self.count)?.iter();
        let first = *following.next()?;
        let mut length = PAGE - inside;
        let mut expected = first;
        while length < most && following.next().is_some_and(|page| *page == expected.wrapping_add(PAGE)) {
            expected = expected.wrapping_add(PAGE);
            length = length.saturating_add(PAGE);
        }
        Some((LogicalAddress(first.wrapping_add(inside)), length.min(most)))
    }
}

pub(crate) struct RegionObject<P: Platform> {
    pub(crate) core: Core<P>,
    pub(crate) domain: Shared<DomainObject<P>>,
    fast_register: bool,
    /// The fast-register half, once initialised: posts find it without the lock.
    fast: Once<Shared<FastRegion>>,
    token: AtomicU32,
    state: P::Lock<RegionState<P>>,
}

enum RegionState<P: Platform> {
    Idle,
    Registered(Standing),
    Fast(SlotKey),
    /// Taken out of the table; the readers have not all left.
    Leaving(LeavingRegion<P>),
}

/// A registration for its owner.
#[derive(Clone, Copy)]
struct Standing {
    key: SlotKey,
    base: u64,
    length: u64,
    rights: Rights,
    /// Windows bound to it.
    windows: u32,
}

struct LeavingRegion<P: Platform> {
    removed: Removed,
    /// The Deregister that waits; `None` for a close.
    callback: Option<P::RequestCallback>,
    hold: Hold<P>,
}

/// A memory region of either kind.
pub struct MemoryRegion<P: Platform>(pub(crate) Shared<RegionObject<P>>);

impl<P: Platform> Clone for MemoryRegion<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// What to register: `base` is the label of the memory's first byte, `length` at most the memory's length.
pub struct Registration<P: Platform> {
    pub memory: P::Memory,
    pub base: u64,
    pub length: u64,
    pub rights: Rights,
}

impl<P: Platform> MemoryRegion<P> {
    pub(crate) fn create(
        domain: &Shared<DomainObject<P>>,
        fast_register: bool,
        consumer_object: P::ConsumerObject,
    ) -> Result<Self, CreateError> {
        let adapter = &domain.open.adapter;
        adapter.ready()?;
        let region = Shared::try_new(RegionObject {
            core: adapter.core(
                ObjectKind::MemoryRegion,
                Some(consumer_object),
                Antecedents::none().with(Object::of(domain)),
            ),
            domain: domain.clone(),
            fast_register,
            fast: Once::new(),
            token: AtomicU32::new(0),
            state: P::Lock::new(RegionState::Idle),
        })?;
        adapter.register(&Object::of(&region))?;
        Ok(Self(region))
    }

    /// True for a fast-register region.
    pub fn is_fast_register(&self) -> bool {
        self.0.fast_register
    }

    /// Most bytes that can be registered.
    pub fn longest(&self) -> u64 {
        self.0.domain.open.adapter.limits.registration_size
    }

    /// Publishes mapped memory. The front end maps first (asynchronously if it likes, with a [`Self::hold`]); on an error it
    /// gets the memory back.
    pub fn register(&self, registration: Registration<P>) -> Result<(), (RegionError, P::Memory)> {
        let region = &self.0;
        if let Err(error) = region.check(&registration) {
            return Err((error, registration.memory));
        }
        let Registration { memory, base, length, rights } = registration;
        let entry = Registered { memory, base, length, rights, domain: region.domain.number };
        region.state.with(|state| {
            // Under this lock, because a close marks the region before it takes the state: either the close finds the entry, or
            // this check sees the close.
            if region.core.is_closing() {
                return Err((RegionError::Closing, entry.memory));
            }
            if !matches!(state, RegionState::Idle) {
                return Err((RegionError::InUse, entry.memory));
            }
            let tokens = &region.domain.tables.tokens;
            let Ok(vacant) = tokens.vacant() else { return Err((RegionError::NoResources, entry.memory)) };
            let (base, length, rights) = (entry.base, entry.length, entry.rights);
            let key = vacant.fill(TokenEntry::Registered(entry));
            region.set_token(key);
            *state = RegionState::Registered(Standing { key, base, length, rights, windows: 0 });
            Ok(())
        })
    }

    /// Ends a registration, unless windows are bound to it; the memory comes with the result or by [`Sink::retired`].
    pub fn deregister(&self, callback: P::RequestCallback) -> Result<Deregistered<P>, RegionError> {
        self.end_registration(callback, false)
    }

    /// As [`Self::deregister`], also while windows are bound: what is accessed through them from now on is denied. They stay
    /// bound, and keep the close of the region waiting, until they are unbound.
    pub fn revoke(&self, callback: P::RequestCallback) -> Result<Deregistered<P>, RegionError> {
        self.end_registration(callback, true)
    }

    fn end_registration(&self, callback: P::RequestCallback, also_bound: bool) -> Result<Deregistered<P>, RegionError> {
        let region = &self.0;
        let hold = self.hold();
        let outcome = region.state.with(|state| {
            let RegionState::Registered(Standing { key, windows, .. }) = *state else {
                return Err((RegionError::WrongKind, hold));
            };
            if windows > 0 && !also_bound {
                return Err((RegionError::WindowsBound, hold));
            }
            region.token.store(0, Ordering::Relaxed);
            Ok(region.withdraw(state, key, Some(callback), hold))
        });
        match outcome {
            Err((error, _hold)) => Err(error),
            Ok(Some((TokenEntry::Registered(entry), hold))) => {
                Ok(Deregistered::Done(Retired { memory: entry.memory, callback: None, hold }))
            }
            Ok(_) => {
                // A context is still inside: a service pass looks again, and waits for it if it must.
                region.core.scheduler.link(&Object::of(region));
                Ok(Deregistered::Pending)
            }
        }
    }

    /// Allocates the page lists of a fast-register region and gives it its token.
    pub fn initialize_fast_register(&self, pages: u32, remote_access: bool) -> Result<(), RegionError> {
        let region = &self.0;
        if !region.fast_register {
            return Err(RegionError::WrongKind);
        }
        if pages == 0 || pages > region.domain.open.adapter.limits.fast_register_pages {
            return Err(RegionError::TooManyPages);
        }
        let epoch = region.core.scheduler.epoch().clone();
        let page_lists = (PageList::try_new(pages as usize)?, PageList::try_new(pages as usize)?);
        let fast = Shared::try_new(FastRegion {
            buffers: DoubleBuffer::new(page_lists.0, page_lists.1, epoch),
            domain: region.domain.number,
            adapter: region.domain.open.adapter.number,
            remote_access,
            most_pages: pages,
        })?;
        region.state.with(|state| {
            // As in `register`.
            if region.core.is_closing() {
                return Err(RegionError::Closing);
            }
            if !matches!(state, RegionState::Idle) {
                return Err(RegionError::InUse);
            }
            let vacant = region.domain.tables.tokens.vacant()?;
            // Only here, under the lock and from the state that never comes back.
            region.fast.set(fast.clone()).map_err(|_fast| RegionError::InUse)?;
            let key = vacant.fill(TokenEntry::Fast(fast));
            region.set_token(key);
            *state = RegionState::Fast(key);
            Ok(())
        })
    }

    /// For local SGEs; [`MemoryToken::NONE`] before the region is registered or initialised.
    pub fn local_token(&self) -> MemoryToken {
        MemoryToken(self.0.token.load(Ordering::Relaxed))
    }

    /// For the peer. The same over all cycles of a fast-register region.
    pub fn remote_token(&self) -> MemoryToken {
        self.local_token()
    }

    /// Keeps the close from completing while the front end's own asynchronous request on it is under way.
    pub fn hold(&self) -> Hold<P> {
        Hold::new(Object::of(&self.0))
    }

    /// Closes the region and revokes the access it still gives: at once, or when the last window bound to it is unbound.
    pub fn close(&self, callback: P::CloseCallback) -> Close<P> {
        let region = &self.0;
        region.core.close(Some(callback), || {
            let hold = self.hold();
            let left = region.state.with(|state| {
                let key = match state {
                    RegionState::Registered(Standing { key, windows: 0, .. }) | RegionState::Fast(key) => *key,
                    RegionState::Registered(_) | RegionState::Idle | RegionState::Leaving(_) => return None,
                };
                region.token.store(0, Ordering::Relaxed);
                region.withdraw(state, key, None, hold)
            });
            match left {
                Some((TokenEntry::Registered(entry), _hold)) => region.core.keep_memory(entry.memory),
                Some(_) => {}
                // A context may still be inside: a service pass looks again, and waits for it if it must.
                None => region.core.scheduler.link(&Object::of(region)),
            }
        })
    }
}

impl<P: Platform> RegionObject<P> {
    fn check(&self, registration: &Registration<P>) -> Result<(), RegionError> {
        if self.fast_register {
            return Err(RegionError::WrongKind);
        }
        let length = registration.length;
        let too_long =
            length > self.domain.open.adapter.limits.registration_size || length > registration.memory.length();
        if length == 0 || too_long || registration.base.checked_add(length - 1).is_none() {
            return Err(RegionError::BadLength);
        }
        Ok(())
    }

    fn set_token(&self, key: SlotKey) {
        self.token.store(self.domain.tables.seal.token(key).0, Ordering::Relaxed);
    }

    pub(crate) fn listed_state(&self) -> ObjectState {
        self.state.with(|state| match state {
            RegionState::Idle => ObjectState::Idle,
            RegionState::Registered(_) => ObjectState::Registered,
            RegionState::Fast(_) => ObjectState::Initialized,
            RegionState::Leaving(_) => ObjectState::Leaving,
        })
    }

    /// Whether a window over `length` bytes from `address` may be bound with these rights; the token tells this registration
    /// from later ones.
    ///
    /// NDKPI: NDK_FN_BIND. A window needs no remote right of its region, but to let a peer write it needs the local one.
    pub(crate) fn lends(&self, address: u64, length: u64, rights: Rights) -> Result<MemoryToken, PostError> {
        let standing = self.state.with(|state| match state {
            RegionState::Registered(standing) => Some(*standing),
            _ => None,
        });
        let standing = standing.ok_or(PostError::BadParameter)?;
        if rights.contains(Rights::REMOTE_WRITE) && !standing.rights.contains(Rights::LOCAL_WRITE) {
            return Err(PostError::AccessDenied);
        }
        if length == 0 || inside(standing.base, standing.length, address, length).is_none() {
            return Err(PostError::BadParameter);
        }
        Ok(self.domain.tables.seal.token(standing.key))
    }

    /// The fast-register half, from its initialisation to the close.
    pub(crate) fn fast(&self) -> Option<&Shared<FastRegion>> {
        if self.token.load(Ordering::Relaxed) == 0 { None } else { self.fast.get() }
    }

    /// Takes the entry out of the table: at once, or in a service pass.
    fn withdraw(
        &self,
        state: &mut RegionState<P>,
        key: SlotKey,
        callback: Option<P::RequestCallback>,
        hold: Hold<P>,
    ) -> Option<(TokenEntry<P>, Hold<P>)> {
        let tokens = &self.domain.tables.tokens;
        let removed = tokens.remove(key)?;
        match tokens.reclaim(removed) {
            Ok(entry) => {
                *state = RegionState::Idle;
                Some((entry, hold))
            }
            Err(removed) => {
                *state = RegionState::Leaving(LeavingRegion { removed, callback, hold });
                None
            }
        }
    }
}

/// Edges from windows, on the shared pointer because they hold the region.
pub(crate) trait Edges<P: Platform> {
    /// A window is being bound to this registration. `None` when it is not there any more.
    fn bound(&self, token: MemoryToken) -> Option<Hold<P>>;
    /// A window was unbound from a registration, which may be revoked. After the last one a closed region continues its close.
    fn unbound(&self, registration: SlotKey, hold: Hold<P>);
}

impl<P: Platform> Edges<P> for Shared<RegionObject<P>> {
    fn bound(&self, token: MemoryToken) -> Option<Hold<P>> {
        self.state.with(|state| {
            let RegionState::Registered(standing) = state else { return None };
            let same = self.domain.tables.seal.token(standing.key) == token;
            // A close that has begun and not taken the state yet waits for this lock with its consumer's hold.
            if !same || self.core.is_closing() {
                return None;
            }
            standing.windows += 1;
            Some(Hold::new(Object::of(self)))
        })
    }

    fn unbound(&self, registration: SlotKey, hold: Hold<P>) {
        let (left, hold) = self.state.with(|state| {
            let RegionState::Registered(standing) = state else { return (None, Some(hold)) };
            if standing.key != registration {
                return (None, Some(hold));
            }
            standing.windows = standing.windows.saturating_sub(1);
            if standing.windows > 0 || !self.core.is_closing() {
                return (None, Some(hold));
            }
            let key = standing.key;
            (self.withdraw(state, key, None, hold), None)
        });
        match (left, hold) {
            (Some((TokenEntry::Registered(entry), hold)), _) => {
                self.core.keep_memory(entry.memory);
                drop(hold);
            }
            (None, None) => self.core.scheduler.link(&Object::of(self)),
            (_, hold) => drop(hold),
        }
    }
}

object!(RegionObject {
    fn work(&self, pass: &mut ServicePass<'_, P>) {
        service(self, pass.sink);
    }

    fn snapshot_state(&self) -> ObjectState {
        self.listed_state()
    }
});

/// Ends a Deregister or the access of a closed region when no context is inside the epoch any more.
fn service<P: Platform>(region: &Shared<RegionObject<P>>, sink: &mut dyn Sink<P>) {
    let tokens = &region.domain.tables.tokens;
    let (left, wait) = region.state.with(|state| {
        let LeavingRegion { removed, callback, hold } = match core::mem::replace(state, RegionState::Idle) {
            RegionState::Leaving(leaving) => leaving,
            other => {
                *state = other;
                return (None, None);
            }
        };
        match tokens.reclaim(removed) {
            Ok(entry) => (Some((entry, callback, hold)), None),
            Err(removed) => {
                let stamp = removed.stamp();
                *state = RegionState::Leaving(LeavingRegion { removed, callback, hold });
                (None, Some(stamp))
            }
        }
    });
    if let Some(stamp) = wait {
        region.core.scheduler.park(&Object::of(region), stamp);
    }
    match left {
        Some((TokenEntry::Registered(entry), Some(callback), hold)) => {
            sink.retired(Retired { memory: entry.memory, callback: Some(callback), hold });
        }
        Some((TokenEntry::Registered(entry), None, hold)) => {
            region.core.keep_memory(entry.memory);
            drop(hold);
        }
        Some((TokenEntry::Fast(_) | TokenEntry::Window(_) | TokenEntry::Privileged { .. }, _, hold)) => drop(hold),
        None => {}
    }
}
