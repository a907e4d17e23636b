//! The life cycle of an NDIS miniport: identifiers, frames, pauses, power, NDK switched off and on.

use kernel_host::ndis::adapter::StartError;
use kernel_host::ndis::data_path::Frame;
use kernel_host::ndis::life_cycle::StepError;
use kernel_host::ndis::oid::{Direction, ETHERNET, NDK, OID_NDK_SET_STATE};
use ndkpi_sys::ndis::NDIS_STATUS_RESOURCES;

use super::{Stop, check, open};
use crate::machine::{Setup, wait_until_idle};

pub(super) fn walk(adapters: &[kernel_host::Adapter], setup: &Setup) -> Result<(), Stop> {
    let (one, other) = (&adapters[0], &adapters[1]);
    for mandatory in ETHERNET.iter().chain(NDK).filter(|mandatory| mandatory.direction != Direction::Set) {
        step("an OID", one.query_oid(mandatory.oid, 512))?;
    }
    frames(one, other)?;
    step("Restart", one.restart())?;
    frames(other, one)?;
    let opened = open(adapters, setup, 0)?;
    drop(opened);
    for state in [0, 1] {
        let answer = step("OID_NDK_SET_STATE", one.set_oid(OID_NDK_SET_STATE, &[state]))?;
        check("OID_NDK_SET_STATE", answer.status)?;
        wait_until_idle();
    }
    step("power down", one.power_down())?;
    match one.power_up() {
        Ok(()) => Ok(()),
        Err(StartError::Initialize(status)) => Err(("MiniportInitializeEx", status)),
        Err(StartError::Restart(error)) => step("Restart", Err(error)),
        Err(error) => panic!("{error}"),
    }
}

/// Sends short, long and scattered frames, which a receiver that is short of memory may lose.
fn frames(from: &kernel_host::Adapter, to: &kernel_host::Adapter) -> Result<(), Stop> {
    let pieces = vec![vec![0xFF; 14], vec![1; 100], vec![2; 1000]];
    let scattered = Frame { pieces, following: vec![vec![0xFF; 60]], ..Frame::default() };
    let batch = vec![Frame::from(vec![0xFF; 60]), Frame::from(vec![0xFF; 1514]), scattered];
    for status in step("Send", from.send(batch))?.wait() {
        if status != NDIS_STATUS_RESOURCES {
            check("Send", status)?;
        }
    }
    wait_until_idle();
    let _ = to.take_received();
    Ok(())
}

/// A step that may fail for lack of memory only.
pub(super) fn step<T>(place: &'static str, result: Result<T, StepError>) -> Result<T, Stop> {
    result.map_err(|error| match error {
        StepError::Failed(status) => (place, status),
        other @ StepError::WrongState(_) => panic!("{place}: {other}"),
    })
}
