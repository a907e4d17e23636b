//! Tests every rule of the image check on an image that breaks it and on one that keeps it.
//!
//! Rules about headers are broken by changing bytes of the good image; rules about code by small drivers compiled for the
//! purpose (`images/`).

#![cfg(target_os = "linux")]

use object::{LittleEndian, read::pe::PeFile64};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};
use xtask::{
    arch::Arch,
    command,
    cross::toolchain::{self, Use},
    image_check::{self, Argued, Image, ImageFindings, ImageRule, Lists, Site, Strictness},
    package::{
        self,
        image::{ImageKind, Resource},
    },
    setup,
};

const STRICT: Strictness = Strictness { optimised: true, same_compiler: true };

/// The folder of the compiled images; the first test to ask compiles them.
fn images() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images");
        setup::ensure(&[setup::Need::DriverLibraries(Arch::X64)]).unwrap();
        let mut cargo = Command::new("cargo");
        cargo.current_dir(package).args(["build", "--quiet", "--locked", "--release", "--examples"]);
        cargo.args(["--target", Arch::X64.triple()]).arg("--target-dir").arg(&target);
        cargo.env(Arch::X64.linker_variable(), toolchain::linker().unwrap());
        toolchain::require(Arch::X64.triple()).unwrap().apply(&mut cargo, Use::Driver);
        command::run(&mut cargo).unwrap();
        target.join(Arch::X64.triple()).join("release/examples")
    })
}

fn image(name: &str) -> PathBuf {
    images().join(name).with_extension("dll")
}

fn argued(count: usize) -> Argued {
    Argued { count, reason: "the test says so".to_owned() }
}

/// Lists with exactly the contents of an image.
fn lists_of(name: &str) -> Lists {
    let findings = image_check::check(&image(name), &Lists::default(), STRICT).unwrap();
    Lists {
        image: "softndk.sys",
        imports: findings.imports.into_iter().map(|import| (import, false)).collect(),
        panics: findings.panics.iter().map(|(site, count)| (site.clone(), argued(*count))).collect(),
        frames: findings.frames.into_iter().take(1).collect(),
        depths: findings.depths.into_iter().take(1).collect(),
    }
}

fn check(name: &str, lists: &Lists) -> ImageFindings {
    check_as(name, lists, STRICT)
}

fn check_as(name: &str, lists: &Lists, strictness: Strictness) -> ImageFindings {
    image_check::check(&image(name), lists, strictness).unwrap()
}

fn rules(findings: &ImageFindings) -> Vec<ImageRule> {
    let mut rules = Vec::new();
    for violation in &findings.violations {
        if !rules.contains(&violation.rule) {
            rules.push(violation.rule);
        }
    }
    rules
}

/// Checks the good image after `change`, sealed with a right checksum unless `sealed` is false.
fn changed(name: &str, sealed: bool, change: impl FnOnce(&mut [u8], &Image)) -> Vec<ImageRule> {
    let mut bytes = fs::read(image("good")).unwrap();
    let parsed = Image::parse(bytes.clone()).unwrap();
    change(&mut bytes, &parsed);
    if sealed {
        let field = parsed.checksum_offset;
        let right = image_check::checksum(&bytes, field);
        bytes[field..field + 4].copy_from_slice(&right.to_le_bytes());
    }
    let place = images().join(format!("changed_{name}.dll"));
    fs::write(&place, bytes).unwrap();
    fs::copy(images().join("good.pdb"), place.with_extension("pdb")).unwrap();
    rules(&image_check::check(&place, &lists_of("good"), STRICT).unwrap())
}

#[test]
fn good_image_keeps_every_rule() {
    assert_eq!(check("good", &lists_of("good")).violations, []);
}

#[test]
fn subsystem_other_than_native() {
    const SUBSYSTEM_AFTER_CHECKSUM: usize = 4;
    let broken = changed("subsystem", true, |bytes, image| bytes[image.checksum_offset + SUBSYSTEM_AFTER_CHECKSUM] = 3);
    assert_eq!(broken, [ImageRule::Subsystem]);
}

#[test]
fn entry_other_than_driver_entry() {
    const ENTRY_BEFORE_CHECKSUM: usize = 48;
    let broken = changed("entry", true, |bytes, image| bytes[image.checksum_offset - ENTRY_BEFORE_CHECKSUM] ^= 0x10);
    assert!(broken.contains(&ImageRule::Entry), "{broken:?}");
}

#[test]
fn header_without_force_integrity() {
    const CHARACTERISTICS_AFTER_CHECKSUM: usize = 6;
    let broken = changed("integrity", true, |bytes, image| {
        bytes[image.checksum_offset + CHARACTERISTICS_AFTER_CHECKSUM] &= !0x80;
    });
    assert_eq!(broken, [ImageRule::Characteristics]);
}

#[test]
fn header_without_guard_and_load_configuration_without_its_parts() {
    const CHARACTERISTICS_AFTER_CHECKSUM: usize = 6;
    // Of the directories behind the 112 bytes in front of them the load configuration is the eleventh.
    const LOAD_CONFIGURATION_AFTER_CHECKSUM: usize = 112 - 64 + 10 * 8;
    let unmarked = changed("guard_bit", true, |bytes, image| {
        bytes[image.checksum_offset + CHARACTERISTICS_AFTER_CHECKSUM + 1] &= !0x40;
    });
    assert_eq!(unmarked, [ImageRule::Characteristics]);
    let place = |image: &Image| image.checksum_offset + LOAD_CONFIGURATION_AFTER_CHECKSUM;
    let missing = changed("no_configuration", true, |bytes, image| bytes[place(image)..place(image) + 8].fill(0));
    assert_eq!(missing, [ImageRule::Guard]);
    for (name, offset) in
        [("guard_flags", 0x90), ("guard_count", 0x88), ("guard_check", 0x70), ("guard_dispatch", 0x78)]
    {
        let without = changed(name, true, |bytes, image| {
            let directory = place(image);
            let address = u32::from_le_bytes(bytes[directory..directory + 4].try_into().unwrap());
            let section = image.sections.iter().find(|section| section.holds(address)).unwrap();
            let field = (section.file_offset + address - section.address) as usize + offset;
            bytes[field..field + 4].fill(0);
        });
        assert_eq!(without, [ImageRule::Guard], "{name}");
    }
}

#[test]
fn call_that_is_not_checked() {
    assert_eq!(rules(&check("unguarded_call", &lists_of("unguarded_call"))), [ImageRule::UnguardedCall]);
}

#[test]
fn section_writable_and_executable() {
    let broken = changed("section", true, |bytes, _| {
        let header = bytes.windows(8).position(|name| name == b".text\0\0\0").unwrap();
        bytes[header + 39] |= 0x80;
    });
    assert_eq!(broken, [ImageRule::WritableCode]);
}

#[test]
fn checksum_of_zero_and_wrong_checksum() {
    let zero =
        changed("no_checksum", false, |bytes, image| bytes[image.checksum_offset..image.checksum_offset + 4].fill(0));
    assert_eq!(zero, [ImageRule::Checksum]);
    let wrong = changed("wrong_checksum", false, |bytes, image| bytes[image.checksum_offset] ^= 1);
    assert_eq!(wrong, [ImageRule::Checksum]);
}

#[test]
fn import_from_a_foreign_module() {
    let findings = check("foreign_module", &lists_of("foreign_module"));
    assert_eq!(rules(&findings), [ImageRule::ImportModule]);
}

#[test]
fn import_that_is_not_listed() {
    let mut lists = lists_of("unlisted_import");
    lists.imports.retain(|import, _| import.name != "MmMapIoSpace");
    let findings = check("unlisted_import", &lists);
    assert_eq!(rules(&findings), [ImageRule::ImportName]);
    assert!(findings.violations[0].what.contains("MmMapIoSpace"));
}

#[test]
fn listed_import_that_is_gone() {
    let mut lists = lists_of("unlisted_import");
    lists.imports.extend(lists_of("good").imports);
    let findings = check("good", &Lists { imports: lists.imports, ..lists_of("good") });
    assert_eq!(rules(&findings), [ImageRule::StaleImport]);
}

#[test]
fn vector_instruction() {
    let findings = check("vector_extension", &lists_of("vector_extension"));
    assert_eq!(rules(&findings), [ImageRule::VectorExtension]);
    assert!(findings.violations[0].what.contains("Vpxor"), "{:?}", findings.violations);
}

#[test]
fn frame_of_a_page_and_its_stack_probe() {
    let findings = check("large_frame", &lists_of("large_frame"));
    assert_eq!(rules(&findings), [ImageRule::StackProbe, ImageRule::Frame]);
    assert!(findings.frames[0].0 >= 5600, "{:?}", findings.frames);
}

#[test]
fn lists_of_one_compiler_are_no_measure_for_another() {
    let other = Strictness { same_compiler: false, ..STRICT };
    let mut lists = lists_of("panicking");
    lists.frames[0].0 /= 2;
    lists.panics.values_mut().for_each(|argued| argued.count -= 1);
    assert_eq!(rules(&check_as("panicking", &lists, STRICT)), [ImageRule::Frame, ImageRule::Panic]);
    assert_eq!(rules(&check_as("panicking", &lists, other)), []);
    assert_eq!(
        rules(&check_as("large_frame", &lists_of("large_frame"), other)),
        [ImageRule::StackProbe, ImageRule::Frame]
    );
}

#[test]
fn frame_larger_than_the_largest_listed() {
    let mut lists = lists_of("panicking");
    lists.frames[0].0 /= 2;
    assert_eq!(rules(&check("panicking", &lists)), [ImageRule::Frame]);
}

#[test]
fn callback_that_goes_deeper_than_listed() {
    let mut lists = lists_of("deep");
    assert_eq!(check("deep", &lists).violations, []);
    lists.depths[0].0 /= 2;
    let findings = check("deep", &lists);
    assert_eq!(rules(&findings), [ImageRule::Depth]);
    let what = &findings.violations[0].what;
    let names = what.split([' ', '>']).filter(|word| word.starts_with("deep::")).collect::<Vec<_>>();
    assert_eq!(names, ["deep::callback", "deep::middle", "deep::bottom"], "{what}");
    assert!(findings.frames.iter().all(|(size, _)| *size < 4096));
}

#[test]
fn allocation_that_cannot_fail_in_a_callback() {
    let findings = check("infallible_allocation", &lists_of("infallible_allocation"));
    assert_eq!(rules(&findings), [ImageRule::InfallibleAllocation]);
    assert!(
        findings.violations[0].what.starts_with("infallible_allocation::callback -> alloc::raw_vec"),
        "{:?}",
        findings.violations
    );
}

#[test]
fn panic_that_is_not_listed() {
    let lists = Lists { panics: lists_of("good").panics, ..lists_of("panicking") };
    let findings = check("panicking", &lists);
    assert_eq!(rules(&findings), [ImageRule::Panic]);
    let functions = findings.panics.keys().map(|site| site.function.as_str()).collect::<Vec<_>>();
    assert_eq!(functions, ["panicking::index", "panicking::unwrap"]);
}

#[test]
fn one_more_branch_than_listed() {
    let mut lists = lists_of("panicking");
    lists.panics.values_mut().for_each(|argued| argued.count -= 1);
    assert_eq!(rules(&check("panicking", &lists)), [ImageRule::Panic]);
}

#[test]
fn overflow_is_argued_for_a_module() {
    let site = |function: &str, panic: &str| Site {
        function: function.to_owned(),
        panic: format!("core::panicking::{panic}"),
    };
    let overflow = "panic_const::panic_const_add_overflow";
    let mut lists = Lists::default();
    lists.panics.insert(site("ours::ring::*", overflow), argued(usize::MAX));
    assert!(lists.argued(&site("ours::ring::Ring::push", overflow)).is_some());
    assert!(lists.argued(&site("ours::ringing::bell", overflow)).is_none());
    assert!(lists.argued(&site("ours::ring::Ring::push", "panic_bounds_check")).is_none());
    // An entry for a module says nothing about other ways to panic.
    let bounds = site("ours::ring::*", "panic_bounds_check");
    lists.panics.insert(bounds.clone(), argued(usize::MAX));
    assert!(lists.argued(&site("ours::ring::Ring::push", "panic_bounds_check")).is_none());

    let found = BTreeMap::from([(site("ours::ring::Ring::push", overflow), 3), (site("ours::wire::put", overflow), 1)]);
    assert_eq!(lists.stale(&found).collect::<Vec<_>>(), [&bounds]);
    lists.bless_panics(&found);
    let names = lists.panics.keys().map(|site| site.function.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["ours::ring::*", "ours::wire::put"]);
    assert_eq!(lists.unargued().len(), 1, "only the module had a reason");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules");
    lists.write(&folder).unwrap();
    assert_eq!(Lists::read(&folder).unwrap().panics, lists.panics);
}

#[test]
fn listed_panic_that_is_gone() {
    let lists = Lists { panics: lists_of("panicking").panics, ..lists_of("good") };
    assert_eq!(rules(&check("good", &lists)), [ImageRule::StalePanic]);
}

#[test]
fn listed_panic_without_a_reason() {
    let mut lists = lists_of("panicking");
    let sites = check("panicking", &lists).panics;
    lists.panics.clear();
    lists.bless_panics(&sites);
    assert_eq!(rules(&check("panicking", &lists)), [ImageRule::UnarguedPanic]);
}

#[test]
fn lists_survive_writing_and_reading() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lists");
    let lists = lists_of("panicking");
    lists.write(&folder).unwrap();
    let read = Lists::read(&folder).unwrap();
    assert_eq!(
        (read.imports, read.panics, read.frames, read.depths),
        (lists.imports, lists.panics, lists.frames, lists.depths)
    );
}

/// Name, version and time of the package in an image; the rest of it is as before, and keeps every rule.
#[test]
fn image_of_the_package_keeps_every_rule_and_says_which_build_it_is() {
    const TIME: u32 = 0x6543_2100;
    let resource = Resource {
        name: "good.sys",
        description: "a driver",
        kind: ImageKind::NetworkDriver,
        version: [1, 22, 333, 4444],
        product: "1.22.333 (commit abc)".to_owned(),
        time: TIME.into(),
    };
    let made = fs::read(image("good")).unwrap();
    let finished = package::image::finish(made.clone(), &resource).unwrap();
    assert_eq!(package::image::finish(made.clone(), &resource).unwrap(), finished);

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packaged");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("good.sys"), &finished).unwrap();
    fs::copy(image("good").with_extension("pdb"), folder.join("good.pdb")).unwrap();
    let findings = image_check::check(&folder.join("good.sys"), &lists_of("good"), STRICT).unwrap();
    assert_eq!(findings.violations, []);

    // Read by another library than the one that wrote it.
    let file = PeFile64::parse(&*finished).unwrap();
    assert_eq!(file.nt_headers().file_header.time_date_stamp.get(LittleEndian), TIME);
    let names = |bytes: &[u8]| {
        let image = Image::parse(bytes.to_vec()).unwrap();
        image.sections.iter().map(|section| section.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&finished), [names(&made), vec![".rsrc".to_owned()]].concat());
    let found = version_resource(&file);
    // VS_FIXEDFILEINFO: its signature, then the version as two words, the more significant half first.
    let fixed = found.windows(4).position(|word| word == 0xFEEF_04BDu32.to_le_bytes()).unwrap();
    let word = |index: usize| u32::from_le_bytes(found[fixed + index * 4..][..4].try_into().unwrap());
    assert_eq!([word(2), word(3), word(9), word(10)], [0x1_0016, 0x014D_115C, 3, 6]);
    for text in ["good.sys", "a driver", "1.22.333.4444", "1.22.333 (commit abc)"] {
        let wide: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        assert!(found.windows(wide.len()).any(|part| part == wide), "{text}");
    }
}

/// The bytes of the resource of type 16, number 1.
fn version_resource<'a>(file: &PeFile64<'a>) -> &'a [u8] {
    let sections = file.section_table();
    let directory = file.data_directories().resource_directory(file.data(), &sections).unwrap().unwrap();
    let mut table = directory.root().unwrap();
    for wanted in [16, 1] {
        let entry = table.entries.iter().find(|entry| entry.name_or_id().id() == Some(wanted)).unwrap();
        table = entry.data(directory).unwrap().table().unwrap();
    }
    let data = table.entries[0].data(directory).unwrap().data().unwrap();
    let place = data.offset_to_data.get(LittleEndian);
    &sections.pe_data_at(file.data(), place).unwrap()[..data.size.get(LittleEndian) as usize]
}

#[test]
fn an_image_that_has_resources_or_is_none_is_not_packaged() {
    let resource = Resource {
        name: "",
        description: "",
        kind: ImageKind::Program,
        version: [0; 4],
        product: String::new(),
        time: 0,
    };
    let once = package::image::finish(fs::read(image("good")).unwrap(), &resource).unwrap();
    for bytes in [once, b"MZ".to_vec()] {
        assert!(package::image::finish(bytes, &resource).is_err());
    }
}
