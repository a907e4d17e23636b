//! Schedules by a seed, tested on the loaded image: three threads post to one queue pair and take from one completion queue,
//! and the schedule decides the order of the results. The same seed gives the same order of results and the same trace of
//! everything before them; other seeds give others.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "trials.rs"]
mod trials;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    trials::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("no trials here: they load the driver in the kernel host, which runs on x86-64 Linux only");
}
