//! Vectors whose room was reserved before: adding to them never allocates.
//!
//! `Vec::push` grows a full vector, and one that cannot grow ends the system. Here a full vector hands the value back.
//! The comparison is the one that `push` makes, so that nothing of the growing is left in the optimised driver; its image
//! check holds us to that.

use alloc::vec::Vec;

/// Adds `value` if there is room.
pub(crate) fn push_in_room<T>(vector: &mut Vec<T>, value: T) -> Result<(), T> {
    if vector.len() == vector.capacity() {
        return Err(value);
    }
    vector.push(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::push_in_room;
    use alloc::vec::Vec;

    #[test]
    fn full_vector_hands_the_value_back_and_does_not_grow() {
        let mut vector = Vec::with_capacity(2);
        let capacity = vector.capacity();
        for number in 0..capacity {
            assert_eq!(push_in_room(&mut vector, number), Ok(()));
        }
        assert_eq!(push_in_room(&mut vector, 77), Err(77));
        assert_eq!((vector.len(), vector.capacity()), (capacity, capacity));
    }
}
