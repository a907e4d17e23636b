//! `inf/setup.ps1` runs on Windows only, where none of our tests run. What can be known without running it is tested here, on what a real
//! parser (tree-sitter-powershell) makes of it: it is PowerShell 5.1; it calls only what Windows has in the box; -WhatIf changes
//! nothing; and Uninstall removes every kind of thing that Install makes. Each rule is tested on scripts that break it.

#![cfg(unix)]

mod in_box;
mod rules;
mod script;
mod uninstall;

use in_box::{CMDLETS, HARMLESS, READING_VERBS};
use script::Script;
use std::{collections::BTreeSet, fs, path::Path};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

fn setup() -> String {
    read("inf/setup.ps1")
}

/// The script with one piece of text replaced, which has to be there once.
fn tampered(old: &str, new: &str) -> String {
    let script = setup();
    assert_eq!(script.matches(old).count(), 1, "{old}");
    script.replace(old, new)
}

fn of_uninstall(script: &str) -> Vec<String> {
    uninstall::violations(script, &read("inf/softndk.inx"))
}

fn assert_refused(broken: &[String], sentence: &str, change: &str) {
    assert!(broken.iter().any(|line| line.contains(sentence)), "{change}\nexpected: {sentence}\nfound: {broken:#?}");
}

/// The paths of all scripts of the project.
fn scripts() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut found, mut folders) = (Vec::new(), vec!["inf".to_owned(), "tools".to_owned(), "xtask".to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if Path::new(&path).extension().is_some_and(|extension| extension == "ps1") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn every_script_is_powershell_of_windows() {
    let scripts = scripts();
    assert!(scripts.contains(&"inf/setup.ps1".to_owned()), "{scripts:?}");
    for path in scripts {
        let broken = rules::syntax(&Script::parse(&read(&path)));
        assert!(broken.is_empty(), "{path}: {broken:#?}");
    }
}

#[test]
fn setup_breaks_no_rule() {
    let broken = rules::violations(&setup());
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn uninstall_removes_every_kind_of_thing_that_install_makes() {
    let broken = of_uninstall(&setup());
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn tampered_scripts_are_refused() {
    for (old, new, sentence) in [
        ("function Assert-Elevated {", "function Assert-Elevated {{", "no PowerShell"),
        ("if ($build -lt 19041) {", "if ($build -lt 19041 {", "no PowerShell"),
        ("'restart Windows to finish'", "'restart Windows \u{2013} finish'", "not ASCII"),
        ("Stop-Transcript | Out-Null", "Stop-Transcript && Out-Null", "&& needs PowerShell 7"),
        ("return $false }\n        Start-Sleep", "return $false }\n        sleep", "sleep  is not on the list"),
        (
            "Out-Host\n    $code",
            "Out-Host\n    Invoke-Expression $Tool\n    $code",
            "Invoke-Expression  is not on the list",
        ),
        ("Start-Sleep -Milliseconds 500", "Start-Sleep -Milli 500", "-Milli of Start-Sleep"),
        ("Test-Path $description", "Test-Path $descripton", "$descripton never gets a value"),
        (
            "'pnputil.exe' @('/delete-driver', $old",
            "'devcon.exe' @('/delete-driver', $old",
            "devcon.exe /delete-driver is not on",
        ),
        ("@('/reset')", "@('/reset', '/force')", "verifier.exe /reset /force is not on"),
        (
            "[Diagnostics.Stopwatch]::StartNew()",
            "[Diagnostics.Process]::GetCurrentProcess()",
            "[Diagnostics.Process] is not",
        ),
        ("    [string] $Log =", "    [string] $More = '',\n    [string] $Log =", "the parameter -More is not used"),
        (
            "function Write-Step",
            "function Write-Nothing { Out-Null }\nfunction Write-Step",
            "the function Write-Nothing is not used",
        ),
        (
            "if ($PSCmdlet.ShouldProcess($Adapter.Name, \"name it softndk $number\"))",
            "if ($number -gt 0)",
            "-WhatIf does not keep from Install-Softndk > Set-Adapter > Set-AdapterName > Rename-NetAdapter",
        ),
        (
            "if ($PSCmdlet.ShouldProcess('all drivers', 'stop verifying'))",
            "if (-not $PSCmdlet.ShouldProcess('all drivers', 'stop verifying'))",
            "-WhatIf does not keep from Disable-Verifier > verifier.exe",
        ),
        (
            "if (-not $WhatIfPreference) {\n        Start",
            "if ($Log) {\n        Start",
            "-WhatIf does not keep from Start-Transcript",
        ),
    ] {
        assert_refused(&rules::violations(&tampered(old, new)), sentence, new);
    }
}

#[test]
fn things_that_uninstall_would_leave_are_found() {
    for (old, new, sentence) in [
        (
            "        'Provider' { Invoke-Tool $Ndkctl @('nd', 'remove') }\n",
            "",
            "Remove-Record does not have the kind Provider",
        ),
        ("        'File' { Test-Path $Value }\n", "", "Test-Record does not have the kind File"),
        ("'Service', 'EventSource', 'File'", "'Service', 'File'", "$RemovalOrder does not have the kind EventSource"),
        ("        Add-Record 'Device' $HardwareId\n", "", "$Ndkctl makes a Device, which is not recorded before"),
        (
            "    Add-Record 'Certificate' $CertificateSubject\n",
            "",
            "Import-Certificate makes a Certificate, which is not",
        ),
        ("        Add-Record 'Service' 'softndk'\n", "", "the INF makes the Service 'softndk', which is not recorded"),
        (
            "        Add-Record 'File' $TestDriver\n",
            "        Add-Record 'File' $Folder\n",
            "the File $TestDriver is recorded or",
        ),
        (
            "        'File' { Remove-Item $Value -Force }",
            "        'File' { Test-Path $Value }",
            "the clause File of Remove-Record takes",
        ),
        (
            "@('adapter', 'remove', '--all')",
            "@('adapter', 'remove', $Value)",
            "the clause Device of Remove-Record takes",
        ),
        (
            "'verifier.exe' @('/reset') @(0, 2)",
            "'verifier.exe' @('/flags', $null, '/driver')",
            "nothing takes back what verifier.exe",
        ),
        (
            "        Add-Record 'File' $TestDriver\n",
            "        Add-Record 'File' $TestDriver\n        Add-Record 'Task' 'softndk'\n",
            "Remove-Record does not have the kind Task",
        ),
    ] {
        assert_refused(&of_uninstall(&tampered(old, new)), sentence, new);
    }
}

/// A cmdlet whose verb changes things is on the list as one that does.
#[test]
fn list_of_cmdlets_knows_which_of_them_change_the_machine() {
    let mut names = BTreeSet::new();
    for cmdlet in CMDLETS {
        let verb = cmdlet.name.split('-').next().unwrap();
        let reads = READING_VERBS.contains(&verb) || HARMLESS.contains(&cmdlet.name);
        assert_eq!(cmdlet.effect.changes(), !reads, "{} of {}", cmdlet.name, cmdlet.module);
        assert!(names.insert(cmdlet.name), "{} is on the list twice", cmdlet.name);
    }
    let script = Script::parse(&setup());
    let used: BTreeSet<&str> = script.commands().iter().map(|command| command.name.as_str()).collect();
    let stale: Vec<_> = names.difference(&used).collect();
    assert!(stale.is_empty(), "{stale:?} are on the list and not used");
}

/// Parameters and exit codes, in the help and in the page.
#[test]
fn page_names_every_parameter_and_exit_code() {
    let (setup, page) = (setup(), read("docs/windows.md"));
    for parameter in Script::parse(&setup).parameters() {
        assert!(page.contains(&format!("`-{parameter}")), "docs/windows.md does not name -{parameter}");
    }
    let codes: Vec<&str> = setup.lines().filter(|line| line.starts_with("$Exit")).collect();
    assert_eq!(codes.len(), 10);
    for line in codes {
        let code = line.split(" = ").nth(1).unwrap();
        assert!(setup.contains(&format!("\n{code:>8}  ")), "the help does not name exit code {code}");
        assert!(page.contains(&format!("\n| {code} |")), "docs/windows.md does not name exit code {code}");
    }
}
