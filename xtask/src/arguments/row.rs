//! The rows of the table: what could be forgotten or taken for its neighbour at each border.
//!
//! An argument has a row of its own, with its neighbour of the same type where it has one: a test in which both have values of their own
//! sees that they change places. A set of flags has a row a flag, an address one for its port and one for its zone. Left out is what
//! nothing works without: the object itself, completions and their contexts, places for new objects.

use super::definitions::{Definitions, Part, Signature};
use super::layout::{self, Field};
use super::suite::BorderSuite;
use crate::workspace::Workspace;
use anyhow::Result;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArgumentRow {
    /// `NDK_FN_CONNECT.InboundReadLimit`.
    pub argument: String,
    /// `<-> OutboundReadLimit`, `forgotten`, `without NDK_OP_FLAG_INLINE`, `port`, `zone`.
    pub mistake: String,
    pub suite: BorderSuite,
    /// The name by which the call passes (`kernel_host::distortion`).
    pub call: String,
    /// The rest of what the host is asked for.
    pub distortion: String,
}

const NDK: &[&str] = &[
    "ndkpi-sys/src/ndkpi/function/adapter.rs",
    "ndkpi-sys/src/ndkpi/function/connection.rs",
    "ndkpi-sys/src/ndkpi/function/memory.rs",
    "ndkpi-sys/src/ndkpi/function/protection_domain.rs",
    "ndkpi-sys/src/ndkpi/function/queue.rs",
    "ndkpi-sys/src/ndkpi/function/work_request.rs",
    "ndkpi-sys/src/ndkpi/callback.rs",
    "ndkpi-sys/src/ndkpi/flag.rs",
    "ndkpi-sys/src/ndkpi/result.rs",
    "ndkpi-sys/src/ndkpi/memory.rs",
    "ndkpi-sys/src/ndkinfo.rs",
];
const METHODS: [&str; 2] = ["tools/softnd/interfaces/src/v1.rs", "tools/softnd/interfaces/src/v2.rs"];
const RINGS: &[&str] =
    &["tools/ioctl/src/nd/control.rs", "tools/ioctl/src/nd/private.rs", "tools/ioctl/src/nd/rings.rs"];
const REQUESTS: &[&str] = &[
    "tools/ioctl/src/adapter.rs",
    "tools/ioctl/src/build.rs",
    "tools/ioctl/src/event.rs",
    "tools/ioctl/src/header.rs",
    "tools/ioctl/src/histogram.rs",
    "tools/ioctl/src/measurement.rs",
    "tools/ioctl/src/object_list.rs",
    "tools/ioctl/src/objects.rs",
    "tools/ioctl/src/pair.rs",
    "tools/ioctl/src/refusal.rs",
    "tools/ioctl/src/transfer.rs",
    "tools/ioctl/src/version.rs",
];

/// Declared by the header, in no dispatch table.
const NOWHERE: [&str; 3] = ["NDK_FN_QUERY_ADAPTER_INFO_EX", "NDK_FN_DISCONNECT_EX", "NDK_FN_QUERY_EXTENSION_INTERFACE"];
/// What a set of flags of work requests may have in which function, by its documentation in `flag.rs`.
const FLAGS_OF: [(&str, &[&str]); 8] = [
    ("NDK_FN_SEND", &["SILENT_SUCCESS", "READ_FENCE", "SEND_AND_SOLICIT_EVENT", "INLINE", "DEFER"]),
    ("NDK_FN_SEND_AND_INVALIDATE", &["SILENT_SUCCESS", "READ_FENCE", "SEND_AND_SOLICIT_EVENT", "INLINE", "DEFER"]),
    ("NDK_FN_READ", &["SILENT_SUCCESS", "READ_FENCE", "RDMA_READ_LOCAL_INVALIDATE", "DEFER"]),
    ("NDK_FN_WRITE", &["SILENT_SUCCESS", "READ_FENCE", "INLINE", "DEFER"]),
    ("NDK_FN_BIND", &["SILENT_SUCCESS", "READ_FENCE", "ALLOW_REMOTE_READ", "ALLOW_REMOTE_WRITE", "DEFER"]),
    (
        "NDK_FN_FAST_REGISTER",
        &[
            "SILENT_SUCCESS",
            "READ_FENCE",
            "ALLOW_REMOTE_READ",
            "ALLOW_LOCAL_WRITE",
            "ALLOW_REMOTE_WRITE",
            "RDMA_READ_SINK",
            "DEFER",
        ],
    ),
    ("NDK_FN_INVALIDATE", &["SILENT_SUCCESS", "READ_FENCE", "DEFER"]),
    ("NDK_FN_REGISTER_MR", &["ALLOW_LOCAL_WRITE", "ALLOW_REMOTE_READ", "ALLOW_REMOTE_WRITE", "RDMA_READ_SINK"]),
];
/// `operation_flag` and `region_flag` of `constants.rs`.
const OPERATION_FLAGS: [(&str, u64); 6] = [
    ("SILENT_SUCCESS", 0x1),
    ("READ_FENCE", 0x2),
    ("SEND_AND_SOLICIT_EVENT", 0x4),
    ("ALLOW_READ", 0x8),
    ("ALLOW_WRITE", 0x10),
    ("INLINE", 0x20),
];
const REGION_FLAGS: [(&str, u64); 4] =
    [("ALLOW_LOCAL_WRITE", 0x1), ("ALLOW_REMOTE_READ", 0x2), ("ALLOW_REMOTE_WRITE", 0x4), ("RDMA_READ_SINK", 0x8)];
/// What each method takes of them.
const FLAGS_OF_METHODS: [(&str, &[&str]); 8] = [
    ("send", &["SILENT_SUCCESS", "READ_FENCE", "SEND_AND_SOLICIT_EVENT", "INLINE"]),
    ("send_with_immediate", &["SILENT_SUCCESS", "READ_FENCE", "SEND_AND_SOLICIT_EVENT", "INLINE"]),
    ("send_and_invalidate", &["SILENT_SUCCESS", "READ_FENCE", "SEND_AND_SOLICIT_EVENT"]),
    ("read", &["SILENT_SUCCESS", "READ_FENCE"]),
    ("write", &["SILENT_SUCCESS", "READ_FENCE", "INLINE"]),
    ("write_with_immediate", &["SILENT_SUCCESS", "READ_FENCE", "SEND_AND_SOLICIT_EVENT", "INLINE"]),
    ("bind", &["SILENT_SUCCESS", "READ_FENCE", "ALLOW_READ", "ALLOW_WRITE"]),
    ("invalidate", &["SILENT_SUCCESS", "READ_FENCE"]),
];

/// The inputs and outputs of the codes of `\\.\SoftNd` that have a structure of their own.
const ND_INPUTS: [(&str, &str); 20] = [
    ("PROVIDER_RESOLVE_ADDRESS", "ResolveAddress"),
    ("ADAPTER_OPEN", "OpenAdapter"),
    ("ADAPTER_QUERY", "AdapterQuery"),
    ("CQ_CREATE", "CreateCompletionQueue"),
    ("SRQ_CREATE", "CreateSharedReceiveQueue"),
    ("QP_CREATE", "CreateQueuePair"),
    ("QP_CREATE_WITH_SRQ", "CreateQueuePair"),
    ("SRQ_MODIFY", "ModifySharedReceiveQueue"),
    ("CQ_MODIFY", "ModifyCompletionQueue"),
    ("CQ_NOTIFY", "Notify"),
    ("MR_REGISTER", "Register"),
    ("CONNECTOR_BIND", "Bind"),
    ("LISTENER_BIND", "Bind"),
    ("CONNECTOR_CONNECT", "Connect"),
    ("CONNECTOR_ACCEPT", "Accept"),
    ("CONNECTOR_REJECT", "Reject"),
    ("LISTENER_LISTEN", "Listen"),
    ("LISTENER_GET_CONNECTION_REQUEST", "GetConnectionRequest"),
    ("BIND_WINDOW", "BindWindow"),
    ("ATTACH", "Attach"),
];
const ND_OUTPUTS: [(&str, &str); 9] = [
    ("ADAPTER_QUERY", "AdapterInfo"),
    ("CQ_GET_AFFINITY", "GroupAffinity"),
    ("SRQ_GET_AFFINITY", "GroupAffinity"),
    ("MR_REGISTER", "RegisterReply"),
    ("CONNECTOR_GET_READ_LIMITS", "ReadLimits"),
    ("CONNECTOR_GET_PEER_ADDRESS", "SocketAddress"),
    ("CONNECTOR_GET_ADDRESS", "SocketAddress"),
    ("LISTENER_GET_ADDRESS", "SocketAddress"),
    ("BIND_WINDOW", "BindWindowReply"),
];
/// Flags of the fields `flags` there, which are plain numbers. Entries of an initiator ring do not bind.
const FLAGS_OF_INPUTS: [(&str, &[&str]); 2] = [
    ("InitiatorEntry", &["SILENT_SUCCESS", "SEND_AND_SOLICIT_EVENT", "INLINE", "INVALIDATE_REMOTE", "IMMEDIATE"]),
    ("BIND_WINDOW", &["SILENT_SUCCESS", "ALLOW_READ", "ALLOW_WRITE"]),
];
const ND_RINGS: [&str; 4] = ["InitiatorEntry", "ReceiveEntry", "Sge", "ResultEntry"];
const ND_STRUCTURES: [(&str, &str); 8] = [
    ("v2::Sge", "Sge"),
    ("v2::RequestResult", "RequestResult"),
    ("v2::ManaResult", "ManaResult"),
    ("v2::AdapterInfo", "AdapterInfo"),
    ("v1::Sge1", "Sge1"),
    ("v1::Result1", "Result1"),
    ("v1::WindowDescriptor", "WindowDescriptor"),
    ("v1::AdapterInfo1", "AdapterInfo1"),
];
const NDK_STRUCTURES: [&str; 4] = ["NDK_SGE", "NDK_RESULT", "NDK_RESULT_EX", "NDK_ADAPTER_INFO"];
/// Replies with a list behind them.
const LISTS: [(&str, &str); 5] = [
    ("AdapterListReply", "AdapterEntry"),
    ("ObjectListReply", "ObjectEntry"),
    ("RefusalListReply", "RefusalEntry"),
    ("EventListReply", "EventEntry"),
    ("UplinkListReply", "UplinkEntry"),
];
/// Where the zone is in `SocketAddress::rest`.
const ZONE: usize = 20;
/// Fields that say what the structure is and not what is asked for, or that are the same in every one.
const CONSTANT: [&str; 10] = [
    "header",
    "version",
    "reserved",
    "reserved2",
    "padding",
    "mapping_count",
    "mappings_offset",
    "hardware_address",
    "entry_size",
    "layout",
];

/// Fields that always have one value, so that one may stand for the other: the same limit in each profile (`engine/src/limits.rs`), both
/// tokens of a region. They are compared with the next field that is unlike them, or are forgotten.
const ALIKE: [(&str, &[&str]); 7] = [
    ("NDK_ADAPTER_INFO", &["MaxRegistrationSize", "MaxWindowSize"]),
    ("NDK_ADAPTER_INFO", &["MaxInitiatorRequestSge", "MaxReceiveRequestSge"]),
    ("NDK_ADAPTER_INFO", &["MaxReceiveQueueDepth", "MaxInitiatorQueueDepth", "MaxSrqDepth"]),
    ("ADAPTER_QUERY>", &["max_registration_size", "max_window_size"]),
    ("ADAPTER_QUERY>", &["max_initiator_sge", "max_receive_sge"]),
    ("ADAPTER_QUERY>", &["max_receive_queue_depth", "max_initiator_queue_depth", "max_shared_receive_queue_depth"]),
    ("MR_REGISTER>", &["local_token", "remote_token"]),
];

/// Mistakes that nothing on the other side of the border could show, and why.
const WITHOUT_EFFECT: &[(&str, &str, &str)] = &[
    ("NDK_FN_CONNECT.pDestAddress", "zone", "the peer is seen in the zone of the source"),
    ("NDK_FN_CONNECT_WITH_SHARED_ENDPOINT.pDestAddress", "zone", "the peer is seen in the zone of the source"),
    ("NDK_FN_REGISTER_MR.Flags", "without NDK_MR_FLAG_RDMA_READ_SINK", "NDK-QP-40: the flag changes nothing"),
    ("NDK_FN_FAST_REGISTER.Flags", "without NDK_OP_FLAG_RDMA_READ_SINK", "NDK-QP-40: the flag changes nothing"),
    ("INDConnector.connect.address", "zone", "the peer is seen in the zone of the source"),
    ("IND2Connector.connect.destination", "zone", "the peer is seen in the zone of the source"),
    ("INDConnector.connect.protocol", "forgotten", "it is not looked at"),
    ("INDAdapter.listen.protocol", "forgotten", "it is not looked at"),
    ("INDAdapter.control.code", "forgotten", "no code is taken"),
    ("INDAdapter.control.input", "forgotten", "no code is taken"),
    ("INDAdapter.control.input_length", "<-> output_length", "no code is taken"),
    ("INDAdapter.control.output", "forgotten", "no code is taken"),
    ("INDProvider.open_adapter.address", "port", "an adapter has no port"),
    ("IND2Provider.resolve_address.address", "port", "an adapter has no port"),
    ("PROVIDER_RESOLVE_ADDRESS.address.port", "port", "an adapter has no port"),
    ("CONNECTOR_CONNECT.destination.rest", "zone", "the peer is seen in the zone of the source"),
    ("NDK_FN_SRQ_NOTIFICATION_CALLBACK.SrqStatus", "forgotten", "a shared receive queue does not fail"),
    (
        "PairCreateRequest>PairCreateReply.client.address.family",
        "<-> server.address.family",
        "both ends have addresses of one family",
    ),
    (
        "PairCreateRequest>PairCreateReply.client.address.prefix_length",
        "<-> server.address.prefix_length",
        "it is 0 in both",
    ),
    ("MeasureRequest>MeasureResult.posted", "<-> completed", "a measurement has a result when all is completed"),
    ("TransferRequest>TransferResult.first_failure", "<-> failures.status", "it is the first status of the list"),
    ("MemcpyRequest>TransferResult.first_failure", "<-> failures.status", "no copy fails"),
    ("MemcpyRequest>TransferResult.failures.count", "<-> other_failures", "no copy fails"),
    ("MemcpyRequest>TransferResult.notifications", "<-> failures.count", "no copy fails, and none is notified of"),
    ("MemcpyRequest>TransferResult.posted", "<-> completed", "a copy is completed when it is made"),
];

/// The engine does requests in the order of their posts, so a fence is always kept (`engine/src/queue_pair/requester.rs`).
const FENCE: &str = "READ_FENCE";

fn has_effect(row: &ArgumentRow) -> bool {
    !row.mistake.ends_with(FENCE)
        && !WITHOUT_EFFECT.iter().any(|(argument, mistake, _)| row.argument == *argument && row.mistake == *mistake)
}

/// All rows.
pub fn all(workspace: &Workspace) -> Result<Vec<ArgumentRow>> {
    let mut rows = ndk(&Definitions::read(workspace, NDK)?);
    for methods in METHODS {
        rows.extend(methods_of(&Definitions::read(workspace, &[methods])?));
    }
    rows.extend(rings(&Definitions::read(workspace, RINGS)?));
    rows.extend(requests(&Definitions::read(workspace, REQUESTS)?));
    rows.retain(has_effect);
    Ok(rows)
}

/// A row before it knows where it belongs.
struct UnplacedRow {
    argument: String,
    mistake: String,
    place: String,
    how: String,
}

fn ndk(definitions: &Definitions) -> Vec<ArgumentRow> {
    let mut rows = Vec::new();
    for function in definitions.functions.iter().filter(|function| !NOWHERE.contains(&&*function.name)) {
        let set = FLAGS_OF.iter().find(|(name, _)| *name == function.name).map_or(&[][..], |(_, flags)| flags);
        let flags = |kind: &str| {
            let members = definitions.flags.get(kind)?.iter();
            let has = |name: &str| name.split_once("_FLAG_").is_some_and(|(_, flag)| set.contains(&flag));
            Some(members.filter(|(name, _)| has(name)).cloned().collect())
        };
        let mistakes = of_call(function, flags);
        rows.extend(mistakes.into_iter().map(|mistake| row(mistake, BorderSuite::Contract, function.name.clone())));
    }
    for name in NDK_STRUCTURES {
        let mistakes = of_fields(definitions, name, name, None);
        rows.extend(mistakes.into_iter().map(|mistake| row(mistake, BorderSuite::Contract, name.to_owned())));
    }
    rows
}

fn methods_of(definitions: &Definitions) -> Vec<ArgumentRow> {
    let mut rows = Vec::new();
    for interface in &definitions.interfaces {
        for (index, method) in interface.methods.iter().enumerate() {
            let flags = |kind: &str| (kind == "flags").then(|| flags_of_method(&interface.name, &method.name));
            let named = Signature { name: format!("{}.{}", interface.name, method.name), ..method.clone() };
            let call = format!("{}:{}", interface.name, interface.first_slot + index);
            let mistakes = of_call(&named, flags);
            rows.extend(mistakes.into_iter().map(|mistake| row(mistake, BorderSuite::Provider, call.clone())));
        }
    }
    for (name, structure) in
        ND_STRUCTURES.iter().filter(|(_, structure)| definitions.structures.contains_key(*structure))
    {
        let mistakes = of_fields(definitions, structure, name, None);
        rows.extend(mistakes.into_iter().map(|mistake| row(mistake, BorderSuite::Provider, (*name).to_owned())));
    }
    rows
}

fn flags_of_method(interface: &str, method: &str) -> Vec<(String, u64)> {
    if interface == "IND2MemoryRegion" {
        return REGION_FLAGS.map(|(name, bits)| (name.to_owned(), bits)).to_vec();
    }
    let set = FLAGS_OF_METHODS.iter().find(|(name, _)| *name == method).map_or(&[][..], |(_, set)| set);
    // Inline data has its own sign in version 1: elements without a region.
    let has = |name: &str| set.contains(&name) && (name != "INLINE" || interface.starts_with("IND2"));
    OPERATION_FLAGS.iter().filter(|(name, _)| has(name)).map(|(name, bits)| ((*name).to_owned(), *bits)).collect()
}

fn rings(definitions: &Definitions) -> Vec<ArgumentRow> {
    let code = |name: &str| definitions.codes.get(name).copied().unwrap_or_default();
    let mut rows = Vec::new();
    for (codes, ending) in [(&ND_INPUTS[..], ""), (&ND_OUTPUTS[..], ">")] {
        for (name, structure) in codes {
            let mistakes = of_fields(definitions, structure, &format!("{name}{ending}"), None);
            let call = format!("{:08X}{ending}", code(name));
            rows.extend(mistakes.into_iter().map(|mistake| row(mistake, BorderSuite::Driver, call.clone())));
        }
    }
    for name in ND_RINGS {
        let mistakes = of_fields(definitions, name, name, None);
        rows.extend(mistakes.into_iter().map(|mistake| row(mistake, BorderSuite::Driver, name.to_owned())));
    }
    rows
}

fn requests(definitions: &Definitions) -> Vec<ArgumentRow> {
    let mut rows = Vec::new();
    for request in &definitions.requests {
        let (input, reply) = (format!("{:08X}", request.code), format!("{:08X}>", request.code));
        let mut add = |mistakes: Vec<UnplacedRow>, call: &str| {
            rows.extend(mistakes.into_iter().map(|mistake| row(mistake, BorderSuite::ControlDevice, call.to_owned())));
        };
        add(of_fields(definitions, &request.input, &request.input, None), &input);
        let name = format!("{}>{}", request.input, request.reply);
        add(of_fields(definitions, &request.reply, &name, None), &reply);
        if let Some((_, entry)) = LISTS.iter().find(|(list, _)| *list == request.reply) {
            let behind = layout::size(definitions, &request.reply).unwrap_or_default();
            add(of_fields(definitions, entry, entry, Some(behind)), &reply);
        }
    }
    rows
}

fn row(mistake: UnplacedRow, suite: BorderSuite, call: String) -> ArgumentRow {
    let distortion = format!("{}/{}", mistake.place, mistake.how);
    ArgumentRow { argument: mistake.argument, mistake: mistake.mistake, suite, call, distortion }
}

/// Rows of a call. `flags` gives the flags that an argument of this type, or name, may have.
fn of_call(function: &Signature, flags: impl Fn(&str) -> Option<Vec<(String, u64)>>) -> Vec<UnplacedRow> {
    let mut mistakes = Vec::new();
    let counted = function.arguments.iter().enumerate().filter(|(index, part)| counts(function, *index, part));
    let counted = counted.collect::<Vec<_>>();
    let set_of = |(name, kind): (&str, &str)| flags(kind).or_else(|| flags(name));
    for (position, (index, (name, kind))) in counted.iter().enumerate() {
        let mistake = |mistake: String, how: String| UnplacedRow {
            argument: format!("{}.{name}", function.name),
            mistake,
            place: index.to_string(),
            how,
        };
        if let Some(set) = set_of((name, kind)) {
            mistakes
                .extend(set.iter().map(|(flag, bits)| mistake(format!("without {flag}"), format!("without-{bits:X}"))));
        } else if is_address(name, kind) {
            mistakes.extend(["port", "zone"].map(|what| mistake(what.into(), what.into())));
        } else if let Some((other, (neighbour, _))) =
            counted[position + 1..].iter().find(|(_, (_, other))| other == kind).copied()
        {
            mistakes.push(mistake(format!("<-> {neighbour}"), format!("swapped-{other}")));
        } else {
            // The one before changes places with it, unless that has rows of another kind.
            let before = counted[..position].iter().rev().find(|(_, (_, other))| other == kind);
            if before.is_none_or(|(_, (name, kind))| set_of((name, kind)).is_some() || is_address(name, kind)) {
                mistakes.push(mistake("forgotten".into(), "forgotten".into()));
            }
        }
    }
    mistakes
}

fn is_address(name: &str, kind: &str) -> bool {
    kind == "*const SOCKADDR" || (kind == "*const c_void" && (name == "address" || name == "destination"))
}

/// Whether an argument could be forgotten and the call still work.
fn counts(function: &Signature, index: usize, (name, kind): &Part) -> bool {
    if function.name.contains("_CALLBACK") || function.name.ends_with("_COMPLETION") {
        return kind == "NTSTATUS" || kind == "ULONG";
    }
    let is_object = index == 0 && kind.starts_with("*mut NDK_");
    let is_completion = kind.starts_with("Option<")
        || (name == "RequestContext" && function.arguments.iter().any(|(_, kind)| kind.starts_with("Option<")))
        || name.ends_with("NotificationContext")
        || name.ends_with("EventContext")
        || kind == "*mut Overlapped";
    let is_place = kind.starts_with("*mut*mut") || kind == "*const Guid";
    !(is_object || is_completion || is_place)
}

/// The flags that a number of an input of `\\.\SoftNd` may have; none for what is no such number.
fn flags_of_input(definitions: &Definitions, name: &str) -> Vec<(String, u64)> {
    if name == "MR_REGISTER" {
        return REGION_FLAGS.map(|(name, bits)| (name.to_owned(), bits)).to_vec();
    }
    let set = FLAGS_OF_INPUTS.iter().find(|(input, _)| *input == name).map_or(&[][..], |(_, set)| set);
    let all = definitions.flags.get("OperationFlags").into_iter().flatten();
    all.filter(|(flag, _)| set.contains(&flag.as_str())).cloned().collect()
}

/// The fields that have the value of this one, itself among them; none for a field with a value of its own.
fn fields_like(structure: &str, field: &str) -> &'static [&'static str] {
    let like = ALIKE.iter().find(|(name, fields)| *name == structure && fields.contains(&field));
    like.map_or(&[], |(_, fields)| fields)
}

/// Rows of a structure, or of the elements of a list that stands so many bytes behind the beginning of an output.
fn of_fields(definitions: &Definitions, structure: &str, name: &str, behind: Option<usize>) -> Vec<UnplacedRow> {
    let is_constant = |field: &Field| field.path.split('.').any(|part| CONSTANT.contains(&part));
    let fields =
        layout::fields(definitions, structure).into_iter().filter(|field| !is_constant(field)).collect::<Vec<_>>();
    let size = layout::size(definitions, structure).unwrap_or_default();
    let stride = behind.map_or_else(String::new, |_| format!("*{size}"));
    let begin = behind.unwrap_or_default();
    let mut mistakes = Vec::new();
    for (position, field) in fields.iter().enumerate() {
        let equals = fields_like(name, &field.path);
        let mistake = |mistake: String, how: String| UnplacedRow {
            argument: format!("{name}.{}", field.path),
            mistake,
            place: format!("{}+{}{stride}", begin + field.offset, field.length),
            how,
        };
        let of_input = if field.path == "flags" { flags_of_input(definitions, name) } else { Vec::new() };
        let set = definitions.flags.get(&field.kind).unwrap_or(&of_input);
        if !set.is_empty() {
            mistakes
                .extend(set.iter().map(|(flag, bits)| mistake(format!("without {flag}"), format!("without-{bits:X}"))));
        } else if field.path.ends_with("port") {
            mistakes.push(mistake("port".into(), "port".into()));
        } else if field.path.ends_with("rest") {
            mistakes.push(mistake("forgotten".into(), "forgotten".into()));
            let place = format!("{}+4{stride}", begin + field.offset + ZONE);
            mistakes.push(UnplacedRow { place, ..mistake("zone".into(), "zone".into()) });
        } else if let Some(other) =
            fields[position + 1..].iter().find(|other| other.kind == field.kind && !equals.contains(&&*other.path))
        {
            mistakes.push(mistake(format!("<-> {}", other.path), format!("swapped-{}", begin + other.offset)));
        } else if !equals.is_empty() || !fields[..position].iter().any(|other| other.kind == field.kind) {
            mistakes.push(mistake("forgotten".into(), "forgotten".into()));
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::{Definitions, of_call, of_fields};

    fn of(source: &str) -> Definitions {
        let mut definitions = Definitions::default();
        definitions.add(source).unwrap();
        definitions
    }

    #[test]
    fn a_call_has_a_row_for_each_argument_that_could_be_forgotten() {
        let read = of("abi_fn! { pub type NDK_FN_X = fn(pNdkQp: *mut NDK_QP, To: *const SOCKADDR, In: ULONG, Flags: F, Out: ULONG,
                       Done: Option<NDK_FN_Y>, RequestContext: PVOID, ppNew: *mut *mut NDK_QP, Long: SIZE_T); }");
        let flags = |kind: &str| (kind == "F").then(|| vec![("ONE".to_owned(), 1), ("TWO".to_owned(), 0x30)]);
        let rows = of_call(&read.functions[0], flags);
        let rows = rows.iter().map(|row| format!("{} {} {}/{}", row.argument, row.mistake, row.place, row.how));
        let expected = [
            "NDK_FN_X.To port 1/port",
            "NDK_FN_X.To zone 1/zone",
            "NDK_FN_X.In <-> Out 2/swapped-4",
            "NDK_FN_X.Flags without ONE 3/without-1",
            "NDK_FN_X.Flags without TWO 3/without-30",
            "NDK_FN_X.Long forgotten 8/forgotten",
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_argument_behind_flags_or_an_address_of_its_type_has_a_row() {
        let read = of("interfaces! { INDA (0x1): TableA > UnknownTable {
                           fn one(count: u32, flags: u32, immediate: u32, address: *const c_void, data: *const c_void); } }");
        let flags = |name: &str| (name == "flags").then(|| vec![("ONE".to_owned(), 1)]);
        let rows = of_call(&read.interfaces[0].methods[0], flags);
        let rows = rows.iter().map(|row| format!("{} {}", row.argument, row.mistake));
        let expected = [
            "one.count <-> flags",
            "one.flags without ONE",
            "one.immediate forgotten",
            "one.address port",
            "one.address zone",
            "one.data forgotten",
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_structure_has_a_row_for_each_pair_of_neighbours_and_for_what_has_none() {
        let read =
            of("pub struct S { pub header: RequestHeader, pub a: u32, pub b: u32, pub reserved: u32, pub long: u64, }
                       pub struct RequestHeader { pub version: u32, pub size: u32, }");
        let rows = of_fields(&read, "S", "S", Some(16));
        let rows = rows.iter().map(|row| format!("{} {} {}/{}", row.argument, row.mistake, row.place, row.how));
        assert_eq!(rows.collect::<Vec<_>>(), ["S.a <-> b 24+4*32/swapped-28", "S.long forgotten 40+8*32/forgotten"]);
    }

    #[test]
    fn flags_that_are_a_plain_number_have_a_row_each() {
        let read = of("bitflags! { pub struct OperationFlags: u32 { const SILENT_SUCCESS = 0x1; const READ_FENCE = 0x2;
                       const ALLOW_WRITE = 0x10; } } pub struct S { pub version: u32, pub flags: u32, pub length: u64, }");
        let rows = |name: &str| {
            let rows = of_fields(&read, "S", name, None);
            rows.iter().map(|row| format!("{} {}/{}", row.mistake, row.place, row.how)).collect::<Vec<_>>()
        };
        let length = "forgotten 8+8/forgotten";
        assert_eq!(
            rows("BIND_WINDOW")[..],
            ["without SILENT_SUCCESS 4+4/without-1", "without ALLOW_WRITE 4+4/without-10", length]
        );
        assert_eq!(rows("OTHER")[..], ["forgotten 4+4/forgotten", length]);
    }

    #[test]
    fn fields_that_are_alike_are_not_compared_with_each_other() {
        let read =
            of("pub struct S { pub MaxRegistrationSize: u64, pub MaxWindowSize: u64, pub MaxInitiatorRequestSge: u32,
                       pub MaxReceiveRequestSge: u32, pub MaxReadRequestSge: u32, }");
        let rows = of_fields(&read, "S", "NDK_ADAPTER_INFO", None);
        let rows = rows.iter().map(|row| format!("{} {}", &row.argument[17..], row.mistake)).collect::<Vec<_>>();
        let expected = [
            "MaxRegistrationSize forgotten",
            "MaxWindowSize forgotten",
            "MaxInitiatorRequestSge <-> MaxReadRequestSge",
            "MaxReceiveRequestSge <-> MaxReadRequestSge",
        ];
        assert_eq!(rows, expected);
    }
}
