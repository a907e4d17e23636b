//! The machine of a connector of `\\.\SoftNd`, without the driver: the tables of `xtask/lists/nd-connector-machine.md` beside it, and what holds
//! in all of their cells.

#[path = "../../../../driver/nd/connector/effects.rs"]
mod effects;
#[path = "../../../../driver/nd/connector/machine/mod.rs"]
mod machine;
mod names;
#[path = "../../../../driver/nd/connector/state.rs"]
mod state;
mod table;
mod walks;
