//! What crosses the borders, read from the interface definitions: functions of dispatch tables, methods, control requests, structures,
//! sets of flags.

use super::tokens::{group, is_sign, is_word, named, number, plain, split, word};
use crate::workspace::Workspace;
use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::{collections::BTreeMap, fs, str::FromStr};

/// Methods of IUnknown, from which every interface comes.
const UNKNOWN_SLOTS: usize = 3;

/// Name and type.
pub type Part = (String, String);

/// A function or a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub name: String,
    pub arguments: Vec<Part>,
}

/// An interface with its own methods; the first has this slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// Of its functions.
    pub table: String,
    pub first_slot: usize,
    pub methods: Vec<Signature>,
}

/// A structure in C's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    pub fields: Vec<Part>,
    pub is_packed: bool,
}

/// A control request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRequest {
    pub input: String,
    pub code: u64,
    pub reply: String,
}

/// All of one folder.
#[derive(Default)]
pub struct Definitions {
    pub functions: Vec<Signature>,
    pub interfaces: Vec<Interface>,
    pub structures: BTreeMap<String, Structure>,
    pub flags: BTreeMap<String, Vec<(String, u64)>>,
    pub requests: Vec<ControlRequest>,
    /// Lengths of arrays.
    pub numbers: BTreeMap<String, u64>,
    /// Types of one number, and it.
    pub wrappers: BTreeMap<String, String>,
    /// Codes by name, of `codes!` and of `code(0x802, Method::OutDirect)`.
    pub codes: BTreeMap<String, u64>,
}

impl Definitions {
    /// Reads these sources of the work tree.
    pub fn read(workspace: &Workspace, files: &[&str]) -> Result<Self> {
        let mut all = Self::default();
        for file in files {
            let path = workspace.path(file);
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            all.add(&source).with_context(|| format!("cannot understand {file}"))?;
        }
        Ok(all)
    }

    pub fn add(&mut self, source: &str) -> Result<()> {
        let stream = TokenStream::from_str(source).map_err(|error| anyhow!("{error}"))?;
        let packed = source.contains("packed");
        let tokens = plain(stream);
        for at in 0..tokens.len() {
            self.item(&tokens[at..], packed);
        }
        Ok(())
    }

    /// What begins here, if it is a definition.
    fn item(&mut self, tokens: &[TokenTree], packed: bool) {
        let at = |index: usize| tokens.get(index);
        let braces = |index| group(at(index), Delimiter::Brace).map(|group| plain(group.stream()));
        let Some(first) = word(at(0)) else { return };
        if is_sign(at(1), '!') {
            if let Some(body) = braces(2) {
                self.made_by(&first, &body);
            }
        } else if first == "struct" {
            let Some(name) = word(at(1)) else { return };
            if let Some(body) = braces(2) {
                // The only packed structure is in a file of structures that would have no padding otherwise.
                let is_packed = packed && name == "WindowDescriptor";
                self.structures.insert(name, Structure { fields: named(&body), is_packed });
            } else if let Some(wrapped) = group(at(2), Delimiter::Parenthesis) {
                let inner = plain(wrapped.stream());
                let inner = inner.last().and_then(|last| word(Some(last)));
                self.wrappers.extend(inner.map(|inner| (name, inner)));
            }
        } else if first == "const" && is_sign(at(2), ':') && is_sign(at(4), '=') {
            let value = tokens[5..].split(|token| is_sign(Some(token), ';')).next().unwrap_or_default();
            self.numbers.extend(word(at(1)).zip(number(value)));
            self.codes.extend(word(at(1)).zip(private_code(value)));
        } else if first == "impl" && is_word(at(1), "Request") && is_word(at(2), "for") {
            let body = braces(4).unwrap_or_default();
            self.requests.extend(word(at(3)).and_then(|input| request(input, &body)));
        }
    }

    fn made_by(&mut self, name: &str, body: &[TokenTree]) {
        match name {
            "abi_fn" => self.functions.extend((0..body.len()).filter_map(|at| function_type(&body[at..]))),
            "interfaces" => self.interfaces(body),
            "structures" => self.laid_out(body),
            "bitflags" | "flags" => (0..body.len()).for_each(|at| self.flag_set(&body[at..])),
            "codes" => self.code_list(body),
            _ => {}
        }
    }

    /// `Name (identifier): Table > Base { methods }`, again and again.
    fn interfaces(&mut self, body: &[TokenTree]) {
        for at in 0..body.len() {
            let token = |index: usize| body.get(at + index);
            let begins = group(token(1), Delimiter::Parenthesis).is_some() && is_sign(token(4), '>');
            let (Some(name), Some(table), Some(base), true) = (word(token(0)), word(token(3)), word(token(5)), begins)
            else {
                continue;
            };
            let methods = group(token(6), Delimiter::Brace).map_or_else(Vec::new, |methods| plain(methods.stream()));
            let methods = (0..methods.len()).filter_map(|at| method(&methods[at..])).collect();
            let base = self.interfaces.iter().find(|interface| interface.table == base);
            let first_slot = base.map_or(UNKNOWN_SLOTS, |base| base.first_slot + base.methods.len());
            self.interfaces.push(Interface { name, table, first_slot, methods });
        }
    }

    /// `Name (size) { field: type, … }`, again and again.
    fn laid_out(&mut self, body: &[TokenTree]) {
        for at in 0..body.len() {
            let size = group(body.get(at + 1), Delimiter::Parenthesis);
            let fields = group(body.get(at + 2), Delimiter::Brace);
            if let (Some(name), Some(_), Some(fields)) = (word(body.get(at)), size, fields) {
                let fields = named(&plain(fields.stream()));
                self.structures.insert(name, Structure { fields, is_packed: false });
            }
        }
    }

    /// `impl Name: u32 { const A = 1; }` of bitflags, and `struct Name: ULONG { A / C_NAME = 1; }` of our own.
    fn flag_set(&mut self, tokens: &[TokenTree]) {
        let begins = is_word(tokens.first(), "impl") || is_word(tokens.first(), "struct");
        let (Some(name), true) = (word(tokens.get(1)), begins && is_sign(tokens.get(2), ':')) else { return };
        let Some(body) = group(tokens.get(4), Delimiter::Brace) else { return };
        let body = plain(body.stream());
        let member = |part: &[TokenTree]| {
            let equals = part.iter().position(|token| is_sign(Some(token), '='))?;
            let name = word(part.get(equals.checked_sub(1)?))?;
            Some((name, number(&part[equals + 1..])?)).filter(|(name, bits)| name != "_" && *bits != 0)
        };
        let members = body.split(|token| is_sign(Some(token), ';')).filter_map(member).collect();
        self.flags.insert(name, members);
    }

    /// `NAME = resource, operation;`, the codes of `ndioctl.h`.
    fn code_list(&mut self, body: &[TokenTree]) {
        for part in body.split(|token| is_sign(Some(token), ';')) {
            let numbers = split(part.get(2..).unwrap_or_default()).into_iter().filter_map(number).collect::<Vec<_>>();
            if let (Some(name), [resource, operation]) = (word(part.first()), &numbers[..]) {
                self.codes.insert(name, 0x0012_0000 | (resource << 8) | (operation << 2));
            }
        }
    }
}

/// `type NAME = fn(a: A, …)`.
fn function_type(tokens: &[TokenTree]) -> Option<Signature> {
    if !is_word(tokens.first(), "type") || !is_word(tokens.get(3), "fn") {
        return None;
    }
    let arguments = named(&plain(group(tokens.get(4), Delimiter::Parenthesis)?.stream()));
    Some(Signature { name: word(tokens.get(1))?, arguments })
}

/// `fn name(a: A, …)`.
fn method(tokens: &[TokenTree]) -> Option<Signature> {
    if !is_word(tokens.first(), "fn") {
        return None;
    }
    let arguments = named(&plain(group(tokens.get(2), Delimiter::Parenthesis)?.stream()));
    Some(Signature { name: word(tokens.get(1))?, arguments })
}

/// `const CODE: u32 = control_code(0x810, Method::Buffered); type Reply = X;`
fn request(input: String, body: &[TokenTree]) -> Option<ControlRequest> {
    let call = body.iter().position(|token| is_word(Some(token), "control_code"))?;
    let parts = plain(group(body.get(call + 1), Delimiter::Parenthesis)?.stream());
    let parts = split(&parts);
    let method = method_number(parts.get(1)?)?;
    let reply = body.iter().position(|token| is_word(Some(token), "Reply"))?;
    let code = (0x8A5D << 16) | (3 << 14) | (number(parts.first()?)? << 2) | method;
    Some(ControlRequest { input, code, reply: word(body.get(reply + 2)).unwrap_or_default() })
}

/// The code that `code(0x802, Method::OutDirect)` of `private.rs` stands for.
fn private_code(value: &[TokenTree]) -> Option<u64> {
    let call = group(value.get(1), Delimiter::Parenthesis).filter(|_| is_word(value.first(), "code"))?;
    let parts = plain(call.stream());
    let parts = split(&parts);
    Some(0x0012_C000 | (number(parts.first()?)? << 2) | method_number(parts.get(1)?)?)
}

/// The transfer method that `Method::InDirect` names, as it stands in a code.
fn method_number(path: &[TokenTree]) -> Option<u64> {
    Some(match word(path.last())?.as_str() {
        "Buffered" => 0,
        "InDirect" => 1,
        "OutDirect" => 2,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{ControlRequest, Definitions, Signature, Structure};

    fn of(source: &str) -> Definitions {
        let mut definitions = Definitions::default();
        definitions.add(source).unwrap();
        definitions
    }

    fn part(name: &str, kind: &str) -> (String, String) {
        (name.into(), kind.into())
    }

    #[test]
    fn functions_have_their_arguments_in_order() {
        let read = of(
            "abi_fn! { /// Doc.\n pub type NDK_FN_X = fn(pNdkCq: *mut NDK_CQ, Done: Option<NDK_FN_Y>,) -> NTSTATUS; }",
        );
        let arguments = vec![part("pNdkCq", "*mut NDK_CQ"), part("Done", "Option<NDK_FN_Y>")];
        assert_eq!(read.functions, [Signature { name: "NDK_FN_X".into(), arguments }]);
    }

    #[test]
    fn interfaces_count_their_slots_from_their_base() {
        let read = of("interfaces! { INDA (0x1): TableA > UnknownTable { fn one(a: u32) -> Status; fn two(); }\n
                       INDB (0x2): TableB > TableA { fn three(b: usize) -> usize; } INDC (0x3): T > UnknownTable {}
                       INDD (0x4): TableD > TableB { fn four(); } }");
        let slots = read.interfaces.iter().map(|it| (&*it.name, it.first_slot, it.methods.len())).collect::<Vec<_>>();
        assert_eq!(slots, [("INDA", 3, 2), ("INDB", 5, 1), ("INDC", 3, 0), ("INDD", 6, 1)]);
        assert_eq!(read.interfaces[0].methods[0].arguments, [part("a", "u32")]);
    }

    #[test]
    fn structures_flags_and_requests_are_read() {
        let read = of("pub struct R { pub header: RequestHeader, /// Doc.\n pub places: [u16; 4], }\n pub struct F(u32);
                       bitflags::bitflags! { impl F: u32 { const A = 1; const B = 1 << 4; const _ = !0; } }
                       impl Request for R { const CODE: u32 = control_code(0x810, Method::OutDirect); type Reply = (); }
                       structures! { S (8) { a: u32, b: [u8; 4], } } codes! { CQ_NOTIFY = 3, 5; } pub const MOST: usize = 1 << 3;
                       pub const ATTACH: u32 = code(0x802, Method::OutDirect);");
        let fields = vec![part("header", "RequestHeader"), part("places", "[u16 ; 4]")];
        assert_eq!(read.structures["R"], Structure { fields, is_packed: false });
        assert_eq!(read.structures["S"].fields.len(), 2);
        assert_eq!(read.flags["F"], [("A".into(), 1), ("B".into(), 16)]);
        assert_eq!(read.wrappers["F"], "u32");
        let request = ControlRequest { input: "R".into(), code: 0x8A5D_E042, reply: String::new() };
        assert_eq!((&read.requests[..], read.numbers["MOST"]), (&[request][..], 8));
        assert_eq!((read.codes["CQ_NOTIFY"], read.codes["ATTACH"]), (0x12_0314, 0x12_E00A));
    }

    #[test]
    fn our_own_sets_of_flags_are_read_by_their_c_names() {
        let read = of(
            "flags! { pub struct N: ULONG { /// Doc.\n A / NDK_A = 0x1; B / NDK_B = 0x30; NONE / NDK_NONE = 0x0; } }",
        );
        assert_eq!(read.flags["N"], [("NDK_A".into(), 1), ("NDK_B".into(), 0x30)]);
    }
}
