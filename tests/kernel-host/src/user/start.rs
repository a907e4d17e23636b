//! Programs of others: an .exe file that runs as the program of a process, from its start to its end.
//!
//! Its imports come from the host (`kernel32`, `ntdll`), from the run-time library (`tests/kernel-host/run-time`) that each process
//! has a copy of, and from DLLs beside it. What it does wrong ends the process and not the host; a driver that does something wrong
//! for it still ends the host.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::dll::{self, DllError};
use super::process::{Process, ProcessState};
use super::program_state::ProgramEnd;
use super::threads;
use crate::image::{Image, ImageKind};
use crate::memory::address_space::Protection;

/// PEB.ImageBaseAddress.
const IMAGE_BASE_OFFSET: usize = 0x10;

/// An entry of the Winsock catalogue.
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    /// WSAPROTOCOL_INFOW.
    pub protocol: Vec<u8>,
    /// Of its DLL, with variables in percent signs.
    pub path: String,
}

/// A program, and what it finds.
pub struct ProgramSetup {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The run-time library: the C run-time, ws2_32, and what kernel32 has besides the host's own exports.
    pub run_time: PathBuf,
    /// DLLs that are found by their file names wherever the program looks for them.
    pub libraries: Vec<PathBuf>,
    pub catalog: Vec<CatalogEntry>,
    /// Is given each line of the output as soon as it is whole.
    pub show: Option<ShowLine>,
}

/// What is done with a line of a program's output.
pub type ShowLine = Box<dyn Fn(&str) + Send + Sync>;

impl ProgramSetup {
    /// As a shell of Windows would write it.
    fn command_line(&self) -> String {
        let name = self.program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let mut line = quoted(&name);
        for argument in &self.arguments {
            let _ = write!(line, " {}", quoted(argument));
        }
        line
    }
}

/// A word of a command line, in quotation marks where it needs them.
fn quoted(word: &str) -> String {
    if !word.is_empty() && !word.contains([' ', '\t', '"']) {
        return word.to_owned();
    }
    let mut text = String::from('"');
    let mut backslashes = 0;
    for character in word.chars() {
        match character {
            '\\' => backslashes += 1,
            '"' => {
                text.extend(std::iter::repeat_n('\\', backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        text.push(character);
    }
    text.extend(std::iter::repeat_n('\\', backslashes));
    text.push('"');
    text
}

/// A program that has been started. Dropping it ends the process.
pub struct RunningProgram {
    process: Process,
}

impl Process {
    /// Starts a program as this process's; its imports are bound when this returns, and it runs in a thread of its own.
    ///
    /// [`DllError::Image`]: the file is no program, or imports what nothing exports; the error names all of it.
    pub fn start_program(self, setup: ProgramSetup) -> Result<RunningProgram, DllError> {
        let state = &self.state;
        let command_line = setup.command_line();
        let (program, run_time) = (setup.program.clone(), setup.run_time.clone());
        let block = state.memory.allocate(1, Protection::ReadWrite);
        state.program.prepare(setup, block, texts(state, &command_line));
        state.program.libraries.add_run_time(dll::map(state, ImageKind::Dll, &run_time)?);
        let image = dll::map(state, ImageKind::Program, &program)?;
        state.memory.write(block + IMAGE_BASE_OFFSET, &image.base.to_le_bytes());
        state.program.libraries.add_program(&image);
        threads::start_main(state, &image);
        Ok(RunningProgram { process: self })
    }
}

/// The command line in the process's memory, in bytes and in UTF-16.
fn texts(state: &ProcessState, line: &str) -> [usize; 2] {
    let bytes: Vec<u8> = line.bytes().chain([0]).collect();
    let units: Vec<u8> = line.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    [bytes, units].map(|text| {
        let address = state.memory.allocate(text.len(), Protection::ReadWrite);
        state.memory.write(address, &text);
        address
    })
}

impl RunningProgram {
    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.process.state.program.ended.is_set()
    }

    /// Waits for its end, at most so long in the kernel's time, and takes the process away: nothing of it is left.
    pub fn wait(&self, limit: Duration) -> ProgramEnd {
        let program = &self.process.state.program;
        if program.ended.wait(Some(limit)) {
            self.process.kill();
            return program.end().unwrap_or(ProgramEnd::Exited(0));
        }
        let mut report = threads::describe_waits(&self.process.state);
        self.process.kill();
        report.push_str(&threads::describe_interrupted(&self.process.state));
        // It may have ended meanwhile.
        program.end().unwrap_or(ProgramEnd::TimedOut(report))
    }

    /// What it has written so far, to the standard output and to that of errors.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.state.program.output()
    }

    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// The DLL that a name stands for: one that the setup knows by its file name, or a file beside the program.
pub(super) fn find_library(setup: &ProgramSetup, name: &str) -> Option<PathBuf> {
    let is_it = |path: &&PathBuf| path.file_name().is_some_and(|own| own.to_string_lossy().eq_ignore_ascii_case(name));
    if let Some(known) = setup.libraries.iter().find(is_it) {
        return Some(known.clone());
    }
    let folder = setup.program.parent().unwrap_or_else(|| Path::new("."));
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.filter(|path| is_it(&path)).find(|path| path.is_file())
}

/// For reports: the images of a process.
pub(super) fn images(state: &ProcessState) -> Vec<Arc<Image>> {
    state.images.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_of_a_command_line_are_read_back_as_they_were() {
        let written = ["plain", "two words", "", r#"a "quoted" word"#, r"ends in \", r"a path\"].map(quoted);
        assert_eq!(
            written,
            ["plain", r#""two words""#, r#""""#, r#""a \"quoted\" word""#, r#""ends in \\""#, r#""a path\\""#]
        );
    }
}
