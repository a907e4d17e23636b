//! One initialised instance of a miniport: its handle, its state, its attributes, and what is outstanding with it.
//!
//! States as NDIS names them: Halted → Initializing → Paused → Restarting → Running → Pausing → Paused → Halted. The steps
//! between them are in [`super::life_cycle`]; this file only checks them.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ndkpi_sys::ndis::{
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_OBJECT_HEADER,
};
use ndkpi_sys::ndkinfo::NDK_ADAPTER_INFO;

use super::attributes::{self, General};
use super::data_path::DataPath;
use super::gate::Gate;
use super::oid_request::OidPath;
use super::registration::MiniportDriver;
use super::rendezvous::Rendezvous;
use super::rule::{Group, broken, live};
use super::{NdisStatus, ndis, status};
use crate::inf::AdapterConfig;
use crate::netio::address_table::InterfaceLuid;

/// The adapter states of NDIS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MiniportState {
    Initializing,
    Paused,
    Restarting,
    Running,
    Pausing,
    Halting,
    Halted,
}

/// The registration attributes.
#[derive(Debug, Clone, Copy)]
pub struct Registered {
    /// The context that NDIS passes to every entry point.
    pub context: usize,
    pub flags: u32,
}

/// The NDK attributes, and whether consumers may open the provider now.
#[derive(Debug)]
pub struct NdkSide {
    pub info: NDK_ADAPTER_INFO,
    pub enabled_at_start: bool,
}

/// An initialised miniport.
pub struct Miniport {
    pub handle: usize,
    pub driver: Arc<MiniportDriver>,
    pub if_index: u32,
    pub luid: InterfaceLuid,
    pub config: Mutex<AdapterConfig>,
    state: Mutex<MiniportState>,
    registered: OnceLock<Registered>,
    general: OnceLock<General>,
    ndk: OnceLock<NdkSide>,
    pub pause: Rendezvous<()>,
    pub restart: Rendezvous<NdisStatus>,
    pub oids: OidPath,
    /// Calls from outside (tests, tools) go through here, so that a halt meets none of them.
    pub callers: Gate,
    pub data: DataPath,
    pub ndk_opens: crate::ndk::Opens,
    /// Last link state or other indication by status code, and how often each came.
    pub indications: Mutex<Indications>,
}

/// Status indications that the miniport made.
#[derive(Debug, Default)]
pub struct Indications {
    pub counts: BTreeMap<i32, usize>,
    pub connected: Option<bool>,
    pub link_speed: Option<u64>,
    /// The NDK events of NdisMNetPnPEvent in their order: enabled or disabled.
    pub ndk_events: Vec<bool>,
    /// The status that NdisMNetPnPEvent returns instead of acting, when a test sets one.
    pub ndk_event_answer: Option<NdisStatus>,
    /// Calls of NdisMNetPnPEvent that failed, since the last one that did not.
    pub ndk_events_refused: usize,
}

impl Miniport {
    /// A miniport that is about to be initialised, with its handle.
    pub fn create(
        driver: &Arc<MiniportDriver>,
        config: AdapterConfig,
        if_index: u32,
        luid: InterfaceLuid,
    ) -> Arc<Self> {
        ndis().miniports.insert_with(|handle| Self {
            handle,
            driver: Arc::clone(driver),
            if_index,
            luid,
            config: Mutex::new(config),
            state: Mutex::new(MiniportState::Initializing),
            registered: OnceLock::new(),
            general: OnceLock::new(),
            ndk: OnceLock::new(),
            pause: Rendezvous::default(),
            restart: Rendezvous::default(),
            oids: OidPath::default(),
            callers: Gate::default(),
            data: DataPath::default(),
            ndk_opens: crate::ndk::Opens::default(),
            indications: Mutex::new(Indications::default()),
        })
    }

    #[must_use]
    pub fn state(&self) -> MiniportState {
        *lock(&self.state)
    }

    /// Goes from one of `from` to `to`, or returns the state of the miniport instead.
    pub fn step(&self, from: &[MiniportState], to: MiniportState) -> Result<(), MiniportState> {
        let mut state = lock(&self.state);
        if !from.contains(&state) {
            return Err(*state);
        }
        *state = to;
        Ok(())
    }

    /// The context of the entry points; registration attributes are checked to be there after InitializeEx.
    #[must_use]
    pub fn context(&self) -> usize {
        self.registered.get().map_or(0, |registered| registered.context)
    }

    #[must_use]
    pub fn registered(&self) -> Option<Registered> {
        self.registered.get().copied()
    }

    #[must_use]
    pub fn general(&self) -> Option<&General> {
        self.general.get()
    }

    #[must_use]
    pub fn ndk(&self) -> Option<&NdkSide> {
        self.ndk.get()
    }

    /// What must have been set when InitializeEx succeeds.
    pub fn missing_attributes(&self) -> Option<&'static str> {
        if self.registered.get().is_none() {
            Some("registration attributes")
        } else if self.general.get().is_none() {
            Some("general attributes")
        } else if self.driver.ndk().is_some() && self.ndk.get().is_none() {
            Some("NDK attributes (they are set even when NDK is disabled)")
        } else {
            None
        }
    }

    fn set_registration(&self, block: *const NDIS_OBJECT_HEADER) {
        // SAFETY: the object type says that the block is this structure.
        let block = unsafe { block.cast::<NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES>().read_unaligned() };
        self.required(attributes::check_registration(&block));
        let registered =
            Registered { context: block.MiniportAdapterContext as usize, flags: block.AttributeFlags.bits() };
        self.required(self.registered.set(registered).map_err(|_| "registration attributes are set twice".to_owned()));
    }

    fn set_general(&self, block: *const NDIS_OBJECT_HEADER) {
        if self.registered.get().is_none() {
            self.required::<()>(Err("general attributes are set before the registration attributes".to_owned()));
        }
        // SAFETY: the object type says that the block is this structure.
        let block = unsafe { block.cast::<NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES>().read_unaligned() };
        let config = lock(&self.config).clone();
        let general = self.required(attributes::check_general(&block, &config, self.driver.ndk().is_some()));
        self.check_unique_mac(&general);
        self.required(self.general.set(general).map_err(|_| "general attributes are set twice".to_owned()));
    }

    fn set_ndk(&self, block: *const NDIS_OBJECT_HEADER) {
        if self.driver.ndk().is_none() {
            self.required::<()>(Err(
                "NDK attributes without NDK provider characteristics from MiniportSetOptions".to_owned()
            ));
        }
        if self.general.get().is_none() {
            self.required::<()>(Err("NDK attributes are set before the general attributes".to_owned()));
        }
        // SAFETY: the object type says that the block is this structure.
        let block = unsafe { block.cast::<NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES>().read_unaligned() };
        let config = lock(&self.config).clone();
        let (enabled_at_start, info) = self.required(attributes::check_ndk(&block, &config));
        self.ndk_opens.set_enabled(enabled_at_start);
        let set = self.ndk.set(NdkSide { info, enabled_at_start });
        self.required(set.map_err(|_| "NDK attributes are set twice".to_owned()));
    }

    fn check_unique_mac(&self, general: &General) {
        let others = ndis().miniports.all();
        let same = others.iter().filter(|other| other.handle != self.handle);
        let mut same =
            same.filter(|other| other.general().is_some_and(|other| other.permanent_mac == general.permanent_mac));
        if same.next().is_some() {
            let rule = format!(
                "general attributes: another adapter of this host has the address {:02x?}",
                general.permanent_mac
            );
            broken(Group::Attributes, self.handle, rule);
        }
    }

    /// The value, or the end with the broken rule.
    fn required<T>(&self, checked: Result<T, String>) -> T {
        match checked {
            Ok(value) => value,
            Err(rule) => broken(Group::Attributes, self.handle, format!("NdisMSetMiniportAttributes: {rule}")),
        }
    }
}

/// Attribute blocks that NDIS has and this host does not model: offload, 802.11, add-device, header split, hardware assist,
/// packet direct.
const OTHER_BLOCKS: &[u8] = &[0xA0, 0xA1, 0xA4, 0xAB, 0xAF, 0xC5];

/// A lock of the host; a panic with one held leaves the data whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live miniport behind a handle, or the end.
pub fn miniport(handle: *mut c_void, function: &str) -> Arc<Miniport> {
    live(ndis().miniports.get(handle), function, "miniport adapter", handle)
}

/// Every live miniport by interface index.
#[must_use]
pub fn by_interface() -> HashMap<u32, Arc<Miniport>> {
    ndis().miniports.all().into_iter().map(|miniport| (miniport.if_index, miniport)).collect()
}

crate::exports! {
    module "ndis.sys";

    /// Takes one attribute block of an adapter that is being initialised.
    /// Checks: inside MiniportInitializeEx; registration, then general, then others, each once; header, INF agreement, link
    /// figures, MAC rules, power capabilities, mandatory OIDs (with the NDK ones for a provider), NDK_ADAPTER_INFO figures.
    /// Source: NDIS: NdisMSetMiniportAttributes and the structures of NDIS_MINIPORT_ADAPTER_ATTRIBUTES
    [PASSIVE_ONLY] fn NdisMSetMiniportAttributes(handle: *mut c_void, block: *const NDIS_OBJECT_HEADER) -> NdisStatus {
        const REGISTRATION: u8 = 0x9E;
        const GENERAL: u8 = 0x9F;
        const NDK: u8 = 0xB3;
        let miniport = miniport(handle, "NdisMSetMiniportAttributes");
        if miniport.state() != MiniportState::Initializing {
            broken(Group::Attributes, miniport.handle, "NdisMSetMiniportAttributes is called outside MiniportInitializeEx");
        }
        if block.is_null() {
            broken(Group::Attributes, miniport.handle, "NdisMSetMiniportAttributes: MiniportAttributes is NULL");
        }
        // SAFETY: not null; every attribute block starts with this header.
        let header = unsafe { block.read_unaligned() };
        if crate::fault::should_fail("NdisMSetMiniportAttributes") {
            return status::RESOURCES;
        }
        match header.Type {
            REGISTRATION => miniport.set_registration(block),
            GENERAL => miniport.set_general(block),
            NDK => miniport.set_ndk(block),
            other if !OTHER_BLOCKS.contains(&other) => {
                let rule = format!("NdisMSetMiniportAttributes: {other:#x} is no type of an attribute block");
                broken(Group::Attributes, miniport.handle, rule);
            }
            other => {
                super::log::record(format!("NdisMSetMiniportAttributes: attribute block of type {other:#x} is not modelled"));
                return status::NOT_SUPPORTED;
            }
        }
        status::SUCCESS
    }
}
