//! Where the fields of a structure are, nested structures opened, as C lays them out.

use super::definitions::{Definitions, Structure};

/// A field that holds a number, a pointer or an array of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// From the outer structure: `limits.max_cq_depth`.
    pub path: String,
    pub kind: String,
    pub offset: usize,
    pub length: usize,
}

/// Size and alignment of a type; `None` for what the definitions do not know.
fn measure(definitions: &Definitions, kind: &str) -> Option<(usize, usize)> {
    if kind.starts_with('*') {
        return Some((8, 8));
    }
    if let Some((element, count)) = array(definitions, kind) {
        let (size, align) = measure(definitions, &element)?;
        return Some((size * count, align));
    }
    if let Some(structure) = definitions.structures.get(kind) {
        let (size, align, _) = lay_out(definitions, structure)?;
        return Some((size, align));
    }
    let scalar = definitions.wrappers.get(kind).map_or(kind, String::as_str);
    Some(match scalar {
        "u8" | "i8" | "BOOLEAN" => (1, 1),
        "u16" | "i16" | "USHORT" => (2, 2),
        "u32" | "i32" | "ULONG" | "UINT32" | "NTSTATUS" | "Status" => (4, 4),
        "u64" | "i64" | "usize" | "SIZE_T" | "PVOID" | "ULONG_PTR" | "NDK_SGE_ADDRESS" => (8, 8),
        // Open enumerations of the kernel's headers are `int`, sets of flags ULONG.
        other if other.starts_with("NDK_") => (4, 4),
        _ => return None,
    })
}

/// Element and count of `[T; N]`.
fn array(definitions: &Definitions, kind: &str) -> Option<(String, usize)> {
    let (element, count) = kind.strip_prefix('[')?.strip_suffix(']')?.rsplit_once(';')?;
    let count = count.trim();
    let count = count.parse().ok().or_else(|| definitions.numbers.get(count).copied())?;
    Some((element.trim().to_owned(), count as usize))
}

fn lay_out(definitions: &Definitions, structure: &Structure) -> Option<(usize, usize, Vec<usize>)> {
    let (mut end, mut widest, mut offsets) = (0_usize, 1, Vec::new());
    for (_, kind) in &structure.fields {
        let (size, align) = measure(definitions, kind)?;
        let align = if structure.is_packed { 1 } else { align };
        let offset = end.next_multiple_of(align);
        offsets.push(offset);
        end = offset + size;
        widest = widest.max(align);
    }
    Some((end.next_multiple_of(widest), widest, offsets))
}

/// The size of a structure.
pub fn size(definitions: &Definitions, name: &str) -> Option<usize> {
    measure(definitions, name).map(|(size, _)| size)
}

/// All fields of a structure, those of nested ones and of the first element of arrays of them included.
pub fn fields(definitions: &Definitions, name: &str) -> Vec<Field> {
    let Some(structure) = definitions.structures.get(name) else { return Vec::new() };
    let Some((_, _, offsets)) = lay_out(definitions, structure) else { return Vec::new() };
    let mut all = Vec::new();
    for ((field, kind), offset) in structure.fields.iter().zip(offsets) {
        let element = array(definitions, kind).map_or_else(|| kind.clone(), |(element, _)| element);
        if definitions.structures.contains_key(&element) {
            all.extend(fields(definitions, &element).into_iter().map(|inner| Field {
                path: format!("{field}.{}", inner.path),
                offset: offset + inner.offset,
                ..inner
            }));
        } else if let Some((length, _)) = measure(definitions, kind) {
            all.push(Field { path: field.clone(), kind: kind.clone(), offset, length });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Definitions, Field, fields, size};

    #[test]
    fn nested_structures_are_opened_and_padding_is_left_out() {
        let mut definitions = Definitions::default();
        let source = "pub struct Inner { pub a: u16, pub b: u32, } pub struct Kind(pub u32); const MOST: usize = 3;
                      pub struct Outer { pub x: u8, pub inner: [Inner; MOST], pub kind: Kind, pub bytes: [u8; 5], pub y: u64, }";
        definitions.add(source).unwrap();
        let found = fields(&definitions, "Outer");
        let places = found.iter().map(|field| (&*field.path, field.offset, field.length)).collect::<Vec<_>>();
        let expected =
            [("x", 0, 1), ("inner.a", 4, 2), ("inner.b", 8, 4), ("kind", 28, 4), ("bytes", 32, 5), ("y", 40, 8)];
        assert_eq!(places, expected);
        assert_eq!(size(&definitions, "Outer"), Some(48));
        assert_eq!(found[3], Field { path: "kind".into(), kind: "Kind".into(), offset: 28, length: 4 });
    }
}
