//! The yardstick: the C library's memcpy between the buffers of the transfer, in the places of its requests.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes, and copies, between two looks at the clock.
const BATCH_BYTES: usize = 4 << 20;
const BATCH: usize = 4096;

/// Nanoseconds of a copy of `size` bytes from each place of the source to the same one of the destination, in turn.
pub fn measure(source: &[u8], destination: &mut [u8], size: u32, time: Duration) -> Option<f64> {
    let size = size as usize;
    if size == 0 || source.len() < size || destination.len() < source.len() {
        return None;
    }
    let batch = (BATCH_BYTES / size).clamp(1, BATCH);
    let (begun, mut copies) = (Instant::now(), 0_u64);
    let mut place = 0;
    loop {
        for _ in 0..batch {
            // A length that the compiler does not know is a call of memcpy.
            let length = black_box(size);
            destination[place..place + length].copy_from_slice(&source[place..place + length]);
            black_box(&mut *destination);
            place += size;
            if place + size > source.len() {
                place = 0;
            }
        }
        copies += batch as u64;
        let taken = begun.elapsed();
        if taken >= time {
            return Some(taken.as_nanos() as f64 / copies as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::measure;
    use std::time::Duration;

    #[test]
    fn every_place_is_copied_and_takes_time() {
        let source: Vec<u8> = (0..64).collect();
        for (size, whole) in [(8, 64), (64, 64), (63, 63), (1, 64)] {
            let mut destination = vec![0xFF; 64];
            assert!(measure(&source, &mut destination, size, Duration::from_micros(1)).unwrap() > 0.0);
            assert_eq!(destination[..whole], source[..whole], "{size}");
        }
    }

    #[test]
    fn nothing_to_copy_takes_no_time() {
        assert_eq!(measure(&[1, 2], &mut [0, 0], 0, Duration::ZERO), None);
        assert_eq!(measure(&[1, 2], &mut [0, 0], 3, Duration::ZERO), None);
    }
}
