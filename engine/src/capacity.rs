//! Vectors with reserved capacity: adding to them never allocates, and no index is out of range.
//!
//! `Vec::push` grows a full vector, and a failed growth ends the system. Here a full vector hands the value back. `Vec::insert`
//! and `Vec::remove` panic at an index out of range; here `insert` appends and `remove` returns `None`. The comparison is the
//! one that `push` makes, so that no growth code is left in the optimised driver; the driver's image check relies on that.

use alloc::vec::Vec;

/// Adds `value` if the capacity allows.
pub(crate) fn push_within_capacity<T>(vector: &mut Vec<T>, value: T) -> Result<(), T> {
    if vector.len() == vector.capacity() {
        return Err(value);
    }
    vector.push(value);
    Ok(())
}

/// Adds `value` before the one at `place` if the capacity allows; at the end if no value is at `place`.
pub(crate) fn insert_within_capacity<T>(vector: &mut Vec<T>, place: usize, value: T) -> Result<(), T> {
    push_within_capacity(vector, value)?;
    // Asked, so that nothing of the rotation's own check is left.
    if let Some(tail) = vector.get_mut(place..).filter(|tail| !tail.is_empty()) {
        tail.rotate_right(1);
    }
    Ok(())
}

/// Takes the value at `place` out; the others keep their order.
pub(crate) fn remove_at<T>(vector: &mut Vec<T>, place: usize) -> Option<T> {
    vector.get_mut(place..).filter(|tail| !tail.is_empty())?.rotate_left(1);
    vector.pop()
}

#[cfg(test)]
mod tests {
    use super::{insert_within_capacity, push_within_capacity, remove_at};
    use alloc::vec::Vec;

    #[test]
    fn full_vector_hands_the_value_back_and_does_not_grow() {
        let mut vector = Vec::with_capacity(2);
        let capacity = vector.capacity();
        for number in 0..capacity {
            assert_eq!(push_within_capacity(&mut vector, number), Ok(()));
        }
        assert_eq!(push_within_capacity(&mut vector, 77), Err(77));
        assert_eq!((vector.len(), vector.capacity()), (capacity, capacity));
    }

    #[test]
    fn values_are_inserted_where_they_belong_and_never_beyond_the_capacity() {
        let mut vector = Vec::with_capacity(4);
        for (place, number) in [(0, 3), (0, 1), (1, 2), (9, 4)] {
            assert_eq!(insert_within_capacity(&mut vector, place, number), Ok(()));
        }
        assert_eq!(vector, [1, 2, 3, 4]);
        while vector.len() < vector.capacity() {
            vector.push(0);
        }
        assert_eq!(insert_within_capacity(&mut vector, 1, 77), Err(77));
        assert_eq!(vector.get(..4), Some(&[1, 2, 3, 4][..]));
    }

    #[test]
    fn values_are_removed_in_place_and_only_where_there_is_one() {
        let mut vector = Vec::from([1, 2, 3, 4]);
        assert_eq!(remove_at(&mut vector, 1), Some(2));
        assert_eq!(remove_at(&mut vector, 2), Some(4));
        assert_eq!([remove_at(&mut vector, 2), remove_at(&mut vector, 3)], [None, None]);
        assert_eq!(vector, [1, 3]);
        assert_eq!(
            [remove_at(&mut vector, 0), remove_at(&mut vector, 0), remove_at(&mut vector, 0)],
            [Some(1), Some(3), None]
        );
    }
}
