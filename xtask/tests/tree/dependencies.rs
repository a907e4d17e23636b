//! The dependencies between the crates go one way. The table here is the one of `docs/architecture.md`: what each crate may
//! depend on, and nothing else.

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use std::{collections::BTreeSet, fs, path::Path};

/// All dependencies that the crates of the product may have.
const PRODUCT: &[(&str, &[&str])] = &[
    ("ndkpi-sys", &["bitflags"]),
    // loom replaces the atomics when the model checker runs, and only then.
    ("softndk-cells", &["loom"]),
    ("softndk-engine", &["arrayvec", "bitflags", "fastrand", "softndk-cells", "softndk-iwarp"]),
    ("softndk-iwarp", &["bitflags", "cpufeatures", "crc"]),
    ("softndk-ioctl", &["bitflags", "zerocopy"]),
    ("softnd-interfaces", &[]),
    ("softnd", &["softnd-interfaces", "softndk-ioctl", "zerocopy"]),
    ("softndk-vxlan", &[]),
    ("softndk-kernel", &["ndkpi-sys", "softndk-cells", "wdk", "wdk-alloc", "wdk-sys"]),
    (
        "ndktest",
        &["ndkpi-sys", "softndk-ioctl", "softndk-kernel", "wdk-alloc", "wdk-build", "wdk-panic", "wdk-sys", "zerocopy"],
    ),
    (
        "softndk",
        &[
            "bitflags",
            "ndkpi-sys",
            "softndk-cells",
            "softndk-engine",
            "softndk-ioctl",
            "softndk-kernel",
            "softndk-vxlan",
            "tracelogging",
            "wdk",
            "wdk-alloc",
            "wdk-build",
            "wdk-panic",
            "wdk-sys",
            "zerocopy",
        ],
    ),
];

/// What the crates around it may use of ours; other libraries are free to them.
const AROUND: &[(&str, &[&str])] = &[
    ("ndkctl", &["softndk-ioctl", "softnd-interfaces", "softndk-vxlan", "kernel-host", "ndkpi-sys"]),
    ("kernel-host", &["ndkpi-sys"]),
    ("conformance", &["kernel-host", "ndkpi-sys", "softndk-ioctl"]),
    ("networkdirect", &["kernel-host", "ndkctl", "softnd-interfaces", "softndk-images", "softndk-ioctl"]),
    // Model against engine, and against the image through the control device.
    ("oracle", &["ndkctl", "softndk-engine", "softndk-engine-kit", "softndk-ioctl"]),
    // Its interruptions are at the points of the cells, too.
    ("softndk-engine-kit", &["softndk-cells", "softndk-engine"]),
    ("softndk-images", &[]),
    ("xtask", &["softndk-images", "xtask-start"]),
    // Nothing at all: it is there within a second.
    ("xtask-start", &[]),
];

fn metadata() -> Metadata {
    MetadataCommand::new().no_deps().exec().unwrap()
}

/// The dependencies of a package that end up in what it builds; those of its tests are not checked.
fn dependencies(package: &Package) -> BTreeSet<&str> {
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development)
        .map(|dependency| dependency.name.as_str())
        .collect()
}

#[test]
fn product_crates_use_only_what_the_table_allows() {
    let metadata = metadata();
    for (name, allowed) in PRODUCT {
        let package = metadata.packages.iter().find(|package| package.name == *name).unwrap();
        let foreign = dependencies(package).into_iter().filter(|used| !allowed.contains(used)).collect::<Vec<_>>();
        assert!(foreign.is_empty(), "{name} must not depend on {foreign:?}");
    }
}

#[test]
fn crates_around_use_only_these_of_ours() {
    let metadata = metadata();
    let ours = metadata.packages.iter().map(|package| package.name.as_str()).collect::<BTreeSet<_>>();
    for (name, allowed) in AROUND {
        let package = metadata.packages.iter().find(|package| package.name == *name).unwrap();
        let foreign = dependencies(package)
            .into_iter()
            .filter(|used| ours.contains(used) && !allowed.contains(used))
            .collect::<Vec<_>>();
        assert!(foreign.is_empty(), "{name} must not depend on {foreign:?}");
    }
}

/// xtask is the top: it builds and starts the others, also those whose tests it runs.
#[test]
fn no_crate_depends_on_xtask() {
    let metadata = metadata();
    let above = |package: &&Package| package.dependencies.iter().any(|dependency| dependency.name == "xtask");
    let above = metadata.packages.iter().filter(above).map(|package| &package.name).collect::<Vec<_>>();
    assert!(above.is_empty(), "{above:?} depend on xtask");
}

#[test]
fn every_crate_of_the_workspace_is_in_a_table() {
    let known = PRODUCT.iter().chain(AROUND).map(|(name, _)| *name).collect::<BTreeSet<_>>();
    let metadata = metadata();
    let present = metadata.packages.iter().map(|package| package.name.as_str()).collect::<BTreeSet<_>>();
    assert_eq!(present, known);
}

#[test]
fn driver_is_made_of_the_published_wdk_crates() {
    let metadata = metadata();
    let driver = metadata.packages.iter().find(|package| package.name == "softndk").unwrap();
    for library in ["wdk", "wdk-sys", "wdk-alloc", "wdk-panic", "wdk-build"] {
        let used = driver.dependencies.iter().find(|dependency| dependency.name == library);
        let used = used.unwrap_or_else(|| panic!("softndk does not depend on {library}"));
        assert!(used.path.is_none() && used.source.is_some(), "{library} is not the published crate");
    }
}

#[test]
fn engine_forbids_unsafe_code() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src/lib.rs");
    let source = fs::read_to_string(source).unwrap();
    assert!(source.contains("#![forbid(unsafe_code)]") && source.contains("#![no_std]"));
}

/// Failures of dispatch functions go through `driver/runtime/refusal.rs`, which keeps them for the tools: no status of a failure is returned
/// or made there otherwise. (A refusal that NDIS answers is made by `Refusal::new`; OIDs are not calls of a consumer.)
#[test]
fn dispatch_functions_fail_through_refusals_only() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../driver/ndk");
    let mut found = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.ends_with("enumeration.rs") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for (number, line) in source.lines().enumerate() {
            for returned in ["return ", "Err(", "=> ", "unwrap_or(", "else { "] {
                let status = line.split(returned).nth(1).unwrap_or_default();
                let status = status.strip_prefix("NDIS_").unwrap_or(status);
                let fails = status.starts_with("STATUS_")
                    && !["STATUS_SUCCESS", "STATUS_PENDING"].iter().any(|good| status.starts_with(good));
                if fails && !line.contains("Err(NDIS_STATUS_RESOURCES) =>") {
                    found.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(found.is_empty(), "these failures leave no cause:\n{}", found.join("\n"));
}
