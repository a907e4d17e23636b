//! The INF of the driver package: read, stamped, and judged by the rules that Windows, InfVerif and the network class have for it.
//!
//! InfVerif runs on Windows only. The rules here are those of the driver documentation that concern a root-enumerated virtual Ethernet
//! miniport whose package is isolated (files in the driver store only, registry values below HKR only).

mod keywords;
mod rules;
mod stamp;
mod text;

pub use rules::{InfExpectation, violations};
pub use stamp::{Date, architecture, stamp};
pub use text::Inf;
