//! The rules of the file. Each broken one is a sentence with its line.

use super::{
    Date, Inf, keywords,
    text::{Entry, InfSection},
};
use std::collections::BTreeSet;

/// What the package that the file belongs to is.
pub struct InfExpectation<'a> {
    /// `amd64` or `arm64`.
    pub architecture: &'a str,
    /// The driver's version: four numbers.
    pub version: &'a str,
    /// The day of the build, which the driver's date must not pass.
    pub today: Date,
}

/// The first build of Windows that can load the driver, as the model section names it.
const MODEL_OS: &str = "10.0...19041";

/// Everything that is wrong with the file.
pub fn violations(text: &str, expected: &InfExpectation<'_>) -> Vec<String> {
    let inf = match Inf::parse(text) {
        Ok(inf) => inf,
        Err(error) => return vec![error.to_string()],
    };
    let mut broken = Vec::new();
    if !text.is_ascii() {
        broken.push(
            "a byte is not ASCII: Windows reads a file without a byte order mark in the local code page".to_owned(),
        );
    }
    broken.extend(structure(&inf));
    broken.extend(strings(&inf));
    broken.extend(version(&inf, expected));
    match model(&inf, expected) {
        Ok(model) => broken.extend(install(&inf, &model)),
        Err(what) => broken.push(what),
    }
    broken
}

/// Directives that an isolated package does not have, and why.
const REFUSED: &[(&str, &str)] = &[
    ("CoInstallers32", "co-installers are not for declarative packages"),
    ("RegisterDlls", "a package registers no DLL"),
    ("DelReg", "a declarative package deletes no registry value"),
    ("DelFiles", "a declarative package deletes no file"),
    ("RenFiles", "a declarative package renames no file"),
    ("DelService", "a declarative package deletes no service"),
    ("Reboot", "the installation needs no restart"),
];

/// A section twice, a directive that is refused, a section that nothing names.
fn structure(inf: &Inf) -> Vec<String> {
    let mut broken = Vec::new();
    let mut names = BTreeSet::new();
    for section in &inf.sections {
        if !names.insert(section.name.to_lowercase()) {
            broken.push(format!("line {}: the section [{}] is there twice", section.line, section.name));
        }
        for entry in &section.entries {
            let refused = REFUSED.iter().find(|(directive, _)| entry.has_key(directive));
            broken.extend(refused.map(|(directive, why)| format!("line {}: {directive}: {why}", entry.line)));
        }
    }
    let referred = |section: &InfSection| named_sections(inf).contains(&section.name.to_lowercase());
    let unnamed = inf.sections.iter().filter(|section| !referred(section));
    broken
        .extend(unnamed.map(|section| format!("line {}: nothing names the section [{}]", section.line, section.name)));
    let there = |name: &&String| !names.contains(*name);
    broken.extend(named_sections(inf).iter().filter(there).map(|name| format!("the section [{name}] is missing")));
    broken
}

/// Names of sections, in lower case: those that every file has, and those that entries refer to.
fn named_sections(inf: &Inf) -> BTreeSet<String> {
    let fixed = [
        "version",
        "manufacturer",
        "controlflags",
        "destinationdirs",
        "sourcedisksnames",
        "sourcedisksfiles",
        "strings",
    ];
    let mut names: BTreeSet<String> = fixed.map(str::to_owned).into();
    for manufacturer in inf.entries("Manufacturer") {
        let decorated = manufacturer.values.iter().skip(1).map(|os| format!("{}.{os}", manufacturer.value(0)));
        for models in decorated {
            for model in inf.entries(&models) {
                names.insert(model.value(0).to_lowercase());
                names.insert(format!("{}.services", model.value(0).to_lowercase()));
            }
            names.insert(models.to_lowercase());
        }
    }
    let entries = inf.sections.iter().flat_map(|section| &section.entries);
    for entry in entries {
        if ["AddReg", "CopyFiles"].iter().any(|directive| entry.has_key(directive)) {
            names.extend(entry.values.iter().map(|name| name.to_lowercase()));
        } else if entry.has_key("AddService") {
            names.extend(entry.values.iter().skip(2).map(|name| name.to_lowercase()));
        }
    }
    names
}

/// Every `%name%` has a string, and every string is used.
fn strings(inf: &Inf) -> Vec<String> {
    let mut broken = Vec::new();
    let mut used = BTreeSet::new();
    let defined: BTreeSet<String> =
        inf.entries("Strings").iter().filter_map(|entry| entry.key.as_ref()).map(|key| key.to_lowercase()).collect();
    for entry in inf.sections.iter().filter(|section| section.name != "Strings").flat_map(|section| &section.entries) {
        for text in entry.key.iter().chain(&entry.values) {
            // Between two marks is a name, a number is a directory, nothing is the mark itself.
            for name in
                text.split('%').skip(1).step_by(2).filter(|name| !name.is_empty() && name.parse::<u32>().is_err())
            {
                if text.contains("%%") {
                    continue;
                }
                used.insert(name.to_lowercase());
                if !defined.contains(&name.to_lowercase()) {
                    broken.push(format!("line {}: %{name}% is not in [Strings]", entry.line));
                }
            }
        }
    }
    broken.extend(defined.difference(&used).map(|name| format!("the string {name} is not used")));
    broken
}

fn version(inf: &Inf, expected: &InfExpectation<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut wants = |key: &str, value: &str, why: &str| {
        let found = inf.value("Version", key).unwrap_or_else(|| "missing".to_owned());
        if !found.eq_ignore_ascii_case(value) {
            broken.push(format!("{key} is {found}, expected {value}: {why}"));
        }
    };
    wants("Signature", "$WINDOWS NT$", "other files are for Windows 9x");
    wants("Class", "Net", "the class of network adapters");
    wants("ClassGuid", "{4d36e972-e325-11ce-bfc1-08002be10318}", "the class of network adapters");
    wants("CatalogFile", "softndk.cat", "setup.ps1 makes the catalogue under this name");
    wants("PnpLockdown", "1", "files of the driver store are protected");
    if inf.value("Version", "Provider").is_none_or(|provider| provider.is_empty() || provider.contains('%')) {
        broken.push("Provider is missing, or no string".to_owned());
    }
    broken.extend(driver_version(inf, expected));
    broken
}

fn driver_version(inf: &Inf, expected: &InfExpectation<'_>) -> Option<String> {
    let values = inf.values("Version", "DriverVer").unwrap_or_default();
    let [date, version] = values.as_slice() else { return Some("DriverVer is not a date and a version".to_owned()) };
    let Some(date) = Date::parse(date) else { return Some(format!("DriverVer: {date} is not MM/DD/YYYY")) };
    if date > expected.today {
        return Some(format!("DriverVer: {date} is in the future, today is {}", expected.today));
    }
    if version != expected.version {
        return Some(format!("DriverVer: the version is {version}, the package's is {}", expected.version));
    }
    let numbers: Vec<_> = version.split('.').map(str::parse::<u16>).collect();
    let four = numbers.len() == 4 && numbers.iter().all(Result::is_ok);
    (!four).then(|| format!("DriverVer: {version} is not four numbers up to 65535"))
}

/// The install section of the only model.
fn model(inf: &Inf, expected: &InfExpectation<'_>) -> Result<String, String> {
    let [manufacturer] = inf.entries("Manufacturer") else { return Err("there is not one manufacturer".to_owned()) };
    let decoration = format!("NT{}.{MODEL_OS}", expected.architecture);
    if manufacturer.values.len() != 2 || !manufacturer.value(1).eq_ignore_ascii_case(&decoration) {
        let found = manufacturer.values.iter().skip(1).cloned().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "line {}: the models are for {found}, expected {decoration}: older systems cannot load the driver",
            manufacturer.line
        ));
    }
    let [model] = inf.entries(&format!("{}.{decoration}", manufacturer.value(0))) else {
        return Err(format!("there is not one model in [{}.{decoration}]", manufacturer.value(0)));
    };
    let hardware_id = model.value(1);
    if model.values.len() != 2 || !hardware_id.eq_ignore_ascii_case(r"root\softndk") {
        return Err(format!(r"line {}: the hardware id is {hardware_id}, expected root\softndk", model.line));
    }
    let excluded = inf.value("ControlFlags", "ExcludeFromSelect");
    if !excluded.as_deref().is_some_and(|it| it.eq_ignore_ascii_case(hardware_id)) {
        return Err(format!("ExcludeFromSelect does not have {hardware_id}: it would be offered as legacy hardware"));
    }
    Ok(model.value(0).to_owned())
}

/// What a device of the model gets.
fn install(inf: &Inf, section: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let mut number = |key: &str, value: u32, why: &str| {
        let found = inf.value(section, key);
        if found.as_deref().and_then(parse_number) != Some(value) {
            let found = found.unwrap_or_else(|| "missing".to_owned());
            broken.push(format!("{key} is {found}, expected {value:#x}: {why}"));
        }
    };
    let without = "without it, Windows installs the device and never calls MiniportInitializeEx";
    number(
        "Characteristics",
        0x81,
        "NCF_VIRTUAL and NCF_HAS_UI; NCF_PHYSICAL and NCF_SOFTWARE_ENUMERATED exclude the first",
    );
    number("*IfType", 6, without);
    number("*MediaType", 0, without);
    number("*PhysicalMediaType", 14, without);
    broken.extend(service(inf, section));
    broken.extend(files(inf, section));
    broken.extend(registry(inf, section));
    broken
}

fn service(inf: &Inf, section: &str) -> Vec<String> {
    let services = format!("{section}.Services");
    let added: Vec<&Entry> = inf.entries(&services).iter().filter(|entry| entry.has_key("AddService")).collect();
    let [added] = added.as_slice() else { return vec![format!("[{services}] does not add one service")] };
    let mut broken = Vec::new();
    if parse_number(added.value(1)) != Some(2) {
        broken.push(format!(
            "line {}: the flags of AddService are {}, expected 2: the device's own service",
            added.line,
            added.value(1)
        ));
    }
    if added.value(0) != "softndk" {
        broken.push(format!("line {}: the service is {}, which setup.ps1 does not remove", added.line, added.value(0)));
    }
    for (key, value) in
        [("ServiceType", "1"), ("StartType", "3"), ("ErrorControl", "1"), ("ServiceBinary", r"%13%\softndk.sys")]
    {
        let found = inf.value(added.value(2), key).unwrap_or_else(|| "missing".to_owned());
        if !found.eq_ignore_ascii_case(value) {
            broken.push(format!("{key} of the service is {found}, expected {value}"));
        }
    }
    broken
}

/// One file, in the driver store.
fn files(inf: &Inf, section: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for entry in inf.entries("DestinationDirs") {
        if entry.value(0) != "13" {
            let line = entry.line;
            broken.push(format!(
                "line {line}: files go to directory {}, an isolated package has 13 only",
                entry.value(0)
            ));
        }
    }
    if inf.value("DestinationDirs", "DefaultDestDir").is_none() {
        broken.push("DefaultDestDir is missing".to_owned());
    }
    let lists = inf.values(section, "CopyFiles").unwrap_or_default();
    let copied = lists.iter().flat_map(|list| inf.entries(list)).map(|entry| entry.value(0).to_owned());
    let copied: Vec<String> = copied.collect();
    let sources: Vec<String> = inf.entries("SourceDisksFiles").iter().filter_map(|entry| entry.key.clone()).collect();
    if copied != ["softndk.sys"] || sources != copied {
        broken.push(format!("the files are {copied:?}, on the disk {sources:?}; expected softndk.sys in both"));
    }
    broken
}

fn registry(inf: &Inf, section: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let all = inf.sections.iter().filter(|list| is_registry_list(inf, &list.name)).flat_map(|list| &list.entries);
    for entry in all.filter(|entry| !entry.value(0).eq_ignore_ascii_case("HKR")) {
        let line = entry.line;
        broken
            .push(format!("line {line}: {} is written to, an isolated package writes below HKR only", entry.value(0)));
    }
    let lists = inf.values(section, "AddReg").unwrap_or_default();
    let entries: Vec<&Entry> = lists.iter().flat_map(|list| inf.entries(list)).collect();
    for (key, name, value, why) in [
        ("Ndi", "Service", "softndk", "the class installer takes the service from it"),
        (r"Ndi\Interfaces", "UpperRange", "ndis5", "Windows does not find the adapter's NDK side otherwise"),
        (r"Ndi\Interfaces", "LowerRange", "ethernet", "lightweight filters do not attach otherwise"),
    ] {
        let found = entries.iter().find(|entry| entry.value(1).eq_ignore_ascii_case(key) && entry.value(2) == name);
        let found = found.map_or("missing", |entry| entry.value(4));
        if found != value {
            broken.push(format!("{name} is {found}, expected {value}: {why}"));
        }
    }
    let mut seen = BTreeSet::new();
    for entry in &entries {
        if !seen.insert((entry.value(1).to_lowercase(), entry.value(2).to_lowercase())) {
            broken.push(format!("line {}: {}, {} is written twice", entry.line, entry.value(1), entry.value(2)));
        }
    }
    broken.extend(keywords::violations(inf, &entries));
    broken
}

fn is_registry_list(inf: &Inf, name: &str) -> bool {
    let directives = inf.sections.iter().flat_map(|section| &section.entries).filter(|entry| entry.has_key("AddReg"));
    directives.flat_map(|entry| &entry.values).any(|list| list.eq_ignore_ascii_case(name))
}

fn parse_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arch::Arch, inf::stamp, workspace::Workspace};
    use std::fs;

    const TODAY: Date = Date { year: 2026, month: 7, day: 15 };

    fn template() -> String {
        fs::read_to_string(Workspace::find().unwrap().path("inf/softndk.inx")).unwrap()
    }

    fn judge(text: &str, architecture: &str) -> Vec<String> {
        violations(text, &InfExpectation { architecture, version: "0.1.0.77", today: TODAY })
    }

    #[test]
    fn our_own_breaks_no_rule_on_either_architecture() {
        for (arch, name) in [(Arch::X64, "amd64"), (Arch::Arm64, "arm64")] {
            let broken = judge(&stamp(&template(), arch, TODAY, "0.1.0.77").unwrap(), name);
            assert!(broken.is_empty(), "{broken:#?}");
        }
    }

    /// Text, what takes its place, and a part of the sentence that has to be the only one.
    const TAMPERED: &[(&str, &str, &str)] = &[
        ("$WINDOWS NT$", "$CHICAGO$", "Signature is $CHICAGO$"),
        ("Class       = Net", "Class       = NetService", "Class is NetService"),
        ("{4d36e972-", "{4d36e973-", "ClassGuid is {4d36e973-"),
        ("CatalogFile = softndk.cat", "CatalogFile = other.cat", "CatalogFile is other.cat"),
        ("PnpLockdown = 1", "PnpLockdown = 0", "PnpLockdown is 0"),
        ("07/15/2026,", "07/16/2026,", "07/16/2026 is in the future"),
        ("07/15/2026,", "2026-07-15,", "2026-07-15 is not MM/DD/YYYY"),
        ("0.1.0.77", "0.1.0.76", "the version is 0.1.0.76"),
        ("softndk,NTamd64.10.0...19041", "softndk,NTamd64", "the models are for NTamd64"),
        (r"softndk.ndi,root\softndk", r"softndk.ndi,root\softndk2", r"the hardware id is root\softndk2"),
        (r"ExcludeFromSelect = root\softndk", r"ExcludeFromSelect = root\other", "legacy hardware"),
        ("= 0x81 ", "= 0x84 ", "Characteristics is 0x84"),
        ("*IfType            = 6", "*IfTyp             = 6", "*IfType is missing"),
        ("*MediaType         = 0", "*MediaType         = 1", "*MediaType is 1"),
        ("*PhysicalMediaType = 14", "*PhysicalMediaType = 0", "*PhysicalMediaType is 0"),
        ("softndk,2,softndk.service", "softndk,0,softndk.service", "the flags of AddService are 0"),
        ("StartType      = 3", "StartType      = 0", "StartType of the service is 0"),
        (r"%13%\softndk.sys", r"%12%\softndk.sys", r"ServiceBinary of the service is %12%\softndk.sys"),
        ("DefaultDestDir = 13", "DefaultDestDir = 12", "files go to directory 12"),
        ("[SourceDisksFiles]\r\nsoftndk.sys = 1", "[SourceDisksFiles]\r\nother.sys = 1", "the files are"),
        (r#"HKR,Ndi,Service,0,"softndk""#, r#"HKLM,Ndi,Service,0,"softndk""#, "HKLM is written to"),
        (r#"UpperRange,0,"ndis5""#, r#"UpperRange,0,"noupper""#, "UpperRange is noupper"),
        (r#"LowerRange,0,"ethernet""#, r#"LowerRange,0,"nolower""#, "LowerRange is nolower"),
        (r"*NetworkDirectTechnology\enum,4,0", r"*NetworkDirectTechnology\enum,3,0", "the values are 1, 3"),
        (r#"WireNumber,Default,0,"0""#, r#"WireNumber,Default,0,"65536""#, "the default 65536 is not in 0 to 65535"),
        (r#"WireNumber,Max,0,"65535""#, r#"WireNumber,Max,0,"-1""#, "the range 0 to -1 does not fit"),
        (r#"CompletionMode,Default,0,"0""#, r#"CompletionMode,Default,0,"3""#, "the default 3 is none of its values"),
        (r#"LimitsProfile,Type,0,"enum""#, r#"LimitsProfile,Type,0,"list""#, "the type is list"),
        (r#"LinkSpeedMbps,Optional,0,"0""#, r#"LinkSpeedMbps,Optional,0,"no""#, "Optional is no"),
        (r#"NetworkAddress,LimitText,0,"12""#, r#"NetworkAddress,Limit,0,"12""#, "an edit has a LimitText"),
        (r"LogicalPages,ParamDesc,0,%LogicalPages%", r"LogicalPages,Text,0,%LogicalPages%", "it has no ParamDesc"),
        ("%DiskName%", "%DiscName%", "%DiscName% is not in [Strings]"),
        ("[softndk.files]", "[softndk.file]", "nothing names the section [softndk.file]"),
        ("[ControlFlags]", "[Version]\r\n[ControlFlags]", "the section [Version] is there twice"),
        ("CopyFiles          = softndk.files", "CopyFiles = softndk.files\r\nCoInstallers32 = a", "co-installers"),
        ("ConnectX-like", "ConnectX\u{2013}like", "a byte is not ASCII"),
    ];

    #[test]
    fn tampered_files_are_refused_each_with_its_sentence() {
        let good = stamp(&template(), Arch::X64, TODAY, "0.1.0.77").unwrap();
        for (old, new, sentence) in TAMPERED {
            let place = good.find(old).unwrap_or_else(|| panic!("the INF has no {old}"));
            let mut bad = good.clone();
            bad.replace_range(place..place + old.len(), new);
            let broken = judge(&bad, "amd64");
            assert!(
                broken.iter().any(|line| line.contains(sentence)),
                "{new}\nexpected: {sentence}\nfound: {broken:#?}"
            );
        }
    }

    #[test]
    fn an_inf_of_another_architecture_is_refused() {
        let broken = judge(&stamp(&template(), Arch::Arm64, TODAY, "0.1.0.77").unwrap(), "amd64");
        assert!(broken.iter().any(|line| line.contains("the models are for NTarm64")), "{broken:#?}");
    }
}
