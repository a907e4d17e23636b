//! Memory: the physical page frames ([`frames`]), the kernel's address space ([`address_space`]), pool ([`pool`]),
//! what may be paged out (`paged`), memory descriptor lists ([`mdl`]), buffers of user programs ([`user_buffer`]) and kernel stacks ([`kernel_stack`]).

pub mod address_space;
pub(crate) mod first_touch;
pub mod frames;
pub mod kernel_stack;
pub(crate) mod map_budget;
pub mod mdl;
pub(crate) mod paged;
pub mod pool;
mod slots;
pub mod user_buffer;

pub const PAGE_SIZE: usize = 4096;
pub const PAGE_SHIFT: u32 = 12;
