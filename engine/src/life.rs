//! stub
use core::marker::PhantomData;
use crate::platform::Platform;
/// Keeps an object from finishing its close.
pub struct Hold<P: Platform>(PhantomData<fn() -> P>);
pub(crate) struct Antecedents<P: Platform>(PhantomData<fn() -> P>);
