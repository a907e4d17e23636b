//! Which rule of `docs/rules.md` a refused call broke.

use crate::refusal::{NdkCall, RefusalCause};

impl RefusalCause {
    /// The tag of the rule that demands this refusal of this call; none for a state of the machine, such as a lack of memory.
    #[must_use]
    pub const fn rule(self, call: NdkCall) -> Option<&'static str> {
        Some(match self {
            Self::NO_OBJECT
            | Self::NO_CALLBACK
            | Self::NO_PLACE
            | Self::NO_LIST
            | Self::NO_LENGTH
            | Self::NO_PRIVATE_DATA => "NDK-ARG-1",
            Self::BAD_ADDRESS_ARGUMENT | Self::UNKNOWN_FAMILY => "NDK-ARG-2",
            Self::UNKNOWN_FLAGS => match call {
                NdkCall::REGISTER_MR => "NDK-MR-16",
                _ => "NDK-QP-19",
            },
            Self::SMALL_BUFFER => small_buffer(call),
            Self::NO_EXTENSION => "NDK-EXT-1",
            Self::UNKNOWN_VERSION => "NDK-OPEN-2",
            Self::NDK_OFF => "NDK-OPEN-3",
            Self::FAST_REGISTER_REGION | Self::REGION_WRONG_KIND => "NDK-MR-12",
            Self::CREATE_OVER_LIMIT => over_limit(call),
            Self::CREATE_FOREIGN | Self::CONNECT_FOREIGN => "NDK-OPEN-20",
            Self::MAPPING_NOT_CONTIGUOUS => match call {
                NdkCall::BUILD_LAM => "NDK-LAM-6",
                _ => "NDK-MR-3",
            },
            Self::MAPPING_NOT_PINNED => "NDK-MR-17",
            Self::REGION_BAD_LENGTH => "NDK-MR-14",
            Self::REGION_IN_USE => "NDK-MR-8",
            Self::REGION_WINDOWS_BOUND => "NDK-MR-13",
            Self::REGION_TOO_MANY_PAGES => "NDK-FRMR-1",
            Self::RESIZE_OVER_LIMIT => match call {
                NdkCall::MODIFY_SRQ => "NDK-SRQ-16",
                _ => "NDK-RESIZE-2",
            },
            Self::RESIZE_OCCUPIED => match call {
                NdkCall::MODIFY_SRQ => "NDK-SRQ-17",
                _ => "NDK-RESIZE-3",
            },
            Self::RESIZE_FAILED => "NDK-CQ-23",
            Self::MODERATION_MIX => "NDK-MOD-6",
            _ => return self.rule_of_request(call),
        })
    }

    /// The same, of work requests, their results and connections.
    const fn rule_of_request(self, call: NdkCall) -> Option<&'static str> {
        Some(match self {
            Self::POST_QUEUE_FULL | Self::POST_TOO_MANY_ELEMENTS => match call {
                NdkCall::SRQ_RECEIVE => "NDK-SRQ-13",
                _ => "NDK-QP-4",
            },
            Self::POST_TOO_MUCH_DATA => "NDK-QP-4",
            Self::POST_BAD_FLAGS => "NDK-QP-19",
            Self::POST_NOT_CONNECTED => "NDK-QP-2",
            Self::POST_ACCESS_DENIED => "NDK-QP-37",
            Self::RESULT_NOT_READY => "NDK-QP-41",
            Self::RESULT_RECEIVE_TOO_SMALL | Self::RESULT_SHORT_RECEIVE => "NDK-QP-9",
            Self::RESULT_LOCAL_ACCESS => "NDK-MR-5",
            Self::RESULT_REMOTE_ACCESS | Self::RESULT_REMOTE_ERROR => "NDK-MR-6",
            Self::RESULT_STALE_TOKEN | Self::RESULT_NOT_IN_USE => "NDK-MR-7",
            Self::RESULT_PRIVILEGED_TOKEN => "NDK-LAM-4",
            Self::RESULT_OTHER_DOMAIN => "NDK-OPEN-18",
            Self::RESULT_OTHER_QUEUE_PAIR => "NDK-MW-7",
            Self::RESULT_NO_RIGHT => "NDK-MR-10",
            Self::RESULT_NO_MAPPING => "NDK-LAM-7",
            Self::RESULT_NOT_INVALIDATED => "NDK-QP-30",
            Self::CONNECT_INVALID_ADDRESS => match call {
                NdkCall::LISTEN => "NDK-CM-2",
                NdkCall::CREATE_SHARED_ENDPOINT => "NDK-EP-5",
                _ => "NDK-CM-52",
            },
            Self::CONNECT_ADDRESS_IN_USE => match call {
                NdkCall::LISTEN => "NDK-CM-2",
                NdkCall::CREATE_SHARED_ENDPOINT => "NDK-EP-4",
                _ => "NDK-CM-52",
            },
            Self::CONNECT_TUPLE_IN_USE => "NDK-CM-37",
            Self::CONNECT_NO_PORTS => "NDK-CM-13",
            Self::CONNECT_HOST_UNREACHABLE => "NDK-CM-14",
            Self::CONNECT_REFUSED => "NDK-CM-4",
            Self::CONNECT_ABORTED => "NDK-CM-11",
            Self::CONNECT_TIMED_OUT => match call {
                NdkCall::ACCEPT | NdkCall::ACCEPT_EX => "NDK-CM-48",
                NdkCall::DISCONNECT => "NDK-CM-49",
                _ => "NDK-CM-47",
            },
            Self::CONNECT_ALREADY_CONNECTED => "NDK-CM-34",
            Self::CONNECT_INVALID_STATE => "NDK-CM-55",
            Self::CONNECT_PRIVATE_DATA_TOO_LONG => "NDK-CM-18",
            _ => return None,
        })
    }
}

const fn small_buffer(call: NdkCall) -> &'static str {
    match call {
        NdkCall::BUILD_LAM => "NDK-LAM-5",
        NdkCall::GET_CONNECTION_DATA => "NDK-CM-19",
        NdkCall::GET_LOCAL_ADDRESS | NdkCall::GET_PEER_ADDRESS => "NDK-CM-50",
        _ => "NDK-INFO-1",
    }
}

const fn over_limit(call: NdkCall) -> &'static str {
    match call {
        NdkCall::CREATE_CQ => "NDK-CQ-1",
        NdkCall::CREATE_SRQ => "NDK-SRQ-1",
        NdkCall::CREATE_QP_WITH_SRQ => "NDK-SRQ-19",
        _ => "NDK-QP-1",
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{NdkCall, RefusalCause};
    use std::{collections::BTreeSet, vec::Vec};

    /// Every number of a cause or call that the tables could have.
    fn rules() -> BTreeSet<&'static str> {
        let calls: Vec<_> = (0..0x50).map(NdkCall).collect();
        (0..0x900).flat_map(|cause| calls.iter().filter_map(move |call| RefusalCause(cause).rule(*call))).collect()
    }

    #[test]
    fn each_rule_is_in_the_list() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rules.md")).unwrap();
        let tags: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()).collect();
        let unknown: Vec<_> = rules().into_iter().filter(|rule| !tags.contains(rule)).collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }

    #[test]
    fn the_call_decides_where_a_cause_has_several_rules() {
        let cause = RefusalCause::CREATE_OVER_LIMIT;
        assert_eq!(cause.rule(NdkCall::CREATE_CQ), Some("NDK-CQ-1"));
        assert_eq!(cause.rule(NdkCall::CREATE_QP), Some("NDK-QP-1"));
        assert_eq!(RefusalCause::POST_QUEUE_FULL.rule(NdkCall::SRQ_RECEIVE), Some("NDK-SRQ-13"));
    }
}
