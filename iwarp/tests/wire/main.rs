//! The connection's machine by its bytes, one module a question. One binary, because each is linked by itself.

mod golden;
mod pairs;
mod segments;
mod start;
mod streams;
