//! Programs of others on a machine with the driver: what they find there, and how they are run.

use kernel_host::{CatalogEntry, Kernel, ProgramEnd, ProgramSetup, RunningProgram};
use ndkctl::nd::catalog::entry::{GENERATIONS, ProtocolInfo};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zerocopy::IntoBytes as _;

/// Where the catalogue says that the provider's DLL is.
pub const PROVIDER_PATH: &str = r"%SystemRoot%\System32\softnd.dll";

/// How long a program that was started first may prepare itself before the second one is started, in the kernel's time.
const HEAD_START: Duration = Duration::from_millis(200);

/// How often its output is looked at.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A TCP provider as each machine has one: no program may take it for one of NetworkDirect.
fn of_tcp() -> ProtocolInfo {
    const INTERNET: i32 = 2;
    const STREAM: i32 = 1;
    const TCP: i32 = 6;
    let mut info = ProtocolInfo::ours(GENERATIONS[0]);
    info.provider_flags = 0;
    info.provider_id = [0xE7; 16];
    (info.address_family, info.socket_type, info.protocol) = (INTERNET, STREAM, TCP);
    info.name = [0; 256];
    for (place, unit) in info.name.iter_mut().zip("TCP/IP".encode_utf16()) {
        *place = unit;
    }
    info
}

/// The catalogue with TCP first and both versions of the provider.
#[must_use]
pub fn catalog() -> Vec<CatalogEntry> {
    let entry =
        |info: ProtocolInfo, path: &str| CatalogEntry { protocol: info.as_bytes().to_vec(), path: path.to_owned() };
    let ours = GENERATIONS.into_iter().map(|generation| entry(ProtocolInfo::ours(generation), PROVIDER_PATH));
    std::iter::once(entry(of_tcp(), r"%SystemRoot%\System32\mswsock.dll")).chain(ours).collect()
}

/// What each program is given besides its own file.
pub struct Files {
    pub run_time: PathBuf,
    pub provider: PathBuf,
}

impl Files {
    /// Starts a program as an elevated administrator's. `show` is given each line of its output.
    pub fn start(
        &self,
        kernel: &Kernel,
        program: &Path,
        arguments: &[String],
        show: Option<kernel_host::ShowLine>,
    ) -> Result<RunningProgram, String> {
        let setup = ProgramSetup {
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            run_time: self.run_time.clone(),
            libraries: vec![self.provider.clone()],
            catalog: catalog(),
            show,
        };
        kernel.start_process().start_program(setup).map_err(|error| error.to_string())
    }
}

/// Lets a program run for a while; it need not have come far on a busy machine.
pub fn head_start(kernel: &Kernel) {
    kernel.sleep(HEAD_START);
}

/// Waits, however long it takes, until a program has written a text. An error if it ends without.
pub fn wait_for_output(kernel: &Kernel, program: &RunningProgram, text: &str) -> Result<(), String> {
    loop {
        // Looked at first: what is written before the end counts.
        let has_ended = program.has_ended();
        if program.output().contains(text) {
            return Ok(());
        }
        if has_ended {
            return Err(format!("it ended and had not written \"{text}\""));
        }
        kernel.sleep(BETWEEN_LOOKS);
    }
}

/// The end in a sentence.
#[must_use]
pub fn describe(end: &ProgramEnd) -> String {
    match end {
        ProgramEnd::Exited(code) => format!("exit code {code} (0x{code:X})"),
        ProgramEnd::Failed(report) => format!("failed: {report}"),
        ProgramEnd::TimedOut(report) => format!("did not end in its time{report}"),
    }
}
