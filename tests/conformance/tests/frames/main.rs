//! A machine with the loaded image whose streams are TCP in frames that its own adapter carries, and a scripted peer at the other end
//! of the wire: Connect, Accept, messages each way, loss of frames, and a peer that vanishes.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod peer;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod trials;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    trials::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("no trials here: they load the driver in the kernel host, which runs on x86-64 Linux only");
}
