//! What ndktest.sys does as a consumer: it finds adapters by their interfaces, and closes what it has open when their provider wants that.

use super::endings::set_ndk;
use super::machine::{Machine, ask, list, list_of, region, send_direct};
use super::pairs::{close, create_request, objects};
use super::transfers::transfer_request;
use super::{Case, cases};
use softndk_ioctl::{AdapterFlags, PairCreateRequest, RequestHeader, Status};
use std::net::{IpAddr, Ipv4Addr};
use zerocopy::FromZeros;

pub const CASES: &[Case] = cases![
    the_consumer_finds_the_adapters_of_the_provider,
    adapters_come_and_go_in_the_consumers_list,
    idle_pairs_do_not_hold_up_the_end_of_ndk,
    a_pair_over_an_address_that_vanishes_is_closed,
];

/// Interfaces, addresses and limits are those that the provider says itself.
fn the_consumer_finds_the_adapters_of_the_provider() {
    let machine = Machine::start();
    let file = machine.open();
    let (found, known) = (list_of(file.consumer()), list(&file));
    assert_eq!(found.len(), known.len());
    for (found, known) in found.iter().zip(&known) {
        assert_eq!((found.interface_index, found.net_luid), (known.interface_index, known.net_luid));
        assert_eq!((found.address_count, found.addresses), (known.address_count, known.addresses));
        assert_eq!(found.limits, known.limits);
        assert_eq!(found.technology, known.technology);
        assert!(found.flags.contains(AdapterFlags::NDK_ENABLED));
    }
    assert_eq!(objects(&file).ndk_adapters, 0, "the list leaves nothing open");
    file.close();
    machine.finish();
}

// Rule: IOCTL-9
fn adapters_come_and_go_in_the_consumers_list() {
    let mut machine = Machine::start();
    let file = machine.open();
    set_ndk(&machine, false);
    let enabled = list_of(file.consumer())
        .iter()
        .map(|entry| entry.flags.contains(AdapterFlags::NDK_ENABLED))
        .collect::<Vec<_>>();
    assert_eq!(enabled, [true, false], "one that is off is listed all the same");
    set_ndk(&machine, true);
    machine.adapters.remove(0).remove();
    let left = list_of(file.consumer());
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].index, 0, "indices are places in the list");
    // Both ends on the one that is left.
    let header = RequestHeader::of::<PairCreateRequest>();
    let pair = ask(&file, &PairCreateRequest { header, ..PairCreateRequest::new_zeroed() }).pair;
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

/// No request is under way, and the program does nothing: NDK goes off all the same, and the adapter can be halted.
// Rule: IOCTL-9
fn idle_pairs_do_not_hold_up_the_end_of_ndk() {
    let mut machine = Machine::start();
    let file = machine.open();
    let pairs = [(); 3].map(|()| ask(&file, &create_request(&machine)).pair);
    assert_eq!(objects(&file).ndk_adapters, 6);
    set_ndk(&machine, false);
    // The event is raised; it ends with the last of the adapter's opens, and the other ends are closed by then or soon after.
    machine.wait_until(|| objects(&file).ndk_adapters == 0);
    let left = objects(&file);
    assert_eq!((left.ndk_adapters, left.queue_pairs, left.pairs), (0, 0, 3));
    for pair in pairs {
        let status = send_direct(&file, &transfer_request(pair, 4096), &mut region(4096));
        assert_eq!(status, Status::DEVICE_REMOVED);
        assert_eq!(close(&file, pair), Status::SUCCESS);
    }
    set_ndk(&machine, true);
    let pair = ask(&file, &create_request(&machine)).pair;
    machine.adapters.remove(1).remove();
    assert_eq!(objects(&file).ndk_adapters, 0);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    file.close();
    machine.finish();
}

/// The connection ends with the address; the adapters serve others.
fn a_pair_over_an_address_that_vanishes_is_closed() {
    let machine = Machine::start();
    let file = machine.open();
    let pair = ask(&file, &create_request(&machine)).pair;
    assert!(machine.adapters[1].remove_address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))));
    machine.wait_until(|| objects(&file).queue_pairs == 0);
    let status = send_direct(&file, &transfer_request(pair, 4096), &mut region(4096));
    assert_eq!(status, Status::DEVICE_REMOVED);
    assert_eq!(close(&file, pair), Status::SUCCESS);
    let other = ask(&file, &create_request(&machine)).pair;
    assert_eq!(send_direct(&file, &transfer_request(other, 4096), &mut region(4096)), Status::SUCCESS);
    assert_eq!(close(&file, other), Status::SUCCESS);
    file.close();
    machine.finish();
}
