//! The layers of the driver, and the DLL, whose mutants are judged by trials through the image: their files, and which trials speak
//! to each.

use super::subject::Subject;
use crate::arguments::BorderSuite;

/// A file or a folder, and the modules of the trials that speak to it, with a space between them; empty for all trials.
pub type LayerFile = (&'static str, &'static str);

/// Files that are changed, and what judges them.
pub struct Layer {
    /// Of the file with the results.
    pub name: &'static str,
    pub subject: Subject,
    /// The first's trials are called as they are, those of others begin with their suite.
    pub suites: &'static [BorderSuite],
    pub files: &'static [LayerFile],
}

/// What turns NDK calls into calls of the engine.
pub const NDK: Layer = Layer {
    name: "driver",
    subject: Subject::Driver,
    suites: &[BorderSuite::Contract, BorderSuite::ControlDevice],
    files: NDK_FILES,
};

/// User-mode NetworkDirect.
pub const ND: Layer = Layer {
    name: "nd",
    subject: Subject::Driver,
    suites: &[BorderSuite::Driver, BorderSuite::Provider],
    files: ND_FILES,
};

/// The DLL that clients of user-mode NetworkDirect load.
pub const SOFTND: Layer =
    Layer { name: "softnd", subject: Subject::Provider, suites: &[BorderSuite::Provider], files: SOFTND_FILES };

const NDK_FILES: &[LayerFile] = &[
    ("driver/ndk/adapter.rs", "adapter callback completion_queue endpoint"),
    ("driver/ndk/consumer_object.rs", "asynchrony close_order callback memory fault"),
    ("driver/ndk/completion_queue.rs", "completion_queue moderation resize work_request window"),
    ("driver/ndk/connector.rs", "connection connection_state connection_end endpoint"),
    ("driver/ndk/entry.rs", "arguments refusals adapter connection work_request registration"),
    ("driver/miniport/oid/ndk.rs", "oid statistics"),
    ("driver/runtime/deferred.rs", "asynchrony callback close_order resize"),
    ("driver/ndk/limits.rs", "adapter limits oid"),
    ("driver/ndk/listener.rs", "connection endpoint"),
    ("driver/ndk/logical_mapping.rs", "memory asynchrony race fault control_device::endings"),
    ("driver/ndk/memory_region.rs", "memory registration access asynchrony callback"),
    ("driver/ndk/memory_window.rs", "window adapter"),
    ("driver/ndk/open.rs", "adapter ndk_state callback fault control_device::listing"),
    ("driver/ndk/protection_domain.rs", "adapter queue_pair shared_receive asynchrony memory"),
    (
        "driver/ndk/provider.rs",
        "adapter ndk_state statistics removal control_device::endings control_device::listing \
         control_device::pairs control_device::replay",
    ),
    ("driver/ndk/queue_pair.rs", "queue_pair work_request window registration memory"),
    ("driver/ndk/shared_endpoint.rs", "endpoint adapter"),
    ("driver/ndk/shared_receive_queue.rs", "shared_receive adapter asynchrony"),
    ("driver/ndk/socket.rs", "connection endpoint statistics"),
    (
        "driver/runtime/status.rs",
        "queue_pair memory connection connection_state connection_end access adapter completion_queue moderation \
         resize",
    ),
    ("driver/version.rs", "adapter"),
];

/// A trial of `polled` is one of a machine whose driver polls the rings.
const ND_FILES: &[LayerFile] = &[
    ("driver/nd/account.rs", "limits others endings memory provider::habits"),
    (
        "driver/nd/adapter.rs",
        "files values connections memory endings others provider::objects provider::habits provider::values",
    ),
    (
        "driver/nd/completion_queue.rs",
        "transfers notifications values together endings limits provider::notifications provider::completions \
         provider::objects provider::values provider::polling",
    ),
    (
        "driver/nd/connector",
        "connections values endings together others limits provider::connections provider::values \
         provider::completions provider::version1::connections provider::phases",
    ),
    ("driver/nd/context.rs", "files endings hostile together limits provider::habits provider::kills provider::phases"),
    ("driver/nd/device.rs", "files endings others provider::habits provider::objects"),
    ("driver/nd/endpoint.rs", "connections endings limits provider::connections provider::values"),
    ("driver/nd/file.rs", "files endings hostile together provider::habits provider::kills"),
    ("driver/nd/handles.rs", "hostile files limits endings together provider::objects provider::habits"),
    (
        "driver/nd/listener.rs",
        "connections values endings together limits provider::connections provider::values provider::habits",
    ),
    (
        "driver/nd/memory_region.rs",
        "memory windows values limits endings together provider::regions provider::values provider::objects \
         provider::completions",
    ),
    ("driver/nd/memory_window.rs", "windows memory provider::regions"),
    (
        "driver/nd/notify.rs",
        "notifications shared_receives endings limits provider::notifications provider::shared_receives",
    ),
    ("driver/nd/object.rs", "endings files together hostile provider::objects provider::habits"),
    (
        "driver/nd/pending.rs",
        "endings notifications connections together limits faults provider::notifications provider::phases \
         provider::habits",
    ),
    (
        "driver/nd/poller.rs",
        "polled::transfers polled::together polled::notifications polled::endings polled::others \
         provider::polled::polling provider::polling provider::polled::transfers",
    ),
    (
        "driver/nd/queue_pair.rs",
        "hostile provider::polling files endings transfers windows hostile_rings values large_rings together \
         polled::transfers provider::completions provider::immediate provider::transfers provider::values \
         provider::regions",
    ),
    (
        "driver/nd/dispatch.rs",
        "shared_receives hostile_requests files hostile values connections endings provider::objects \
         provider::habits",
    ),
    (
        "driver/nd/request_memory.rs",
        "endings transfers shared_receives hostile_rings large_rings together polled::transfers \
         provider::transfers provider::shared_receives provider::polling",
    ),
    (
        "driver/nd/rings.rs",
        "transfers hostile_rings large_rings shared_receives notifications polled::transfers provider::transfers \
         provider::notifications provider::polling",
    ),
    ("driver/nd/security.rs", "files others provider::habits"),
    (
        "driver/nd/shared_receive_queue.rs",
        "files shared_receives values limits endings hostile_rings provider::shared_receives provider::values \
         provider::immediate",
    ),
    ("driver/nd/socket.rs", "connections values provider::values provider::connections"),
    (
        "driver/nd/status.rs",
        "files connections transfers memory limits windows provider::objects provider::connections \
         provider::regions provider::completions",
    ),
];

const SOFTND_FILES: &[LayerFile] = &[
    ("tools/softnd/src/argument.rs", "values regions transfers version1 objects"),
    ("tools/softnd/src/class_factory.rs", "objects habits version1::objects"),
    ("tools/softnd/src/com.rs", "objects habits version1::objects program"),
    ("tools/softnd/src/device.rs", "objects habits completions connections kills"),
    ("tools/softnd/src/exports.rs", "objects habits"),
    ("tools/softnd/src/file.rs", "objects habits completions connections"),
    ("tools/softnd/src/handle.rs", "objects habits kills"),
    ("tools/softnd/src/heap.rs", "objects transfers habits"),
    ("tools/softnd/src/overlapped.rs", "completions notifications connections version1 habits"),
    ("tools/softnd/src/ring.rs", "transfers polling shared_receives notifications immediate values version1"),
    ("tools/softnd/src/shared.rs", "objects habits transfers kills"),
    ("tools/softnd/src/socket_address.rs", "connections values version1 habits"),
    ("tools/softnd/src/spin_lock.rs", "transfers polling phases"),
    ("tools/softnd/src/resources/", ""),
    ("tools/softnd/src/v1/", "version1 program"),
    (
        "tools/softnd/src/v2/",
        "objects values transfers notifications connections regions immediate shared_receives completions habits",
    ),
];

#[cfg(test)]
mod tests {
    use super::{ND, NDK, SOFTND};
    use std::path::Path;

    #[test]
    fn files_of_the_layers_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let files = NDK.files.iter().chain(ND.files).chain(SOFTND.files).map(|(file, _)| *file);
        let gone = files.filter(|file| !root.join(file).exists()).collect::<Vec<_>>();
        assert!(gone.is_empty(), "{gone:?} are not there");
    }
}
