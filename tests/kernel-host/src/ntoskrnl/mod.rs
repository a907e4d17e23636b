//! The exports of ntoskrnl.exe (and of hal.dll, which forwards to it), by subject. The bodies are short: what they model is in
//! the modules of the same name above.

pub mod addresses;
pub mod bugchecks;
pub mod c_strings;
pub mod debug_print;
pub mod dispatcher_objects;
pub mod dpcs;
pub mod formatting;
pub mod interlocked_lists;
pub mod locks;
pub mod lookasides;
pub mod mdls;
pub mod objects;
pub mod page_lists;
pub mod pools;
pub mod privileges;
pub mod processors;
pub mod queues;
pub mod registry_keys;
pub mod rundowns;
pub mod runtime;
pub mod strings;
pub mod threads;
pub mod timers;
pub mod tracing;
pub mod work_items;
