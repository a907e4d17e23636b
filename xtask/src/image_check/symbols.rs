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

/// A name that is the same in every build: without type parameters, without the numbers of `impl$3` and
/// `closure_env$0`, and without the debugger's wrappers (`enum2$<core::option::Option<u8> >` is `core::option::Option`).
fn stable_name(name: &str) -> String {
    let mut stable = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(place) = rest.find(['$', '<']) {
        let (before, after) = rest.split_at(place);
        stable.push_str(before);
        if let Some(after) = after.strip_prefix("$<") {
            let inside = group_length(after);
            let wrapper = stable.rfind([':', ' ', ',']).map_or(0, |end| end + 1);
            stable.truncate(wrapper);
            stable.push_str(&stable_name(&after[..inside]));
            rest = after.get(inside + 1..).unwrap_or_default();
        } else if let Some(after) = after.strip_prefix('<') {
            rest = after.get(group_length(after) + 1..).unwrap_or_default();
        } else {
            rest = after[1..].trim_start_matches(|digit: char| digit.is_ascii_digit());
        }
    }
    stable.push_str(rest);
    stable.trim_end().to_owned()
}

/// The length of the text up to the `>` that closes the group it stands in.
fn group_length(text: &str) -> usize {
    let mut depth = 0_usize;
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            // The arrow of a function type closes nothing.
            b'>' if text[..place].ends_with('-') => {}
            b'>' if depth == 0 => return place,
            b'>' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::stable_name;

    #[test]
    fn counters_leave_the_names() {
        assert_eq!(stable_name("ring::impl$12::push::closure$0"), "ring::impl::push::closure");
    }

    #[test]
    fn type_parameters_leave_the_names() {
        assert_eq!(stable_name("queue::Pair<a::B<c>,d>::post<e>"), "queue::Pair::post");
        assert_eq!(stable_name("f<fn() -> g<u8>,h>::i"), "f::i");
    }

    #[test]
    fn wrappers_give_way_to_what_they_wrap() {
        assert_eq!(stable_name("enum2$<core::option::Option<u8> >::unwrap_or<u8>"), "core::option::Option::unwrap_or");
        assert_eq!(stable_name("drop_in_place<enum2$<a::B> >"), "drop_in_place");
    }
}
