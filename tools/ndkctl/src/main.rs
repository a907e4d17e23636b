//! The binary: arguments, one command, an exit code.

fn main() {
    // Not an ExitCode: that has eight bits, and Windows' code for a restart has more.
    std::process::exit(ndkctl::run::from_command_line());
}
