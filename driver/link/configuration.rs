//! The adapter's registry keywords, read once at InitializeEx (and `*NetworkDirect` again whenever NDIS switches NDK on).
//!
//! What the INF promises is not trusted: a value out of range is replaced by its default, because the registry is written by
//! administrators' tools and a wrong value must not keep the adapter from starting. The debugger's output names it.

use core::{ffi::c_void, ops::RangeInclusive, ptr};

use ndkpi_sys::{
    ndis::{
        NDIS_CONFIGURATION_OBJECT, NDIS_CONFIGURATION_OBJECT_REVISION_1, NDIS_CONFIGURATION_PARAMETER, NDIS_HANDLE,
        NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT, NDIS_PARAMETER_TYPE,
        NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1, NDIS_STATUS, NDIS_STATUS_SUCCESS, NdisCloseConfiguration,
        NdisOpenConfigurationEx, NdisParameterInteger, NdisParameterString, NdisReadConfiguration,
        NdisReadNetworkAddress,
    },
    ndkinfo::{NDK_RDMA_TECHNOLOGY, NdkRoCEv2, NdkiWarp},
    nt::UNICODE_STRING,
};

use softndk_engine::{LogicalPages, StreamCrc, Timeouts, Transport};
use softndk_ioctl::{CompletionModeInForce, LimitsProfileInForce, ProcessLimits};
use wdk_sys::ntddk::DbgPrintEx;

use softndk_vxlan::{PeerList, datagram::DEFAULT_PORT};

use crate::link::{
    handle::{MacAddress, MiniportHandle},
    uplink::{OUTER_MTU, UplinkSettings},
};

/// The component of network drivers in the debugger's filters, and the level that is shown without a setting.
const DPFLTR_IHVNETWORK_ID: u32 = 80;
const DPFLTR_ERROR_LEVEL: u32 = 0;

/// The highest wire number; `docs/registry.md` names it.
const MAX_WIRE_NUMBER: u32 = 0xFFFF;
/// Link speed when the keyword is absent or 0, in megabits a second: test tools judge measured rates as a share of it.
const DEFAULT_LINK_SPEED_MBPS: u32 = 10_000;
/// Payloads of packets between machines: IPv6 asks for 1280 in the adapter's frames.
const OUTER_MTUS: RangeInclusive<u32> = 1350..=9216;
/// Fastest link speed taken, in megabits a second.
const MAX_LINK_SPEED_MBPS: u32 = 1_600_000;

/// Which calls complete inline; the contract leaves this open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionMode {
    /// Inline where that is quick, pending where it is not.
    #[default]
    Auto,
    /// Every call that may pend does, and is completed by another processor.
    Pending,
    /// Every call that can finish inline does, however long it takes.
    Inline,
}

impl CompletionMode {
    fn from_keyword(value: Option<u32>) -> Self {
        match value {
            Some(1) => Self::Pending,
            Some(2) => Self::Inline,
            _ => Self::Auto,
        }
    }

    /// As the control device reports it.
    pub const fn in_force(self) -> CompletionModeInForce {
        match self {
            Self::Auto => CompletionModeInForce::AUTO,
            Self::Pending => CompletionModeInForce::FORCE_ASYNC,
            Self::Inline => CompletionModeInForce::FORCE_INLINE,
        }
    }
}

/// Which numbers the adapter reports and keeps to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitsProfile {
    #[default]
    ConnectxLike,
    Generous,
    Tiny,
}

impl LimitsProfile {
    fn from_keyword(value: Option<u32>) -> Self {
        match value {
            Some(1) => Self::Generous,
            Some(2) => Self::Tiny,
            _ => Self::ConnectxLike,
        }
    }

    /// As the control device reports it.
    pub const fn in_force(self) -> LimitsProfileInForce {
        match self {
            Self::ConnectxLike => LimitsProfileInForce::CONNECTX_LIKE,
            Self::Generous => LimitsProfileInForce::GENEROUS,
            Self::Tiny => LimitsProfileInForce::TINY,
        }
    }
}

/// Longest time-out taken, in milliseconds: a day.
const MAX_TIMEOUT_MS: u32 = 86_400_000;
/// How long a connection request waits for the peer without a value in the registry, in milliseconds: the time of common cards.
const CONNECTION_TIMEOUT_MS: u32 = 30_000;

/// How long a user-mode queue is polled without a value in the registry, in microseconds: some round trips.
const POLL_US: u32 = 50;
/// Longest time taken, in microseconds: a second.
const MAX_POLL_US: u32 = 1_000_000;

/// What a process may have without values in the registry; `docs/registry.md` names them.
pub const PROCESS_LIMITS: ProcessLimits =
    ProcessLimits { objects: 16_384, pool_mib: 1024, locked_mib: 16_384, requests: 65_536 };
/// The least values taken.
const LEAST_LIMITS: ProcessLimits = ProcessLimits { objects: 16, pool_mib: 1, locked_mib: 1, requests: 16 };
/// The greatest values taken.
const MOST_LIMITS: ProcessLimits =
    ProcessLimits { objects: 1 << 20, pool_mib: 1 << 20, locked_mib: 1 << 24, requests: 1 << 20 };

/// The registry's values for this adapter.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Adapters with equal numbers are joined by one wire.
    pub wire_number: u32,
    /// Bits a second in each direction.
    pub link_speed: u64,
    pub technology: NDK_RDMA_TECHNOLOGY,
    pub completion_mode: CompletionMode,
    pub limits: LimitsProfile,
    pub timeouts: Timeouts,
    pub logical_pages: LogicalPages,
    pub transport: Transport,
    pub stream_crc: StreamCrc,
    /// How long the driver looks at a user-mode queue's rings after the last entry, in nanoseconds; 0: it does not.
    pub network_direct_poll: u64,
    /// User-mode programs may ask for the adapter's information by any version.
    pub network_direct_lenient: bool,
    /// NDK is on from the start.
    pub network_direct: bool,
    /// Overrides the permanent address.
    pub network_address: Option<MacAddress>,
    /// An address for this device, which no other has on whatever machine.
    pub device_address: Option<MacAddress>,
}

impl Configuration {
    /// Reads all keywords. PASSIVE_LEVEL, after the registration attributes.
    pub fn read(miniport: MiniportHandle) -> Result<Self, NDIS_STATUS> {
        let store = Store::open(miniport)?;
        let technology = match store.known(keyword::TECHNOLOGY, |value| [1, 4].contains(&value)) {
            Some(4) => NdkRoCEv2,
            _ => NdkiWarp,
        };
        let link_speed_mbps = store
            .known(keyword::LINK_SPEED, |speed| (1..=MAX_LINK_SPEED_MBPS).contains(&speed))
            .unwrap_or(DEFAULT_LINK_SPEED_MBPS);
        Ok(Self {
            wire_number: store.known(keyword::WIRE_NUMBER, |number| number <= MAX_WIRE_NUMBER).unwrap_or(0),
            link_speed: u64::from(link_speed_mbps) * 1_000_000,
            technology,
            limits: LimitsProfile::from_keyword(store.known(keyword::LIMITS, |profile| profile <= 2)),
            timeouts: Timeouts {
                connect: store.timeout(keyword::CONNECT_TIMEOUT, CONNECTION_TIMEOUT_MS),
                accept: store.timeout(keyword::ACCEPT_TIMEOUT, CONNECTION_TIMEOUT_MS),
                disconnect: store.timeout(keyword::DISCONNECT_TIMEOUT, CONNECTION_TIMEOUT_MS),
                receiver_not_ready: store.set_timeout(keyword::RECEIVER_NOT_READY),
            },
            logical_pages: match store.known(keyword::LOGICAL_PAGES, is_switch) {
                Some(1) => LogicalPages::Scattered,
                _ => LogicalPages::Adjoining,
            },
            transport: match store.known(keyword::TRANSPORT, |transport| transport <= 2) {
                Some(1) => Transport::Auto,
                Some(2) => Transport::Stream,
                _ => Transport::Loopback,
            },
            stream_crc: match store.known(keyword::STREAM_CRC, is_switch) {
                Some(0) => StreamCrc::IfAsked,
                _ => StreamCrc::Always,
            },
            completion_mode: CompletionMode::from_keyword(store.known(keyword::COMPLETION_MODE, |mode| mode <= 2)),
            network_direct_poll: poll_window(store.known(keyword::NETWORK_DIRECT_POLL, |window| window <= MAX_POLL_US)),
            network_direct_lenient: store.known(keyword::NETWORK_DIRECT_LENIENT, is_switch) == Some(1),
            network_direct: store.known(keyword::NETWORK_DIRECT, is_switch) != Some(0),
            network_address: store.network_address(),
            device_address: store.device_address(),
        })
    }

    /// Whether `*NetworkDirect` allows NDK now. PASSIVE_LEVEL.
    pub fn network_direct_now(miniport: MiniportHandle) -> Result<bool, NDIS_STATUS> {
        Ok(Store::open(miniport)?.known(keyword::NETWORK_DIRECT, is_switch) != Some(0))
    }

    /// The limits of processes that this adapter's keywords name. PASSIVE_LEVEL.
    pub fn process_limits(miniport: MiniportHandle) -> ProcessLimits {
        let Ok(store) = Store::open(miniport) else { return PROCESS_LIMITS };
        let limit = |name, of: fn(&ProcessLimits) -> u32| {
            let range = of(&LEAST_LIMITS)..=of(&MOST_LIMITS);
            store.known(name, |limit| range.contains(&limit)).unwrap_or(of(&PROCESS_LIMITS))
        };
        ProcessLimits {
            objects: limit(keyword::NETWORK_DIRECT_OBJECTS, |limits| limits.objects),
            pool_mib: limit(keyword::NETWORK_DIRECT_POOL, |limits| limits.pool_mib),
            locked_mib: limit(keyword::NETWORK_DIRECT_LOCKED, |limits| limits.locked_mib),
            requests: limit(keyword::NETWORK_DIRECT_REQUESTS, |limits| limits.requests),
        }
    }

    /// The peers of other machines, and how they are reached. PASSIVE_LEVEL.
    pub fn uplink(miniport: MiniportHandle) -> Result<UplinkSettings, NDIS_STATUS> {
        Ok(Store::open(miniport)?.uplink())
    }

    /// Runs `act` with the text of `NetworkDirectSddl`; `None` when there is none. PASSIVE_LEVEL.
    pub fn with_network_direct_security<R>(miniport: MiniportHandle, act: impl FnOnce(Option<&[u16]>) -> R) -> R {
        match Store::open(miniport) {
            Ok(store) => act(store.text(keyword::NETWORK_DIRECT_SDDL)),
            Err(_) => act(None),
        }
    }
}

/// `NetworkDirectPollUs` in nanoseconds.
fn poll_window(microseconds: Option<u32>) -> u64 {
    u64::from(microseconds.unwrap_or(POLL_US)).saturating_mul(1_000)
}

/// 0 or 1.
fn is_switch(value: u32) -> bool {
    value <= 1
}

/// A number as NDIS reads one from a text; of another text it makes 0.
fn is_number(text: &[u16]) -> bool {
    let is_digit = |unit: &u16| (u16::from(b'0')..=u16::from(b'9')).contains(unit);
    !text.is_empty() && text.iter().all(is_digit)
}

/// Keyword names in UTF-16, in NDIS's form.
mod keyword {
    use softndk_kernel::utf16;

    pub const WIRE_NUMBER: &[u16] = utf16!("WireNumber");
    pub const LINK_SPEED: &[u16] = utf16!("LinkSpeedMbps");
    pub const NETWORK_DIRECT: &[u16] = utf16!("*NetworkDirect");
    pub const LIMITS: &[u16] = utf16!("LimitsProfile");
    pub const CONNECT_TIMEOUT: &[u16] = utf16!("ConnectTimeoutMs");
    pub const ACCEPT_TIMEOUT: &[u16] = utf16!("AcceptTimeoutMs");
    pub const DISCONNECT_TIMEOUT: &[u16] = utf16!("DisconnectTimeoutMs");
    pub const RECEIVER_NOT_READY: &[u16] = utf16!("ReceiverNotReadyMs");
    pub const COMPLETION_MODE: &[u16] = utf16!("CompletionMode");
    pub const LOGICAL_PAGES: &[u16] = utf16!("LogicalPages");
    pub const TRANSPORT: &[u16] = utf16!("Transport");
    pub const STREAM_CRC: &[u16] = utf16!("StreamCrc");
    /// Written by Windows.
    pub const INSTANCE: &[u16] = utf16!("NetCfgInstanceId");
    pub const UPLINK_PEERS: &[u16] = utf16!("UplinkPeers");
    pub const UPLINK_PORT: &[u16] = utf16!("UplinkPort");
    pub const UPLINK_OUTER_MTU: &[u16] = utf16!("UplinkOuterMtu");
    pub const NETWORK_DIRECT_POLL: &[u16] = utf16!("NetworkDirectPollUs");
    pub const NETWORK_DIRECT_LENIENT: &[u16] = utf16!("NetworkDirectLenient");
    pub const NETWORK_DIRECT_OBJECTS: &[u16] = utf16!("NetworkDirectObjects");
    pub const NETWORK_DIRECT_POOL: &[u16] = utf16!("NetworkDirectPoolMiB");
    pub const NETWORK_DIRECT_LOCKED: &[u16] = utf16!("NetworkDirectLockedMiB");
    pub const NETWORK_DIRECT_REQUESTS: &[u16] = utf16!("NetworkDirectRequests");
    pub const NETWORK_DIRECT_SDDL: &[u16] = utf16!("NetworkDirectSddl");
    pub const TECHNOLOGY: &[u16] = utf16!("*NetworkDirectTechnology");
}

/// An open configuration handle.
struct Store {
    handle: NDIS_HANDLE,
}

impl Store {
    fn open(miniport: MiniportHandle) -> Result<Self, NDIS_STATUS> {
        let mut object = NDIS_CONFIGURATION_OBJECT {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT,
                Revision: NDIS_CONFIGURATION_OBJECT_REVISION_1,
                Size: NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1,
            },
            NdisHandle: miniport.0,
            Flags: 0,
        };
        let mut handle: NDIS_HANDLE = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL; the object is complete and the handle a valid place for the answer.
        let status = unsafe { NdisOpenConfigurationEx(&raw mut object, &raw mut handle) };
        if status == NDIS_STATUS_SUCCESS { Ok(Self { handle }) } else { Err(status) }
    }

    /// The keyword's value if it is one of those taken; another one goes to the debugger's output, since the default is used.
    fn known(&self, name: &[u16], is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        let text = self.text(name);
        let value = self.integer(name).filter(|_| text.is_none_or(is_number));
        let known = value.filter(|value| is_taken(*value));
        if known.is_none() && (text.is_some() || value.is_some()) {
            log_unknown(name, text.unwrap_or_default());
        }
        known
    }

    /// The keyword's value; `None` when it is absent or no number.
    fn integer(&self, name: &[u16]) -> Option<u32> {
        let parameter = self.parameter(name, NdisParameterInteger)?;
        // SAFETY: the type says that the union holds an integer.
        Some(unsafe { parameter.ParameterData.IntegerData })
    }

    /// The keyword's text; `None` when it is absent or no text.
    fn text(&self, name: &[u16]) -> Option<&[u16]> {
        let parameter = self.parameter(name, NdisParameterString)?;
        // SAFETY: the type says that the union holds a text.
        let text = unsafe { parameter.ParameterData.StringData };
        if text.Buffer.is_null() {
            return None;
        }
        // SAFETY: NDIS promises that many characters, which live as long as the handle.
        Some(unsafe { core::slice::from_raw_parts(text.Buffer, usize::from(text.Length) / 2) })
    }

    /// The keyword's value as this type, which lives as long as the handle.
    fn parameter(&self, name: &[u16], kind: NDIS_PARAMETER_TYPE) -> Option<&NDIS_CONFIGURATION_PARAMETER> {
        let bytes = u16::try_from(size_of_val(name)).ok()?;
        let mut keyword = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_ptr().cast_mut() };
        let mut status: NDIS_STATUS = NDIS_STATUS_SUCCESS;
        let mut parameter: *mut NDIS_CONFIGURATION_PARAMETER = ptr::null_mut();
        // SAFETY: an open handle, a complete keyword that NDIS only reads, and valid places for the answers; PASSIVE_LEVEL.
        unsafe {
            NdisReadConfiguration(&raw mut status, &raw mut parameter, self.handle, &raw mut keyword, kind);
        }
        if status != NDIS_STATUS_SUCCESS {
            return None;
        }
        // SAFETY: on success NDIS gives a parameter that lives as long as the handle.
        let parameter = unsafe { parameter.as_ref() }?;
        (parameter.ParameterType == kind).then_some(parameter)
    }

    /// A time-out in nanoseconds from a keyword in milliseconds, 0 is never; `default` when it is absent or out of range.
    fn timeout(&self, name: &[u16], default: u32) -> u64 {
        self.set_timeout(name).unwrap_or(u64::from(default) * 1_000_000)
    }

    /// As [`Self::timeout`], where there is one.
    fn set_timeout(&self, name: &[u16]) -> Option<u64> {
        let milliseconds = self.known(name, |milliseconds| milliseconds <= MAX_TIMEOUT_MS)?;
        Some(u64::from(milliseconds) * 1_000_000)
    }

    /// A text that is no list of peers is none.
    fn uplink(&self) -> UplinkSettings {
        let text = self.text(keyword::UPLINK_PEERS).unwrap_or_default();
        let peers = PeerList::read(text).unwrap_or_else(|_| {
            log_unknown(keyword::UPLINK_PEERS, text);
            PeerList::EMPTY
        });
        let port = self.known(keyword::UPLINK_PORT, |port| (1..=u32::from(u16::MAX)).contains(&port));
        let outer_mtu = self.known(keyword::UPLINK_OUTER_MTU, |mtu| OUTER_MTUS.contains(&mtu));
        UplinkSettings {
            peers,
            port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or(DEFAULT_PORT),
            outer_mtu: outer_mtu.unwrap_or(OUTER_MTU),
        }
    }

    /// An address made from the number that Windows gave the device when it was installed. Two machines have adapters with the same
    /// NET_LUID, and may be on one wire.
    fn device_address(&self) -> Option<MacAddress> {
        let instance = self.text(keyword::INSTANCE).filter(|instance| !instance.is_empty())?;
        // FNV-1a: an address of forty bits needs no more.
        let mixed = instance
            .iter()
            .flat_map(|unit| unit.to_le_bytes())
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
        // Unicast and locally administered.
        let mut address = [0x02, 0, 0, 0, 0, 0];
        for (place, byte) in address.iter_mut().skip(1).zip((mixed ^ (mixed >> 40)).to_le_bytes()) {
            *place = byte;
        }
        Some(address)
    }

    /// The address of the `NetworkAddress` keyword, if it is one a station may have.
    fn network_address(&self) -> Option<MacAddress> {
        let mut status: NDIS_STATUS = NDIS_STATUS_SUCCESS;
        let mut address: *mut c_void = ptr::null_mut();
        let mut length: u32 = 0;
        // SAFETY: an open handle and valid places for the answers; PASSIVE_LEVEL.
        unsafe {
            NdisReadNetworkAddress(&raw mut status, &raw mut address, &raw mut length, self.handle);
        }
        if status != NDIS_STATUS_SUCCESS || length != 6 {
            return None;
        }
        // SAFETY: on success NDIS gives `length` bytes that live as long as the handle.
        let address = unsafe { address.cast::<MacAddress>().as_ref() }?;
        // Unicast and locally administered, as NDIS requires of an override.
        (address[0] & 3 == 2).then_some(*address)
    }
}

/// Writes that a keyword's value is unknown. PASSIVE_LEVEL, since it is text in UTF-16.
#[cold]
#[inline(never)]
fn log_unknown(name: &[u16], value: &[u16]) {
    let counted = |text: &[u16]| {
        let bytes = u16::try_from(size_of_val(text)).unwrap_or(0);
        UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: text.as_ptr().cast_mut() }
    };
    let (name, value) = (counted(name), counted(value));
    let format = c"softndk: \"%wZ\" is no value of the keyword %wZ, so its default is used\n".as_ptr();
    // SAFETY: PASSIVE_LEVEL; a format with the two counted strings that it takes.
    unsafe { DbgPrintEx(DPFLTR_IHVNETWORK_ID, DPFLTR_ERROR_LEVEL, format, &raw const value, &raw const name) };
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: the handle is open and closed only here; PASSIVE_LEVEL.
        unsafe { NdisCloseConfiguration(self.handle) };
    }
}
