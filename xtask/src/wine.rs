//! `cargo xtask wine`: what can be run of softnd.dll and ndkctl.exe without Windows and without a driver, in Wine.
//!
//! Wine has no kernel that loads softndk.sys. So the provider is loaded, its exports, class factory and providers are called, and all
//! that needs an adapter answers that there is none; ndkctl.exe shows its help, the catalogue, and its exit codes. Everything behind
//! an open adapter is left to the kernel host.

use crate::{
    command,
    driver::Profile,
    setup::{self, Need},
    softnd,
    tools::WindowsPrograms,
    workspace::Workspace,
};
use anyhow::{Context, Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Run softnd.dll and ndkctl.exe in Wine, as far as that goes without a driver.
#[derive(clap::Args)]
pub struct WineArguments {}

/// One command line: its exit code, and what its output has.
struct Expectation {
    words: &'static [&'static str],
    code: i32,
    output: &'static [&'static str],
}

const NDKCTL: &[Expectation] = &[
    Expectation { words: &["--help"], code: 0, output: &["NetworkDirect", "Exit codes"] },
    Expectation { words: &["--version"], code: 0, output: &["ndkctl"] },
    Expectation { words: &["nd", "--help"], code: 0, output: &["install", "remove", "perf"] },
    Expectation { words: &["nd", "list"], code: 0, output: &["no providers of NetworkDirect"] },
    Expectation { words: &["--json", "nd", "list"], code: 0, output: &["\"entries\": []"] },
    Expectation { words: &["nd", "install", "--dry-run"], code: 0, output: &["0x8E", "0x14", "0x20000", "System32"] },
    Expectation { words: &["nd", "install"], code: 6, output: &["softnd.dll", "--dll"] },
    Expectation { words: &["nd", "remove"], code: 0, output: &["was not installed"] },
    Expectation { words: &["nd", "fly"], code: 2, output: &["fly"] },
    Expectation { words: &["nd", "info"], code: 3, output: &["nd install", "--dll"] },
    Expectation { words: &["nd", "info", "--dll", "softnd.dll"], code: 0, output: &["no adapters"] },
    Expectation { words: &["nd", "info", "--dll", "none.dll"], code: 3, output: &["none.dll"] },
    Expectation { words: &["nd", "info", "--dll", "kernel32.dll"], code: 3, output: &["DllGetClassObject"] },
    Expectation { words: &["nd", "ping", "--dll", "softnd.dll"], code: 3, output: &["cannot choose an address"] },
    Expectation {
        words: &["nd", "ping", "--dll", "softnd.dll", "--server", "10.0.0.1"],
        code: 1,
        output: &["ND_INVALID_ADDRESS", "nd info"],
    },
    Expectation { words: &["info"], code: 3, output: &["setup.ps1"] },
];

pub fn run(_: &WineArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::ensure(&[Need::Wine])?;
    let wine = Wine::prepare(&workspace)?;
    let probe = wine.run(&["nd-program.exe", "softnd.dll", "probe"])?;
    check(&Expectation { words: &["nd-program.exe", "softnd.dll", "probe"], code: 0, output: &[] }, &probe)?;
    for expectation in NDKCTL {
        check(expectation, &wine.run(&[&["ndkctl.exe"], expectation.words].concat())?)?;
    }
    println!("{} command lines in Wine {}: as expected", NDKCTL.len() + 1, wine.version()?);
    Ok(())
}

/// A folder with the images, and a prefix of our own.
struct Wine {
    program: PathBuf,
    folder: PathBuf,
}

impl Wine {
    fn prepare(workspace: &Workspace) -> Result<Self> {
        let program = setup::wine().context("there is no wine64")?;
        let folder = workspace.path("target/wine/images");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let programs = WindowsPrograms::build(workspace, false)?;
        let dll = softnd::build(workspace, Profile::Release)?;
        for image in [programs.ndkctl, programs.nd_program, dll] {
            let copy = folder.join(image.file_name().unwrap_or_default());
            fs::copy(&image, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
        }
        stand_in(workspace, &folder)?;
        Ok(Self { program, folder })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        let prefix = self.folder.with_file_name("prefix");
        // Without its debugger, its browser and its display driver, of which nothing here needs any.
        let without = "winemenubuilder.exe,winedbg.exe,mshtml,mscoree=d";
        command.current_dir(&self.folder).env("WINEPREFIX", prefix).env("WINEDEBUG", "-all");
        command.env("WINEDLLOVERRIDES", without).env_remove("DISPLAY").env_remove("SOFTNDK_DLL");
        command
    }

    fn run(&self, words: &[&str]) -> Result<Output> {
        self.command().args(words).output().with_context(|| format!("cannot start {}", self.program.display()))
    }

    fn version(&self) -> Result<String> {
        let text = command::output(self.command().arg("--version"))?;
        Ok(text.trim().trim_start_matches("wine-").to_owned())
    }
}

/// Builds what Wine does not have beside the programs.
fn stand_in(workspace: &Workspace, folder: &Path) -> Result<()> {
    let source = workspace.path("xtask/wine/bcryptprimitives.c");
    let mut compiler = Command::new(setup::TOOL_LINKER);
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-nostdlib", "-shared", "-Wl,--entry,0", "-o"]);
    compiler.arg(folder.join("bcryptprimitives.dll")).arg(source).arg("-ladvapi32");
    command::output(&mut compiler).context("the stand-in for bcryptprimitives.dll does not build")?;
    Ok(())
}

/// Its prefix is not used again by anything else: the server ends with it.
impl Drop for Wine {
    fn drop(&mut self) {
        let server = self.program.with_file_name("wineserver");
        let mut command = Command::new(if server.is_file() { server } else { Path::new("wineserver").to_owned() });
        let _ = command.env("WINEPREFIX", self.folder.with_file_name("prefix")).arg("-k").output();
    }
}

fn check(expectation: &Expectation, output: &Output) -> Result<()> {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let missing: Vec<&&str> = expectation.output.iter().filter(|wanted| !text.contains(**wanted)).collect();
    if output.status.code() == Some(expectation.code) && missing.is_empty() {
        return Ok(());
    }
    let words = expectation.words.join(" ");
    bail!("`{words}` ends with {}, expected {}; its output lacks {missing:?}:\n{text}", output.status, expectation.code)
}
