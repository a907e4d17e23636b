//! A host of NVMe over RDMA, as small as it can be, and the target of Linux: it reads and writes this side's memory by tokens.
//!
//! A command is a Send of 64 bytes with one descriptor of memory, its answer a Send of 16.

use std::env;
use std::process::Command as Program;

use conformance::consumer::{Adapter, Window};

use super::connection::{Connection, with_adapter};
use super::guest;

const PORT: u16 = 4420;
const SUBSYSTEM: &str = "softndk-test";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:5f0a4f0e-8d2c-4a51-9c6e-1d9b7a3c2e10";
const DEPTH: u16 = 32;
const DATA: usize = 8192;

/// Any controller, in a connect of the first queue.
const ANY_CONTROLLER: u16 = 0xFFFF;

/// Opcodes, and the types of the commands of fabrics.
const WRITE: u8 = 1;
const READ: u8 = 2;
const IDENTIFY: u8 = 6;
const FABRICS: u8 = 0x7F;
const SET_PROPERTY: u8 = 0;
const CONNECT: u8 = 1;
const GET_PROPERTY: u8 = 4;

/// Properties of a controller: configuration and status.
const CONFIGURATION: u8 = 0x14;
const STATUS: u8 = 0x1C;
/// Enabled, entries of 64 and 16 bytes.
const ENABLED: u32 = 0x0046_0001;

/// A command of 64 bytes.
struct Command([u8; 64]);

impl Command {
    /// Opcode, and the namespace or the type of a command of fabrics.
    fn new(opcode: u8, subject: u8) -> Self {
        let command = Self([0; 64]);
        // The flags say that memory is described as the fabrics do.
        command.put(0, &[opcode, 0x40]).put(4, &[subject]).put(39, &[0x40])
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// The memory that it is about: address, length in three bytes, token.
    fn with_memory(self, window: &Window<'_>) -> Self {
        let remote = window.remote(0);
        let length = (window.buffer.length() as u32).to_le_bytes();
        self.put(24, &remote.address.to_le_bytes()).put(32, &length[..3]).put(35, &remote.token.to_le_bytes())
    }
}

/// A queue of a controller: a connection.
struct Queue<'a> {
    connection: Connection<'a>,
    commands: u16,
}

impl<'a> Queue<'a> {
    /// Connects a queue; the number of its controller.
    fn connect(adapter: &'a Adapter, number: u16, controller: u16) -> (Self, u16) {
        let known = if controller == ANY_CONTROLLER { 0 } else { controller };
        let words = [0, number, DEPTH, DEPTH - 1, known];
        let mut private_data = words.map(u16::to_le_bytes).concat();
        private_data.resize(32, 0);
        let connection = Connection::connect_with(adapter, PORT, &private_data).expect("a connection");
        let mut queue = Self { connection, commands: 0 };

        let names = queue.connection.open(1024);
        let mut data = vec![0; 1024];
        data[..16].copy_from_slice(&[0x5A; 16]);
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..][..SUBSYSTEM.len()].copy_from_slice(SUBSYSTEM.as_bytes());
        data[512..][..HOST.len()].copy_from_slice(HOST.as_bytes());
        names.buffer.fill(|position| data[position]);
        let command = Command::new(FABRICS, CONNECT).with_memory(&names);
        let answer = queue.run(command.put(42, &number.to_le_bytes()).put(44, &(DEPTH - 1).to_le_bytes()));
        (queue, answer as u16)
    }

    /// Runs a command; the value of its answer.
    fn run(&mut self, command: Command) -> u32 {
        self.commands += 1;
        let command = command.put(2, &self.commands.to_le_bytes());
        self.connection.send(&command.0);
        let answer = self.connection.message();
        self.connection.expect_message();
        let word = |at: usize| u16::from_le_bytes([answer[at], answer[at + 1]]);
        assert_eq!((word(12), word(14) >> 1), (self.commands, 0), "number and status of an answer: {answer:02x?}");
        u32::from_le_bytes([answer[0], answer[1], answer[2], answer[3]])
    }

    fn identify(&mut self, namespace: u8, what: u8) -> Vec<u8> {
        let page = self.connection.open(4096);
        self.run(Command::new(IDENTIFY, namespace).put(40, &[what]).with_memory(&page));
        page.buffer.to_vec()
    }
}

/// Connect, identify, write, read back, compare.
pub fn target_of_linux() {
    with_adapter(|adapter| {
        guest::expect(&format!("nvmet {SUBSYSTEM}"));
        let (mut admin, controller) = Queue::connect(adapter, 0, ANY_CONTROLLER);
        admin.run(Command::new(FABRICS, SET_PROPERTY).put(44, &[CONFIGURATION]).put(48, &ENABLED.to_le_bytes()));
        assert_eq!(admin.run(Command::new(FABRICS, GET_PROPERTY).put(44, &[STATUS])) & 1, 1, "the controller is ready");
        assert!(admin.identify(0, 1)[24..64].starts_with(b"Linux"), "the name of the controller");
        let namespace = admin.identify(1, 0);
        let block = 1_usize << namespace[128 + 4 * usize::from(namespace[26] & 15) + 2];
        let last = u8::try_from(DATA / block - 1).expect("few blocks");

        let (mut queue, same) = Queue::connect(adapter, 1, controller);
        assert_eq!(same, controller);
        let [source, sink] = [(); 2].map(|()| queue.connection.open(DATA));
        source.buffer.fill_with_seed(0x4E);
        queue.run(Command::new(WRITE, 1).put(48, &[last]).with_memory(&source));
        queue.run(Command::new(READ, 1).put(48, &[last]).with_memory(&sink));
        sink.buffer.assert_seed(0x4E, 0..DATA);
        let commands = admin.commands + queue.commands;
        queue.connection.disconnect();
        admin.connection.disconnect();
        println!("counted: {commands} commands on 2 queues; {DATA} bytes written and read back, equal");
    });
}

/// The programs of `cargo xtask interop`: ndkctl, softnd.dll, and the number of the network whose first machine is the guest.
const NDKCTL: &str = "SOFTNDK_NDKCTL";
const DLL: &str = "SOFTNDK_DLL";
const NETWORK: &str = "SOFTNDK_NDKCTL_NETWORK";

fn ndkctl_nvme(subsystem: &str) -> Program {
    let given = |name: &str| env::var_os(name).unwrap_or_else(|| panic!("{name} is not set"));
    let mut program = Program::new(given(NDKCTL));
    program.arg("--image").arg(given("SOFTNDK_IMAGE")).args(["--machine", "2", "--network"]).arg(given(NETWORK));
    program.args(["nd", "nvme", "10.77.1.1", "--subsystem", subsystem, "--overwrite"]).arg("--dll").arg(given(DLL));
    program
}

/// Another program is the host: `ndkctl nd nvme`, with a kernel host of its own.
pub fn ndkctl() {
    const MOVED: usize = 2 << 20;
    guest::expect(&format!("nvmet {SUBSYSTEM}"));
    let moves = ["--bytes", "2M", "--offset", "1M", "--size", "32K", "--depth", "5"];
    let done = ndkctl_nvme(SUBSYSTEM).args(moves).output().expect("ndkctl starts");
    let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(done.status.success(), "{said}");
    for expected in ["controller Linux", "namespace of 16 MiB", "2 097 152 bytes are as they were written"] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
    let refused = ndkctl_nvme("another").output().expect("ndkctl starts");
    let cause = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && cause.contains("--subsystem"), "{cause}");
    let beyond = ndkctl_nvme(SUBSYSTEM).args(["--offset", "16M"]).output().expect("ndkctl starts");
    assert_eq!(beyond.status.code(), Some(2), "{}", String::from_utf8_lossy(&beyond.stderr));
    println!("counted: {MOVED} bytes written and read back by ndkctl, equal; 2 refusals");
}
