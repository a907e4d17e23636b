//! Memory: buffers, regions, windows, tokens, and which access to which bytes is allowed.
//!
//! Addresses are numbers of the model's own: each buffer lies at a place of its own, as memory and as logical pages. Bytes that a
//! failed transfer may or may not have written are *unknown*; they spread with copies and are never compared.

use softndk_ioctl::{ScriptCode, ScriptKind, ScriptName, ScriptSge, Status, script_byte, script_digest};

use super::{Call, DONE, Expected, Id, Model, Resource, fails};

pub const PAGE: u64 = 4096;
/// NDK_MR_FLAG_*, and NDK_OP_FLAG_* without their lowest three bits.
pub const LOCAL_WRITE: u8 = 1;
pub const REMOTE_READ: u8 = 2;
pub const REMOTE_WRITE: u8 = 4;

/// A byte, or an unknown one.
pub type Byte = Option<u8>;

#[derive(Clone, Debug)]
pub struct Buffer {
    pub adapter: Id,
    pub bytes: Vec<Byte>,
    /// Where it lies in memory; its logical pages lie at the same number plus [`LOGICAL`].
    pub place: u64,
}

/// What sets logical addresses apart.
pub const LOGICAL: u64 = 1 << 60;

/// The object of a token.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Registered {
    /// Not registered; for fast-register regions: not initialised.
    #[default]
    Nothing,
    /// A stretch of a buffer from `base` on.
    Whole { buffer: Id, offset: u64, length: u64, base: u64, rights: u8 },
    /// Initialised and invalid.
    Invalid,
}

#[derive(Clone, Debug)]
pub struct Region {
    pub domain: Id,
    pub fast: bool,
    /// Initialised for so many pages.
    pub pages: u32,
    pub remote: bool,
    pub registered: Registered,
    /// What the remote token of now is known by; 0: none.
    pub token: u64,
    /// Label of the first byte, as of the last registration that was accepted.
    pub base: u64,
}

#[derive(Clone, Debug)]
pub struct Window {
    pub domain: Id,
    /// Region, queue pair, first address, length, rights; as of the last Bind that was done.
    pub bound: Option<Bound>,
    /// Token and first address, as of the last Bind that was accepted.
    pub token: u64,
    pub base: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub region: Id,
    pub pair: Id,
    pub address: u64,
    pub length: u64,
    pub rights: u8,
    pub token: u64,
}

/// A token that was read at some time, with the base address of then.
#[derive(Clone, Debug)]
pub struct Remembered {
    pub of: Id,
    pub token: u64,
    pub base: u64,
}

/// A token in a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Address {
    /// The token of this number that this region or window had.
    Of { object: Id, token: u64 },
    /// The privileged token of the queue pair's domain.
    Privileged,
    /// A token of no object.
    Foreign,
}

/// Bytes of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub buffer: Id,
    pub offset: u64,
    pub length: u64,
}

impl Model {
    pub(super) fn create_buffer(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let adapter = self.find(call.name(0), ScriptKind::Adapter)?;
        let (length, seed) = (call.number(1), call.number(2));
        // Whole pages, so that nothing lies between the end of a buffer and of its last page.
        ((1..=16 * PAGE).contains(&length) && length.is_multiple_of(PAGE)).then_some(())?;
        let place = (self.nodes.len() as u64 + 1) << 36;
        let bytes = (0..length).map(|offset| Some(script_byte(seed, offset))).collect();
        self.add(name, vec![adapter], Resource::Buffer(Buffer { adapter, bytes, place }));
        Some(DONE)
    }

    pub(super) fn fill(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Buffer)?;
        let (offset, length, seed) = (call.number(0), call.number(1), call.number(2));
        let end = offset.checked_add(length)?;
        let bytes = self.buffer_mut(id).bytes.get_mut(offset as usize..end as usize)?;
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = Some(script_byte(seed, offset + index as u64));
        }
        Some(Expected::Nothing)
    }

    pub(super) fn bytes(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Buffer)?;
        let (offset, length) = (call.number(0), call.number(1));
        let end = offset.checked_add(length)?;
        let known: Option<Vec<u8>> =
            self.buffer(id).bytes.get(offset as usize..end as usize)?.iter().copied().collect();
        Some(Expected::Digest(script_digest(&known?)))
    }

    /// The consumer releases a mapping only after everything that uses it.
    pub(super) fn release_buffer(&mut self, id: Id) -> Option<()> {
        let used = self.nodes.iter().any(|node| match &node.resource {
            Resource::Region(region) if !node.finished => {
                matches!(region.registered, Registered::Whole { buffer, .. } if buffer == id)
            }
            Resource::QueuePair(pair) if !node.finished => pair.mentions(id),
            Resource::Shared(shared) if !node.finished => shared.receives.iter().any(|receive| receive.mentions(id)),
            _ => false,
        });
        (!used).then_some(())
    }

    pub(super) fn create_region(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let domain = self.find(call.name(0), ScriptKind::Domain)?;
        let fast = call.code == ScriptCode::CreateFastRegion;
        let region =
            Region { domain, fast, pages: 0, remote: false, registered: Registered::Nothing, token: 0, base: 0 };
        self.add(name, vec![domain], Resource::Region(region));
        Some(DONE)
    }

    pub(super) fn create_window(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let domain = self.find(call.name(0), ScriptKind::Domain)?;
        self.add(name, vec![domain], Resource::Window(Window { domain, bound: None, token: 0, base: 0 }));
        Some(DONE)
    }

    pub(super) fn register(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Region)?;
        let buffer = self.find(call.name(0), ScriptKind::Buffer)?;
        let (offset, length, flags) = (call.number(1), call.number(2), call.number(3));
        let rights = rights_of(flags)?;
        let whole = self.buffer(buffer);
        (length > 0 && offset.checked_add(length)? <= whole.bytes.len() as u64).then_some(())?;
        let base = whole.place + offset;
        let region = self.region(id);
        // The kind of refusal is undefined by the contract.
        (!region.fast && region.registered == Registered::Nothing).then_some(())?;
        let token = self.new_token();
        let region = self.region_mut(id);
        region.registered = Registered::Whole { buffer, offset, length, base, rights };
        region.token = token;
        region.base = base;
        Some(DONE)
    }

    pub(super) fn new_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    pub(super) fn deregister(&mut self, name: ScriptName) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Region)?;
        // With windows on it the two documents differ, and neither is complete.
        (!self.region(id).fast && !self.has_windows(id) && !self.in_use(id, None)).then_some(())?;
        let region = self.region_mut(id);
        (region.registered != Registered::Nothing).then_some(())?;
        region.registered = Registered::Nothing;
        region.token = 0;
        Some(DONE)
    }

    pub(super) fn has_windows(&self, region: Id) -> bool {
        self.nodes.iter().any(|node| match &node.resource {
            Resource::Window(window) => window.bound.is_some_and(|bound| bound.region == region),
            _ => false,
        })
    }

    pub(super) fn initialize(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let id = self.find(name, ScriptKind::Region)?;
        let (pages, remote) = (call.small(0), call.number(1) != 0);
        let region = self.region(id);
        (region.fast && region.registered == Registered::Nothing && pages > 0).then_some(())?;
        if pages > 512 {
            return fails(Status::IMPLEMENTATION_LIMIT);
        }
        let token = self.new_token();
        let region = self.region_mut(id);
        (region.pages, region.remote, region.registered, region.token) = (pages, remote, Registered::Invalid, token);
        Some(DONE)
    }

    pub(super) fn remember(&mut self, name: ScriptName, call: &Call<'_>) -> Option<Expected> {
        let of = *self.slots.get(&call.name(0))?;
        let (token, base) = match &self.nodes[of].resource {
            Resource::Region(region) => (region.token, region.base),
            Resource::Window(window) => (window.token, window.base),
            _ => return None,
        };
        (token != 0).then_some(())?;
        self.add(name, Vec::new(), Resource::Token(Remembered { of, token, base }));
        Some(Expected::Nothing)
    }

    /// Closing a region takes away what it gives. With windows on it, when is the provider's choice.
    pub(super) fn close_region(&mut self, id: Id) -> Option<()> {
        (!self.has_windows(id) && !self.in_use(id, None) && !self.has_request_waiting(id)).then_some(())?;
        let region = self.region_mut(id);
        region.registered = Registered::Nothing;
        region.token = 0;
        Some(())
    }

    /// A request about this window or region waits in a queue: what becomes of it after a close is the provider's choice.
    pub(super) fn has_request_waiting(&self, object: Id) -> bool {
        self.nodes.iter().any(|node| match &node.resource {
            Resource::QueuePair(pair) => pair.requests.iter().any(|request| request.is_about(object)),
            _ => false,
        })
    }

    pub(super) fn unbind(&mut self, window: Id) {
        let window = self.window_mut(window);
        window.bound = None;
    }

    /// Where a scatter/gather element lies and whose token it carries. `None`: not a list that means something.
    pub(super) fn sge(&self, sge: &ScriptSge, inline: bool) -> Option<(u64, Address)> {
        let base = if sge.base == ScriptName::NONE {
            0
        } else {
            let id = *self.slots.get(&sge.base)?;
            match &self.nodes[id].resource {
                Resource::Buffer(buffer) if inline => buffer.place,
                Resource::Buffer(buffer) => buffer.place + LOGICAL,
                Resource::Region(region) => region.base,
                _ => return None,
            }
        };
        let token = if sge.token == ScriptName::NONE {
            Address::Foreign
        } else {
            let object = *self.slots.get(&sge.token)?;
            match &self.nodes[object].resource {
                Resource::Buffer(_) => Address::Privileged,
                Resource::Region(region) => Address::Of { object, token: region.token },
                _ => return None,
            }
        };
        Some((base.wrapping_add(sge.offset), token))
    }

    /// A place in the peer's memory, from two arguments.
    pub(super) fn remote(&self, first: u64, offset: u64) -> Option<(u64, Address)> {
        let name = ScriptName(first as u32);
        if name == ScriptName::NONE {
            return Some((offset, Address::Foreign));
        }
        let object = *self.slots.get(&name)?;
        let (base, address) = match &self.nodes[object].resource {
            Resource::Region(region) => (region.base, Address::Of { object, token: region.token }),
            Resource::Window(window) => (window.base, Address::Of { object, token: window.token }),
            Resource::Token(token) => (token.base, Address::Of { object: token.of, token: token.token }),
            _ => return None,
        };
        Some((base.wrapping_add(offset), address))
    }

    /// The bytes that a local scatter/gather element reaches.
    pub(super) fn local(&self, domain: Id, address: u64, length: u64, token: Address, rights: u8) -> Option<Stretch> {
        match token {
            Address::Foreign => None,
            Address::Privileged => {
                let Resource::Domain { adapter } = self.nodes[domain].resource else { return None };
                self.nodes.iter().enumerate().find_map(|(id, node)| match &node.resource {
                    Resource::Buffer(buffer) if !node.finished && self.host(buffer.adapter) == self.host(adapter) => {
                        let offset = address.checked_sub(buffer.place + LOGICAL)?;
                        (offset.checked_add(length)? <= buffer.bytes.len() as u64).then_some(Stretch {
                            buffer: id,
                            offset,
                            length,
                        })
                    }
                    _ => None,
                })
            }
            Address::Of { object, token } => {
                let Resource::Region(region) = &self.nodes[object].resource else { return None };
                (region.domain == domain && region.token == token).then_some(())?;
                region.stretch(address, length, rights)
            }
        }
    }

    /// The bytes that a peer's request reaches through this queue pair.
    pub(super) fn target(&self, pair: Id, address: u64, length: u64, token: Address, rights: u8) -> Option<Stretch> {
        let Address::Of { object, token } = token else { return None };
        let domain = self.pair(pair).domain;
        match &self.nodes[object].resource {
            Resource::Region(region) => {
                let good = region.domain == domain && region.token == token && (region.remote || !region.fast);
                good.then_some(())?;
                region.stretch(address, length, rights)
            }
            Resource::Window(window) => {
                let bound = window.bound?;
                (bound.token == token && bound.pair == pair && bound.rights & rights == rights).then_some(())?;
                let offset = address.checked_sub(bound.address)?;
                (offset.checked_add(length)? <= bound.length).then_some(())?;
                self.region(bound.region).stretch(address, length, 0)
            }
            _ => None,
        }
    }
}

impl Region {
    fn stretch(&self, address: u64, length: u64, wanted: u8) -> Option<Stretch> {
        let Registered::Whole { buffer, offset, length: whole, base, rights } = self.registered else { return None };
        let inside = address.checked_sub(base)?;
        (inside.checked_add(length)? <= whole && rights & wanted == wanted).then_some(())?;
        Some(Stretch { buffer, offset: offset + inside, length })
    }
}

/// The rights in NDK_MR_FLAG_*; remote write comes with local write. The read-sink flag means nothing here.
pub fn rights_of(flags: u64) -> Option<u8> {
    let rights = (flags & 7) as u8;
    let lone = rights & (LOCAL_WRITE | REMOTE_WRITE) == REMOTE_WRITE;
    (flags & !15 == 0 && !lone).then_some(rights)
}
