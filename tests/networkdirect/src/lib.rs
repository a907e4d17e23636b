//! What the tests of user-mode NetworkDirect share: the machine they run on, and how a case gets a process of its own. `tests/driver`
//! speaks the codes, structures and rings of `\\.\SoftNd` (docs/networkdirect.md) as a provider would; `tests/provider` calls the
//! interfaces of softnd.dll; `tests/walks` records the files that a call enters. All load the real driver image in the kernel host.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod cases;
pub mod machine;
pub mod own_program;
pub mod refusals;
