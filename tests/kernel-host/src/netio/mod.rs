//! netio: the interfaces of the host, their unicast addresses, notifications of changes and the conversions between the names of
//! an interface.

pub mod address_table;
pub mod card;
pub mod mib;
pub mod notification;

use std::sync::LazyLock;

use address_table::AddressTable;

static TABLE: LazyLock<AddressTable> = LazyLock::new(AddressTable::new);

/// The one address table of the process.
#[must_use]
pub fn table() -> &'static AddressTable {
    &TABLE
}
