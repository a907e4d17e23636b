//! Stack traces through image code by the PE unwind tables. A thread's image frames are a chain of pieces: each import
//! stub saved the image's registers, each callout saved the piece before. Host frames between them are left out.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, Reg, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Module, ModuleSectionInfo, Unwinder};
use object::LittleEndian as LE;
use object::read::pe::PeFile64;
use object::read::pe::{ImageNtHeaders as _, ImageOptionalHeader as _};

use super::Image;
use super::symbols::{self, Location};
use crate::callout::{ActiveContext, ContextKind, Transition};
use crate::thread::Thread;
use crate::thunk;

/// How many frames a report shows and a record keeps.
pub const MAXIMUM_FRAMES: usize = 48;

/// The unwind tables of one image.
pub(crate) struct UnwindModule {
    unwinder: UnwinderX86_64<Arc<[u8]>>,
}

impl UnwindModule {
    pub(crate) fn new(file: &PeFile64<'_>, base: usize) -> Self {
        let optional = file.nt_headers().optional_header();
        let length = u64::from(optional.size_of_image());
        let sections = Sections {
            base: optional.image_base(),
            table: file
                .section_table()
                .iter()
                .find(|section| section.raw_name() == b".pdata")
                .map(|section| section.pe_data(file.data()).unwrap_or_default().into()),
            whole: as_in_memory(file, length as usize),
        };
        let mut unwinder = UnwinderX86_64::new();
        let start = base as u64;
        unwinder.add_module(Module::new("image".to_owned(), start..start + length, start, sections));
        Self { unwinder }
    }
}

/// The contents of an image with each section in its place.
fn as_in_memory(file: &PeFile64<'_>, length: usize) -> Arc<[u8]> {
    let mut bytes = vec![0; length];
    for section in file.section_table().iter() {
        let start = section.virtual_address.get(LE) as usize;
        let data = section.pe_data(file.data()).unwrap_or_default();
        let size = data.len().min(length.saturating_sub(start));
        if let Some(place) = bytes.get_mut(start..start + size) {
            place.copy_from_slice(&data[..size]);
        }
    }
    bytes.into()
}

/// What the unwinder reads of an image: the table of functions, and by its addresses unwind codes and code. It asks for those by the
/// names of the usual sections; a driver has code in `PAGE` and others too, so each of these is the whole image.
struct Sections {
    base: u64,
    table: Option<Arc<[u8]>>,
    whole: Arc<[u8]>,
}

impl Sections {
    const WHOLE: [&[u8]; 3] = [b".text", b".rdata", b".xdata"];
}

impl ModuleSectionInfo<Arc<[u8]>> for Sections {
    fn base_svma(&self) -> u64 {
        self.base
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        Self::WHOLE.contains(&name).then(|| self.base..self.base + self.whole.len() as u64)
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Arc<[u8]>> {
        if name == b".pdata" {
            self.table.clone()
        } else {
            Self::WHOLE.contains(&name).then(|| Arc::clone(&self.whole))
        }
    }
}

/// The registers where a walk begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub instruction: u64,
    pub values: UnwindRegsX86_64,
}

/// One frame of a report.
#[derive(Clone, Debug)]
pub struct StackFrame {
    pub address: u64,
    pub image: String,
    pub offset: u64,
    pub location: Option<Location>,
}

impl fmt::Display for StackFrame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(location) = &self.location else {
            return write!(formatter, "{}+{:#x}", self.image, self.offset);
        };
        write!(formatter, "{}!{}", self.image, location.function)?;
        match (&location.file, location.line) {
            (Some(file), Some(line)) => write!(formatter, " ({}:{line})", symbols::shorten(file)),
            _ => Ok(()),
        }
    }
}

/// The image return addresses of the current thread, innermost first, without names.
pub fn addresses() -> Vec<u64> {
    Thread::try_current().map_or_else(Vec::new, |thread| walk(thread, None))
}

/// As [`addresses`], without what a DPC or a timer interrupted: the same work has the same addresses wherever it comes.
pub fn addresses_of_work() -> Vec<u64> {
    let Some(thread) = Thread::try_current() else { return Vec::new() };
    let interrupts =
        |active: &ActiveContext| matches!(active.kind, ContextKind::DeferredProcedureCall | ContextKind::Timer);
    let pieces = thread.contexts.borrow().iter().rev().position(interrupts).map_or(usize::MAX, |place| place + 1);
    walk_pieces(thread, (thread.transition.get(), thread.host_stack.get()), pieces, Vec::new())
}

/// The frames of the current thread with names.
pub fn of_current_thread() -> Vec<StackFrame> {
    name(&addresses())
}

/// The frames of a thread that stands still in an export.
pub(crate) fn of_thread(thread: &Thread) -> Vec<StackFrame> {
    name(&walk(thread, None))
}

/// The frames of the current thread when a fault interrupted it at these registers.
pub(crate) fn of_fault(registers: Registers) -> Vec<StackFrame> {
    Thread::try_current().map_or_else(Vec::new, |thread| name(&walk(thread, Some(registers))))
}

/// The addresses of [`of_fault`], for a handler that may not read symbols.
pub(crate) fn addresses_of_fault(registers: Registers) -> Vec<u64> {
    Thread::try_current().map_or_else(Vec::new, |thread| walk(thread, Some(registers)))
}

/// Frames with their names.
pub(crate) fn name_addresses(addresses: &[u64]) -> Vec<StackFrame> {
    name(addresses)
}

/// A number for a call site: the same stack gives the same number in every run of the same image. One call through a register may reach
/// several functions, each of which is a site.
pub fn site_of(function: &str, addresses: &[u64]) -> u64 {
    let offset_of =
        |address: &u64| super::containing(*address as usize).map_or(0, |image| address.wrapping_sub(image.base as u64));
    let offsets = addresses.iter().flat_map(|address| offset_of(address).to_le_bytes());
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    function.bytes().chain(offsets).fold(0xCBF2_9CE4_8422_2325, mix)
}

fn walk(thread: &Thread, fault: Option<Registers>) -> Vec<u64> {
    let mut found = Vec::new();
    if let Some(registers) = fault
        && super::containing(registers.instruction as usize).is_some()
    {
        // Addresses are return addresses, which name the instruction before; the interrupted one counts as that.
        found.push(registers.instruction + 1);
        unwind_piece(thread, registers, true, &mut found);
        // The piece in front is the one before this callout.
        return walk_chain(thread, previous_piece(thread.host_stack.get()), found);
    }
    if let Some(caller) = fault.and_then(|registers| caller_on_kernel_stack(thread, registers)) {
        found.push(caller.instruction);
        unwind_piece(thread, caller, false, &mut found);
        return walk_chain(thread, previous_piece(thread.host_stack.get()), found);
    }
    walk_chain(thread, (thread.transition.get(), thread.host_stack.get()), found)
}

/// How many words above the stack pointer are searched for a return address into an image.
const WORDS_OF_A_LEAF: u64 = 64;

/// The image's registers at the call of what faulted on the image's own stack without being image code: an address that is
/// no code, or a routine of the host that runs there (memcpy). Of such a routine only the return address is known.
fn caller_on_kernel_stack(thread: &Thread, fault: Registers) -> Option<Registers> {
    let top = fault.values.sp();
    let range = thread.kernel_stack_ranges()?.into_iter().find(|range| range.contains(&top))?;
    let places = (0..WORDS_OF_A_LEAF).map(|word| top + 8 * word).take_while(|place| place + 8 <= range.end);
    for place in places {
        // SAFETY: inside one of this thread's kernel stacks, above its guard page.
        let value = unsafe { (place as *const u64).read_unaligned() };
        if super::contains_code(value as usize) && follows_a_call(value) {
            let mut values = fault.values;
            values.set(Reg::RSP, place + 8);
            return Some(Registers { instruction: value, values });
        }
    }
    None
}

/// What image code called that runs on the image's own stack: the value of the import slot, where the call was through one.
pub(crate) fn called_directly(thread: &Thread, fault: Registers) -> Option<usize> {
    let after = caller_on_kernel_stack(thread, fault)?.instruction;
    let relative = |end: u64| {
        // SAFETY: the last four bytes of an instruction of a loaded image.
        let distance = unsafe { ((end - 4) as *const i32).read_unaligned() };
        end.wrapping_add_signed(i64::from(distance))
    };
    let is = |address: u64, bytes: [u8; 2]| {
        let inside = super::contains_code(address as usize) && super::contains_code(address as usize + 5);
        // SAFETY: code of a loaded image.
        inside && unsafe { (address as *const [u8; 2]).read() } == bytes
    };
    // call [rip + distance], or call of a jmp [rip + distance].
    let target = relative(after);
    let slot = if is(after - 6, [0xFF, 0x15]) {
        target
    } else if is(target, [0xFF, 0x25]) {
        relative(target + 6)
    } else {
        return None;
    };
    super::containing(slot as usize)?;
    // SAFETY: a slot of a loaded image.
    Some(unsafe { (slot as *const usize).read_unaligned() })
}

/// Whether the instruction before an address of image code is a call.
fn follows_a_call(address: u64) -> bool {
    let before = |bytes: u64| super::contains_code((address - bytes) as usize);
    // SAFETY: code of a loaded image.
    let byte = |back: u64| unsafe { ((address - back) as *const u8).read() };
    // call rel32, call [rip + rel32]
    if before(6) && (byte(5) == 0xE8 || byte(6) == 0xFF && byte(5) == 0x15) {
        return true;
    }
    // call by a register or by memory with a base: two to seven bytes, opcode FF /2.
    (2..=7).any(|length| before(length) && byte(length) == 0xFF && byte(length - 1) >> 3 & 7 == 2)
}

/// Follows the chain of pieces: (registers saved by the import stub, host stack of the callout that the piece is in).
fn walk_chain(thread: &Thread, start: (*const Transition, u64), found: Vec<u64>) -> Vec<u64> {
    walk_pieces(thread, start, usize::MAX, found)
}

/// The pieces of so many callouts, the running one first.
fn walk_pieces(thread: &Thread, start: (*const Transition, u64), mut pieces: usize, mut found: Vec<u64>) -> Vec<u64> {
    let (mut transition, mut host_stack) = start;
    while !transition.is_null() && host_stack != 0 && found.len() < MAXIMUM_FRAMES && pieces != 0 {
        pieces -= 1;
        // SAFETY: a transition saved by a stub of this thread whose export has not returned (it is below the callout
        // that saved it, or the running one).
        let registers = unsafe { registers_of(&*transition) };
        if super::containing(registers.instruction as usize).is_some() {
            found.push(registers.instruction);
            unwind_piece(thread, registers, false, &mut found);
        } else if let Some(entered) = entered_at(thread, host_stack) {
            // The function that was entered ended in a jump to the import and left no frame: its start stands for it.
            found.push(entered as u64 + 1);
        }
        (transition, host_stack) = previous_piece(host_stack);
    }
    found.truncate(MAXIMUM_FRAMES);
    found
}

/// The image function that the callout at `host_stack` entered; known for the running callout only.
fn entered_at(thread: &Thread, host_stack: u64) -> Option<usize> {
    let running = host_stack == thread.host_stack.get();
    let contexts = thread.contexts.try_borrow().ok()?;
    contexts.last().filter(|_| running).map(|active| active.target)
}

/// What the callout at `host_stack` saved: the transition it was called in and the host stack of the callout before.
fn previous_piece(host_stack: u64) -> (*const Transition, u64) {
    if host_stack == 0 {
        return (std::ptr::null(), 0);
    }
    // SAFETY: the callout stored transition, kernel stack and host stack at these places, see `thunk`.
    unsafe {
        let saved = host_stack as *const u64;
        (saved.read() as *const Transition, saved.add(2).read())
    }
}

/// The image's registers right after the call of the import.
unsafe fn registers_of(transition: &Transition) -> Registers {
    // SAFETY: the image's stack pointer at an import's entry points at the return address.
    let instruction = unsafe { (transition.rsp as *const u64).read() };
    let mut values = UnwindRegsX86_64::new(instruction, transition.rsp + 8, transition.rbp);
    values.set(Reg::RBX, transition.rbx);
    values.set(Reg::RSI, transition.rsi);
    values.set(Reg::RDI, transition.rdi);
    values.set(Reg::R12, transition.r12);
    values.set(Reg::R13, transition.r13);
    values.set(Reg::R14, transition.r14);
    values.set(Reg::R15, transition.r15);
    Registers { instruction, values }
}

thread_local! {
    /// The rules that were found before; it is large, so it is made once a thread and lent to each walk.
    static CACHE: Cell<Option<Box<CacheX86_64>>> = const { Cell::new(None) };
}

fn unwind_piece(thread: &Thread, start: Registers, interrupted: bool, found: &mut Vec<u64>) {
    let mut cache = CACHE.take().unwrap_or_else(|| Box::new(CacheX86_64::new()));
    unwind_with(&mut cache, thread.kernel_stack_ranges().as_deref(), start, interrupted, found);
    CACHE.set(Some(cache));
}

fn unwind_with(
    cache: &mut CacheX86_64,
    stack: Option<&[Range<u64>]>,
    start: Registers,
    interrupted: bool,
    found: &mut Vec<u64>,
) {
    let mut registers = start.values;
    let mut address = start.instruction;
    let mut first = interrupted;
    let mut read = |address: u64| {
        let readable = stack.is_none_or(|ranges| ranges.iter().any(|range| range.contains(&address)));
        // SAFETY: the address lies inside one of the thread's kernel stacks, above its guard page.
        if readable && address != 0 { Ok(unsafe { (address as *const u64).read_unaligned() }) } else { Err(()) }
    };
    while found.len() < MAXIMUM_FRAMES {
        let Some(image) = super::containing(address as usize) else { return };
        let frame = if first {
            FrameAddress::from_instruction_pointer(address)
        } else {
            let Some(frame) = FrameAddress::from_return_address(address) else { return };
            frame
        };
        first = false;
        match image.unwind.unwinder.unwind_frame(frame, &mut registers, cache, &mut read) {
            Ok(Some(next)) if next != thunk::image_return_address() => {
                if super::containing(next as usize).is_none() {
                    return;
                }
                found.push(next);
                address = next;
            }
            _ => return,
        }
    }
}

/// Gives addresses their names. The symbols of an image are read once for all of its addresses.
pub fn name(addresses: &[u64]) -> Vec<StackFrame> {
    let mut names: Vec<Option<Vec<Location>>> = vec![None; addresses.len()];
    let images: Vec<Option<Arc<Image>>> =
        addresses.iter().map(|address| super::containing(*address as usize)).collect();
    for (index, image) in images.iter().enumerate() {
        let Some(image) = image else { continue };
        if names[index].is_some() {
            continue;
        }
        let same: Vec<usize> = (index..addresses.len())
            .filter(|other| images[*other].as_ref().is_some_and(|other| Arc::ptr_eq(other, image)))
            .collect();
        // A return address belongs to the call before it.
        let offsets: Vec<u32> = same.iter().map(|at| (addresses[*at] - image.base as u64 - 1) as u32).collect();
        for (at, locations) in same.into_iter().zip(image.symbols.locate(&offsets)) {
            names[at] = Some(locations);
        }
    }
    let mut frames = Vec::new();
    for ((address, image), locations) in addresses.iter().zip(images).zip(names) {
        let base = image.as_ref().map_or(0, |image| image.base as u64);
        let name = image.map_or_else(|| "unknown".to_owned(), |image| image.name.clone());
        let unnamed = StackFrame { address: *address, image: name, offset: address - base, location: None };
        match locations {
            Some(locations) if !locations.is_empty() => frames.extend(
                locations.into_iter().map(|location| StackFrame { location: Some(location), ..unnamed.clone() }),
            ),
            _ => frames.push(unnamed),
        }
    }
    frames
}
