//! The copy routine of the data path.
//!
//! Kernel code has no AVX, so the image carries its own: a few plain moves when small, `rep movsb` where the processor has
//! fast strings, else SSE2, chosen once at DriverEntry; on arm64 the compiler's. Some processors with fast strings copy what does
//! not fit the first cache faster by vectors. RDMA memory races with its owner by
//! design: everything here works on raw pointers and never forms a reference to such memory.

#[cfg(not(target_arch = "x86_64"))]
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// Chooses by the processor's features. From DriverEntry.
pub fn choose() {
    #[cfg(target_arch = "x86_64")]
    x64::choose();
}

/// Copies `length` bytes in an order of its own choice.
///
/// # Safety
/// Both ranges are mapped for the whole call and the target is writable. They may overlap and may be written by others
/// meanwhile; then the bytes copied are any mixture.
pub unsafe fn bytes(to: *mut u8, from: *const u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        x64::bytes(to, from, length);
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise; `copy` allows overlap.
    unsafe {
        ptr::copy(from, to, length);
    }
}

/// Bytes that a processor stores at once.
const WORD: usize = 8;

/// Copies in ascending order, by words where the target's begin, after everything stored before has become visible.
///
/// # Safety
/// As [`bytes`].
#[inline]
pub unsafe fn ascending(to: *mut u8, from: *const u8, length: usize) {
    // Fast strings order their stores before the stores that follow; this keeps the compiler, and arm64, from doing otherwise.
    fence(Ordering::Release);
    if length == WORD && to.addr().is_multiple_of(WORD) {
        // SAFETY: eight bytes of both ranges, the target's aligned.
        return unsafe { store_word(to, from) };
    }
    // SAFETY: the caller's promise.
    unsafe { store_parts(to, from, length) };
}

/// Byte by byte to where the target's words begin, by words, and byte by byte to the end.
///
/// # Safety
/// As [`bytes`].
#[inline(never)]
unsafe fn store_parts(to: *mut u8, from: *const u8, length: usize) {
    let head = (to.addr().wrapping_neg() % WORD).min(length);
    // SAFETY: the first bytes of both ranges.
    unsafe { store_bytes(to, from, head) };
    let (mut to, mut from) = (to.wrapping_add(head), from.wrapping_add(head));
    let rest = length.wrapping_sub(head);
    for _ in 0..rest / WORD {
        // SAFETY: eight bytes of both ranges, the target's aligned: `head` and whole words came before.
        unsafe { store_word(to, from) };
        (to, from) = (to.wrapping_add(WORD), from.wrapping_add(WORD));
    }
    // SAFETY: the last bytes of both ranges.
    unsafe { store_bytes(to, from, rest % WORD) };
}

/// # Safety
/// Eight bytes at both places; `to` is aligned to eight and writable.
unsafe fn store_word(to: *mut u8, from: *const u8) {
    // SAFETY: readable (the caller's promise).
    let word = unsafe { from.cast::<u64>().read_unaligned() };
    // SAFETY: aligned and writable (the caller's promise); others access this memory only as devices would.
    let place = unsafe { AtomicU64::from_ptr(to.cast()) };
    place.store(word, Ordering::Release);
}

/// # Safety
/// So many bytes at both places; `to` is writable.
unsafe fn store_bytes(to: *mut u8, from: *const u8, length: usize) {
    for index in 0..length {
        // SAFETY: readable (the caller's promise).
        let byte = unsafe { from.wrapping_add(index).read() };
        // SAFETY: a writable byte; others access this memory only as devices would.
        let place = unsafe { AtomicU8::from_ptr(to.wrapping_add(index)) };
        place.store(byte, Ordering::Release);
    }
}

/// Copies a whole message: its last `MAX` bytes after all others, in ascending order.
///
/// # Safety
/// As [`bytes`].
#[inline]
pub unsafe fn message<const MAX: usize>(to: *mut u8, from: *const u8, length: usize) {
    let bulk = length.saturating_sub(MAX);
    if bulk > 0 {
        // SAFETY: the caller's promise, and `bulk` is at most the length.
        unsafe { bytes(to, from, bulk) };
    }
    // SAFETY: the rest of both ranges.
    unsafe { ascending(to.wrapping_add(bulk), from.wrapping_add(bulk), length.wrapping_sub(bulk)) };
}

#[cfg(target_arch = "x86_64")]
mod x64 {
    use core::{
        arch::{
            asm,
            x86_64::{__cpuid, __cpuid_count, __m128i, _mm_loadu_si128, _mm_storeu_si128},
        },
        sync::atomic::{AtomicUsize, Ordering},
    };

    /// Up to this length `rep movsb` moves whole cache lines, and faster than vectors do. 0 where it never does.
    static STRING_MAX: AtomicUsize = AtomicUsize::new(0);

    /// From here on `rep movsb` wins where it is fast.
    const STRING_MIN: usize = 768;
    /// Source and target of this length fill the first cache.
    const CACHED: usize = 32 << 10;
    /// Where source and target lie differently within a vector, fast strings are slow: up to twenty times on current processors.
    const STRING_ALIGNMENT: usize = 16;
    /// Bytes of one round of the loop over vectors.
    const TURN: usize = 64;

    /// CPUID leaf 7: "enhanced REP MOVSB/STOSB" is bit 9 of EBX.
    const ENHANCED_STRINGS: u32 = 1 << 9;

    pub fn choose() {
        let longest = match (has_fast_strings(), is_zen_3()) {
            (false, _) => 0,
            (true, true) => CACHED,
            (true, false) => usize::MAX,
        };
        STRING_MAX.store(longest, Ordering::Relaxed);
    }

    fn has_fast_strings() -> bool {
        let highest = __cpuid(0).eax;
        highest >= 7 && __cpuid_count(7, 0).ebx & ENHANCED_STRINGS != 0
    }

    /// Measured there: 64 KiB and 1 MiB that lie in the third cache take 5 to 7 % less by vectors, 16 KiB in the first twice as long.
    fn is_zen_3() -> bool {
        // "AuthenticAMD", in the order of the registers.
        const AMD: [u32; 3] = [0x6874_7541, 0x6974_6E65, 0x444D_4163];
        let vendor = __cpuid(0);
        let signature = __cpuid(1).eax;
        // Family and model are the sums, and the concatenation, of the base and the extended ones.
        let family = (signature >> 8 & 0xF).wrapping_add(signature >> 20 & 0xFF);
        let extended_model = signature >> 16 & 0xF;
        [vendor.ebx, vendor.edx, vendor.ecx] == AMD && family == 0x19 && matches!(extended_model, 0 | 2 | 4 | 5)
    }

    /// # Safety
    /// As [`super::bytes`].
    pub unsafe fn bytes(to: *mut u8, from: *const u8, length: usize) {
        let copy: unsafe fn(*mut u8, *const u8, usize) = match length {
            0 => return,
            1..16 => small,
            STRING_MIN.. if length <= STRING_MAX.load(Ordering::Relaxed) && lie_alike(to, from) => string,
            _ => vectors,
        };
        // SAFETY: the caller's promise, and the length is one the routine takes.
        unsafe { copy(to, from, length) };
    }

    fn lie_alike(to: *mut u8, from: *const u8) -> bool {
        to.addr().wrapping_sub(from.addr()).is_multiple_of(STRING_ALIGNMENT)
    }

    /// Fewer than 16 bytes: two moves that may overlap.
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "two halves of one move")]
    unsafe fn small(to: *mut u8, from: *const u8, length: usize) {
        // SAFETY: each access lies within the first or the last 8, 4, 2 or 1 bytes of ranges that long.
        unsafe {
            if length >= 8 {
                let (first, last) = (read::<u64>(from), read::<u64>(from.add(length - 8)));
                write(to, first);
                write(to.add(length - 8), last);
            } else if length >= 4 {
                let (first, last) = (read::<u32>(from), read::<u32>(from.add(length - 4)));
                write(to, first);
                write(to.add(length - 4), last);
            } else if length >= 2 {
                let (first, last) = (read::<u16>(from), read::<u16>(from.add(length - 2)));
                write(to, first);
                write(to.add(length - 2), last);
            } else {
                write(to, read::<u8>(from));
            }
        }
    }

    unsafe fn read<T: Copy>(from: *const u8) -> T {
        // SAFETY: the caller's range covers the value.
        unsafe { from.cast::<T>().read_unaligned() }
    }

    unsafe fn write<T: Copy>(to: *mut u8, value: T) {
        // SAFETY: the caller's range covers the value.
        unsafe { to.cast::<T>().write_unaligned(value) };
    }

    /// At least 16 bytes: whole vectors, and one that ends where the range ends.
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "address, load and store of one vector")]
    unsafe fn vectors(to: *mut u8, from: *const u8, length: usize) {
        // By the contract 16 at least; no checks in the innermost loop of a copy.
        let last = length.wrapping_sub(16);
        // SAFETY: the last 16 bytes of the source; loaded first, as an overlapping target may cover them.
        let end = unsafe { load(from.add(last)) };
        let mut done = 0_usize;
        while done.wrapping_add(TURN) <= last {
            // SAFETY: `done + 64 <= length`.
            let round = unsafe { [0, 16, 32, 48].map(|offset| load(from.add(done.wrapping_add(offset)))) };
            for (value, offset) in round.into_iter().zip([0, 16, 32, 48]) {
                // SAFETY: as above.
                unsafe { store(to.add(done.wrapping_add(offset)), value) };
            }
            done = done.wrapping_add(TURN);
        }
        while done < last {
            // SAFETY: `done + 16 <= length`.
            unsafe { store(to.add(done), load(from.add(done))) };
            done = done.wrapping_add(16);
        }
        // SAFETY: the last 16 bytes of the target.
        unsafe { store(to.add(last), end) };
    }

    unsafe fn load(from: *const u8) -> __m128i {
        // SAFETY: 16 readable bytes; SSE2 is part of x86-64.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    unsafe fn store(to: *mut u8, value: __m128i) {
        // SAFETY: 16 writable bytes; SSE2 is part of x86-64.
        unsafe { _mm_storeu_si128(to.cast(), value) };
    }

    unsafe fn string(to: *mut u8, from: *const u8, length: usize) {
        // SAFETY: the direction flag is clear in kernel code (calling convention); both ranges are the caller's promise.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") length => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags),
            );
        }
    }
}
