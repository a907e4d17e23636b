//! INDMemoryWindow: an interface without methods, of a class that is not version 2's although the identifier is.

use softnd_interfaces::{
    Guid, Status,
    v1::{INDMemoryWindow, MemoryWindowTable1},
};

use super::{
    class,
    windows::{WindowResult, WindowResults},
};
use crate::{
    com::{Face, unknown_table},
    resources::memory_window::MemoryWindow,
    shared::Shared,
};

pub struct V1MemoryWindow {
    window: MemoryWindow,
    /// How its invalidation by the peer is told, if it is.
    told: Option<Shared<WindowResult>>,
    results: Shared<WindowResults>,
}

impl Face for V1MemoryWindow {
    type Table = MemoryWindowTable1;
    const TABLE: &'static Self::Table = &MemoryWindowTable1 { base: unknown_table::<Self>() };
    const CLASS: Guid = class(4);
    const INTERFACES: &'static [Guid] = &[INDMemoryWindow::IID];
}

impl V1MemoryWindow {
    /// `result`: the address of the client's ND_RESULT, or 0.
    pub fn new(window: MemoryWindow, results: &Shared<WindowResults>, result: u64) -> Result<Self, Status> {
        let told = if result == 0 { None } else { Some(results.add(result)?) };
        Ok(Self { window, told, results: results.clone() })
    }

    pub fn window(&self) -> &MemoryWindow {
        &self.window
    }

    /// A Bind was posted. Returns the token.
    pub fn bound(&self) -> u32 {
        let token = self.window.remote_token();
        if let Some(told) = &self.told {
            told.bound(token);
        }
        token
    }
}

impl Drop for V1MemoryWindow {
    fn drop(&mut self) {
        if let Some(told) = &self.told {
            self.results.remove(told);
        }
    }
}
