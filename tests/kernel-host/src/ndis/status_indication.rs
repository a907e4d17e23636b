//! Status indications of a miniport: header, source, and the contents that NDIS itself reads (the link state).

use std::ffi::c_void;

use ndkpi_sys::ndis::{NDIS_LINK_STATE, NDIS_STATUS_INDICATION};

use super::attributes::{ExpectedHeader, check_header};
use super::miniport::{Miniport, MiniportState, lock, miniport};
use super::rule::{Group, broken};
use super::status;

crate::exports! {
    module "ndis.sys";

    /// Takes a status indication; link states are remembered.
    /// Checks: object header, SourceHandle is the miniport, registration attributes set, not after MiniportHaltEx; the size and
    /// header of a link state.
    /// Source: NDIS: NdisMIndicateStatusEx, NDIS_STATUS_INDICATION, NDIS_LINK_STATE
    [UP_TO_DISPATCH] fn NdisMIndicateStatusEx(handle: *mut c_void, indication: *const NDIS_STATUS_INDICATION) {
        const NAME: &str = "NDIS_STATUS_INDICATION";
        let miniport = miniport(handle, "NdisMIndicateStatusEx");
        if indication.is_null() {
            rule(&miniport, "StatusIndication is NULL");
        }
        // SAFETY: not null; the driver's structure by contract.
        let indication = unsafe { indication.read_unaligned() };
        let expected = ExpectedHeader { structure: NAME, object_type: 0x98, revision: 1, size: 0x70, size_of: 0x70 };
        if let Err(text) = check_header(indication.Header, expected) {
            rule(&miniport, &text);
        }
        if indication.SourceHandle as usize != miniport.handle {
            rule(&miniport, "SourceHandle is not the miniport adapter handle");
        }
        if miniport.registered().is_none() {
            rule(&miniport, "a status is indicated before the registration attributes are set");
        }
        if matches!(miniport.state(), MiniportState::Halted) {
            rule(&miniport, "a status is indicated after MiniportHaltEx");
        }
        if (indication.StatusBufferSize != 0) == indication.StatusBuffer.is_null() {
            rule(&miniport, "StatusBuffer and StatusBufferSize contradict each other");
        }
        if indication.StatusCode == status::LINK_STATE {
            link_state(&miniport, &indication);
        }
        *lock(&miniport.indications).counts.entry(indication.StatusCode).or_default() += 1;
    }
}

fn link_state(miniport: &Miniport, indication: &NDIS_STATUS_INDICATION) {
    const NAME: &str = "NDIS_LINK_STATE";
    const CONNECTED: i32 = 1;
    if (indication.StatusBufferSize as usize) < size_of::<NDIS_LINK_STATE>() {
        rule(miniport, "the buffer of NDIS_STATUS_LINK_STATE is shorter than NDIS_LINK_STATE");
    }
    // SAFETY: the indication says that the buffer has at least this size.
    let link = unsafe { indication.StatusBuffer.cast::<NDIS_LINK_STATE>().read_unaligned() };
    let expected = ExpectedHeader { structure: NAME, object_type: 0x80, revision: 1, size: 0x28, size_of: 0x28 };
    if let Err(text) = check_header(link.Header, expected) {
        rule(miniport, &text);
    }
    let (connect, duplex) = (link.MediaConnectState.0, link.MediaDuplexState.0);
    if !(0..=2).contains(&connect) || !(0..=2).contains(&duplex) {
        rule(miniport, &format!("NDIS_LINK_STATE: connect state {connect} or duplex state {duplex} is not one"));
    }
    let mut indications = lock(&miniport.indications);
    indications.connected = Some(connect == CONNECTED);
    indications.link_speed = Some(link.XmitLinkSpeed);
}

fn rule(miniport: &Miniport, text: &str) -> ! {
    broken(Group::StatusIndication, miniport.handle, format!("NdisMIndicateStatusEx: {text}"))
}
