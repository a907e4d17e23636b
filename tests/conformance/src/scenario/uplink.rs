//! An adapter with an uplink: frames leave in datagrams and come in others, also after a stop. What finds no memory is lost.

use std::net::{Ipv4Addr, SocketAddr};

use kernel_host::HaltAction;
use kernel_host::dispatcher;
use kernel_host::ndis::adapter::StartError;
use kernel_host::wsk::OtherMachines;
use ndkpi_sys::ndis::NDIS_STATUS_RESOURCES;

use super::miniport::step;
use super::{Stop, check};
use crate::machine::{Setup, wait_until_idle};

/// The keyword with the other machine that is played here.
pub(super) const KEYWORDS: &[(&str, &str)] = &[("UplinkPeers", "198.51.100.1")];

pub(super) fn walk(adapters: &[kernel_host::Adapter], _setup: &Setup) -> Result<(), Stop> {
    let others = OtherMachines::play();
    exchange(&adapters[0], &others)?;
    step("Halt", adapters[0].halt(HaltAction::DeviceDisabled))?;
    match adapters[0].start() {
        Ok(()) => exchange(&adapters[0], &others),
        Err(StartError::Initialize(status)) => Err(("MiniportInitializeEx", status)),
        Err(StartError::Restart(error)) => step("Restart", Err(error)),
        Err(error) => panic!("{error}"),
    }
}

/// A frame for all leaves, and one comes. A socket that could not be made is made again within two seconds.
fn exchange(adapter: &kernel_host::Adapter, others: &OtherMachines) -> Result<(), Stop> {
    const TWO_SECONDS: i64 = 20_000_000;
    for status in step("Send", adapter.send(vec![vec![0xFF; 60].into()]))?.wait() {
        if status != NDIS_STATUS_RESOURCES {
            check("Send", status)?;
        }
    }
    dispatcher::delay(-TWO_SECONDS);
    let [from, to] = [[198, 51, 100, 1], [192, 0, 2, 1]].map(|ip| SocketAddr::new(Ipv4Addr::from(ip).into(), 4789));
    let frame = [[0xFF; 6], [2, 0, 0, 0, 0, 1]].concat();
    others.send(from, to, &[&[8, 0, 0, 0, 0, 0, 0, 0], &frame[..], &[0x88; 50]].concat());
    wait_until_idle();
    drop((others.take_received(), adapter.take_received()));
    Ok(())
}
