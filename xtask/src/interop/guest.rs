//! The guest: a Linux with siw in QEMU, behind QEMU's user networking.
//!
//! Ports of an address of this machine that no other run has are those of the guest; the guest reaches 127.0.0.1 as 10.0.2.2. Everything
//! that passes its network card is captured.

use super::{capture::Capture, kernel::GuestKernel, packages::Packages};
use crate::host_pair;
use anyhow::{Context, Result, bail};
use std::{
    fs::{self, File, OpenOptions},
    net::{Ipv4Addr, UdpSocket},
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The guest's ports that are reached: the shell of `serve.sh`, two for programs of a case, NVMe and SMB Direct.
const PORTS: [u16; 5] = [2323, 7174, 7175, NVME, 5445];
const NVME: u16 = 4420;

/// Below the ports that Linux gives to sockets.
const TUNNEL_PORTS: Range<u16> = 20_000..32_000;

/// How the guest's processors run.
#[derive(Clone, Copy)]
pub(super) enum Acceleration {
    Kvm,
    Emulation,
}

impl Acceleration {
    /// KVM where this user may use it and the processor helps. Without its help KVM exists on some machines and takes minutes to boot.
    pub(super) fn find(without_kvm: bool) -> Self {
        let may_use = || OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
        let helps = || fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| has_virtualisation(&text));
        if !without_kvm && may_use() && helps() { Self::Kvm } else { Self::Emulation }
    }

    /// What to try when a guest does not boot.
    fn advice(self) -> &'static str {
        match self {
            Self::Kvm => " with KVM: try `--without-kvm`",
            Self::Emulation => "",
        }
    }

    /// A boot takes seconds; emulated and beside a busy machine, a minute.
    fn boot_limit(self) -> Duration {
        Duration::from_mins(match self {
            Self::Kvm => 2,
            Self::Emulation => 10,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Emulation => "tcg",
        }
    }
}

fn has_virtualisation(processors: &str) -> bool {
    let mut flags = processors.lines().filter(|line| line.starts_with("flags")).flat_map(str::split_whitespace);
    flags.any(|flag| flag == "vmx" || flag == "svm")
}

/// What every guest of a run boots.
pub(super) struct BootPlan<'a> {
    pub packages: &'a Packages,
    pub kernel: &'a GuestKernel<'a>,
    pub initrd: PathBuf,
    pub acceleration: Acceleration,
    /// The UDP port of the driver's uplink and of VXLAN in the guest.
    pub tunnel_port: u16,
    /// For logs and captures.
    pub folder: PathBuf,
}

/// A guest that runs; it ends with this value.
pub(super) struct Guest {
    process: Child,
    log: PathBuf,
    /// Of its network card.
    pub(super) capture: Capture,
    /// Where its ports are.
    pub(super) address: Ipv4Addr,
}

/// The address of the guest's ports, by the number of this process.
fn stand_in() -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, 251)
}

/// Where an ndkctl of a network reaches its first machine, at 10.77.1.1: `machines.rs` of ndkctl's kernel host has the same.
fn first_machine(network: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x7F80_0010 | network << 9)
}

/// A port of UDP at 127.0.0.1, where the guest's datagrams come to. Other runs have others.
pub(super) fn tunnel_port() -> Result<u16> {
    let count = u32::from(TUNNEL_PORTS.end - TUNNEL_PORTS.start);
    let first = TUNNEL_PORTS.start + u16::try_from(std::process::id() % count)?;
    let mut ports = (first..TUNNEL_PORTS.end).chain(TUNNEL_PORTS.start..first);
    ports.find(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).context("no port of UDP is free")
}

impl Guest {
    /// Boots the guest of this number of a run.
    pub(super) fn boot(plan: &BootPlan<'_>, number: usize) -> Result<Self> {
        let file = |extension: &str| plan.folder.join(format!("guest-{number}.{extension}"));
        let (log, capture, address) = (file("log"), file("pcap"), stand_in());
        // That of an earlier run says that its guest was ready.
        fs::write(&log, [])?;
        let mut qemu = plan.qemu(&log, &capture, address)?;
        qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(file("qemu"))?);
        let process = qemu.spawn().context("cannot start QEMU")?;
        let mut guest = Self { process, log, capture: Capture::new(capture), address };
        let started = Instant::now();
        while !guest.log_text().contains("GUEST READY") {
            if guest.process.try_wait()?.is_some() || started.elapsed() > plan.acceleration.boot_limit() {
                let said = fs::read_to_string(file("qemu")).unwrap_or_default();
                bail!(
                    "the guest did not come up{}; QEMU said {:?}, its console is {}",
                    plan.acceleration.advice(),
                    said.trim(),
                    guest.log.display()
                );
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(guest)
    }

    fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// What the guest's kernel said when it broke.
    pub(super) fn crash(&mut self) -> Result<Option<String>> {
        if let Some(said) = crash_line(&self.log_text()) {
            return Ok(Some(format!("the guest's kernel broke: {said}")));
        }
        Ok(self.process.try_wait()?.map(|status| format!("the guest ended ({status})")))
    }

    /// Leaves the guest running; the number of its process.
    pub(super) fn keep(self) -> u32 {
        let number = self.process.id();
        // Its end must not run.
        std::mem::forget(self);
        number
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It has no disks: nothing is lost. It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn crash_line(log: &str) -> Option<&str> {
    let signs = ["BUG", "Oops", "Kernel panic", "general protection fault"];
    log.lines().find(|line| signs.iter().any(|sign| line.contains(sign))).map(str::trim)
}

impl BootPlan<'_> {
    fn qemu(&self, log: &Path, capture: &Path, address: Ipv4Addr) -> Result<Command> {
        let mut qemu = self.packages.command("usr/bin/qemu-system-x86_64")?;
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            qemu.arg("-L").arg(self.packages.file(data)?);
        }
        qemu.args(["-machine", "q35", "-accel", self.acceleration.name(), "-cpu", "max", "-smp", "2", "-m", "512"]);
        qemu.args(["-nodefaults", "-no-reboot", "-display", "none", "-serial"]).arg(option("file:", log));
        qemu.arg("-kernel").arg(self.kernel.image()).arg("-initrd").arg(&self.initrd);
        // The check of the timer fails at times on a busy machine.
        qemu.args(["-append", "console=ttyS0 panic=-1 no_timer_check quiet loglevel=4 log_buf_len=4M"]);
        let forward = |kind: &str, port: u16| format!(",hostfwd={kind}:{address}:{port}-:{port}");
        let for_ndkctl = format!(",hostfwd=tcp:{}:{NVME}-:{NVME}", first_machine(host_pair::network()));
        let forwards =
            PORTS.map(|port| forward("tcp", port)).concat() + &forward("udp", self.tunnel_port) + &for_ndkctl;
        qemu.arg("-netdev").arg(format!("user,id=net{forwards}"));
        qemu.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        qemu.arg("-object").arg(option("filter-dump,id=dump,netdev=net,maxlen=65600,file=", capture));
        Ok(qemu)
    }
}

/// An option of QEMU that ends with a path, in which it takes a comma for the next one.
fn option(start: &str, path: &Path) -> String {
    format!("{start}{}", path.display().to_string().replace(',', ",,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_the_processor_is_a_flag_of_it() {
        assert!(has_virtualisation("processor: 0\nflags\t\t: fpu vmx ssse3\n") && has_virtualisation("flags: svm"));
        assert!(!has_virtualisation("model name: vmx\nflags\t\t: fpu hypervisor\n") && !has_virtualisation(""));
    }

    #[test]
    fn broken_kernel_is_known_by_its_log() {
        let log = "GUEST READY\r\n[  9.1] ------------[ cut here ]\r\n[  9.1] kernel BUG at drivers/x.c:969!\r\n";
        assert_eq!(crash_line(log), Some("[  9.1] kernel BUG at drivers/x.c:969!"));
        assert_eq!(crash_line("GUEST READY\r\n[  7.0] siw: crc error\r\n"), None);
    }
}
