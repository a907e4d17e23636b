//! The exports of ntoskrnl.exe (and of hal.dll, which forwards to it), by subject. The bodies are short: what they
//! model lives in the modules of the same name above.

pub mod bugchecks;
pub mod debug_print;
pub mod dispatcher_objects;
pub mod dpcs;
pub mod locks;
pub mod mdls;
pub mod objects;
pub mod pools;
pub mod processors;
pub mod queues;
pub mod rundowns;
pub mod runtime;
pub mod strings;
pub mod threads;
pub mod timers;
