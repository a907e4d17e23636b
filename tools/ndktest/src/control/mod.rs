//! The control device `\\.\NdkTest`: handles, requests, and the list of adapters that can be opened.

pub mod adapter_list;
pub mod file;
pub mod request;
