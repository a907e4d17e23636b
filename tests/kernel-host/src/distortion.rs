//! One argument of one call, distorted on its way across a border: what a provider that forgets it, or takes its neighbour for it, would
//! have seen. `cargo xtask arguments` sets the environment and expects the test that stands for the argument to fail.
//!
//! Calls pass here by name: functions of dispatch tables (`NDK_FN_CONNECT`), methods (`IND2Connector:6`), control requests by their
//! code (`8A5DE004`, and `8A5DE004>` for the reply), structures by their own names. Without the environment nothing happens.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};

/// What is distorted, as `NAME/PLACE/HOW`.
pub const DISTORTION: &str = "SOFTNDK_DISTORTION";
/// A file that gets a line for each name that passes: the test and the name.
pub const BORDER_LOG: &str = "SOFTNDK_BORDER_LOG";
/// By which the suites tell a child which test it is.
const TESTS: [&str; 3] = ["SOFTNDK_TRIAL", "SOFTNDK_NETWORKDIRECT_CASE", "SOFTNDK_CONTROL_CASE"];

/// Bytes of a SOCKADDR_IN6, and where in it the port and the zone are.
const SOCKET_ADDRESS: usize = 28;
const PORT: std::ops::Range<usize> = 2..4;
const ZONE: std::ops::Range<usize> = 24..28;
const FAMILY_IPV6: [u8; 2] = 23_u16.to_le_bytes();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DistortedPlace {
    /// An argument, counted from 0.
    Word(usize),
    /// Bytes of a structure, of each element of an array if it has a stride.
    Bytes { offset: usize, length: usize, stride: Option<usize> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// It is zero.
    Forgotten,
    /// It and another one of its kind, at this place, change places.
    Swapped(usize),
    /// Without these bits.
    Without(u64),
    /// The port of the address it points to is in the other byte order.
    Port,
    /// The IPv6 address it points to has no zone.
    Zone,
}

#[derive(Debug, PartialEq, Eq)]
struct Distortion {
    name: String,
    place: DistortedPlace,
    how: How,
}

struct Border {
    distortion: Option<Distortion>,
    log: Option<Mutex<BTreeSet<String>>>,
}

/// Nothing of it is wanted in an ordinary run.
static BORDER: LazyLock<Option<Border>> = LazyLock::new(|| {
    let distortion =
        env::var(DISTORTION).ok().map(|text| parse(&text).unwrap_or_else(|| panic!("{DISTORTION}={text}")));
    let log = env::var_os(BORDER_LOG).map(|_| Mutex::default());
    (distortion.is_some() || log.is_some()).then_some(Border { distortion, log })
});

fn parse(text: &str) -> Option<Distortion> {
    let mut parts = text.split('/');
    let (name, place, how) = (parts.next()?.to_owned(), parts.next()?, parts.next()?);
    let place = match place.split_once('+') {
        None => DistortedPlace::Word(place.parse().ok()?),
        Some((offset, length)) => {
            let (length, stride) =
                length.split_once('*').map_or((length, None), |(length, stride)| (length, Some(stride)));
            let stride = stride.map(str::parse).transpose().ok()?;
            DistortedPlace::Bytes { offset: offset.parse().ok()?, length: length.parse().ok()?, stride }
        }
    };
    let how = match how.split_once('-') {
        None => match how {
            "forgotten" => How::Forgotten,
            "port" => How::Port,
            "zone" => How::Zone,
            _ => return None,
        },
        Some(("swapped", other)) => How::Swapped(other.parse().ok()?),
        Some(("without", bits)) => How::Without(u64::from_str_radix(bits, 16).ok()?),
        Some(_) => return None,
    };
    Some(Distortion { name, place, how })
}

impl Border {
    fn note(&self, name: &str) {
        let Some(log) = &self.log else { return };
        if !log.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned()) {
            return;
        }
        let test = TESTS.iter().find_map(|test| env::var(test).ok()).unwrap_or_default();
        let file =
            env::var_os(BORDER_LOG).and_then(|path| OpenOptions::new().append(true).create(true).open(path).ok());
        if let Some(mut file) = file {
            file.write_all(format!("{test}\t{name}\n").as_bytes()).expect("the log of the border is written");
        }
    }

    fn distortion(&self, name: &str) -> Option<&Distortion> {
        self.note(name);
        self.distortion.as_ref().filter(|distortion| distortion.name == name)
    }
}

fn distortion(name: &str) -> Option<&'static Distortion> {
    BORDER.as_ref()?.distortion(name)
}

/// The arguments that a call of this name has on the other side.
#[must_use]
pub fn words<'a>(name: &str, words: &'a [u64]) -> Cow<'a, [u64]> {
    let Some(Distortion { place: DistortedPlace::Word(index), how, .. }) = distortion(name) else {
        return words.into();
    };
    let mut seen = words.to_vec();
    match (seen.get(*index).copied(), how) {
        (Some(_), How::Swapped(other)) if *other < seen.len() => seen.swap(*index, *other),
        (Some(word), how) => seen[*index] = distorted_word(word, *how),
        (None, _) => {}
    }
    seen.into()
}

fn distorted_word(word: u64, how: How) -> u64 {
    match how {
        How::Forgotten => 0,
        How::Without(bits) => word & !bits,
        How::Port => distorted_address(word, |address| address[PORT].reverse()),
        How::Zone => distorted_address(word, |address| address[ZONE].fill(0)),
        How::Swapped(_) => word,
    }
}

/// A copy of the address that the word points to. It is never freed: the other side may keep it.
fn distorted_address(word: u64, distort: impl FnOnce(&mut [u8; SOCKET_ADDRESS])) -> u64 {
    if word == 0 {
        return 0;
    }
    let place = word as *const u8;
    let mut copy = [0; SOCKET_ADDRESS];
    // SAFETY: the xtask asks for this of arguments that are socket addresses, which begin with their family.
    copy[..2].copy_from_slice(unsafe { std::slice::from_raw_parts(place, 2) });
    let length = if copy[..2] == FAMILY_IPV6 { SOCKET_ADDRESS } else { 16 };
    // SAFETY: as above; so long an address of this family is.
    copy[..length].copy_from_slice(unsafe { std::slice::from_raw_parts(place, length) });
    distort(&mut copy);
    Box::leak(Box::new(copy)).as_ptr() as u64
}

/// Distorts a structure, or an array of structures, that passes by this name.
pub fn bytes(name: &str, bytes: &mut [u8]) {
    let Some(Distortion { place: DistortedPlace::Bytes { offset, length, stride }, how, .. }) = distortion(name) else {
        return;
    };
    let mut begin = 0;
    while let Some(element) = bytes.get_mut(begin..) {
        distort_field(element, *offset, *length, *how);
        match stride {
            Some(stride) if begin + stride < bytes.len() => begin += stride,
            _ => return,
        }
    }
}

fn distort_field(element: &mut [u8], offset: usize, length: usize, how: How) {
    let other = if let How::Swapped(other) = how { other } else { offset };
    if offset.max(other) + length > element.len() {
        return;
    }
    let field = offset..offset + length;
    match how {
        How::Forgotten | How::Zone => element[field].fill(0),
        How::Swapped(other) => (0..length).for_each(|byte| element.swap(offset + byte, other + byte)),
        How::Without(bits) => {
            element[field].iter_mut().zip(bits.to_le_bytes()).for_each(|(byte, bits)| *byte &= !bits);
        }
        How::Port => element[field].reverse(),
    }
}

/// As [`bytes`], of a copy: for what may not be changed in place.
#[must_use]
pub fn copied<'a>(name: &str, original: &'a [u8]) -> Cow<'a, [u8]> {
    if BORDER.is_none() {
        return original.into();
    }
    let mut copy = original.to_vec();
    bytes(name, &mut copy);
    copy.into()
}

/// The name of a control request.
pub(crate) fn of_request(code: u32) -> String {
    format!("{code:08X}")
}

/// The name of its reply.
pub(crate) fn of_reply(code: u32) -> String {
    format!("{code:08X}>")
}

/// Whether anything is distorted or noted at all, for callers that would have to copy.
#[must_use]
pub fn is_watched() -> bool {
    BORDER.is_some()
}

#[cfg(test)]
mod tests {
    use super::{DistortedPlace, Distortion, How, distort_field, distorted_word, parse};

    #[test]
    fn the_environment_names_a_place_and_what_becomes_of_it() {
        let word = |how| Some(Distortion { name: "NDK_FN_X".into(), place: DistortedPlace::Word(4), how });
        assert_eq!(parse("NDK_FN_X/4/forgotten"), word(How::Forgotten));
        assert_eq!(parse("NDK_FN_X/4/swapped-6"), word(How::Swapped(6)));
        assert_eq!(parse("NDK_FN_X/4/without-3F0"), word(How::Without(0x3F0)));
        let place = DistortedPlace::Bytes { offset: 16, length: 8, stride: Some(112) };
        assert_eq!(parse("X>/16+8*112/zone"), Some(Distortion { name: "X>".into(), place, how: How::Zone }));
        for wrong in ["", "X", "X/1", "X/1/other", "X/y/zone", "X/1/without-xyz"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_address_is_copied_and_its_port_turned_around() {
        let address = [2, 0, 0x12, 0x34, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let seen = distorted_word(address.as_ptr() as u64, How::Port) as *const [u8; 16];
        // SAFETY: such an address was made just now.
        let seen = unsafe { *seen };
        assert_eq!((&seen[2..4], &seen[4..], address[2]), (&[0x34, 0x12][..], &address[4..], 0x12));
    }

    #[test]
    fn fields_are_forgotten_swapped_and_lose_bits_and_what_is_too_short_is_left_alone() {
        let distorted = |how| {
            let mut bytes = [1, 2, 3, 4];
            distort_field(&mut bytes, 0, 2, how);
            bytes
        };
        assert_eq!(distorted(How::Forgotten), [0, 0, 3, 4]);
        assert_eq!(distorted(How::Swapped(2)), [3, 4, 1, 2]);
        assert_eq!(distorted(How::Without(0x201)), [0, 0, 3, 4]);
        assert_eq!(distorted(How::Port), [2, 1, 3, 4]);
        assert_eq!(distorted(How::Swapped(3)), [1, 2, 3, 4]);
    }
}
