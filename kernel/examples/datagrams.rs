//! A driver image for the tests of datagram sockets: its exported functions, which a test calls at PASSIVE_LEVEL, each open sockets on
//! 127.0.0.1, do something with them and close them.
//!
//! A function returns a count, or a negative number where the system did not have what it needs; what must not be is a bugcheck with the
//! line.

#![no_std]

use core::{
    net::{Ipv4Addr, SocketAddr},
    panic::{Location, PanicInfo},
};

use softndk_kernel::{
    event::Event,
    pool::{CountedAllocator, NoMemory},
    published::Published,
    winsock::{Client, DatagramSlots, DatagramSocket, DatagramState, Wake},
};
use wdk_sys::{
    DRIVER_OBJECT, NTSTATUS, PCUNICODE_STRING, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, ntddk::KeBugCheckEx,
};

softndk_kernel::pool_tags! {
    STATE = b"DgSt",
    SOCKET = b"DgSo",
    LIBRARY = b"DgLb",
}

#[global_allocator]
static GLOBAL_ALLOCATOR: CountedAllocator = CountedAllocator::new(LIBRARY);

const NO_MEMORY: i32 = -1;
const NOT_OPEN: i32 = -2;
const NO_ANSWER: i32 = -3;

/// How long a function waits for something, in milliseconds, and how often.
const PAUSE: u32 = 10;
const PAUSES: u32 = 300;

/// Ends the machine where the sockets do not do what the test counts on.
#[track_caller]
fn check(is_so: bool) {
    if !is_so {
        stop(Location::caller().line());
    }
}

fn stop(line: u32) -> ! {
    // SAFETY: allowed at any IRQL; does not return.
    unsafe { KeBugCheckEx(0xE000_0002, u64::from(line), 0, 0, 0) }
}

#[panic_handler]
fn panic(information: &PanicInfo<'_>) -> ! {
    stop(information.location().map_or(0, Location::line))
}

struct State {
    client: Client,
    /// A socket has something to do.
    bell: Event,
}

static DRIVER: Published<State> = Published::new(STATE);

/// Wakes whichever function runs: there is one at a time.
struct Bell(&'static Event);

impl Wake for Bell {
    fn wake(&self) {
        self.0.set();
    }
}

type Socket = DatagramSocket<Bell>;

fn address(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

fn state() -> &'static State {
    DRIVER.get().unwrap_or_else(|| stop(line!()))
}

/// A socket that has begun to open at 127.0.0.1.
fn begin(port: u16, slots: DatagramSlots) -> Result<Socket, NoMemory> {
    begin_at(address(port), slots)
}

fn begin_at(local: SocketAddr, slots: DatagramSlots) -> Result<Socket, NoMemory> {
    let state = state();
    let mut socket = Socket::try_new(&state.client, SOCKET, slots)?;
    socket.open(local, Bell(&state.bell));
    Ok(socket)
}

/// Waits until a function of the sockets says so; false when it takes too long.
fn wait_until<const N: usize>(
    sockets: &mut [&mut Socket; N],
    mut is_so: impl FnMut(&mut [&mut Socket; N]) -> bool,
) -> bool {
    for _ in 0..PAUSES {
        if is_so(sockets) {
            return true;
        }
        state().bell.wait_at_most(PAUSE);
        for socket in sockets.iter_mut() {
            socket.advance();
        }
    }
    is_so(sockets)
}

fn is_decided(socket: &Socket) -> bool {
    socket.state() != DatagramState::Starting
}

/// Two sockets that are open, with neighbouring ports.
fn open_two(port: u16, slots: DatagramSlots) -> Result<[Socket; 2], i32> {
    let mut first = begin(port, slots).map_err(|NoMemory| NO_MEMORY)?;
    let mut second = begin(port.wrapping_add(1), slots).map_err(|NoMemory| NO_MEMORY)?;
    wait_until(&mut [&mut first, &mut second], |sockets| sockets.iter().all(|socket| is_decided(socket)));
    check(is_decided(&first) && is_decided(&second));
    let open = first.state() == DatagramState::Open && second.state() == DatagramState::Open;
    if open { Ok([first, second]) } else { Err(NOT_OPEN) }
}

/// Both sockets, or what `first` returns.
fn with_two(port: u16, slots: DatagramSlots, body: impl FnOnce(&mut Socket, &mut Socket) -> i32) -> i32 {
    match open_two(port, slots) {
        Ok([mut first, mut second]) => body(&mut first, &mut second),
        Err(failure) => failure,
    }
}

/// What stands at a place of the datagram with this number.
fn pattern(number: u32, place: usize) -> u8 {
    (place as u32).wrapping_mul(7).wrapping_add(number) as u8
}

/// Lengths from 4 to 1000.
fn length(number: u32) -> usize {
    4 + (number as usize).wrapping_mul(331) % 997
}

fn fill(number: u32, bytes: &mut [u8]) -> Option<usize> {
    let length = length(number);
    for (place, byte) in bytes.get_mut(..length)?.iter_mut().enumerate() {
        *byte = pattern(number, place);
    }
    bytes.get_mut(..4)?.copy_from_slice(&number.to_le_bytes());
    Some(length)
}

/// The number of a datagram, which is whole.
fn number_of(bytes: &[u8]) -> u32 {
    let number = bytes.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(u32::MAX, u32::from_le_bytes);
    check(bytes.len() == length(number));
    check(bytes.iter().enumerate().skip(4).all(|(place, byte)| *byte == pattern(number, place)));
    number
}

/// Sends back everything that has come; the greatest number among it.
fn echo(socket: &mut Socket) -> Option<u32> {
    let (mut came, mut last) = (None, None);
    socket.advance();
    while socket.receive(|from, bytes| came = Some((from, number_of(bytes)))) {
        if let Some((from, number)) = came.take() {
            // One that finds no slot is asked for again.
            socket.send(from, |bytes| fill(number, bytes));
            last = last.max(Some(number));
        }
    }
    socket.advance();
    last
}

/// Sends datagrams, each until it was sent back, by the other socket where it is here; how many were sent again.
fn ask_all(here: &mut Socket, mut there: Option<&mut Socket>, far: SocketAddr, (count, attempts): (u32, u32)) -> i32 {
    let mut again = 0;
    for number in 0..count {
        let mut came = false;
        for attempt in 0..attempts {
            again += i32::from(attempt != 0);
            here.send(far, |bytes| fill(number, bytes));
            for _ in 0..PAUSES {
                here.advance();
                there.as_mut().and_then(|there| echo(there));
                while here.receive(|from, bytes| {
                    check(from == far);
                    came |= number_of(bytes) == number;
                }) {}
                if came || !state().bell.wait_at_most(PAUSE) {
                    break;
                }
            }
            if came {
                break;
            }
        }
        if !came {
            return NO_ANSWER;
        }
    }
    again
}

const EXCHANGE: DatagramSlots = DatagramSlots { receives: 3, sends: 2, bytes: 1000 };

/// Sends datagrams until each was sent back; how many were sent again.
#[unsafe(no_mangle)]
pub extern "C" fn exchange(port: u16, count: u32) -> i32 {
    with_two(port, EXCHANGE, |here, there| ask_all(here, Some(there), address(port.wrapping_add(1)), (count, PAUSES)))
}

/// A socket at every address of this host.
fn open_everywhere(port: u16) -> Result<Socket, i32> {
    let local = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    let mut socket = begin_at(local, EXCHANGE).map_err(|NoMemory| NO_MEMORY)?;
    wait_until(&mut [&mut socket], |[socket]| is_decided(socket));
    if socket.state() == DatagramState::Open { Ok(socket) } else { Err(NOT_OPEN) }
}

/// Sends datagrams to another host (an address of IPv4 as a number) until each was sent back; how many were sent again.
#[unsafe(no_mangle)]
pub extern "C" fn ask(host: u32, port: u16, count: u32) -> i32 {
    let far = SocketAddr::new(Ipv4Addr::from_bits(host).into(), port);
    match open_everywhere(port) {
        Ok(mut socket) => ask_all(&mut socket, None, far, (count, 10 * PAUSES)),
        Err(failure) => failure,
    }
}

/// Sends back what comes, until the last of so many has come.
#[unsafe(no_mangle)]
pub extern "C" fn serve(port: u16, count: u32) -> i32 {
    let mut socket = match open_everywhere(port) {
        Ok(socket) => socket,
        Err(failure) => return failure,
    };
    for _ in 0..100 {
        if wait_until(&mut [&mut socket], |[socket]| echo(socket).is_some_and(|last| last.wrapping_add(1) == count)) {
            return 0;
        }
    }
    NO_ANSWER
}

/// Sends so many datagrams as fast as slots are free, and takes what comes; how many came. Each comes once.
#[unsafe(no_mangle)]
pub extern "C" fn burst(port: u16, count: u32) -> i32 {
    let slots = DatagramSlots { receives: 8, sends: 3, bytes: 1000 };
    with_two(port, slots, |here, there| {
        let far = address(port.wrapping_add(1));
        let (mut sent, mut came, mut seen) = (0, 0, [false; 256]);
        check(count as usize <= seen.len());
        wait_until(&mut [here, there], |[here, there]| {
            while sent < count && here.send(far, |bytes| fill(sent, bytes)) {
                sent += 1;
            }
            while there.receive(|_, bytes| {
                if let Some(seen) = seen.get_mut(number_of(bytes) as usize) {
                    check(!core::mem::replace(seen, true));
                }
                came += 1;
            }) {}
            there.advance();
            sent == count && came == count
        });
        check(here.losses().sends == 0 || came != count);
        came as i32
    })
}

/// One datagram fits the slots of the receiver and one does not: lost are those that do not.
#[unsafe(no_mangle)]
pub extern "C" fn too_long(port: u16) -> i32 {
    let large = DatagramSlots { receives: 1, sends: 2, bytes: 1000 };
    let Ok(mut here) = begin(port, large) else { return NO_MEMORY };
    let Ok(mut there) = begin(port.wrapping_add(1), DatagramSlots { bytes: 4, ..large }) else { return NO_MEMORY };
    wait_until(&mut [&mut here, &mut there], |sockets| sockets.iter().all(|socket| is_decided(socket)));
    if [&here, &there].iter().any(|socket| socket.state() != DatagramState::Open) {
        return NOT_OPEN;
    }
    let far = address(port.wrapping_add(1));
    check(here.send(far, |bytes| fill(1, bytes)));
    // Longer than its own slot: lost here.
    check(here.send(far, |_| Some(1001)));
    // Sends nothing.
    check(here.send(far, |_| None));
    check(wait_until(&mut [&mut here, &mut there], |[_, there]| there.losses().too_long == 1));
    // Of four bytes.
    check(here.send(far, |bytes| fill(0, bytes)));
    let mut came = 0;
    check(wait_until(&mut [&mut here, &mut there], |[_, there]| {
        while there.receive(|_, bytes| came += bytes.len()) {}
        came != 0
    }));
    check(came == 4 && here.losses().sends == 1);
    there.losses().too_long as i32
}

/// Nothing is bound to the destination: the receive that fails is made again, and receives.
#[unsafe(no_mangle)]
pub extern "C" fn unreachable(port: u16) -> i32 {
    let slots = DatagramSlots { receives: 1, sends: 1, bytes: 1000 };
    with_two(port, slots, |here, there| {
        check(here.send(address(port.wrapping_add(2)), |bytes| fill(5, bytes)));
        check(wait_until(&mut [&mut *here], |[here]| here.losses().failed_receives == 1));
        // Made again by the call that has taken the failure.
        check(!here.is_stalled());
        let mut came = None;
        check(wait_until(&mut [&mut *there], |[there]| there.send(address(port), |bytes| fill(6, bytes))));
        check(wait_until(&mut [&mut *here], |[here]| here.receive(|_, bytes| came = Some(number_of(bytes)))));
        here.advance();
        check(came == Some(6) && !here.is_stalled());
        here.losses().failed_receives as i32
    })
}

/// A socket sends a datagram to itself; whether its only receive was seen to rest meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn rest(port: u16) -> i32 {
    let Ok(mut socket) = begin(port, DatagramSlots { receives: 1, sends: 1, bytes: 1000 }) else { return NO_MEMORY };
    let (mut rested, mut sent, mut came) = (false, false, false);
    check(wait_until(&mut [&mut socket], |[socket]| {
        if socket.is_stalled() {
            rested = true;
            socket.resume();
        }
        sent = sent || socket.send(address(port), |bytes| fill(8, bytes));
        came |= socket.receive(|_, bytes| check(number_of(bytes) == 8));
        came
    }));
    check(socket.losses().failed_receives == u64::from(rested));
    rested.into()
}

/// Binds two sockets to one port; the status of the second.
#[unsafe(no_mangle)]
pub extern "C" fn in_use(port: u16) -> i32 {
    let slots = DatagramSlots { receives: 1, sends: 1, bytes: 1 };
    let Ok(mut first) = begin(port, slots) else { return NO_MEMORY };
    wait_until(&mut [&mut first], |[first]| is_decided(first));
    let Ok(mut second) = begin(port, slots) else { return NO_MEMORY };
    wait_until(&mut [&mut second], |[second]| is_decided(second));
    // Thrown away.
    check(second.send(address(port), |_| stop(line!())) && second.losses().sends == 1);
    match second.state() {
        DatagramState::Failed(status) => status,
        DatagramState::Starting | DatagramState::Open => 0,
    }
}

/// Closes sockets that have come any distance, with every call pending.
#[unsafe(no_mangle)]
pub extern "C" fn close_early(port: u16, rounds: u32) -> i32 {
    let slots = DatagramSlots { receives: 4, sends: 4, bytes: 100 };
    for round in 0..rounds {
        let Ok(mut socket) = begin(port, slots) else { return NO_MEMORY };
        for _ in 0..round % 5 {
            state().bell.wait_at_most(1);
            socket.advance();
        }
        // More than there are slots.
        for _ in 0..6 * (round % 2) {
            if socket.state() == DatagramState::Open {
                socket.send(address(port), |_| Some(9));
            }
        }
        if round % 4 == 1 {
            socket.advance();
        }
        socket.close();
        check(matches!(socket.state(), DatagramState::Failed(_)));
        check(socket.send(address(port), |_| stop(line!())));
        while socket.receive(|from, bytes| check(from == address(port) && bytes.len() == 9)) {}
        socket.advance();
    }
    state().client.reap();
    rounds as i32
}

/// Registers with Winsock Kernel.
///
/// # Safety
/// Called once by the system, at PASSIVE_LEVEL, with the driver object.
// SAFETY: the loader looks for this name and nothing else in the image defines it.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(driver: &mut DRIVER_OBJECT, _path: PCUNICODE_STRING) -> NTSTATUS {
    let made = Client::try_new(STATE).and_then(|client| {
        let bell = Event::try_synchronization(STATE, false)?;
        DRIVER.publish(State { client, bell })
    });
    let Ok(state) = made else { return STATUS_INSUFFICIENT_RESOURCES };
    driver.DriverUnload = Some(unload);
    match state.client.register() {
        Ok(()) => STATUS_SUCCESS,
        Err(status) => {
            // SAFETY: nothing was begun.
            unsafe { DRIVER.withdraw() };
            status
        }
    }
}

unsafe extern "C" fn unload(_driver: *mut DRIVER_OBJECT) {
    state().client.deregister();
    // SAFETY: every socket is closed, and no function runs.
    unsafe { DRIVER.withdraw() };
}
