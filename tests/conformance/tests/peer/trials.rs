//! The trials by name: a role of the child, keywords of its adapter, a script.

use std::process::ExitCode;

use conformance::iwarp_peer::{Stage, play};
use conformance::trial::become_child;
use libtest_mimic::{Arguments, Trial};

use super::{consumer, data, ends, errors, setup};

const ROLE: &str = "obeys lines";

/// A script, and the keywords that its machine needs.
struct Script(&'static str, &'static str, fn(&mut Stage<'_>));

macro_rules! scripts {
    ($($module:ident::$function:ident $($keywords:literal)?;)*) => {
        &[$(Script(
            concat!(stringify!($module), "::", stringify!($function)),
            concat!($($keywords)?),
            $module::$function,
        )),*]
    };
}

/// A consumer's time-outs here are short where they are what is looked at.
const SCRIPTS: &[Script] = scripts! {
    setup::private_data_is_carried_whole "LimitsProfile=1";
    setup::private_data_beyond_all_limits_is_cut;
    setup::rejection_by_the_peer_brings_its_data;
    setup::rejection_by_the_consumer_is_a_reply;
    setup::silent_client_is_cut_off;
    setup::silent_responder_times_out "ConnectTimeoutMs=300";
    setup::frames_come_byte_by_byte;
    setup::frame_right_behind_the_reply_waits_for_the_consumer;
    setup::frame_right_behind_the_request_ends_the_connection;
    setup::initiator_without_ready_frame_sends_first;
    setup::responder_takes_each_ready_frame;
    setup::initiator_sends_the_ready_frame_that_is_chosen;
    setup::reply_that_does_not_fit_ends_the_attempt;
    setup::reply_with_odd_flags_is_taken;
    setup::request_that_is_none_is_not_answered;
    setup::request_with_odd_flags_is_answered;
    setup::limits_of_a_request_are_met;
    setup::limits_of_a_reply_are_met;
    setup::reads_wait_for_the_limit;
    data::sends_of_each_length_arrive;
    data::sends_in_any_segments_are_received;
    data::kinds_of_send_have_their_operations;
    data::writes_of_each_length_arrive;
    data::writes_of_the_peer_are_stored;
    data::reads_of_each_length_are_answered;
    data::reads_of_the_peer_are_answered_in_order;
    data::order_of_reads_and_writes_is_kept;
    data::invalidation_by_the_peer_is_received;
    data::send_without_receive_waits;
    data::peer_that_stops_reading_loses_nothing;
    errors::receive_that_is_too_short_ends_the_stream;
    errors::receive_that_is_too_short_for_a_later_segment_ends_the_stream;
    errors::send_that_waits_too_long_ends_the_stream "ReceiverNotReadyMs=200";
    errors::refused_accesses_end_the_stream;
    errors::later_segment_of_a_write_is_checked;
    errors::refused_invalidation_ends_the_stream;
    errors::more_reads_than_agreed_end_the_stream;
    errors::flipped_bit_ends_the_stream;
    errors::malformed_frames_end_the_stream;
    errors::broken_message_ends_the_stream;
    errors::response_that_does_not_fit_ends_the_stream;
    errors::terminate_on_an_idle_stream_is_an_event;
    errors::terminate_fails_the_request_that_it_is_of;
    errors::terminate_meets_a_long_write;
    ends::end_before_the_reply_refuses;
    ends::end_before_the_request_is_nothing;
    ends::end_before_the_answer_fails_it;
    ends::end_between_reply_and_first_frame_of_the_initiator;
    ends::end_instead_of_the_first_frame_fails_the_accept;
    ends::fin_on_an_idle_stream_is_a_notice;
    ends::reset_on_an_idle_stream_is_an_event;
    ends::end_behind_held_sends_is_an_event;
    ends::end_with_reads_outstanding_cancels_them;
    ends::end_inside_a_frame_breaks_the_stream;
    ends::disconnect_is_a_fin_behind_what_was_posted;
    ends::disconnects_that_cross_complete;
    ends::disconnect_without_an_answer_times_out "DisconnectTimeoutMs=300";
    ends::close_of_an_open_connection_is_a_reset;
    ends::end_before_anything_has_come_is_a_fin;
    ends::accept_without_a_first_frame_times_out "AcceptTimeoutMs=300";
    ends::first_frame_that_is_not_seen_is_followed_by_empty_writes;
};

pub fn main() -> ExitCode {
    become_child(|name| (name == ROLE).then_some(consumer::obey_lines as fn()));
    let trials = SCRIPTS
        .iter()
        .map(|Script(name, keywords, script)| Trial::test(*name, move || play(ROLE, keywords, script)))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
