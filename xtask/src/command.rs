//! Running other programs: quiet when they succeed, everything they said when they do not.

use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// The command as a person would type it, for messages.
fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a command whose own output (progress, compiler messages) the person should see.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs a command and returns what it wrote to standard output; its error output appears only when it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !done.status.success() {
        bail!("`{}` failed ({}):\n{}", shown(command), done.status, String::from_utf8_lossy(&done.stderr).trim_end());
    }
    String::from_utf8(done.stdout).with_context(|| format!("`{}` printed something that is not text", shown(command)))
}
