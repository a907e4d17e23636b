//! What a miniport, or a miniport driver, has to give back before it ends: NDIS objects by owner. Pool, MDLs, mappings and
//! threads are the ledger's and the pool's; those are reported when the image is unloaded.

use super::miniport::Miniport;
use super::ndis;
use super::registration::MiniportDriver;
use super::rule::{Group, broken};

/// The objects that an owner still has, in words.
fn held_by(owner: usize) -> Vec<String> {
    let ndis = ndis();
    let counts = [
        ("NET_BUFFER_LIST pool", ndis.pools.all().iter().filter(|pool| pool.owner == owner).count()),
        ("work item", ndis.work_items.all().iter().filter(|item| item.owner == owner).count()),
        ("timer", ndis.timers.all().iter().filter(|timer| timer.owner == owner).count()),
        ("configuration handle", ndis.configurations.all().iter().filter(|open| open.owner == owner).count()),
        ("control device", ndis.devices.all().iter().filter(|device| device.owner == owner).count()),
    ];
    let held = counts.into_iter().filter(|(_, count)| *count != 0);
    held.map(|(kind, count)| format!("{count} {kind}{}", if count == 1 { "" } else { "s" })).collect()
}

/// Ends the run when a miniport still has NDIS objects, frames on their way, or open NDK adapters.
pub fn check_miniport(miniport: &Miniport, when: &str) {
    let held = held_by(miniport.handle);
    if !held.is_empty() {
        broken(Group::Leak, miniport.handle, format!("{when}, and the adapter still has {}", held.join(", ")));
    }
    miniport.data.check_idle(miniport, when);
    let open = miniport.ndk_opens.count();
    if open != 0 {
        broken(Group::Leak, miniport.handle, format!("{when}, and {open} NDK adapters are open"));
    }
}

/// Ends the run when a driver deregisters with adapters or objects of its own.
pub fn check_driver(driver: &MiniportDriver) {
    let adapters = ndis().miniports.all().iter().filter(|miniport| miniport.driver.handle == driver.handle).count();
    if adapters != 0 {
        let rule = format!("NdisMDeregisterMiniportDriver is called while {adapters} adapters are initialised");
        broken(Group::Leak, driver.handle, rule);
    }
    let held = held_by(driver.handle);
    if !held.is_empty() {
        let rule = format!("NdisMDeregisterMiniportDriver is called, and the driver still has {}", held.join(", "));
        broken(Group::Leak, driver.handle, rule);
    }
}
