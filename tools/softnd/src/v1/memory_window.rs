//! INDMemoryWindow: an interface without methods, of a class that is not version 2's although the identifier is.

use softnd_interfaces::{
    Guid,
    v1::{INDMemoryWindow, MemoryWindowTable1},
};

use super::class;
use crate::{
    com::{Face, unknown_table},
    resources::memory_window::MemoryWindow,
};

pub struct V1MemoryWindow(MemoryWindow);

impl Face for V1MemoryWindow {
    type Table = MemoryWindowTable1;
    const TABLE: &'static Self::Table = &MemoryWindowTable1 { base: unknown_table::<Self>() };
    const CLASS: Guid = class(4);
    const INTERFACES: &'static [Guid] = &[INDMemoryWindow::IID];
}

impl V1MemoryWindow {
    pub fn new(window: MemoryWindow) -> Self {
        Self(window)
    }

    pub fn window(&self) -> &MemoryWindow {
        &self.0
    }
}
