//! The binary by its commands and pages, one module a question. One test binary, because each is linked by itself.

mod commands;
mod doctor;
mod documentation;
mod nd;
mod pages;
