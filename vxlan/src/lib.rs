//! Ethernet frames of softndk in VXLAN datagrams (RFC 7348), as far as no socket is needed.
//!
//! | what | module |
//! |---|---|
//! | the header of a datagram | [`datagram`] |
//! | what can be read from an Ethernet frame | [`frame`] |
//! | which peer has which station | [`forwarding`] |
//! | the peers of an uplink, and their text in the registry | [`peers`] |
//!
//! Rules: the sender of a datagram is hostile. Each length is checked before it is used, no input panics, nothing allocates. Time comes in
//! as a number of nanoseconds.
#![no_std]
#![forbid(unsafe_code)]

pub mod datagram;
pub mod forwarding;
pub mod frame;
pub mod peers;

pub use datagram::{HEADER_LENGTH, Malformed, NetworkIdentifier};
pub use forwarding::{ForwardingTable, Learned};
pub use frame::{ETHERNET_HEADER, MacAddress};
pub use peers::{PEER_MAX, PeerList};
