//! The tree, its documents and its commands, one module a question. One binary, because each is linked by itself.

mod arguments;
mod circles;
mod clock;
mod dependencies;
mod documents;
mod image_rules;
mod layers;
mod own_driver;
mod patches;
mod pipe;
mod setup_script;
mod sources;
mod type_names;
mod unsafe_code;
