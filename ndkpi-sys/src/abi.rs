//! The macros that the other modules are written with: function pointer types in the Windows calling convention, open
//! enumerations, flag sets and layout asserts. No types live here and nothing here runs at run time.
//!
//! Rules kept: a function pointer type means the Windows convention on every host, so that a Linux process which loads
//! a driver image calls it correctly; a number that came from the other side of the border is never turned into a Rust
//! `enum` and never loses unknown bits.

/// Declares function pointer types in the calling convention of Windows on the target's processor.
///
/// On Windows that is `extern "C"` (on x64 `"C"`, `"system"` and `"win64"` are one convention there). On other systems
/// the C convention of x86_64 is a different one, so it is spelt `extern "win64"`. On arm64 both systems agree for
/// functions that are not variadic.
macro_rules! abi_fn {
    ($(
        $(#[$meta:meta])*
        pub type $name:ident = fn($($argument:ident: $argument_type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {$(
        $(#[$meta])*
        #[cfg(not(all(target_arch = "x86_64", not(target_os = "windows"))))]
        pub type $name = unsafe extern "C" fn($($argument: $argument_type),*) $(-> $result)?;
        $(#[$meta])*
        #[cfg(all(target_arch = "x86_64", not(target_os = "windows")))]
        pub type $name = unsafe extern "win64" fn($($argument: $argument_type),*) $(-> $result)?;
    )*};
}

/// Defines functions in the calling convention of this crate's function pointer types, on every host.
///
/// A driver that is only ever built for Windows can write `unsafe extern "C" fn` instead; code that also runs on Linux
/// (a test that plays a consumer, say) uses this macro.
///
/// ```
/// use ndkpi_sys::{ndkpi::NDK_FN_REQUEST_COMPLETION, nt::{NTSTATUS, PVOID}, windows_abi};
///
/// windows_abi! {
///     /// Counts completions.
///     pub unsafe fn completed(_context: PVOID, _status: NTSTATUS) {}
/// }
///
/// let callback: NDK_FN_REQUEST_COMPLETION = completed;
/// # let _ = callback;
/// ```
#[macro_export]
macro_rules! windows_abi {
    ($(
        $(#[$meta:meta])*
        $visibility:vis unsafe fn $name:ident($($argument:tt: $argument_type:ty),* $(,)?) $(-> $result:ty)?
        $body:block
    )*) => {$(
        $(#[$meta])*
        #[cfg(not(all(target_arch = "x86_64", not(target_os = "windows"))))]
        $visibility unsafe extern "C" fn $name($($argument: $argument_type),*) $(-> $result)? $body
        $(#[$meta])*
        #[cfg(all(target_arch = "x86_64", not(target_os = "windows")))]
        $visibility unsafe extern "win64" fn $name($($argument: $argument_type),*) $(-> $result)? $body
    )*};
}

/// Declares a C enumeration as a transparent newtype with constants, so that an unknown number stays a number.
///
/// The enumerators become constants of the module, as they are in C. MSVC enumerations are `int`.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $Type:ident { $( $(#[$doc:meta])* $name:ident = $value:literal, )* }
    ) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $Type(pub i32);

        $( $(#[$doc])* pub const $name: $Type = $Type($value); )*

        impl core::fmt::Debug for $Type {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.0 {
                    $( $value => formatter.write_str(stringify!($name)), )*
                    unknown => write!(formatter, "{}({unknown})", stringify!($Type)),
                }
            }
        }
    };
}

/// Declares a set of flags that keeps unknown bits, and its members also under their C names.
///
/// Members that have several bits (`NDK_OP_FLAG_ALLOW_REMOTE_WRITE`) must be tested with `contains`, never with
/// `intersects`.
macro_rules! flags {
    (
        $(#[$meta:meta])*
        pub struct $Type:ident: $bits:ty {
            $( $(#[$doc:ident $($text:tt)*])* $member:ident / $c_name:ident = $value:expr; )*
        }
    ) => {
        bitflags::bitflags! {
            $(#[$meta])*
            #[repr(transparent)]
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
            pub struct $Type: $bits {
                $( $(#[$doc $($text)*])* const $member = $value; )*
                // Every other bit belongs to the other side: it is kept, compared and passed on unchanged.
                const _ = !0;
            }
        }

        $( $(#[$doc $($text)*])* pub const $c_name: $Type = $Type::$member; )*
    };
}

/// Declares types of which only the address is known here.
macro_rules! opaque {
    ($( $(#[$meta:meta])* pub struct $Type:ident; )*) => {$(
        $(#[$meta])*
        #[repr(C)]
        pub struct $Type {
            _address_only: [u8; 0],
            // Neither Send nor Sync nor Unpin: the object belongs to the other side of the border.
            _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
        }

        impl core::fmt::Debug for $Type {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                formatter.write_str(stringify!($Type))
            }
        }
    )*};
}

/// Asserts the size, the alignment and the offset of **every** field of a type at compile time.
///
/// The struct form lists all fields or does not compile; the union form (`layout!(union …)`) cannot be complete by
/// construction, its members are listed by hand. Types of which the C layout is only known in part are checked with
/// `layout!(partial …)`.
macro_rules! layout {
    ($Type:ident, size $size:literal, align $align:literal, { $($field:ident: $offset:literal),* $(,)? }) => {
        layout!(partial $Type, size $size, align $align, { $($field: $offset),* });
        const _: fn($Type) = |value| {
            // A field that the list above lacks is an error here.
            let $Type { $($field: _),* } = value;
        };
    };
    (union $Type:ident, size $size:literal, align $align:literal, { $($field:ident: $offset:literal),* $(,)? }) => {
        layout!(partial $Type, size $size, align $align, { $($field: $offset),* });
    };
    (partial $Type:ident, size $size:literal, align $align:literal, { $($field:ident: $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$Type>() == $size, concat!("size of ", stringify!($Type)));
            assert!(align_of::<$Type>() == $align, concat!("alignment of ", stringify!($Type)));
            $( assert!(
                core::mem::offset_of!($Type, $field) == $offset,
                concat!("offset of ", stringify!($Type), ".", stringify!($field)),
            ); )*
        };
    };
}

/// Gives C structures the all-zero value that C code starts from.
///
/// Only for types in which all-zero bytes are a valid value: integers, open enumerations, flag sets, raw pointers and
/// optional function pointers.
macro_rules! zeroed {
    ($($Type:ident),* $(,)?) => {$(
        impl $Type {
            /// The all-zero value.
            #[must_use]
            pub const fn zeroed() -> Self {
                // SAFETY: the type consists of integers, raw pointers and optional function pointers, for each of
                // which all-zero bytes are a valid value.
                unsafe { core::mem::zeroed() }
            }
        }

        impl Default for $Type {
            fn default() -> Self {
                Self::zeroed()
            }
        }
    )*};
}

pub(crate) use {abi_fn, flags, layout, opaque, open_enum, zeroed};
