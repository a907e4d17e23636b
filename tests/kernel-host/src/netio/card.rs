//! The real network card: an interface that has no driver here, whose addresses are this host's.

use super::address_table::{CARD_INDEX, DetectionState};
use super::notification::{Change, announce};
use super::table;
use crate::inf::InterfaceAddress;

/// Gives the card another address; false when it has it.
pub fn add_address(address: InterfaceAddress) -> bool {
    let row = table().add(CARD_INDEX, address, DetectionState::Preferred);
    if let Some(row) = &row {
        announce(row, Change::Added);
    }
    row.is_some()
}
