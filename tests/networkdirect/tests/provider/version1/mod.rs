//! Version 1 over the real driver.

mod connections;
pub mod ends;
mod objects;
mod packets;
mod transfers;

use networkdirect::cases::Case;

pub const SUITES: [&[Case]; 4] = [objects::CASES, transfers::CASES, connections::CASES, packets::CASES];
