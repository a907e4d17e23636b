//! `NdisMNetPnPEvent`: how a miniport reports to the layers above that NDK came or goes. The disable event stays in the call
//! until the last NDK adapter of the miniport is closed, so it may not come from where a close needs to get through.

use std::cell::Cell;
use std::ffi::c_void;

use ndkpi_sys::ndis::NET_PNP_EVENT_NOTIFICATION;

use super::attributes::{ExpectedHeader, check_header};
use super::miniport::{Miniport, MiniportState, lock, miniport};
use super::rule::{Group, broken};
use super::{NdisStatus, status};
use crate::thread::Thread;

thread_local! {
    static INSIDE_OID_HANDLER: Cell<u32> = const { Cell::new(0) };
}

/// Marks the current thread as running an OID handler while it exists.
pub struct OidHandlerScope(());

impl OidHandlerScope {
    #[must_use]
    pub fn enter() -> Self {
        INSIDE_OID_HANDLER.set(INSIDE_OID_HANDLER.get() + 1);
        Self(())
    }
}

impl Drop for OidHandlerScope {
    fn drop(&mut self) {
        INSIDE_OID_HANDLER.set(INSIDE_OID_HANDLER.get() - 1);
    }
}

crate::exports! {
    module "ndis.sys";

    /// Reports NDK enable or disable to the layers above; disable returns when every NDK adapter of the miniport is closed.
    /// Checks: never inside an OID handler, neither during initialisation nor after MiniportHaltEx; notification header, port, event
    /// code; an event that fails is not raised again without end.
    /// Source: NDIS: NdisMNetPnPEvent, NET_PNP_EVENT_NOTIFICATION; NDKPI: OID_NDK_SET_STATE
    [PASSIVE_ONLY] fn NdisMNetPnPEvent(handle: *mut c_void, notification: *const NET_PNP_EVENT_NOTIFICATION) -> NdisStatus {
        const NDK_ENABLE: i32 = 13;
        const NDK_DISABLE: i32 = 14;
        let miniport = miniport(handle, "NdisMNetPnPEvent");
        if INSIDE_OID_HANDLER.get() != 0 {
            rule(&miniport, "is called inside an OID handler; OID_NDK_SET_STATE queues the event for a thread of its own");
        }
        if matches!(miniport.state(), MiniportState::Initializing | MiniportState::Halted) {
            rule(&miniport, &format!("is called while the adapter is in state {:?}", miniport.state()));
        }
        if notification.is_null() {
            rule(&miniport, "NetPnPEventNotification is NULL");
        }
        let event = check_notification(&miniport, notification);
        let answer = lock(&miniport.indications).ndk_event_answer;
        if crate::fault::should_fail("NdisMNetPnPEvent") {
            return refuse(&miniport, status::RESOURCES);
        }
        if let Some(answer) = answer {
            return refuse(&miniport, answer);
        }
        lock(&miniport.indications).ndk_events_refused = 0;
        if matches!(event, NDK_ENABLE | NDK_DISABLE) {
            lock(&miniport.indications).ndk_events.push(event == NDK_ENABLE);
        }
        match event {
            NDK_ENABLE | NDK_DISABLE if miniport.driver.ndk().is_none() => status::NOT_SUPPORTED,
            NDK_ENABLE => {
                miniport.ndk_opens.set_enabled(true);
                status::SUCCESS
            }
            NDK_DISABLE => {
                disable(&miniport);
                status::SUCCESS
            }
            other => {
                super::log::record(format!("NdisMNetPnPEvent: event {other} is not modelled"));
                status::NOT_SUPPORTED
            }
        }
    }
}

/// How often a driver may raise events that fail, with none in between that does not.
const REFUSED_IN_A_ROW: usize = 64;

/// Fails an event, and reports a driver that raises it again for ever.
fn refuse(miniport: &Miniport, answer: NdisStatus) -> NdisStatus {
    let refused = {
        let mut indications = lock(&miniport.indications);
        indications.ndk_events_refused += 1;
        indications.ndk_events_refused
    };
    if refused > REFUSED_IN_A_ROW {
        rule(
            miniport,
            &format!("has failed {refused} times in a row (last with {answer:#x}) and is called again without end"),
        );
    }
    answer
}

fn check_notification(miniport: &Miniport, notification: *const NET_PNP_EVENT_NOTIFICATION) -> i32 {
    const NAME: &str = "NET_PNP_EVENT_NOTIFICATION";
    // SAFETY: not null; the fields up to NetPnPEvent exist in every revision.
    let (header, port, code, buffer, length) = unsafe {
        (
            (&raw const (*notification).Header).read_unaligned(),
            (&raw const (*notification).PortNumber).read_unaligned(),
            (&raw const (*notification).NetPnPEvent.NetEvent).read_unaligned(),
            (&raw const (*notification).NetPnPEvent.Buffer).read_unaligned(),
            (&raw const (*notification).NetPnPEvent.BufferLength).read_unaligned(),
        )
    };
    let (size, size_of) = if header.Revision >= 2 { (0xAC, 0xB0) } else { (0xA4, 0xA8) };
    let revision = header.Revision.clamp(1, 2);
    let expected = ExpectedHeader { structure: NAME, object_type: 0x80, revision, size, size_of };
    if let Err(text) = check_header(header, expected) {
        rule(miniport, &text);
    }
    if port != 0 || !buffer.is_null() || length != 0 {
        rule(miniport, "an NDK event has port 0 and no buffer");
    }
    code.0
}

/// Notifies the consumers and waits for their closes.
fn disable(miniport: &Miniport) {
    if Thread::current().is_inside(crate::callout::ContextKind::DispatchFunction) {
        rule(miniport, "NDK disable is raised inside a dispatch function of the provider");
    }
    miniport.ndk_opens.set_enabled(false);
    miniport.ndk_opens.close_all(miniport, "NDK disable");
}

fn rule(miniport: &Miniport, text: &str) -> ! {
    broken(Group::PnpEvent, miniport.handle, format!("NdisMNetPnPEvent: {text}"))
}
