//! What a control request comes to.

use crate::Status;

/// Bytes of output, or a status; a list that is cut has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub status: Status,
    pub information: usize,
}

impl Outcome {
    /// Of a list that takes so many bytes in the output, and whether all of it is there.
    pub fn of_list(listed: Result<(usize, bool), Status>) -> Self {
        match listed {
            Ok((information, false)) => Self { status: Status::BUFFER_OVERFLOW, information },
            whole => whole.map(|(information, _)| information).into(),
        }
    }
}

impl From<Result<usize, Status>> for Outcome {
    fn from(result: Result<usize, Status>) -> Self {
        match result {
            Ok(information) => Self { status: Status::SUCCESS, information },
            Err(status) => Self { status, information: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_that_is_cut_has_output_and_a_warning() {
        let outcome = |status, information| Outcome { status, information };
        assert_eq!(Outcome::from(Ok(8)), outcome(Status::SUCCESS, 8));
        assert_eq!(Outcome::from(Err(Status::BUFFER_TOO_SMALL)), outcome(Status::BUFFER_TOO_SMALL, 0));
        assert_eq!(Outcome::of_list(Ok((8, true))), outcome(Status::SUCCESS, 8));
        assert_eq!(Outcome::of_list(Ok((8, false))), outcome(Status::BUFFER_OVERFLOW, 8));
        assert_eq!(Outcome::of_list(Err(Status::BUFFER_TOO_SMALL)), outcome(Status::BUFFER_TOO_SMALL, 0));
    }
}
