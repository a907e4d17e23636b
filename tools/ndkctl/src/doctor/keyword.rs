//! The registry keywords: their ranges, and the values that make an adapter behave in an uncommon way.

/// The integers of `inf/softndk.inx`, with the range that the driver takes.
pub const RANGES: [(&str, u32, u32); 21] = [
    ("*NetworkDirect", 0, 1),
    ("WireNumber", 0, 65_535),
    ("LinkSpeedMbps", 1, 1_600_000),
    ("CompletionMode", 0, 2),
    ("LogicalPages", 0, 1),
    ("Transport", 0, 2),
    ("StreamCrc", 0, 1),
    ("LimitsProfile", 0, 2),
    ("NetworkDirectPollUs", 0, 1_000_000),
    ("NetworkDirectLenient", 0, 1),
    ("NetworkDirectObjects", 16, 1_048_576),
    ("NetworkDirectPoolMiB", 1, 1_048_576),
    ("NetworkDirectLockedMiB", 1, 16_777_216),
    ("NetworkDirectRequests", 16, 1_048_576),
    ("ConnectTimeoutMs", 0, 86_400_000),
    ("AcceptTimeoutMs", 0, 86_400_000),
    ("DisconnectTimeoutMs", 0, 86_400_000),
    ("ReceiverNotReadyMs", 0, 86_400_000),
    ("UplinkPort", 1, 65_535),
    ("UplinkOuterMtu", 1_350, 9_216),
    ("*NetworkDirectTechnology", 1, 4),
];

/// A value that a test wants, and daily work does not.
pub struct OddValue {
    pub keyword: &'static str,
    pub value: u32,
    /// What it does.
    pub effect: &'static str,
    /// The value without the effect.
    pub usual: u32,
}

const fn odd(keyword: &'static str, value: u32, effect: &'static str, usual: u32) -> OddValue {
    OddValue { keyword, value, effect, usual }
}

pub const ODD: [OddValue; 9] = [
    odd("CompletionMode", 1, "every NDK call that may pend does", 0),
    odd("CompletionMode", 2, "every NDK call answers inline, however long it takes", 0),
    odd("LogicalPages", 1, "no page of a logical mapping follows another", 0),
    odd("Transport", 2, "adapters of this machine reach each other by TCP", 0),
    odd("LimitsProfile", 2, "the adapter has the least limits that the contract allows", 0),
    odd("NetworkDirectLenient", 1, "any InfoVersion is taken", 0),
    odd("ConnectTimeoutMs", 0, "a Connect waits without limit", 30_000),
    odd("AcceptTimeoutMs", 0, "an Accept waits without limit", 30_000),
    odd("DisconnectTimeoutMs", 0, "a Disconnect waits without limit", 30_000),
];

#[cfg(all(test, not(windows)))]
mod tests {
    use super::{ODD, RANGES};
    use kernel_host::inf::{Inx, KeywordKind};

    /// The ranges and usual values here are those of the INF, and none is missing.
    #[test]
    fn the_tables_are_those_of_the_inf() {
        let inx = Inx::parse(include_str!("../../../../inf/softndk.inx")).unwrap().install().unwrap();
        for keyword in inx.keywords.iter().filter(|keyword| keyword.kind != KeywordKind::Edit) {
            let (_, minimum, maximum) = RANGES.iter().find(|(name, ..)| *name == keyword.name).expect(&keyword.name);
            if let (Some(least), Some(most)) = (keyword.minimum, keyword.maximum) {
                assert_eq!((u64::from(*minimum), u64::from(*maximum)), (least as u64, most as u64), "{}", keyword.name);
            }
        }
        for odd in &ODD {
            let keyword = inx.keywords.iter().find(|keyword| keyword.name == odd.keyword).expect(odd.keyword);
            assert_eq!(keyword.default.as_deref(), Some(&*odd.usual.to_string()), "{}", odd.keyword);
            assert_ne!(odd.value, odd.usual, "{}", odd.keyword);
        }
        assert_eq!(inx.keywords.iter().filter(|keyword| keyword.kind != KeywordKind::Edit).count(), RANGES.len());
    }
}
