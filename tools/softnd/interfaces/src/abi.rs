//! The calling convention of Windows, and the macro that makes function tables.

/// The type of a function with the calling convention of Windows: `function!((this: *mut c_void, depth: u32) -> Status)`.
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[macro_export]
macro_rules! function {
    (($($arguments:tt)*) $(-> $Result:ty)?) => { unsafe extern "win64" fn($($arguments)*) $(-> $Result)? };
}

/// The type of a function with the calling convention of Windows: `function!((this: *mut c_void, depth: u32) -> Status)`.
#[cfg(not(all(target_arch = "x86_64", not(windows))))]
#[macro_export]
macro_rules! function {
    (($($arguments:tt)*) $(-> $Result:ty)?) => { unsafe extern "C" fn($($arguments)*) $(-> $Result)? };
}

/// A function with the calling convention of Windows: `define! { fn release(this: *mut c_void) -> u32 { … } }`.
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[macro_export]
macro_rules! define {
    ($(#[$about:meta])* $visible:vis fn $name:ident $(<$Generic:ident: $Bound:path>)? ($($arguments:tt)*) $(-> $Result:ty)? $body:block) => {
        $(#[$about])*
        $visible unsafe extern "win64" fn $name $(<$Generic: $Bound>)? ($($arguments)*) $(-> $Result)? $body
    };
}

/// A function with the calling convention of Windows: `define! { fn release(this: *mut c_void) -> u32 { … } }`.
#[cfg(not(all(target_arch = "x86_64", not(windows))))]
#[macro_export]
macro_rules! define {
    ($(#[$about:meta])* $visible:vis fn $name:ident $(<$Generic:ident: $Bound:path>)? ($($arguments:tt)*) $(-> $Result:ty)? $body:block) => {
        $(#[$about])*
        $visible unsafe extern "C" fn $name $(<$Generic: $Bound>)? ($($arguments)*) $(-> $Result)? $body
    };
}

/// Makes an interface: the structure that an interface pointer points to, its identifier, its function table, and a function for
/// each slot that calls through the pointer.
macro_rules! interfaces {
    ($(
        $(#[$about:meta])*
        $Interface:ident ($iid:literal): $Table:ident > $Base:ty {
            $($(#[$method_about:meta])* fn $method:ident($($argument:ident: $Type:ty),* $(,)?) $(-> $Result:ty)?;)*
        }
    )*) => { $(
        $(#[$about])*
        #[repr(C)]
        pub struct $Interface {
            pub table: *const $Table,
        }

        #[doc = concat!("The function table of [`", stringify!($Interface), "`].")]
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub struct $Table {
            pub base: $Base,
            $($(#[$method_about])*
            pub $method: $crate::function!((this: *mut core::ffi::c_void, $($argument: $Type),*) $(-> $Result)?),)*
        }

        impl $Interface {
            pub const IID: $crate::Guid = $crate::Guid::new($iid);

            $($(#[$method_about])*
            ///
            /// # Safety
            /// `this` is a live interface of this type; the arguments are what the method demands.
            #[allow(clippy::too_many_arguments, reason = "the interface has as many")]
            pub unsafe fn $method(this: *mut Self, $($argument: $Type),*) $(-> $Result)? {
                // SAFETY: the caller's promise: a live interface begins with the address of its table.
                let table = unsafe { (*this).table };
                // SAFETY: tables live as long as their module.
                let method = unsafe { (*table).$method };
                // SAFETY: the caller's promise.
                unsafe { method(this.cast(), $($argument),*) }
            })*
        }
    )*

        /// The interfaces of this module with their own methods.
        pub const INTERFACES: &[$crate::Interface] = &[$($crate::Interface {
            name: stringify!($Interface),
            iid: $Interface::IID,
            methods: &[$((stringify!($method), core::mem::offset_of!($Table, $method) / size_of::<usize>())),*],
        }),*];
    };
}
pub(crate) use interfaces;
