//! Running other programs: quiet when they succeed, with all their output when they do not.

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

/// Runs a command and returns what it wrote to standard output; its output, errors included, appears only when it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !done.status.success() {
        // Test binaries name the failed test on standard output, compilers and cargo speak on the other one.
        let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned());
        bail!("`{}` failed ({}):\n{}", shown(command), done.status, said.join("\n").trim());
    }
    String::from_utf8(done.stdout).with_context(|| format!("`{}` printed something that is not text", shown(command)))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn failure_shows_both_outputs() {
        let error = output(Command::new("sh").args(["-c", "echo test a::b ... FAILED; echo no target >&2; exit 3"]));
        let text = error.unwrap_err().to_string();
        assert!(text.contains("test a::b ... FAILED") && text.contains("no target"), "{text}");
    }

    #[test]
    fn success_gives_standard_output_alone() {
        assert_eq!(output(Command::new("sh").args(["-c", "echo one; echo two >&2"])).unwrap(), "one\n");
    }
}
