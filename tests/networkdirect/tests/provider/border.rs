//! Where the client's calls cross into the DLL: `cargo xtask arguments` distorts one argument, or one field of a structure, here.

use super::calls::interfaces;
use super::client::Program;
use kernel_host::distortion;
use std::borrow::Cow;

/// A structure in the process's memory that a method takes or fills.
struct Passing {
    method: (&'static str, usize),
    /// Which argument points to it.
    argument: usize,
    name: &'static str,
    size: usize,
    /// Which argument says how many there are.
    count: Option<usize>,
}

const fn one(method: (&'static str, usize), argument: usize, name: &'static str, size: usize) -> Passing {
    Passing { method, argument, name, size, count: None }
}

const fn list(method: (&'static str, usize), argument: usize, name: &'static str, size: usize) -> Passing {
    Passing { method, argument, name, size, count: Some(argument + 1) }
}

const TAKEN: [Passing; 16] = [
    list(("IND2QueuePair", 4), 1, "v2::Sge", 16),
    list(("IND2QueuePair", 5), 1, "v2::Sge", 16),
    list(("IND2QueuePair", 8), 1, "v2::Sge", 16),
    list(("IND2QueuePair", 9), 1, "v2::Sge", 16),
    list(("IND2ManaQueuePair", 10), 1, "v2::Sge", 16),
    list(("IND2ManaQueuePair", 11), 1, "v2::Sge", 16),
    list(("IND2SharedReceiveQueue", 8), 1, "v2::Sge", 16),
    list(("INDEndpoint", 6), 1, "v1::Sge1", 24),
    list(("INDEndpoint", 7), 1, "v1::Sge1", 24),
    list(("INDEndpoint", 8), 1, "v1::Sge1", 24),
    list(("INDEndpoint", 11), 1, "v1::Sge1", 24),
    list(("INDEndpoint", 12), 1, "v1::Sge1", 24),
    one(("INDEndpoint", 7), 3, "v1::WindowDescriptor", 20),
    one(("INDEndpoint", 11), 3, "v1::WindowDescriptor", 20),
    one(("INDEndpoint", 12), 3, "v1::WindowDescriptor", 20),
    list(("IND2SharedReceiveQueue", 7), 1, "v2::Sge", 16),
];

const FILLED: [Passing; 4] = [
    one(("IND2Adapter", 4), 0, "v2::AdapterInfo", 96),
    list(("IND2CompletionQueue", 8), 0, "v2::RequestResult", 32),
    list(("IND2ManaCompletionQueue", 9), 0, "v2::ManaResult", 32),
    one(("INDAdapter", 6), 1, "v1::AdapterInfo1", 128),
];

/// The interface that defines a slot of an interface, as the call is named.
fn defining(interface: &str, slot: usize) -> Option<&'static str> {
    let own = interfaces().find(|it| it.name == interface)?;
    if own.methods.iter().any(|(_, of)| *of == slot) {
        return Some(own.name);
    }
    match own.name {
        "IND2ManaQueuePair" => defining("IND2QueuePair", slot),
        "IND2ManaCompletionQueue" => defining("IND2CompletionQueue", slot),
        name => {
            let base = if name.starts_with("IND2") { "IND2Overlapped" } else { "INDOverlapped" };
            (slot == 3 || slot == 4).then_some(base)
        }
    }
}

/// The arguments as the DLL sees them, and what they point to.
pub fn before<'a>(program: &Program, (interface, slot): (&'static str, usize), arguments: &'a [u64]) -> Cow<'a, [u64]> {
    if !distortion::is_watched() {
        return arguments.into();
    }
    let Some(defining) = defining(interface, slot) else { return arguments.into() };
    for passing in TAKEN.iter().filter(|passing| passing.method == (defining, slot)) {
        distort(program, passing, arguments);
    }
    distortion::words(&format!("{defining}:{slot}"), arguments)
}

/// What the client sees of what was filled.
pub fn after(program: &Program, (interface, slot): (&'static str, usize), arguments: &[u64]) {
    if distortion::is_watched() {
        let defining = defining(interface, slot);
        for passing in FILLED.iter().filter(|passing| Some(passing.method.0) == defining && passing.method.1 == slot) {
            distort(program, passing, arguments);
        }
    }
}

fn distort(program: &Program, passing: &Passing, arguments: &[u64]) {
    let Some(&address) = arguments.get(passing.argument) else { return };
    let count = passing.count.map_or(1, |index| arguments.get(index).copied().unwrap_or(0));
    let length = passing.size * count.min(64) as usize;
    // A case may pass what is no memory at all.
    if let Some(mut bytes) = program.process.read(address as usize, length).filter(|bytes| !bytes.is_empty()) {
        distortion::bytes(passing.name, &mut bytes);
        let _written = program.process.write(address as usize, &bytes);
    }
}
