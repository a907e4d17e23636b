//! The steps of an adapter's life cycle as NDIS takes them: initialise, restart, pause, halt, device events, shutdown. Each
//! step calls one entry point, waits for a completion where the entry point may pend, and checks what the contract promises at
//! its end.
//!
//! Never called here with a lock of the host held, and never two steps at once for one adapter: the state refuses it.

use std::sync::Arc;

use ndkpi_sys::ndis::{
    NDIS_MINIPORT_INIT_PARAMETERS, NDIS_MINIPORT_PAUSE_PARAMETERS, NDIS_MINIPORT_RESTART_PARAMETERS,
    NDIS_OBJECT_HEADER, NET_DEVICE_PNP_EVENT,
};

use super::loan::Loan;
use super::miniport::{Miniport, MiniportState};
use super::registration::MiniportDriver;
use super::rendezvous::Mismatch;
use super::rule::{Group, broken};
use super::{NdisStatus, ndis, status};
use crate::call_image;
use crate::callout::{Context, ContextKind};
use crate::inf::AdapterConfig;
use crate::netio::address_table::InterfaceLuid;
use crate::{dispatcher, thread};

/// Why `HaltEx` is called (NDIS: `NDIS_HALT_ACTION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum HaltAction {
    DeviceDisabled = 0,
    InstanceDeInitialized = 1,
    DevicePoweredDown = 2,
    SurpriseRemoved = 3,
    DeviceFailed = 4,
    InitializationFailed = 5,
    DeviceStopped = 6,
}

/// The events of its device that NDIS passes to a miniport (NDIS: `NDIS_DEVICE_PNP_EVENT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum DeviceEvent {
    QueryRemoved = 0,
    Removed = 1,
    SurpriseRemoved = 2,
    QueryStopped = 3,
    Stopped = 4,
    PowerProfileChanged = 5,
}

/// Why a step was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepError {
    /// The adapter is in another state than the step starts from; an error of the caller, not of the driver.
    WrongState(MiniportState),
    /// The entry point failed with this status.
    Failed(NdisStatus),
}

impl std::fmt::Display for StepError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::WrongState(state) => write!(formatter, "the adapter is in state {state:?}"),
            Self::Failed(failure) => {
                write!(formatter, "the miniport failed with NDIS_STATUS_{}", status::name(*failure))
            }
        }
    }
}

impl std::error::Error for StepError {}

const fn context(name: &'static str) -> Context {
    Context::new(ContextKind::MiniportEntry, name)
}

const fn header(object_type: u8, revision: u8, size: u16) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: object_type, Revision: revision, Size: size }
}

/// Calls `MiniportInitializeEx`; success leaves the adapter paused.
pub fn initialize(
    driver: &Arc<MiniportDriver>,
    config: AdapterConfig,
    if_index: u32,
    luid: InterfaceLuid,
) -> Result<Arc<Miniport>, NdisStatus> {
    let miniport = Miniport::create(driver, config, if_index, luid);
    let mut parameters = NDIS_MINIPORT_INIT_PARAMETERS::zeroed();
    parameters.Header = header(0x81, 1, 0x40);
    parameters.IfIndex = if_index;
    parameters.NetLuid.Value = luid.0;
    let parameters = Loan::new(parameters);
    let target = driver.handlers.initialize;
    // SAFETY: the registered handler, with the arguments of MINIPORT_INITIALIZE.
    let answer = unsafe {
        call_image!(context("MiniportInitializeEx"), target => i32; miniport.handle, driver.context, parameters.as_pointer())
    };
    drop(parameters);
    if answer == status::SUCCESS {
        if let Some(block) = miniport.missing_attributes() {
            broken(
                Group::Attributes,
                miniport.handle,
                format!("MiniportInitializeEx succeeded without setting {block}"),
            );
        }
        let _ = miniport.step(&[MiniportState::Initializing], MiniportState::Paused);
        return Ok(miniport);
    }
    if answer == status::PENDING {
        broken(Group::State, miniport.handle, "MiniportInitializeEx returned NDIS_STATUS_PENDING, which it may not");
    }
    let _ = miniport.step(&[MiniportState::Initializing], MiniportState::Halted);
    super::leak::check_miniport(&miniport, "MiniportInitializeEx failed");
    let _ = ndis().miniports.remove(miniport.handle as *mut _);
    Err(if answer >= 0 { broken_success(&miniport, answer) } else { answer })
}

fn broken_success(miniport: &Miniport, answer: NdisStatus) -> NdisStatus {
    // NDIS_STATUS_NOT_ACCEPTED and NOT_RECOGNIZED are failures in spite of their sign.
    if matches!(answer, status::NOT_ACCEPTED | status::NOT_RECOGNIZED) {
        return answer;
    }
    broken(
        Group::State,
        miniport.handle,
        format!("MiniportInitializeEx returned {}, neither success nor failure", status::name(answer)),
    )
}

/// Calls `MiniportRestart`; success leaves the adapter running.
pub fn restart(miniport: &Miniport) -> Result<(), StepError> {
    miniport.step(&[MiniportState::Paused], MiniportState::Restarting).map_err(StepError::WrongState)?;
    let mut parameters = NDIS_MINIPORT_RESTART_PARAMETERS::zeroed();
    parameters.Header = header(0x80, 1, 0x14);
    let parameters = Loan::new(parameters);
    miniport.restart.begin();
    let target = miniport.driver.handlers.restart;
    // SAFETY: the registered handler, with the arguments of MINIPORT_RESTART.
    let answer =
        unsafe { call_image!(context("MiniportRestart"), target => i32; miniport.context(), parameters.as_pointer()) };
    let answer = if answer == status::PENDING {
        expect(miniport, "NdisMRestartComplete", miniport.restart.wait())
    } else {
        expect(miniport, "NdisMRestartComplete", miniport.restart.end());
        answer
    };
    drop(parameters);
    let next = if answer == status::SUCCESS { MiniportState::Running } else { MiniportState::Paused };
    miniport.data.allow_sends(answer == status::SUCCESS);
    let _ = miniport.step(&[MiniportState::Restarting], next);
    if answer == status::SUCCESS { Ok(()) } else { Err(StepError::Failed(answer)) }
}

/// Calls `MiniportPause`, which cannot fail; at its end nothing is on its way in either direction.
pub fn pause(miniport: &Arc<Miniport>) -> Result<(), StepError> {
    miniport.step(&[MiniportState::Running], MiniportState::Pausing).map_err(StepError::WrongState)?;
    let mut parameters = NDIS_MINIPORT_PAUSE_PARAMETERS::zeroed();
    parameters.Header = header(0x80, 1, 0xC);
    let parameters = Loan::new(parameters);
    miniport.pause.begin();
    let returning = return_kept(miniport);
    let target = miniport.driver.handlers.pause;
    // SAFETY: the registered handler, with the arguments of MINIPORT_PAUSE.
    let answer =
        unsafe { call_image!(context("MiniportPause"), target => i32; miniport.context(), parameters.as_pointer()) };
    match answer {
        status::PENDING => expect(miniport, "NdisMPauseComplete", miniport.pause.wait()),
        status::SUCCESS => {
            miniport.data.check_returned(miniport, "MiniportPause succeeded");
            expect(miniport, "NdisMPauseComplete", miniport.pause.end());
        }
        other => broken(
            Group::State,
            miniport.handle,
            format!("MiniportPause returned {}; it cannot fail", status::name(other)),
        ),
    }
    if let Some(returning) = returning {
        returning.join();
    }
    drop(parameters);
    let _ = miniport.step(&[MiniportState::Pausing], MiniportState::Paused);
    miniport.data.allow_sends(false);
    miniport.data.check_idle(miniport, "MiniportPause is complete");
    Ok(())
}

/// Frames that the host keeps come back while the pause is under way, from a thread of their own: the miniport may wait for
/// them in its handler or pend.
fn return_kept(miniport: &Arc<Miniport>) -> Option<thread::JoinHandle<()>> {
    /// A second in units of 100 ns: long enough for a miniport that does not wait to show it.
    const LATER: i64 = -10_000_000;
    if miniport.data.held() == 0 {
        return None;
    }
    let miniport = Arc::clone(miniport);
    Some(thread::spawn("returns frames", move || {
        dispatcher::delay(LATER);
        miniport.data.return_held(&miniport);
    }))
}

fn expect<T>(miniport: &Miniport, function: &str, met: Result<T, Mismatch>) -> T {
    met.unwrap_or_else(|mismatch| {
        let rule = match mismatch {
            Mismatch::NothingOutstanding => format!("{function} is called although nothing was asked"),
            Mismatch::CompletedTwice => format!("{function} is called twice"),
            Mismatch::CompletedAndReturned => {
                format!("{function} is called although the handler did not return pending")
            }
            Mismatch::NeverCompleted => format!("{function} was not called within {:?}", super::rendezvous::LIMIT),
        };
        broken(Group::State, miniport.handle, rule)
    })
}

/// Calls `MiniportHaltEx` for a paused adapter; afterwards its handle is invalid and no resource of it may be left.
pub fn halt(miniport: &Arc<Miniport>, action: HaltAction) -> Result<(), StepError> {
    miniport.step(&[MiniportState::Paused], MiniportState::Halting).map_err(StepError::WrongState)?;
    miniport.oids.wait_idle();
    let target = miniport.driver.handlers.halt;
    // SAFETY: the registered handler, with the arguments of MINIPORT_HALT.
    unsafe { call_image!(context("MiniportHaltEx"), target => (); miniport.context(), action as i32) };
    let _ = miniport.step(&[MiniportState::Halting], MiniportState::Halted);
    super::leak::check_miniport(miniport, "MiniportHaltEx returned");
    let _ = ndis().miniports.remove(miniport.handle as *mut _);
    Ok(())
}

/// Calls `MiniportDevicePnPEventNotify`.
pub fn device_event(miniport: &Miniport, event: DeviceEvent) {
    let mut parameters = NET_DEVICE_PNP_EVENT::zeroed();
    parameters.Header = header(0x80, 1, 0x2C);
    parameters.DevicePnPEvent.0 = event as i32;
    let parameters = Loan::new(parameters);
    let target = miniport.driver.handlers.device_pnp_event;
    // SAFETY: the registered handler, with the arguments of MINIPORT_DEVICE_PNP_EVENT_NOTIFY.
    unsafe {
        call_image!(context("MiniportDevicePnPEventNotify"), target => (); miniport.context(), parameters.as_pointer());
    }
}

/// Calls `MiniportShutdownEx` as the system does when it powers off; NDIS does not use the adapter afterwards, but it is not
/// halted.
pub fn shutdown(miniport: &Miniport) {
    const POWER_OFF: i32 = 0;
    let target = miniport.driver.handlers.shutdown;
    // SAFETY: the registered handler, with the arguments of MINIPORT_SHUTDOWN.
    unsafe { call_image!(context("MiniportShutdownEx"), target => (); miniport.context(), POWER_OFF) };
}

crate::exports! {
    module "ndis.sys";

    /// Ends a pause that returned pending.
    /// Checks: a pause is outstanding, completed once, every indicated list is back.
    /// Source: NDIS: NdisMPauseComplete
    [UP_TO_DISPATCH] fn NdisMPauseComplete(handle: *mut std::ffi::c_void) {
        let miniport = super::miniport::miniport(handle, "NdisMPauseComplete");
        miniport.data.check_returned(&miniport, "NdisMPauseComplete is called");
        expect(&miniport, "NdisMPauseComplete", miniport.pause.complete(()));
    }

    /// Ends a restart that returned pending.
    /// Checks: a restart is outstanding, completed once, the status is final.
    /// Source: NDIS: NdisMRestartComplete
    [UP_TO_DISPATCH] fn NdisMRestartComplete(handle: *mut std::ffi::c_void, answer: NdisStatus) {
        let miniport = super::miniport::miniport(handle, "NdisMRestartComplete");
        if answer == status::PENDING {
            broken(Group::State, miniport.handle, "NdisMRestartComplete is called with NDIS_STATUS_PENDING");
        }
        expect(&miniport, "NdisMRestartComplete", miniport.restart.complete(answer));
    }
}
