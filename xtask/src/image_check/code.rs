//! The instructions of an x64 image: which function branches to which, whose address is taken, which instructions a
//! kernel image must not hold.

use super::{
    image::{Image, Machine},
    symbols::Symbols,
};
use iced_x86::{Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic, OpKind};
use std::collections::BTreeSet;

/// A call, or a jump that leaves its function: from a place in one function to another function.
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    pub at: u32,
    pub from: usize,
    pub to: usize,
}

/// What the instructions say. Functions are indices into [`Symbols::functions`].
#[derive(Default)]
pub struct Code {
    pub branches: Vec<Branch>,
    /// Functions that something can reach other than by a direct branch.
    pub address_taken: BTreeSet<usize>,
    /// Functions that hold a return instruction.
    pub returning: BTreeSet<usize>,
    /// Places of instructions with vector-extension encodings, and their mnemonics.
    pub vector_extensions: Vec<(u32, String)>,
    /// Places of calls whose target is neither a constant nor read from constant memory: neither imports nor the functions of
    /// control flow guard.
    pub unguarded_calls: Vec<u32>,
}

impl Code {
    /// Reads every executable section. Images for other processors give nothing.
    pub fn read(image: &Image, symbols: &Symbols) -> Self {
        let mut code = Self::default();
        if image.machine != Machine::X64 {
            return code;
        }
        for section in image.sections.iter().filter(|section| section.executable) {
            let length = section.size.min(section.file_size);
            if let Some(bytes) = image.at(section.address, length) {
                code.read_section(section.address, bytes, image, symbols);
            }
        }
        let pointed_at = image.pointers.iter().copied().chain(image.exports.iter().map(|(_, address)| *address));
        code.address_taken.extend(pointed_at.filter_map(|address| function_at(symbols, address)));
        code
    }

    fn read_section(&mut self, address: u32, bytes: &[u8], image: &Image, symbols: &Symbols) {
        // Every known function is a fresh start, so that data between functions cannot put the decoder out of step.
        let end = address + bytes.len() as u32;
        let mut starts = symbols
            .functions
            .iter()
            .map(|function| function.start)
            .filter(|start| (address..end).contains(start))
            .collect::<Vec<_>>();
        if starts.first() != Some(&address) {
            starts.insert(0, address);
        }
        for (index, start) in starts.iter().enumerate() {
            let stop = starts.get(index + 1).copied().unwrap_or(end);
            if let Some(bytes) = bytes.get((start - address) as usize..(stop - address) as usize) {
                self.read_function(*start, bytes, image, symbols);
            }
        }
    }

    fn read_function(&mut self, start: u32, bytes: &[u8], image: &Image, symbols: &Symbols) {
        let from = symbols.holding(start);
        let mut decoder = Decoder::with_ip(64, bytes, u64::from(start), DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        // Registers that take a constant out of memory somewhere in the function: compilers keep the address of an import, or of the
        // guard's function, in one when they call it several times.
        let mut constants = BTreeSet::new();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let at = instruction.ip32();
            if !matches!(instruction.encoding(), EncodingKind::Legacy) && !instruction.is_invalid() {
                self.vector_extensions.push((at, format!("{:?}", instruction.mnemonic())));
            }
            if instruction.is_ip_rel_memory_operand()
                && let Ok(address) = u32::try_from(instruction.ip_rel_memory_address())
                && let Some(taken) = function_at(symbols, address)
            {
                self.address_taken.insert(taken);
            }
            if instruction.mnemonic() == Mnemonic::Mov && reads_a_constant(&instruction, image) {
                constants.insert(instruction.op0_register() as u32);
            }
            if instruction.flow_control() == FlowControl::IndirectCall {
                let known = instruction.op0_kind() == OpKind::Register
                    && constants.contains(&(instruction.op0_register() as u32));
                if !known && !reads_a_constant(&instruction, image) {
                    self.unguarded_calls.push(at);
                }
            }
            let Some(from) = from else { continue };
            match instruction.flow_control() {
                FlowControl::Return => {
                    self.returning.insert(from);
                }
                FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    self.read_branch(at, from, instruction.near_branch_target(), symbols);
                }
                _ => {}
            }
        }
    }

    fn read_branch(&mut self, at: u32, from: usize, target: u64, symbols: &Symbols) {
        let Ok(target) = u32::try_from(target) else { return };
        match symbols.holding(target) {
            Some(to) if to != from => self.branches.push(Branch { at, from, to }),
            _ => {}
        }
    }
}

/// Whether an instruction takes its operand from a fixed place that nothing writes.
fn reads_a_constant(instruction: &Instruction, image: &Image) -> bool {
    if !instruction.is_ip_rel_memory_operand() {
        return false;
    }
    let place = u32::try_from(instruction.ip_rel_memory_address()).ok();
    place.is_some_and(|place| image.sections.iter().any(|section| section.holds(place) && !section.writable))
}

/// The function that starts exactly at `address`.
fn function_at(symbols: &Symbols, address: u32) -> Option<usize> {
    symbols.functions.binary_search_by_key(&address, |function| function.start).ok()
}
