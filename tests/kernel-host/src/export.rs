//! Declaring the functions that images import, and the one path every call of them takes.
//!
//! An export is declared once, with its documentation, its IRQL rule and its body; the declaration is what the loader
//! resolves against, what the entry check reads and what `xtask/lists/exports.md` is made from. Documentation lines that
//! begin with `Checks:` and `Source:` become columns of that table.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use crate::bugcheck::{BugCheck, bugcheck};
use crate::fast::{self, FastTwin};
use crate::irql::{self, IrqlRange};
use crate::memory::address_space::{self, Zone};
use crate::thread::Thread;
use crate::thunk;
use crate::user::imports;

/// One exported function.
pub struct ExportDeclaration {
    pub module: &'static str,
    pub name: &'static str,
    pub irql: IrqlRange,
    pub documentation: &'static [&'static str],
    /// The function itself, `extern "win64"`.
    pub address: *const c_void,
    /// How many arguments it takes in all.
    pub arguments: usize,
    /// It runs on the image's own stack, without a switch: leaf routines such as `memcpy`.
    pub direct: bool,
    /// What images enter instead in fast mode: the frequent cases, on the image's own stack.
    pub fast: Option<&'static FastTwin>,
}

impl ExportDeclaration {
    /// What image code calls: the function itself, its fast twin, or a stub that switches stacks.
    pub fn entry(&self) -> usize {
        if self.direct {
            return self.address as usize;
        }
        let stub = thunk::stub_for(self.address, self.arguments);
        self.fast.filter(|_| fast::is_on()).map_or(stub, |twin| twin.bind(stub))
    }

    /// Whether image code that is there runs this export on its own stack.
    fn is_entered_at(&self, address: usize) -> bool {
        self.direct && self.address as usize == address || self.fast.is_some_and(|twin| twin.entry() == address)
    }
}

// SAFETY: the address names code, through which nothing is written.
unsafe impl Sync for ExportDeclaration {}
// SAFETY: as above.
unsafe impl Send for ExportDeclaration {}

/// One exported variable; the import slot receives the address of the variable.
pub struct DataExport {
    pub module: &'static str,
    pub name: &'static str,
    pub documentation: &'static [&'static str],
    pub address: *const c_void,
}

// SAFETY: the address names a static that synchronises itself or never changes after boot.
unsafe impl Sync for DataExport {}

/// Every table of functions. A new module adds its line here.
pub static TABLES: &[&[ExportDeclaration]] = &[
    crate::cng::EXPORTS,
    crate::io::cancel::EXPORTS,
    crate::io::irp::EXPORTS,
    crate::io::own_packet::EXPORTS,
    crate::io::wdm::EXPORTS,
    crate::ndis::configuration::EXPORTS,
    crate::ndis::data_path::EXPORTS,
    crate::ndis::device::EXPORTS,
    crate::ndis::life_cycle::EXPORTS,
    crate::ndis::miniport::EXPORTS,
    crate::ndis::net_buffer::EXPORTS,
    crate::ndis::oid_request::EXPORTS,
    crate::ndis::pnp_event::EXPORTS,
    crate::ndis::registration::EXPORTS,
    crate::ndis::status_indication::EXPORTS,
    crate::ndis::timer::EXPORTS,
    crate::ndis::work_item::EXPORTS,
    crate::netio::mib::EXPORTS,
    crate::ntoskrnl::addresses::EXPORTS,
    crate::ntoskrnl::bugchecks::EXPORTS,
    crate::ntoskrnl::c_strings::EXPORTS,
    crate::ntoskrnl::debug_print::EXPORTS,
    crate::ntoskrnl::dispatcher_objects::EXPORTS,
    crate::ntoskrnl::dpcs::EXPORTS,
    crate::ntoskrnl::formatting::EXPORTS,
    crate::ntoskrnl::interlocked_lists::EXPORTS,
    crate::ntoskrnl::locks::EXPORTS,
    crate::ntoskrnl::lookasides::EXPORTS,
    crate::ntoskrnl::mdls::EXPORTS,
    crate::ntoskrnl::objects::EXPORTS,
    crate::ntoskrnl::page_lists::EXPORTS,
    crate::ntoskrnl::pools::EXPORTS,
    crate::ntoskrnl::privileges::EXPORTS,
    crate::ntoskrnl::processors::EXPORTS,
    crate::ntoskrnl::queues::EXPORTS,
    crate::ntoskrnl::registry_keys::EXPORTS,
    crate::ntoskrnl::rundowns::EXPORTS,
    crate::ntoskrnl::runtime::EXPORTS,
    crate::ntoskrnl::strings::EXPORTS,
    crate::ntoskrnl::threads::EXPORTS,
    crate::ntoskrnl::timers::EXPORTS,
    crate::ntoskrnl::tracing::EXPORTS,
    crate::ntoskrnl::work_items::EXPORTS,
    crate::wsk::EXPORTS,
];

/// Every table of variables.
pub static DATA_TABLES: &[&[DataExport]] =
    &[crate::ntoskrnl::objects::DATA_EXPORTS, crate::ntoskrnl::runtime::DATA_EXPORTS];

/// hal.dll forwards these to the kernel since build 19041; an image may name either module.
const FORWARDED_BY_HAL: &[&str] = &[
    "KeQueryPerformanceCounter",
    "KeStallExecutionProcessor",
    "KeGetCurrentIrql",
    "KfRaiseIrql",
    "KeLowerIrql",
    "KfLowerIrql",
    "KeRaiseIrqlToDpcLevel",
    "KeAcquireSpinLockRaiseToDpc",
    "KeAcquireSpinLock",
    "KeReleaseSpinLock",
    "KeAcquireInStackQueuedSpinLock",
    "KeReleaseInStackQueuedSpinLock",
];

/// Whether an address is that of an export which runs without a stub.
pub fn is_direct(address: usize) -> bool {
    direct_name(address).is_some()
}

/// The name of an export which runs without a stub, or whose fast twin is at the address.
pub(crate) fn direct_name(address: usize) -> Option<&'static str> {
    let mut exports = TABLES.iter().flat_map(|table| table.iter());
    exports.find(|export| export.is_entered_at(address)).map(|export| export.name)
}

/// What an import resolves to.
pub enum Resolved {
    Function(&'static ExportDeclaration),
    Data(&'static DataExport),
}

/// Finds an export by the module's file name (any case) and its own name (exact).
pub fn resolve(module: &str, name: &str) -> Option<Resolved> {
    let module = module.to_ascii_lowercase();
    let wanted = match module.as_str() {
        "hal.dll" if FORWARDED_BY_HAL.contains(&name) => "ntoskrnl.exe",
        other => other,
    };
    let function = TABLES
        .iter()
        .flat_map(|table| table.iter())
        .find(|export| export.module == wanted && export.name == name)
        .map(Resolved::Function);
    function.or_else(|| {
        DATA_TABLES
            .iter()
            .flat_map(|table| table.iter())
            .find(|export| export.module == wanted && export.name == name)
            .map(Resolved::Data)
    })
}

/// The common entry of every export: remembers it for reports and checks its IRQL rule.
#[inline]
pub fn enter(declaration: &'static ExportDeclaration) -> &'static Thread {
    let thread = Thread::current();
    thread.set_export(declaration);
    if thread.stretch.is_open() {
        thread.stretch.call(crate::callout::caller_address(thread));
    }
    let irql = thread.irql();
    if !declaration.irql.contains(irql) {
        called_at_wrong_level(declaration, irql);
    }
    crate::schedule::point(thread, &declaration.name);
    thread
}

// Cold paths of exports keep the Windows convention: a call of a System V function anywhere in an export's body would make
// its prologue save ten vector registers, which costs more than the hot exports do.
#[cold]
#[inline(never)]
extern "win64" fn called_at_wrong_level(declaration: &'static ExportDeclaration, irql: irql::Irql) -> ! {
    bugcheck(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        [0x1001, u64::from(irql), declaration.address as u64, 0],
        format!("{} is called at {}; it needs {}", declaration.name, irql::name(irql), declaration.irql.describe()),
    )
}

/// An argument of an export: an address, or something else.
pub trait Argument {
    /// The address, or 0 for what is none.
    fn address(&self) -> usize {
        0
    }
}

impl<T> Argument for *const T {
    fn address(&self) -> usize {
        *self as usize
    }
}

impl<T> Argument for *mut T {
    fn address(&self) -> usize {
        *self as usize
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Argument for $number {})*
    };
}

numbers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

/// Exports that may get an address of a user program.
const ASK_ABOUT_ADDRESSES: &[&str] = &["MmIsAddressValid"];

/// What every export checks of its arguments when verifying: a user program's memory may change or vanish while the kernel uses
/// it. `addresses` are those of the arguments that are pointers.
#[inline(never)]
pub extern "win64" fn check_addresses(declaration: &'static ExportDeclaration, addresses: *const usize, count: usize) {
    // SAFETY: an array of the caller's.
    let addresses = unsafe { std::slice::from_raw_parts(addresses, count) };
    let of_users = |address: &&usize| address_space::zone_of(**address) == Some(Zone::UserBuffers);
    if imports::is_module(declaration.module) {
        return;
    }
    let system_service = declaration.name.starts_with("Zw");
    if let Some(address) = addresses.iter().find(of_users).filter(|_| !ASK_ABOUT_ADDRESSES.contains(&declaration.name))
    {
        user_address(declaration, *address, system_service);
    }
    if system_service && Thread::current().guarded_regions.load(Ordering::Relaxed) != 0 {
        bugcheck(
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            [0xE6, declaration.address as u64, u64::from(irql::current()), 1],
            format!("{} is called inside a guarded region, where special kernel APCs are masked", declaration.name),
        );
    }
}

/// Ends a driver that gives a kernel function an address of a user program.
pub(crate) fn user_address(declaration: &'static ExportDeclaration, address: usize, system_service: bool) -> ! {
    let subject = if system_service { 0xE3 } else { 0xE0 };
    bugcheck(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        [subject, address as u64, 0, 0],
        format!("{} is given {address:#x}, an address of a user program", declaration.name),
    )
}

/// Declares the exports of one module by subject.
///
/// ```text
/// exports! {
///     module "ntoskrnl.exe";
///
///     /// Sets the event and wakes its waiters.
///     /// Source: WDM: KeSetEvent
///     [UP_TO_DISPATCH] fn KeSetEvent(event: *mut KEVENT, increment: i32, wait: u8) -> i32 { … }
/// }
/// ```
///
/// The word in brackets is an associated constant of [`IrqlRange`]; `; direct` after it runs the function on the
/// image's own stack and skips the entry check; `, fast = twin` names what images enter instead in fast mode, a twin of
/// `fast`. Produces the functions and `pub static EXPORTS`.
#[macro_export]
macro_rules! exports {
    (@count) => { 0usize };
    (@count $head:ident $($tail:ident)*) => { 1usize + $crate::exports!(@count $($tail)*) };
    (@enter $name:ident) => { let _ = $crate::export::enter(&declaration::$name); };
    (@enter $name:ident $direct:ident) => {};
    (@addresses $name:ident direct; $($argument:ident)*) => {};
    (@addresses $name:ident; $($argument:ident)*) => {
        if $crate::kernel::is_verifying() {
            let addresses: &[usize] = &[$($crate::export::Argument::address(&$argument)),*];
            $crate::export::check_addresses(&declaration::$name, addresses.as_ptr(), addresses.len());
        }
    };
    (@direct) => { false };
    (@direct direct) => { true };
    (@fast) => { None };
    (@fast $twin:path) => { Some(&$twin) };
    (
        module $module:literal;
        $(
            $(#[doc = $doc:literal])*
            [$range:ident $(; $direct:ident)? $(, fast = $twin:path)?]
            fn $name:ident($($argument:ident : $type:ty),* $(,)?) $(-> $return:ty)? $body:block
        )*
    ) => {
        $(
            $(#[doc = $doc])*
            pub unsafe extern "win64" fn $name($($argument: $type),*) $(-> $return)? {
                $crate::exports!(@enter $name $($direct)?);
                $crate::exports!(@addresses $name $($direct)?; $($argument)*);
                $body
            }
        )*

        #[allow(non_upper_case_globals, reason = "a declaration carries the name of its export")]
        mod declaration {
            #[allow(unused_imports, reason = "argument types come from the declaring module")]
            use super::*;
            $(
                pub(super) static $name: $crate::export::ExportDeclaration = $crate::export::ExportDeclaration {
                    module: $module,
                    name: stringify!($name),
                    irql: $crate::irql::IrqlRange::$range,
                    documentation: &[$($doc),*],
                    address: super::$name as *const std::ffi::c_void,
                    arguments: $crate::exports!(@count $($argument)*),
                    direct: $crate::exports!(@direct $($direct)?),
                    fast: $crate::exports!(@fast $($twin)?),
                };
            )*
        }

        pub static EXPORTS: &[$crate::export::ExportDeclaration] = &[
            $($crate::export::ExportDeclaration { ..$crate::export::copy_of(&declaration::$name) }),*
        ];
    };
}

/// A declaration's copy in its table: both are the same constants.
pub const fn copy_of(declaration: &'static ExportDeclaration) -> ExportDeclaration {
    ExportDeclaration {
        module: declaration.module,
        name: declaration.name,
        irql: declaration.irql,
        documentation: declaration.documentation,
        address: declaration.address,
        arguments: declaration.arguments,
        direct: declaration.direct,
        fast: declaration.fast,
    }
}
