//! Kinds of NDK objects: what differs between them, a line in the file of each.

use ndkpi_sys::ndkpi::{NDK_OBJECT_HEADER, NDK_OBJECT_TYPE};
use softndk_engine::{Close, Hold};
use softndk_kernel::pool::Tag;

use crate::runtime::platform::{CloseCallback, KernelPlatform};

/// What differs between the kinds of objects.
pub trait Kind: Sized {
    /// What the consumer sees, e.g. NDK_CQ.
    type Visible;
    /// The engine's object.
    type Handle: Clone + Send;

    const TYPE: NDK_OBJECT_TYPE;
    const TAG: Tag;

    /// The visible part with this kind's dispatch table.
    fn visible(header: NDK_OBJECT_HEADER) -> Self::Visible;
    fn close(handle: &Self::Handle, callback: CloseCallback) -> Close<KernelPlatform>;
    /// Keeps the close from completing.
    fn hold(handle: &Self::Handle) -> Hold<KernelPlatform>;
}

/// Declares the kind of object that a file has, and what a consumer passes of it: kind, reference, engine's object, visible part, type,
/// tag. The dispatch table is the file's `DISPATCH`.
macro_rules! kind {
    ($Kind:ident, $Ref:ident: $Handle:ident, $Visible:ident, $TYPE:ident, $TAG:ident) => {
        pub struct $Kind;
        pub type $Ref<'call> = $crate::ndk::entry::ConsumerRef<'call, $crate::ndk::consumer_object::Object<$Kind>>;

        impl $crate::ndk::kind::Kind for $Kind {
            type Visible = ndkpi_sys::ndkpi::$Visible;
            type Handle = softndk_engine::$Handle<$crate::runtime::platform::KernelPlatform>;

            const TYPE: ndkpi_sys::ndkpi::NDK_OBJECT_TYPE = ndkpi_sys::ndkpi::$TYPE;
            const TAG: softndk_kernel::pool::Tag = $crate::tags::$TAG;

            fn visible(header: ndkpi_sys::ndkpi::NDK_OBJECT_HEADER) -> Self::Visible {
                Self::Visible { Header: header, Dispatch: &raw const DISPATCH }
            }

            fn close(
                handle: &Self::Handle,
                callback: $crate::runtime::platform::CloseCallback,
            ) -> softndk_engine::Close<$crate::runtime::platform::KernelPlatform> {
                handle.close(callback)
            }

            fn hold(handle: &Self::Handle) -> softndk_engine::Hold<$crate::runtime::platform::KernelPlatform> {
                handle.hold()
            }
        }
    };
}
pub(crate) use kind;
