//! Names for code addresses, from the image's PDB: the functions as they stand in the image, and at any address the
//! chain of functions inlined there.

use anyhow::{Context as _, Result};
use pdb_addr2line::{ContextPdbData, TypeFormatterFlags, pdb::PDB};
use std::{fs::File, path::Path};

/// One function of the image; folded functions (identical code) appear once, with the name the PDB gives first.
#[derive(Clone, Debug)]
pub struct Function {
    pub start: u32,
    pub end: u32,
    pub name: String,
}

/// The functions of an image in the order of their addresses, and the means to ask for inlined ones.
pub struct Symbols {
    pub functions: Vec<Function>,
    data: ContextPdbData<'static, 'static, File>,
}

const FLAGS: TypeFormatterFlags = TypeFormatterFlags::NO_FUNCTION_RETURN
    .union(TypeFormatterFlags::NO_MEMBER_FUNCTION_STATIC)
    .union(TypeFormatterFlags::NAME_ONLY)
    .union(TypeFormatterFlags::NO_ARGUMENTS);

impl Symbols {
    pub fn read(pdb: &Path) -> Result<Self> {
        let file = File::open(pdb).with_context(|| format!("cannot open the symbols {}", pdb.display()))?;
        let data = ContextPdbData::try_from_pdb(PDB::open(file)?)?;
        let context = data.make_context_with_formatter_flags(FLAGS)?;
        let mut functions = context
            .functions()
            .map(|function| Function {
                start: function.start_rva,
                end: function.end_rva.unwrap_or(function.start_rva),
                name: stable_name(&function.name.unwrap_or_default()),
            })
            .collect::<Vec<_>>();
        functions.sort_by_key(|function| function.start);
        functions.dedup_by_key(|function| function.start);
        drop(context);
        close_gaps(&mut functions);
        Ok(Self { functions, data })
    }

    /// The index of the function that holds `address`.
    pub fn holding(&self, address: u32) -> Option<usize> {
        let index = self.functions.partition_point(|function| function.start <= address).checked_sub(1)?;
        (address < self.functions.get(index)?.end).then_some(index)
    }

    /// For each address, the functions inlined there: the innermost first, the function of the image last.
    pub fn frames(&self, addresses: &[u32]) -> Result<Vec<Vec<String>>> {
        let context = self.data.make_context_with_formatter_flags(FLAGS)?;
        let mut all = Vec::new();
        for address in addresses {
            let frames = context.find_frames(*address)?.map(|found| found.frames).unwrap_or_default();
            all.push(frames.into_iter().map(|frame| stable_name(&frame.function.unwrap_or_default())).collect());
        }
        Ok(all)
    }
}

/// Some symbols carry no length; the next function ends them.
fn close_gaps(functions: &mut [Function]) {
    for index in 0..functions.len() {
        let next = functions.get(index + 1).map(|function| function.start);
        let Some(function) = functions.get_mut(index) else { return };
        if function.end <= function.start {
            function.end = next.unwrap_or(function.start + 1);
        }
    }
}

/// A name without the numbers that change when something else in the same file changes (`impl$3`, `closure_env$0`).
fn stable_name(name: &str) -> String {
    let mut stable = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(place) = rest.find('$') {
        let (before, after) = rest.split_at(place);
        stable.push_str(before);
        let digits = after[1..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            stable.push('$');
        }
        rest = &after[1 + digits..];
    }
    stable.push_str(rest);
    stable
}

#[cfg(test)]
mod tests {
    use super::stable_name;

    #[test]
    fn counters_leave_the_names() {
        assert_eq!(stable_name("ring::impl$12::push::closure$0"), "ring::impl::push::closure");
        assert_eq!(stable_name("f<enum2$<core::option::Option<u8> > >"), "f<enum2$<core::option::Option<u8> > >");
    }
}
