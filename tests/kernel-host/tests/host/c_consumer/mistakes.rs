//! Mistakes of a consumer, one a test: a copy of the consumer with one line replaced, and how its run ends.

use std::path::PathBuf;
use std::time::Duration;

use kernel_host::Mode;
use kernel_host::bugcheck::BugCheck;
use softndk_images::c_consumer;
use softndk_images::workspace::Workspace;

use super::machine::{AUTO, CompletionMode, FORCE_ASYNC, IMAGE, Machine, root};
use super::{V4, every_request_is_served};
use crate::child;

/// How the run with a mistake ends.
#[derive(Clone, Copy)]
enum Ends {
    /// In a bugcheck with this first parameter and these words.
    Bugcheck(BugCheck, u64, &'static str),
    /// In a fault: the first parameter is an address.
    Fault(BugCheck, &'static str),
    /// With these words of a check of the test.
    Failure(&'static str),
    /// In a bugcheck of the driver that is unloaded in the middle, whose report has all of these words.
    Report(&'static [BugCheck], &'static [&'static str]),
    /// Well, with all of these words in its output: the copy is no mistake, or one that it does not notice.
    Well(&'static [&'static str]),
}

/// What a copy is run with.
#[derive(Clone, Copy)]
struct With {
    completion_mode: CompletionMode,
    keywords: &'static [(&'static str, &'static str)],
    /// The environment of the child.
    environment: &'static [(&'static str, &'static str)],
}

const NOTHING: With = With { completion_mode: AUTO, keywords: &[], environment: &[] };

/// A line of a file of the consumer, and its replacement.
struct Mistake {
    file: &'static str,
    right: &'static str,
    wrong: &'static str,
}

/// A copy of the consumer's sources with the mistake, built.
fn build(name: &str, mistakes: &[&Mistake]) -> PathBuf {
    let folder = root().join("target/c-images/mistakes").join(name);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    for entry in std::fs::read_dir(root().join("tests/c-consumer/src")).expect("the sources are readable") {
        let path = entry.expect("a file").path();
        let mut text = std::fs::read_to_string(&path).expect("a source is text");
        for mistake in mistakes.iter().filter(|mistake| path.ends_with(mistake.file)) {
            assert_eq!(text.matches(mistake.right).count(), 1, "{:?} once in {}", mistake.right, mistake.file);
            text = text.replace(mistake.right, mistake.wrong);
        }
        std::fs::write(folder.join(path.file_name().expect("a name")), text).expect("a copy can be written");
    }
    let folder = folder.to_str().expect("a path of text");
    let image = format!("c-consumer-{name}.sys");
    c_consumer::build_copy(&Workspace::at(&root()), &image, folder).expect("the copy builds")
}

fn made(test: &str, mistake: &Mistake, ends: Ends) {
    drop(made_with(test, &[mistake], NOTHING, ends));
}

/// The same; the outcome for more checks, nothing in the child.
fn made_with(test: &str, mistakes: &[&Mistake], with: With, ends: Ends) -> Option<child::Outcome> {
    if std::env::var_os(IMAGE).is_some() {
        let served = || {
            let machine = Machine::boot_with(Mode::Verify, with.completion_mode, with.keywords);
            if matches!(ends, Ends::Report(..)) {
                // Nothing polls: a consumer that hangs leaves nothing to wake it.
                let consumer = machine.start_consumer(V4, 8);
                machine.sleep(Duration::from_secs(2));
                consumer.unload();
            } else {
                every_request_is_served(&machine, V4, 64);
            }
            machine.end();
        };
        assert!(child::in_child(test, || {}, served).is_none(), "this is the child");
        return None;
    }
    let name = test.rsplit("::").next().unwrap_or(test).replace('_', "-");
    let image = build(&name, mistakes);
    let image = image.to_str().expect("a path of text");
    let environment: Vec<(&str, &str)> = [(IMAGE, image)].into_iter().chain(with.environment.iter().copied()).collect();
    let outcome = child::in_child_with(test, &environment);
    match ends {
        Ends::Bugcheck(code, first, words) => {
            let report = reported(&outcome, code, words);
            assert_eq!(report["parameters"][0].as_u64(), Some(first), "{report}");
        }
        Ends::Fault(code, words) => drop(reported(&outcome, code, words)),
        Ends::Failure(words) => outcome.expect_failure(words),
        Ends::Report(codes, words) => {
            let report = outcome.expect_bugcheck();
            assert!(codes.iter().any(|code| report["code"] == *code as u32), "{report}");
            for words in words {
                outcome.expect_output(words);
            }
        }
        Ends::Well(words) => {
            outcome.expect_success();
            for words in words {
                outcome.expect_output(words);
            }
        }
    }
    Some(outcome)
}

fn reported(outcome: &child::Outcome, code: BugCheck, words: &str) -> serde_json::Value {
    let report = outcome.expect_bugcheck();
    assert_eq!(report["code"].as_u64(), Some(code as u64), "{report}");
    assert!(report["rule"].as_str().is_some_and(|rule| rule.contains(words)), "no {words:?} in {report}");
    report
}

const LEFT_BEHIND: u64 = 0x62;
const NDK: u64 = 0x10F;

#[test]
fn data_that_is_wrong() {
    let mistake = Mistake {
        file: "target.c",
        right: "answer->Checksum = PatternFill(Buffer(Slot), command->Length, command->Seed);",
        wrong: "answer->Checksum = PatternFill(Buffer(Slot), command->Length, command->Seed); Buffer(Slot)[8] ^= 1;",
    };
    made("mistakes::data_that_is_wrong", &mistake, Ends::Failure("no byte is wrong"));
}

#[test]
fn rights_that_do_not_fit() {
    let mistake = Mistake {
        file: "initiator.c",
        right: "NDK_OP_FLAG_ALLOW_REMOTE_WRITE : NDK_OP_FLAG_ALLOW_REMOTE_READ",
        wrong: "NDK_OP_FLAG_ALLOW_REMOTE_READ : NDK_OP_FLAG_ALLOW_REMOTE_WRITE",
    };
    made("mistakes::rights_that_do_not_fit", &mistake, Ends::Failure("as many as asked"));
}

#[test]
fn a_list_that_is_not_freed() {
    let mistake = Mistake {
        file: "initiator.c",
        right: "    MdlChainFree(slot->Mdl);\n    slot->Mdl = NULL;\n    if (NT_SUCCESS(Status))",
        wrong: "    slot->Mdl = NULL;\n    if (NT_SUCCESS(Status))",
    };
    let ends = Ends::Bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, LEFT_BEHIND, "MDL");
    made("mistakes::a_list_that_is_not_freed", &mistake, ends);
}

#[test]
fn a_mapping_that_is_not_released() {
    let mistake = Mistake {
        file: "initiator.c",
        right: "    endpoint->Adapter->Dispatch->NdkReleaseLAM(endpoint->Adapter, Slot->Mapping);\n",
        wrong: "",
    };
    let ends = Ends::Bugcheck(BugCheck::BUGCODE_NDIS_DRIVER, NDK, "not released");
    made("mistakes::a_mapping_that_is_not_released", &mistake, ends);
}

/// The adapter is closed before it: the report has the place where it was built.
#[test]
fn a_mapping_that_outlives_its_adapter() {
    let mistake = Mistake {
        file: "memory.c",
        right: "        Endpoint->Adapter->Dispatch->NdkReleaseLAM(Endpoint->Adapter, Endpoint->MessageMapping);\n",
        wrong: "",
    };
    let words: &[&str] = &["1 logical address mappings are not released", "1 built by NdkBuildLAM", "!MessagesCreate"];
    let ends = Ends::Report(&[BugCheck::BUGCODE_NDIS_DRIVER], words);
    made("mistakes::a_mapping_that_outlives_its_adapter", &mistake, ends);
}

#[test]
fn a_client_that_stays_registered() {
    let mistake = Mistake { file: "wsk.c", right: "        WskDeregister(&Consumer.Registration);\n", wrong: "" };
    let ends = Ends::Bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, LEFT_BEHIND, "WSK registration");
    made("mistakes::a_client_that_stays_registered", &mistake, ends);
}

#[test]
fn an_adapter_that_stays_open() {
    let mistake = Mistake { file: "driver.c", right: "    AdapterClose(&Consumer.Target);\n", wrong: "" };
    let words: &[&str] = &["NDK adapters of the client are open", "made by WskOpenNdkAdapter", "!AdapterOpen"];
    made("mistakes::an_adapter_that_stays_open", &mistake, Ends::Report(&[BugCheck::BUGCODE_NDIS_DRIVER], words));
}

#[test]
fn an_object_that_is_closed_already() {
    let mistake = Mistake {
        file: "driver.c",
        right: "    AdapterClose(&Consumer.Initiator);\n",
        wrong: "    Consumer.Initiator.Pair->Dispatch->NdkFlush(Consumer.Initiator.Pair);\n",
    };
    let ends = Ends::Fault(BugCheck::PAGE_FAULT_IN_FREED_SPECIAL_POOL, "freed pool block");
    made("mistakes::an_object_that_is_closed_already", &mistake, ends);
}

#[test]
fn a_wait_in_a_callback() {
    let mistake = Mistake {
        file: "endpoint.c",
        right: "    ExReleaseRundownProtection(&endpoint->Polling);\n}",
        wrong: "    KeWaitForSingleObject(&endpoint->Disconnected, Executive, KernelMode, FALSE, NULL);\n\
                ExReleaseRundownProtection(&endpoint->Polling);\n}",
    };
    let ends = Ends::Fault(BugCheck::ATTEMPTED_SWITCH_FROM_DPC, "inside the callback NDK_FN_CQ_NOTIFICATION_CALLBACK");
    made("mistakes::a_wait_in_a_callback", &mistake, ends);
}

#[test]
fn a_question_at_the_wrong_level() {
    let mistake = Mistake {
        file: "wsk.c",
        right: "    ULONG bytes = sizeof(Endpoint->Info);\n",
        wrong: "    ULONG bytes = sizeof(Endpoint->Info);\n    KfRaiseIrql(DISPATCH_LEVEL);\n",
    };
    let ends = Ends::Bugcheck(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, 0x1001, "NdkQueryAdapterInfo");
    made("mistakes::a_question_at_the_wrong_level", &mistake, ends);
}

#[test]
fn a_refusal_before_a_bugcheck() {
    let mistake = Mistake {
        file: "wsk.c",
        right: "    ULONG bytes = sizeof(Endpoint->Info);\n",
        wrong: "    ULONG bytes = 1;\n    \
                Endpoint->Adapter->Dispatch->NdkQueryAdapterInfo(Endpoint->Adapter, &Endpoint->Info, &bytes);\n    \
                bytes = sizeof(Endpoint->Info);\n    KfRaiseIrql(DISPATCH_LEVEL);\n",
    };
    let words: &[&str] = &[
        "NDK calls that were refused",
        "NdkQueryAdapterInfo of Adapter#1 returned 0xC0000023 STATUS_BUFFER_TOO_SMALL",
        "refused by the provider",
        "NdkQueryAdapterInfo of adapter #",
    ];
    let ends = Ends::Report(&[BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION], words);
    made("mistakes::a_refusal_before_a_bugcheck", &mistake, ends);
}

#[test]
fn a_queue_pair_that_is_not_closed() {
    let mistake = Mistake {
        file: "endpoint.c",
        right: "        CloserClose(&closer, Endpoint->Pair, Endpoint->Pair->Dispatch->NdkCloseQp);\n",
        wrong: "",
    };
    let words: &[&str] = &[
        "the close of ProtectionDomain#",
        "the close of CompletionQueue#",
        "waits for the close of QueuePair#",
        "which the consumer has not called",
        "made by NdkCreateQp",
        "c-consumer-a-queue-pair-that-is-not-closed.sys!EndpointCreate",
        "inside DriverUnload",
        "c-consumer-a-queue-pair-that-is-not-closed.sys!CloserWait",
    ];
    let ends = Ends::Report(&[BugCheck::UNMOUNTABLE_HANG], words);
    made("mistakes::a_queue_pair_that_is_not_closed", &mistake, ends);
}

#[test]
fn a_queue_pair_that_is_closed_twice() {
    let mistake = Mistake {
        file: "endpoint.c",
        right: "        CloserClose(&closer, Endpoint->Pair, Endpoint->Pair->Dispatch->NdkCloseQp);\n",
        wrong: "        NDK_FN_CLOSE_OBJECT close = Endpoint->Pair->Dispatch->NdkCloseQp;\n\
                \x20       CloserClose(&closer, Endpoint->Pair, close);\n\
                \x20       CloserClose(&closer, Endpoint->Pair, close);\n",
    };
    let words: &[&str] = &[
        "NdkCloseQp is given a QueuePair object that is not open",
        "QueuePair#",
        "made by NdkCreateQp",
        "by a call",
        "!EndpointClose",
    ];
    made(
        "mistakes::a_queue_pair_that_is_closed_twice",
        &mistake,
        Ends::Report(&[BugCheck::BUGCODE_NDIS_DRIVER], words),
    );
}

#[test]
fn a_completion_context_that_is_none() {
    let mistake = Mistake {
        file: "connect.c",
        right: "WaiterRequestDone, &waiter);\n    status = WaiterResult(&waiter, status, NULL);\n    \
                if (NT_SUCCESS(status)) {\n        status = CheckHello(connector);",
        wrong: "WaiterRequestDone, (PVOID)0x1230);\n    status = WaiterResult(&waiter, status, NULL);\n    \
                if (NT_SUCCESS(status)) {\n        status = CheckHello(connector);",
    };
    let words: &[&str] = &[
        "!WaiterRequestDone",
        "inside NDK_FN_REQUEST_COMPLETION with Context=0x1230 and Status=0x00000000 STATUS_SUCCESS, given to NdkConnect of Connector#",
        ".sys!Connect",
    ];
    let test = "mistakes::a_completion_context_that_is_none";
    // The level of the callback decides.
    let codes = &[BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL, BugCheck::PAGE_FAULT_IN_NONPAGED_AREA];
    made(test, &mistake, Ends::Report(codes, words));
}

/// Every create pends: what made the object is still the consumer's call, and the answer stands in front of the threads.
#[test]
fn a_queue_pair_of_a_create_that_pended_is_not_closed() {
    let mistake = Mistake {
        file: "endpoint.c",
        right: "        CloserClose(&closer, Endpoint->Pair, Endpoint->Pair->Dispatch->NdkCloseQp);\n",
        wrong: "",
    };
    let test = "mistakes::a_queue_pair_of_a_create_that_pended_is_not_closed";
    let with = With { completion_mode: FORCE_ASYNC, ..NOTHING };
    let words: &[&str] = &["look here first", "made by NdkCreateQp", "!EndpointCreate"];
    let outcome = made_with(test, &[&mistake], with, Ends::Report(&[BugCheck::UNMOUNTABLE_HANG], words));
    let Some(outcome) = outcome else { return };
    let report = outcome.text();
    let place = |words: &str| report.find(words).unwrap_or_else(|| panic!("no {words:?} in {report}"));
    assert!(place("waits for the close of QueuePair#") < place("waits in KeWaitForSingleObject"), "{report}");
}

#[test]
fn a_queue_that_is_not_armed_again() {
    let mistake = Mistake {
        file: "endpoint.c",
        right: "        notifier->Queue->Dispatch->NdkArmCq(notifier->Queue, NDK_CQ_NOTIFY_ANY);\n        KeLowerIrql",
        wrong: "        KeLowerIrql",
    };
    let words: &[&str] = &["look here first", "CompletionQueue#", "was notified and not armed since"];
    made("mistakes::a_queue_that_is_not_armed_again", &mistake, Ends::Report(&[BugCheck::UNMOUNTABLE_HANG], words));
}

/// A receive that is posted again when it was flushed is flushed again.
#[test]
fn a_receive_that_is_posted_for_ever() {
    let mistake = Mistake {
        file: "endpoint.c",
        right: "        Failed(Result->Status);\n",
        wrong: "        Failed(Result->Status);\n        \
                if (request->Kind == KindReceive && request->Slot->Index == 0) {\n            \
                NDK_SGE sge;\n            \
                MessageSge(Endpoint, 0, &sge);\n            \
                InterlockedExchange(&request->Posted, 1);\n            \
                Endpoint->Pair->Dispatch->NdkReceive(Endpoint->Pair, request, &sge, 1);\n            \
                return;\n        }\n",
    };
    let words: &[&str] = &["a livelock: CompletionQueue#", "made by NdkCreateCq", "!CreateQueue"];
    made("mistakes::a_receive_that_is_posted_for_ever", &mistake, Ends::Report(&[BugCheck::UNMOUNTABLE_HANG], words));
}

/// Its list is gone before the call that took it returns: right, because the provider has taken it (NDK-QP-12).
#[test]
fn a_list_that_is_freed_before_the_call_returns() {
    let test = "mistakes::a_list_that_is_freed_before_the_call_returns";
    let right = Mistake {
        file: "driver.c",
        right: "static VOID Lead(PVOID Context)\n{\n    UNREFERENCED_PARAMETER(Context);\n    NTSTATUS status = Prepare();\n",
        wrong: "static NDK_SGE *List;\nstatic REQUEST Extra;\n\n\
                static VOID ListDone(SLOT *Slot, const NDK_RESULT_EX *Result)\n{\n    \
                UNREFERENCED_PARAMETER(Slot);\n    UNREFERENCED_PARAMETER(Result);\n    \
                DbgPrint(\"the list is freed\\n\");\n    MemoryFree(List);\n}\n\n\
                static NTSTATUS WriteWithList(VOID)\n{\n    ENDPOINT *endpoint = &Consumer.Initiator;\n    \
                Extra.Slot = &endpoint->Slots[0];\n    Extra.Done = ListDone;\n    \
                List = MemoryAllocate(sizeof(*List));\n    \
                RequestBegin(endpoint, &Extra, KindWrite, FALSE);\n    \
                return endpoint->Pair->Dispatch->NdkWrite(endpoint->Pair, &Extra, List, 1, 0, 0, 0);\n}\n\n\
                static VOID Lead(PVOID Context)\n{\n    UNREFERENCED_PARAMETER(Context);\n    \
                NTSTATUS status = Prepare();\n    if (NT_SUCCESS(status)) {\n        status = WriteWithList();\n    }\n",
    };
    let with = With { environment: &[("KERNEL_HOST_TRACE", "ndk")], ..NOTHING };
    let words: &[&str] = &["NdkWrite(RequestContext=0x", "pSgl=[0x0+0 token 0x0]"];
    drop(made_with(test, &[&right], with, Ends::Well(words)));
}

/// Writes from two pages of a mapping: in one element where they adjoin, else in two.
const TWO_PAGES: Mistake = Mistake {
    file: "driver.c",
    right: "static VOID Lead(PVOID Context)\n{\n    UNREFERENCED_PARAMETER(Context);\n    NTSTATUS status = Prepare();\n",
    wrong: "static REQUEST Extra;\n\n\
            static NTSTATUS WriteTwoPages(VOID)\n{\n    ENDPOINT *endpoint = &Consumer.Initiator;\n    \
            NDK_ADAPTER *adapter = endpoint->Adapter;\n    NDK_SGE list[2] = {0};\n    ULONG count = 1;\n    \
            ULONG offset;\n    UINT32 token;\n    WAITER waiter;\n    \
            ULONG size = FIELD_OFFSET(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) + 3 * sizeof(NDK_LOGICAL_ADDRESS);\n    \
            PVOID memory = MemoryAllocate(2 * PAGE_SIZE);\n    \
            NDK_LOGICAL_ADDRESS_MAPPING *pages = MemoryAllocate(size);\n    \
            PMDL mdl = MdlChain(memory, 2 * PAGE_SIZE, 1);\n    WaiterPrepare(&waiter);\n    \
            NTSTATUS status = adapter->Dispatch->NdkBuildLAM(adapter, mdl, 2 * PAGE_SIZE, WaiterRequestDone, &waiter, pages,\n        \
            &size, &offset);\n    status = WaiterResult(&waiter, status, NULL);\n    MdlChainFree(mdl);\n    \
            endpoint->Domain->Dispatch->NdkGetPrivilegedMemoryRegionToken(endpoint->Domain, &token);\n    \
            for (ULONG page = 0; page < 2; page++) {\n        list[page].LogicalAddress = pages->AdapterPageArray[page];\n        \
            list[page].MemoryRegionToken = token;\n    }\n    \
            if (list[1].LogicalAddress.QuadPart != list[0].LogicalAddress.QuadPart + PAGE_SIZE) {\n        count = 2;\n    }\n    \
            Extra.Slot = &endpoint->Slots[0];\n    RequestBegin(endpoint, &Extra, KindWrite, FALSE);\n    \
            status = endpoint->Pair->Dispatch->NdkWrite(endpoint->Pair, &Extra, list, count, 0, 0, 0);\n    \
            if (!NT_SUCCESS(status)) {\n        RequestRefused(endpoint, &Extra);\n    }\n    \
            adapter->Dispatch->NdkReleaseLAM(adapter, pages);\n    MemoryFree(pages);\n    MemoryFree(memory);\n    \
            return status;\n}\n\n\
            static VOID Lead(PVOID Context)\n{\n    UNREFERENCED_PARAMETER(Context);\n    \
            NTSTATUS status = Prepare();\n    if (NT_SUCCESS(status)) {\n        status = WriteTwoPages();\n    }\n",
};

/// Its queue pair is made for as many elements as it posts.
const FOR_TWO_ELEMENTS: Mistake =
    Mistake { file: "endpoint.c", right: "SLOTS, QUEUE_DEPTH, 1, 1, 0,", wrong: "SLOTS, QUEUE_DEPTH, 1, 2, 0," };

const SCATTERED: With = With { keywords: &[("LogicalPages", "1")], ..NOTHING };

/// The mistake does not show where pages adjoin.
#[test]
fn a_queue_pair_for_one_element_and_pages_that_adjoin() {
    made("mistakes::a_queue_pair_for_one_element_and_pages_that_adjoin", &TWO_PAGES, Ends::Well(&[]));
}

#[test]
fn a_queue_pair_for_one_element_and_scattered_pages() {
    let test = "mistakes::a_queue_pair_for_one_element_and_scattered_pages";
    let outcome = made_with(test, &[&TWO_PAGES], SCATTERED, Ends::Failure("as many as asked"));
    let Some(outcome) = outcome else { return };
    outcome.expect_output("more scatter/gather elements than the queue was made for");
}

#[test]
fn a_queue_pair_for_two_elements_and_scattered_pages() {
    let test = "mistakes::a_queue_pair_for_two_elements_and_scattered_pages";
    drop(made_with(test, &[&TWO_PAGES, &FOR_TWO_ELEMENTS], SCATTERED, Ends::Well(&[])));
}

/// Why requests failed, as both ends saw it.
#[test]
fn refused_requests_say_why() {
    let mistake = Mistake {
        file: "initiator.c",
        right: "NDK_OP_FLAG_ALLOW_REMOTE_WRITE : NDK_OP_FLAG_ALLOW_REMOTE_READ",
        wrong: "NDK_OP_FLAG_ALLOW_REMOTE_READ : NDK_OP_FLAG_ALLOW_REMOTE_WRITE",
    };
    let outcome =
        made_with("mistakes::refused_requests_say_why", &[&mistake], NOTHING, Ends::Failure("as many as asked"));
    let Some(outcome) = outcome else { return };
    for words in [
        "NDK calls that were refused",
        "with RequestContext=0x",
        "STATUS_REMOTE_RESOURCES",
        "does not grant the right that the access needs (the peer's memory",
        "does not grant the right that the access needs (this end's memory",
    ] {
        outcome.expect_output(words);
    }
}
