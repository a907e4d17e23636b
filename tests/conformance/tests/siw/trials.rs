//! The trials by name, each in a process of its own.

use std::process::ExitCode;

use conformance::trial::{become_child, in_child};
use libtest_mimic::{Arguments, Trial};

mod connection;
mod connects;
mod ends;
mod guest;
mod nvme;
mod ping;
mod reads;
mod refusals;
mod rping;
mod smb;
mod speed;
mod tunnel;

const TRIALS: [(&str, fn()); 29] = [
    ("rping_serves_64_bytes", ping::guest_serves::<64>),
    ("rping_serves_3000_bytes", ping::guest_serves::<3000>),
    ("rping_serves_64000_bytes", ping::guest_serves::<64_000>),
    ("rping_serves_65535_bytes", ping::guest_serves::<65_535>),
    ("rping_calls_64_bytes", ping::guest_calls::<64>),
    ("rping_calls_3000_bytes", ping::guest_calls::<3000>),
    ("rping_calls_64000_bytes", ping::guest_calls::<64_000>),
    ("rping_calls_65535_bytes", ping::guest_calls::<65_535>),
    ("reject_reaches_the_guest", ends::reject),
    ("connect_is_refused_where_nothing_listens", ends::nothing_listens),
    ("disconnect_reaches_the_guest", ends::disconnect),
    ("guest_disconnects", ends::guest_disconnects),
    ("guest_program_is_killed", ends::guest_is_killed),
    ("reads_beyond_the_agreed_number", reads::all_at_once),
    ("guest_refuses_a_read", refusals::guest_refuses_read),
    ("guest_refuses_a_write", refusals::guest_refuses_write),
    ("guest_has_no_receive", refusals::guest_has_no_receive),
    ("read_of_the_guest_is_refused", refusals::refuses_read_of_guest),
    ("write_of_the_guest_is_refused", refusals::refuses_write_of_guest),
    ("message_of_the_guest_waits_for_a_receive", refusals::message_waits_for_receive),
    ("nvme_target_takes_and_gives_data", nvme::target_of_linux),
    ("nvme_target_serves_ndkctl", nvme::ndkctl),
    ("smb_direct_server_takes_and_gives_files", smb::server_of_linux),
    ("vxlan_carries_pings_and_streams", tunnel::pings_and_streams),
    ("vxlan_carries_rping_serving_3000_bytes", ping::guest_serves_in_tunnel::<3000>),
    ("vxlan_carries_rping_serving_64000_bytes", ping::guest_serves_in_tunnel::<64_000>),
    ("vxlan_carries_rping_calling_64000_bytes", ping::guest_calls_in_tunnel::<64_000>),
    ("siw_to_siw_beside_tcp", speed::siw_to_siw),
    ("connections_one_after_the_other", connects::one_after_the_other),
];

pub fn main() -> ExitCode {
    become_child(|name| TRIALS.iter().find(|(trial, _)| *trial == name).map(|(_, run)| *run));
    let mut arguments = Arguments::from_args();
    // They share the guest.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    if guest::address().is_some() {
        trials.extend(TRIALS.iter().map(|(name, _)| Trial::test(*name, || in_guest(name))));
    } else {
        eprintln!("no trials here: they need a guest with siw, which `cargo xtask interop` boots");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs a trial in a child, and says what it counted.
fn in_guest(name: &str) -> Result<(), libtest_mimic::Failed> {
    let outcome = in_child(name, &[])?;
    outcome.text().lines().filter(|line| line.starts_with("counted: ")).for_each(|line| println!("{line}"));
    outcome.expect_success()
}
