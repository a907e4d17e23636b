//! `netioapi.h`: the unicast address table, its change notification, and names of interfaces.

use crate::abi::{abi_fn, layout, open_enum, zeroed};
use crate::ndis::{NET_IFINDEX, NET_LUID};
#[cfg(target_os = "windows")]
use crate::nt::{ADDRESS_FAMILY, GUID, HANDLE, NTSTATUS, SIZE_T, WCHAR};
use crate::nt::{BOOLEAN, LARGE_INTEGER, PVOID, SCOPE_ID, SOCKADDR_INET, UINT8, ULONG};

open_enum! {
    /// Where the prefix of an address comes from.
    pub enum NL_PREFIX_ORIGIN {
        IpPrefixOriginOther = 0,
        IpPrefixOriginManual = 1,
        IpPrefixOriginWellKnown = 2,
        IpPrefixOriginDhcp = 3,
        IpPrefixOriginRouterAdvertisement = 4,
        IpPrefixOriginUnchanged = 16,
    }
}

open_enum! {
    /// Where the suffix of an address comes from.
    pub enum NL_SUFFIX_ORIGIN {
        IpSuffixOriginOther = 0,
        IpSuffixOriginManual = 1,
        IpSuffixOriginWellKnown = 2,
        IpSuffixOriginDhcp = 3,
        IpSuffixOriginLinkLayerAddress = 4,
        IpSuffixOriginRandom = 5,
        IpSuffixOriginUnchanged = 16,
    }
}

open_enum! {
    /// Duplicate address detection: only a preferred or deprecated address is usable.
    pub enum NL_DAD_STATE {
        NldsInvalid = 0,
        NldsTentative = 1,
        NldsDuplicate = 2,
        NldsDeprecated = 3,
        NldsPreferred = 4,
    }
}

open_enum! {
    /// What happened to a row.
    pub enum MIB_NOTIFICATION_TYPE {
        MibParameterNotification = 0,
        MibAddInstance = 1,
        MibDeleteInstance = 2,
        MibInitialNotification = 3,
    }
}

/// One unicast address of one interface.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MIB_UNICASTIPADDRESS_ROW {
    pub Address: SOCKADDR_INET,
    pub InterfaceLuid: NET_LUID,
    pub InterfaceIndex: NET_IFINDEX,
    pub PrefixOrigin: NL_PREFIX_ORIGIN,
    pub SuffixOrigin: NL_SUFFIX_ORIGIN,
    /// Seconds.
    pub ValidLifetime: ULONG,
    /// Seconds.
    pub PreferredLifetime: ULONG,
    pub OnLinkPrefixLength: UINT8,
    pub SkipAsSource: BOOLEAN,
    pub DadState: NL_DAD_STATE,
    pub ScopeId: SCOPE_ID,
    pub CreationTimeStamp: LARGE_INTEGER,
}
layout!(MIB_UNICASTIPADDRESS_ROW, size 80, align 8, {
    Address: 0, InterfaceLuid: 32, InterfaceIndex: 40, PrefixOrigin: 44, SuffixOrigin: 48, ValidLifetime: 52,
    PreferredLifetime: 56, OnLinkPrefixLength: 60, SkipAsSource: 61, DadState: 64, ScopeId: 68, CreationTimeStamp: 72,
});

/// Addresses; `NumEntries` rows, the first of them declared.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MIB_UNICASTIPADDRESS_TABLE {
    pub NumEntries: ULONG,
    pub Table: [MIB_UNICASTIPADDRESS_ROW; 1],
}
layout!(MIB_UNICASTIPADDRESS_TABLE, size 88, align 8, { NumEntries: 0, Table: 8 });

zeroed!(MIB_UNICASTIPADDRESS_ROW, MIB_UNICASTIPADDRESS_TABLE);

abi_fn! {
    /// An address changed. `Row` names address and interface only, and is NULL for the initial notification. Runs at
    /// PASSIVE_LEVEL; must not cancel its own notification.
    pub type PUNICAST_IPADDRESS_CHANGE_CALLBACK = fn(
        CallerContext: PVOID,
        Row: *mut MIB_UNICASTIPADDRESS_ROW,
        NotificationType: MIB_NOTIFICATION_TYPE,
    );
}

#[cfg(target_os = "windows")]
#[link(name = "netio.sys", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    /// Calls back on every change of an address, `InitialNotification` once at the start. PASSIVE_LEVEL.
    pub fn NotifyUnicastIpAddressChange(
        Family: ADDRESS_FAMILY,
        Callback: PUNICAST_IPADDRESS_CHANGE_CALLBACK,
        CallerContext: PVOID,
        InitialNotification: BOOLEAN,
        NotificationHandle: *mut HANDLE,
    ) -> NTSTATUS;

    /// Ends a notification and waits for callbacks in progress: never from the callback, never holding a lock that it
    /// takes. PASSIVE_LEVEL.
    pub fn CancelMibChangeNotify2(NotificationHandle: HANDLE) -> NTSTATUS;

    /// All addresses of a family (`AF_UNSPEC`: both); freed with `FreeMibTable`. PASSIVE_LEVEL.
    pub fn GetUnicastIpAddressTable(Family: ADDRESS_FAMILY, Table: *mut *mut MIB_UNICASTIPADDRESS_TABLE) -> NTSTATUS;

    /// Fills the row of the address and interface that it names. PASSIVE_LEVEL.
    pub fn GetUnicastIpAddressEntry(Row: *mut MIB_UNICASTIPADDRESS_ROW) -> NTSTATUS;

    /// Frees a table. PASSIVE_LEVEL.
    pub fn FreeMibTable(Memory: PVOID);

    /// Converts between two names of an interface; `STATUS_INVALID_PARAMETER` if there is none such. PASSIVE_LEVEL.
    pub fn ConvertInterfaceLuidToIndex(InterfaceLuid: *const NET_LUID, InterfaceIndex: *mut NET_IFINDEX) -> NTSTATUS;

    /// Converts between two names of an interface; `STATUS_INVALID_PARAMETER` if there is none such. PASSIVE_LEVEL.
    pub fn ConvertInterfaceIndexToLuid(InterfaceIndex: NET_IFINDEX, InterfaceLuid: *mut NET_LUID) -> NTSTATUS;

    /// Converts between two names of an interface; `STATUS_INVALID_PARAMETER` if there is none such. PASSIVE_LEVEL.
    pub fn ConvertInterfaceLuidToGuid(InterfaceLuid: *const NET_LUID, InterfaceGuid: *mut GUID) -> NTSTATUS;

    /// Converts between two names of an interface; `STATUS_INVALID_PARAMETER` if there is none such. PASSIVE_LEVEL.
    pub fn ConvertInterfaceGuidToLuid(InterfaceGuid: *const GUID, InterfaceLuid: *mut NET_LUID) -> NTSTATUS;

    /// Converts between two names of an interface; `STATUS_INVALID_PARAMETER` if there is none such. PASSIVE_LEVEL.
    pub fn ConvertInterfaceLuidToAlias(
        InterfaceLuid: *const NET_LUID,
        InterfaceAlias: *mut WCHAR,
        Length: SIZE_T,
    ) -> NTSTATUS;

    /// Converts between two names of an interface; `STATUS_INVALID_PARAMETER` if there is none such. PASSIVE_LEVEL.
    pub fn ConvertInterfaceAliasToLuid(InterfaceAlias: *const WCHAR, InterfaceLuid: *mut NET_LUID) -> NTSTATUS;

    /// Converts between two names of an interface; `STATUS_INVALID_PARAMETER` if there is none such. PASSIVE_LEVEL.
    pub fn ConvertInterfaceLuidToNameW(
        InterfaceLuid: *const NET_LUID,
        InterfaceName: *mut WCHAR,
        Length: SIZE_T,
    ) -> NTSTATUS;

    /// Converts between two names of an interface; `STATUS_INVALID_PARAMETER` if there is none such. PASSIVE_LEVEL.
    pub fn ConvertInterfaceNameToLuidW(InterfaceName: *const WCHAR, InterfaceLuid: *mut NET_LUID) -> NTSTATUS;
}
