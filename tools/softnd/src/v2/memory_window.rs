//! IND2MemoryWindow.

use softnd_interfaces::{
    Guid,
    v2::{IND2MemoryWindow, MemoryWindowTable2},
};

use super::class;
use crate::{
    argument::entry,
    com::{Face, unknown_table},
    resources::memory_window::MemoryWindow,
};

pub struct V2MemoryWindow(MemoryWindow);

impl Face for V2MemoryWindow {
    type Table = MemoryWindowTable2;
    const TABLE: &'static Self::Table = &MemoryWindowTable2 {
        base: unknown_table::<Self>(),
        get_remote_token: entry!(V2MemoryWindow, get_remote_token() -> u32),
    };
    const CLASS: Guid = class(6);
    const INTERFACES: &'static [Guid] = &[IND2MemoryWindow::IID];
}

impl V2MemoryWindow {
    pub fn new(window: MemoryWindow) -> Self {
        Self(window)
    }

    pub fn window(&self) -> &MemoryWindow {
        &self.0
    }

    fn get_remote_token(&self) -> u32 {
        self.0.remote_token()
    }
}
