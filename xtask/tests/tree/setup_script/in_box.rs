//! What setup.ps1 may call: commands that Windows build 19041 and later have in the box, with the module that has them, the parameters
//! that are used, and what each does to the machine.

/// What a command does to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that stays.
    Reads,
    /// Makes something of one of these kinds, which Uninstall has to remove.
    Makes(&'static [&'static str]),
    /// Changes something of this kind, and goes with it.
    ChangesPartOf(&'static str),
    /// Takes away things of these kinds.
    Removes(&'static [&'static str]),
    /// Changes a setting that another command of the script takes back: program and first word.
    TakenBackBy(&'static str, &'static str),
}

impl Effect {
    pub fn changes(self) -> bool {
        self != Self::Reads
    }
}

pub struct Cmdlet {
    pub name: &'static str,
    pub module: &'static str,
    pub parameters: &'static [&'static str],
    pub effect: Effect,
}

use Effect::{ChangesPartOf, Makes, Reads, Removes, TakenBackBy};

const fn cmdlet(
    module: &'static str,
    name: &'static str,
    parameters: &'static [&'static str],
    effect: Effect,
) -> Cmdlet {
    Cmdlet { name, module, parameters, effect }
}

const CORE: &str = "Microsoft.PowerShell.Core";
const MANAGEMENT: &str = "Microsoft.PowerShell.Management";
const SECURITY: &str = "Microsoft.PowerShell.Security";
const UTILITY: &str = "Microsoft.PowerShell.Utility";

pub const CMDLETS: &[Cmdlet] = &[
    cmdlet("CimCmdlets", "Get-CimInstance", &["ClassName", "Filter"], Reads),
    cmdlet("Dism", "Get-WindowsDriver", &["Online"], Reads),
    cmdlet(CORE, "ForEach-Object", &[], Reads),
    cmdlet(CORE, "Out-Host", &[], Reads),
    cmdlet(CORE, "Out-Null", &[], Reads),
    cmdlet(CORE, "Set-StrictMode", &["Version"], Reads),
    cmdlet(CORE, "Where-Object", &[], Reads),
    cmdlet("Microsoft.PowerShell.Host", "Start-Transcript", &["Path", "Append"], ChangesPartOf("the log")),
    cmdlet("Microsoft.PowerShell.Host", "Stop-Transcript", &[], Reads),
    cmdlet(MANAGEMENT, "Copy-Item", &["Force"], Makes(&["Folder", "File"])),
    cmdlet(MANAGEMENT, "Get-ChildItem", &[], Reads),
    cmdlet(MANAGEMENT, "Get-Content", &["Raw"], Reads),
    cmdlet(MANAGEMENT, "Get-ItemProperty", &["Path", "Name", "ErrorAction"], Reads),
    cmdlet(MANAGEMENT, "Join-Path", &[], Reads),
    cmdlet(MANAGEMENT, "New-Item", &["ItemType", "Path", "Force"], ChangesPartOf("Folder")),
    cmdlet(
        MANAGEMENT,
        "Remove-Item",
        &["Recurse", "Force", "DeleteKey"],
        Removes(&["EventSource", "File", "Certificate", "Folder"]),
    ),
    cmdlet(MANAGEMENT, "Resolve-Path", &[], Reads),
    cmdlet(MANAGEMENT, "Set-Content", &["Encoding"], ChangesPartOf("Folder")),
    cmdlet(MANAGEMENT, "Set-Location", &[], Reads),
    cmdlet(MANAGEMENT, "Split-Path", &["Leaf"], Reads),
    cmdlet(MANAGEMENT, "Test-Path", &[], Reads),
    cmdlet(SECURITY, "Get-AuthenticodeSignature", &[], Reads),
    cmdlet(SECURITY, "New-FileCatalog", &["Path", "CatalogFilePath", "CatalogVersion"], ChangesPartOf("Folder")),
    cmdlet(
        SECURITY,
        "Set-AuthenticodeSignature",
        &["FilePath", "Certificate", "HashAlgorithm"],
        ChangesPartOf("Folder"),
    ),
    cmdlet(UTILITY, "ConvertFrom-Json", &[], Reads),
    cmdlet(UTILITY, "ConvertTo-Json", &["Depth"], Reads),
    cmdlet(UTILITY, "Format-Table", &[], Reads),
    cmdlet(UTILITY, "Get-Date", &[], Reads),
    cmdlet(UTILITY, "Get-FileHash", &["Algorithm"], Reads),
    cmdlet(UTILITY, "Select-Object", &["First"], Reads),
    cmdlet(UTILITY, "Sort-Object", &["Unique", "Descending"], Reads),
    cmdlet(UTILITY, "Start-Sleep", &["Milliseconds"], Reads),
    cmdlet(UTILITY, "Unblock-File", &[], ChangesPartOf("Folder")),
    cmdlet(UTILITY, "Write-Host", &["ForegroundColor"], Reads),
    cmdlet("NetAdapter", "Get-NetAdapter", &["IncludeHidden"], Reads),
    cmdlet("NetAdapter", "Get-NetAdapterAdvancedProperty", &["Name", "RegistryKeyword"], Reads),
    cmdlet("NetAdapter", "Rename-NetAdapter", &["Name", "NewName"], ChangesPartOf("Device")),
    cmdlet(
        "NetAdapter",
        "Set-NetAdapterAdvancedProperty",
        &["Name", "RegistryKeyword", "RegistryValue"],
        ChangesPartOf("Device"),
    ),
    cmdlet("NetSecurity", "Get-NetFirewallRule", &["Name", "ErrorAction"], Reads),
    cmdlet(
        "NetSecurity",
        "New-NetFirewallRule",
        &[
            "Name",
            "DisplayName",
            "Direction",
            "Protocol",
            "LocalPort",
            "RemoteAddress",
            "Program",
            "InterfaceAlias",
            "Action",
        ],
        Makes(&["FirewallRule"]),
    ),
    cmdlet("NetSecurity", "Remove-NetFirewallRule", &["Name"], Removes(&["FirewallRule"])),
    cmdlet("NetTCPIP", "Get-NetIPAddress", &["InterfaceIndex", "AddressFamily", "ErrorAction"], Reads),
    cmdlet("NetTCPIP", "New-NetIPAddress", &["InterfaceIndex", "IPAddress", "PrefixLength"], ChangesPartOf("Device")),
    cmdlet("NetTCPIP", "Remove-NetIPAddress", &["InterfaceIndex", "IPAddress", "Confirm"], ChangesPartOf("Device")),
    cmdlet("NetTCPIP", "Set-NetIPInterface", &["InterfaceIndex", "AddressFamily", "Dhcp"], ChangesPartOf("Device")),
    cmdlet("PKI", "Export-Certificate", &["Cert", "FilePath"], ChangesPartOf("Folder")),
    cmdlet("PKI", "Import-Certificate", &["FilePath", "CertStoreLocation"], Makes(&["Certificate"])),
    cmdlet(
        "PKI",
        "New-SelfSignedCertificate",
        &["Type", "Subject", "HashAlgorithm", "CertStoreLocation", "KeyExportPolicy", "NotAfter"],
        Makes(&["Certificate"]),
    ),
    cmdlet("PnpDevice", "Get-PnpDevice", &["Class", "ErrorAction"], Reads),
];

/// A program with the words that it is started with. It has them all, and only these.
pub struct Program {
    pub name: &'static str,
    pub words: &'static [&'static str],
    pub effect: Effect,
}

const fn program(name: &'static str, words: &'static [&'static str], effect: Effect) -> Program {
    Program { name, words, effect }
}

/// `$Ndkctl` is our own tool, which is in the package; the others are in System32.
pub const PROGRAMS: &[Program] = &[
    program("$Ndkctl", &["adapter", "add", "--count"], Makes(&["Device"])),
    program("$Ndkctl", &["adapter", "remove"], Removes(&[])),
    program("$Ndkctl", &["adapter", "remove", "--all"], Removes(&["Device"])),
    program("$Ndkctl", &["doctor"], Reads),
    program("$Ndkctl", &["nd", "install", "--dll"], Makes(&["Provider"])),
    program("$Ndkctl", &["nd", "remove"], Removes(&["Provider"])),
    program("$Ndkctl", &["wire", "join", "--peer"], ChangesPartOf("Device")),
    // What the INF declares comes with it.
    program("pnputil.exe", &["/add-driver", "/install"], Makes(&["Package", "Service", "EventSource"])),
    program("pnputil.exe", &["/delete-driver"], Removes(&[])),
    program("pnputil.exe", &["/delete-driver", "/uninstall"], Removes(&["Package"])),
    program("sc.exe", &["create", "ndktest", "type=", "kernel", "start=", "demand", "binPath="], Makes(&["Service"])),
    program("sc.exe", &["start", "ndktest"], ChangesPartOf("Service")),
    program("sc.exe", &["stop"], ChangesPartOf("Service")),
    program("sc.exe", &["delete"], Removes(&["Service"])),
    program("verifier.exe", &["/flags", "/driver"], TakenBackBy("verifier.exe", "/reset")),
    program("verifier.exe", &["/reset"], Removes(&[])),
];

/// Functions that run what they were given, and the variable that they may run.
pub const RUNNERS: &[(&str, &str)] = &[("Invoke-Tool", "$Tool"), ("Wait-Until", "$Condition")];

/// Types of .NET Framework 4 and accelerators of PowerShell 5.1.
pub const TYPES: &[&str] = &[
    "CmdletBinding",
    "Diagnostics.Stopwatch",
    "Environment",
    "InvalidOperationException",
    "Parameter",
    "Security.Principal.WindowsBuiltInRole",
    "Security.Principal.WindowsIdentity",
    "Security.Principal.WindowsPrincipal",
    "Text.Encoding",
    "ValidateRange",
    "bool",
    "int",
    "pscustomobject",
    "scriptblock",
    "string",
    "switch",
    "uint32",
];

/// Variables that PowerShell gives a value.
pub const AUTOMATIC: &[&str] = &[
    "_",
    "true",
    "false",
    "null",
    "lastexitcode",
    "psboundparameters",
    "pscmdlet",
    "psscriptroot",
    "whatifpreference",
    "env:path",
    "env:processor_architecture",
    "env:programfiles",
    "env:systemroot",
    "env:temp",
];

/// Verbs of cmdlets that change nothing outside of the script.
pub const READING_VERBS: &[&str] = &[
    "ConvertFrom",
    "ConvertTo",
    "ForEach",
    "Format",
    "Get",
    "Join",
    "Out",
    "Resolve",
    "Select",
    "Sort",
    "Split",
    "Test",
    "Where",
    "Write",
];

/// Cmdlets of other verbs that change nothing but the running script.
pub const HARMLESS: &[&str] = &["Set-Location", "Set-StrictMode", "Start-Sleep", "Stop-Transcript"];
