//! What NVMe over RDMA sends: commands of 64 bytes with one descriptor of memory, their answers of 16, and what names the two ends.
//!
//! From the NVMe Base Specification 2.0 and the RDMA Transport Specification 1.0; all numbers are little-endian.

/// Bytes of a command and of its answer.
pub const COMMAND: usize = 64;
pub const ANSWER: usize = 16;

/// Bytes of what is identified, and of what a connect sends.
pub const PAGE: usize = 4096;
pub const CONNECT_DATA: usize = 1024;

/// The most bytes of memory that a command describes: its length has three bytes.
pub const MOST_LENGTH: u32 = 0xFF_FFFF;

/// Any controller, in the connect of the first queue.
pub const ANY_CONTROLLER: u16 = 0xFFFF;

/// Opcodes, and the types of the commands of fabrics.
const WRITE: u8 = 1;
const READ: u8 = 2;
const IDENTIFY: u8 = 6;
const FABRICS: u8 = 0x7F;
const SET_PROPERTY: u8 = 0;
const CONNECT: u8 = 1;
const GET_PROPERTY: u8 = 4;

/// Properties: configuration and status.
const CONFIGURATION: u8 = 0x14;
const STATUS: u8 = 0x1C;

/// Configurations: enabled, with entries of 64 and 16 bytes; and the same about to be shut down.
pub const ENABLED: u32 = 0x0046_0001;
pub const SHUT_DOWN: u32 = ENABLED | 1 << 14;

/// Bits of the status.
pub const READY: u32 = 1;
pub const FATAL: u32 = 2;

/// Memory of this end that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub address: u64,
    pub length: u32,
    pub token: u32,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeCommand([u8; COMMAND]);

/// Puts bytes at a place.
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..at + N) {
        place.copy_from_slice(&value);
    }
}

/// The bytes at a place, zeroes where there are none.
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

impl NvmeCommand {
    /// Memory is described as the fabrics do, also where there is none.
    fn new(opcode: u8) -> Self {
        Self([0; COMMAND]).with(0, [opcode, 0x40]).with(39, [0x40])
    }

    fn of_fabrics(kind: u8) -> Self {
        Self::new(FABRICS).with(4, [kind])
    }

    fn with<const N: usize>(mut self, at: usize, value: [u8; N]) -> Self {
        put(&mut self.0, at, value);
        self
    }

    fn about(self, memory: Memory) -> Self {
        let [low, middle, high, _] = memory.length.to_le_bytes();
        let place = self.with(24, memory.address.to_le_bytes()).with(32, [low, middle, high]);
        place.with(35, memory.token.to_le_bytes())
    }

    /// Makes a connection the queue of this number; the memory has [`connect_data`].
    pub fn connect(queue: u16, depth: u16, memory: Memory) -> Self {
        let command = Self::of_fabrics(CONNECT).about(memory);
        command.with(42, queue.to_le_bytes()).with(44, (depth - 1).to_le_bytes())
    }

    pub fn set_configuration(value: u32) -> Self {
        Self::of_fabrics(SET_PROPERTY).with(44, [CONFIGURATION]).with(48, value.to_le_bytes())
    }

    pub fn get_status() -> Self {
        Self::of_fabrics(GET_PROPERTY).with(44, [STATUS])
    }

    pub fn identify_controller(memory: Memory) -> Self {
        Self::new(IDENTIFY).about(memory).with(40, [1])
    }

    pub fn identify_namespace(namespace: u32, memory: Memory) -> Self {
        Self::new(IDENTIFY).about(memory).with(4, namespace.to_le_bytes())
    }

    fn transfer(opcode: u8, namespace: u32, blocks: Blocks, memory: Memory) -> Self {
        let command = Self::new(opcode).about(memory).with(4, namespace.to_le_bytes());
        command.with(40, blocks.first.to_le_bytes()).with(48, (blocks.count - 1).to_le_bytes())
    }

    pub fn read(namespace: u32, blocks: Blocks, memory: Memory) -> Self {
        Self::transfer(READ, namespace, blocks, memory)
    }

    pub fn write(namespace: u32, blocks: Blocks, memory: Memory) -> Self {
        Self::transfer(WRITE, namespace, blocks, memory)
    }

    /// Its bytes under a number, which its answer has, too.
    pub fn numbered(self, number: u16) -> [u8; COMMAND] {
        self.with(2, number.to_le_bytes()).0
    }
}

/// Blocks of a namespace; there is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    pub first: u64,
    pub count: u16,
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeAnswer {
    pub value: u32,
    /// The number of its command.
    pub number: u16,
    /// 0 for success; else type and code.
    pub status: u16,
}

impl NvmeAnswer {
    pub fn of(bytes: &[u8; ANSWER]) -> Self {
        let word = |at| u16::from_le_bytes(get(bytes, at));
        // Three bits of the status are no part of what went wrong.
        Self { value: u32::from_le_bytes(get(bytes, 0)), number: word(12), status: word(14) >> 1 & 0x7FF }
    }
}

/// Private data of the connection that becomes a queue.
pub fn private_data(queue: u16, depth: u16, controller: u16) -> [u8; 32] {
    let mut data = [0; 32];
    let known = if controller == ANY_CONTROLLER { 0 } else { controller };
    for (index, word) in [0, queue, depth, depth - 1, known].into_iter().enumerate() {
        put(&mut data, 2 * index, u16::to_le_bytes(word));
    }
    data
}

/// Who connects to what. A name is cut where the field ends.
pub fn connect_data(controller: u16, subsystem: &str, host: &str) -> [u8; CONNECT_DATA] {
    /// Identifies this program among hosts.
    const HOST_ID: [u8; 16] = *b"softndk ndkctl 1";
    /// Bytes of a name, without its zero.
    const NAME: usize = 223;
    let mut data = [0; CONNECT_DATA];
    put(&mut data, 0, HOST_ID);
    put(&mut data, 16, controller.to_le_bytes());
    for (at, name) in [(256, subsystem), (512, host)] {
        let name = &name.as_bytes()[..name.len().min(NAME)];
        data[at..at + name.len()].copy_from_slice(name);
    }
    data
}

/// What a controller says of itself.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Controller {
    pub model: String,
    pub serial: String,
    pub firmware: String,
    /// The most bytes of one command; null where the controller names none.
    pub most_bytes: Option<u64>,
}

impl Controller {
    pub fn of(page: &[u8; PAGE]) -> Self {
        let text = |at, length| {
            let bytes: &[u8] = page.get(at..at + length).unwrap_or_default();
            String::from_utf8_lossy(bytes).trim_matches([' ', '\0']).to_owned()
        };
        let [shift] = get(page, 77);
        let most_bytes = (shift != 0).then(|| (PAGE as u64).checked_shl(shift.into()).unwrap_or(u64::MAX));
        Self { model: text(24, 40), serial: text(4, 20), firmware: text(64, 8), most_bytes }
    }
}

/// What a namespace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Namespace {
    pub blocks: u64,
    pub block_size: u32,
}

impl Namespace {
    /// Nothing where the format has no blocks of a size that this end can handle, as that of a namespace that is not there.
    pub fn of(page: &[u8; PAGE]) -> Option<Self> {
        let [format] = get(page, 26);
        let [shift] = get(page, 128 + 4 * usize::from(format & 15) + 2);
        let blocks = u64::from_le_bytes(get(page, 0));
        (blocks != 0 && (9..=16).contains(&shift)).then(|| Self { blocks, block_size: 1 << shift })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory = Memory { address: 0x1122_3344_5566_7788, length: 0x0001_0203, token: 0xA0B0_C0D0 };

    #[test]
    fn command_has_its_fields_where_the_specification_has_them() {
        let bytes = NvmeCommand::write(7, Blocks { first: 0x0102_0304_0506, count: 16 }, MEMORY).numbered(0x0304);
        assert_eq!(bytes[..8], [1, 0x40, 4, 3, 7, 0, 0, 0]);
        assert_eq!(
            bytes[24..40],
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 3, 2, 1, 0xD0, 0xC0, 0xB0, 0xA0, 0x40]
        );
        assert_eq!(bytes[40..52], [6, 5, 4, 3, 2, 1, 0, 0, 15, 0, 0, 0]);
        let bytes = NvmeCommand::connect(1, 32, MEMORY).numbered(0);
        assert_eq!((bytes[0], bytes[4], &bytes[42..46]), (0x7F, 1, &[1, 0, 31, 0][..]));
        let bytes = NvmeCommand::set_configuration(ENABLED).numbered(0);
        assert_eq!((bytes[4], bytes[44], &bytes[48..52]), (0, 0x14, &[1, 0, 0x46, 0][..]));
        assert_eq!(NvmeCommand::identify_namespace(2, MEMORY).numbered(0)[40], 0);
        assert_eq!(NvmeCommand::identify_controller(MEMORY).numbered(0)[40], 1);
    }

    #[test]
    fn answer_has_value_number_and_status() {
        let mut bytes = [0; ANSWER];
        put(&mut bytes, 0, 9_u32.to_le_bytes());
        put(&mut bytes, 12, 5_u16.to_le_bytes());
        // Type 1, code 0x82, do not retry, phase.
        put(&mut bytes, 14, (1_u16 << 15 | 0x182 << 1 | 1).to_le_bytes());
        assert_eq!(NvmeAnswer::of(&bytes), NvmeAnswer { value: 9, number: 5, status: 0x182 });
    }

    #[test]
    fn pages_are_read_and_odd_ones_are_not_believed() {
        let mut page = [0; PAGE];
        page[4..7].copy_from_slice(b"S 1");
        page[24..31].copy_from_slice(b"Linux  ");
        page[77] = 8;
        let controller = Controller::of(&page);
        assert_eq!((controller.model.as_str(), controller.serial.as_str()), ("Linux", "S 1"));
        assert_eq!(controller.most_bytes, Some(1 << 20));
        page[77] = 255;
        assert_eq!(Controller::of(&page).most_bytes, Some(u64::MAX));

        let mut page = [0; PAGE];
        put(&mut page, 0, 1000_u64.to_le_bytes());
        assert_eq!(Namespace::of(&page), None, "blocks of one byte");
        page[26] = 1;
        page[128 + 4 + 2] = 12;
        assert_eq!(Namespace::of(&page), Some(Namespace { blocks: 1000, block_size: 4096 }));
        page[26] = 0xFF;
        assert_eq!(Namespace::of(&page), None, "a format that is not there");
        assert_eq!(Namespace::of(&[0; PAGE]), None);
    }

    #[test]
    fn names_are_at_their_places_and_no_longer_than_these() {
        let long = "n".repeat(300);
        let data = connect_data(3, "subsystem", &long);
        assert_eq!((&data[16..18], &data[256..266]), (&[3, 0][..], &b"subsystem\0"[..]));
        assert_eq!((data[512 + 222], data[512 + 223]), (b'n', 0));
        assert_eq!(private_data(1, 32, ANY_CONTROLLER)[..10], [0, 0, 1, 0, 32, 0, 31, 0, 0, 0]);
        assert_eq!(private_data(1, 32, 5)[8..10], [5, 0]);
    }
}
