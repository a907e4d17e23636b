//! docs/ioctl.md against the crate: codes and sizes in its table are those that the code has.

use softndk_ioctl::{
    AdapterEntry, AdapterListReply, AdapterListRequest, DEVICE_TYPE, EventEntry, EventListReply, EventListRequest,
    MeasureRequest, MemcpyRequest, ObjectEntry, ObjectListReply, ObjectListRequest, ObjectSummaryReply,
    ObjectSummaryRequest, PairCloseRequest, PairCreateReply, PairCreateRequest, PairModerationRequest, RefusalEntry,
    RefusalListReply, RefusalListRequest, Request, ScriptReply, ScriptRequest, ScriptResult, Status, TransferRequest,
    UplinkEntry, UplinkListReply, UplinkListRequest, VersionReply, VersionRequest,
};
use std::fs;
use std::path::Path;

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ioctl.md")).expect("docs/ioctl.md")
}

/// The table row of a request: its code, its input's name and size.
fn row<R: Request>(name: &str) -> String {
    format!("0x{:08X} ~ `{name}` {}", R::CODE, size_of::<R>())
}

#[test]
fn every_code_and_input_size_is_in_the_table() {
    let page = page();
    let rows = [
        row::<VersionRequest>("VersionRequest"),
        row::<AdapterListRequest>("AdapterListRequest"),
        row::<ObjectSummaryRequest>("ObjectSummaryRequest"),
        row::<ObjectListRequest>("ObjectListRequest"),
        row::<RefusalListRequest>("RefusalListRequest"),
        row::<EventListRequest>("EventListRequest"),
        row::<UplinkListRequest>("UplinkListRequest"),
        row::<PairCreateRequest>("PairCreateRequest"),
        row::<PairModerationRequest>("PairModerationRequest"),
        row::<PairCloseRequest>("PairCloseRequest"),
        row::<TransferRequest>("TransferRequest"),
        row::<MemcpyRequest>("MemcpyRequest"),
        row::<MeasureRequest>("MeasureRequest"),
        row::<ScriptRequest>("ScriptRequest"),
    ];
    for row in rows {
        let (code, input) = row.split_once(" ~ ").expect("made with one");
        let line = page.lines().find(|line| line.contains(code)).unwrap_or_else(|| panic!("{code} is not documented"));
        assert!(line.contains(&format!("| {input} |")), "{line} should say {input}");
    }
}

#[test]
fn reply_sizes_are_in_the_table() {
    let page = page();
    for reply in [
        format!("`VersionReply` {}", size_of::<VersionReply>()),
        format!("`AdapterListReply` {}, then entries of {}", size_of::<AdapterListReply>(), size_of::<AdapterEntry>()),
        format!("`ObjectSummaryReply` {}", size_of::<ObjectSummaryReply>()),
        format!("`PairCreateReply` {}", size_of::<PairCreateReply>()),
        format!("`ObjectListReply` {}, then entries of {}", size_of::<ObjectListReply>(), size_of::<ObjectEntry>()),
        format!("`EventListReply` {}, then entries of {}", size_of::<EventListReply>(), size_of::<EventEntry>()),
        format!("`UplinkListReply` {}, then entries of {}", size_of::<UplinkListReply>(), size_of::<UplinkEntry>()),
        format!("`RefusalListReply` {}, then entries of {}", size_of::<RefusalListReply>(), size_of::<RefusalEntry>()),
        format!("`ScriptReply` {}, then entries of {}", size_of::<ScriptReply>(), size_of::<ScriptResult>()),
    ] {
        assert!(page.contains(&reply), "{reply} is not documented");
    }
    assert!(page.contains(&format!("0x{DEVICE_TYPE:X}")));
}

/// Codes of the table that no request has would be as wrong as missing ones.
#[test]
fn no_other_code_is_documented() {
    let codes = [
        VersionRequest::CODE,
        AdapterListRequest::CODE,
        ObjectSummaryRequest::CODE,
        ObjectListRequest::CODE,
        RefusalListRequest::CODE,
        EventListRequest::CODE,
        UplinkListRequest::CODE,
        PairModerationRequest::CODE,
        ScriptRequest::CODE,
        PairCreateRequest::CODE,
        PairCloseRequest::CODE,
        TransferRequest::CODE,
        MemcpyRequest::CODE,
        MeasureRequest::CODE,
    ];
    let page = page();
    let documented = page.match_indices("0x8A5D").filter_map(|(start, _)| page.get(start + 2..start + 10));
    for code in documented.filter_map(|digits| u32::from_str_radix(digits, 16).ok()) {
        assert!(codes.contains(&code), "0x{code:08X} is documented, but no request has it");
    }
}

#[test]
fn every_documented_status_is_known() {
    let page = page();
    for (start, _) in page.match_indices("`STATUS_") {
        let name = page[start + 1..].split('`').next().expect("quoted");
        let short = name.trim_start_matches("STATUS_");
        assert!(known(short), "{name} is documented, but the crate does not know it");
    }
}

fn known(name: &str) -> bool {
    let severities = [0_u32, 0x8000_0000, 0xC000_0000];
    severities.iter().any(|&severity| (0..0x1000).any(|code| Status((severity | code) as i32).name() == Some(name)))
}
