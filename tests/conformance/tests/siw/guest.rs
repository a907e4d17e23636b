//! The guest's shell: command lines, their output and status. The scripts that it has are in `xtask/interop`.

use std::env;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use kernel_host::dispatcher;

/// Names the address at which the guest's ports are.
const VARIABLE: &str = "SOFTNDK_SIW_GUEST";
const SHELL_PORT: u16 = 2323;
/// The shell serves one line at a time, and is not at its port between two.
const TRIES: u32 = 3000;

/// The address of the guest's ports, if there is a guest.
pub fn address() -> Option<Ipv4Addr> {
    env::var(VARIABLE).ok().map(|address| address.parse().expect("the variable names an address of IPv4"))
}

/// Runs a command line; its status and what it said.
pub fn run(line: &str) -> (i32, String) {
    dispatcher::while_blocked(|| {
        for _ in 0..TRIES {
            if let Some(said) = try_run(line).unwrap_or_default() {
                return said;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the guest has no shell at port {SHELL_PORT} for `{line}`");
    })
}

/// As [`run`], of a line that succeeds.
#[track_caller]
pub fn expect(line: &str) -> String {
    let (status, said) = run(line);
    assert_eq!(status, 0, "`{line}` in the guest said:\n{said}");
    said
}

/// Nothing when there is no shell at the moment.
fn try_run(line: &str) -> io::Result<Option<(i32, String)>> {
    let mut shell = TcpStream::connect((address().expect("a guest"), SHELL_PORT))?;
    let mut greeting = [0; "@ready\n".len()];
    if shell.read_exact(&mut greeting).is_err() {
        return Ok(None);
    }
    shell.write_all(format!("{line}\n").as_bytes())?;
    let mut said = Vec::new();
    shell.read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let (output, status) = said.rsplit_once("@status ").unwrap_or_else(|| panic!("`{line}` has no end:\n{said}"));
    Ok(Some((status.trim().parse().expect("a status"), output.to_owned())))
}

/// Starts a program under a name, for [`ended`].
pub fn begin(name: &str, command: &str) {
    expect(&format!("begin {name} {command}"));
}

/// Waits for the end of a program; its status and output.
pub fn ended(name: &str) -> (i32, String) {
    run(&format!("ended {name}"))
}

/// What the kernel has said since the last call.
pub fn kernel_log() -> String {
    expect("dmesg -c")
}
