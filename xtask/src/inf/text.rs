//! The grammar: sections, entries, values, strings.

use anyhow::{Context, Result, bail};

/// A file, its sections in order.
pub struct Inf {
    pub sections: Vec<InfSection>,
}

pub struct InfSection {
    pub name: String,
    pub line: usize,
    pub entries: Vec<Entry>,
}

/// `key = value, value …`, or values alone. As written: `%names%` are not replaced.
pub struct Entry {
    pub line: usize,
    pub key: Option<String>,
    pub values: Vec<String>,
}

impl Inf {
    pub fn parse(text: &str) -> Result<Self> {
        let mut sections: Vec<InfSection> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let line = without_comment(line).trim();
            if line.is_empty() {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let name = rest.strip_suffix(']').with_context(|| format!("line {number}: a section without its ]"))?;
                sections.push(InfSection { name: name.trim().to_owned(), line: number, entries: Vec::new() });
                continue;
            }
            let Some(section) = sections.last_mut() else { bail!("line {number}: an entry before the first section") };
            section.entries.push(entry(number, line)?);
        }
        Ok(Self { sections })
    }

    /// Sections and names are the same whatever their case.
    pub fn section(&self, name: &str) -> Option<&InfSection> {
        self.sections.iter().find(|section| section.name.eq_ignore_ascii_case(name))
    }

    pub fn entries(&self, section: &str) -> &[Entry] {
        self.section(section).map_or(&[], |section| &section.entries)
    }

    /// The values of the first entry with this key.
    pub fn values(&self, section: &str, key: &str) -> Option<Vec<String>> {
        let entry = self.entries(section).iter().find(|entry| entry.has_key(key))?;
        Some(entry.values.iter().map(|value| self.replaced(value)).collect())
    }

    /// The first value of it.
    pub fn value(&self, section: &str, key: &str) -> Option<String> {
        self.values(section, key)?.into_iter().next()
    }

    /// With `%name%` replaced by the string of that name; a name that is none stays.
    pub fn replaced(&self, text: &str) -> String {
        let name = text.strip_prefix('%').and_then(|rest| rest.strip_suffix('%'));
        let string = name.and_then(|name| self.entries("Strings").iter().find(|entry| entry.has_key(name)));
        string.and_then(|entry| entry.values.first()).map_or_else(|| text.to_owned(), Clone::clone)
    }
}

impl Entry {
    pub fn has_key(&self, key: &str) -> bool {
        self.key.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(key))
    }

    pub fn value(&self, index: usize) -> &str {
        self.values.get(index).map_or("", String::as_str)
    }
}

/// A semicolon in quotation marks is text.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let end = line.find(|character| {
        quoted ^= character == '"';
        character == ';' && !quoted
    });
    end.map_or(line, |end| &line[..end])
}

fn entry(line: usize, text: &str) -> Result<Entry> {
    let (mut parts, mut quoted, mut key) = (vec![String::new()], false, None);
    for character in text.chars() {
        quoted ^= character == '"';
        match (character, parts.last_mut()) {
            ('=', Some(part)) if !quoted && key.is_none() && !text.starts_with("HK") => {
                key = Some(std::mem::take(part));
            }
            (',', _) if !quoted => parts.push(String::new()),
            (other, Some(part)) => part.push(other),
            (_, None) => {}
        }
    }
    if quoted {
        bail!("line {line}: a quotation mark without its pair");
    }
    let key = key.map(|key| unquoted(&key));
    Ok(Entry { line, key, values: parts.iter().map(|part| unquoted(part)).collect() })
}

fn unquoted(text: &str) -> String {
    let text = text.trim();
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.map_or_else(|| text.to_owned(), |inner| inner.replace("\"\"", "\""))
}

#[cfg(test)]
mod tests {
    use super::Inf;

    #[test]
    fn entries_have_key_values_and_line() {
        let inf =
            Inf::parse("; c\n[A]\nkey = 1, \"two; 2\" ; c\nHKR,Ndi,a=b,0,\"x\"\"y\"\n[Strings]\nn = \"N\"\n").unwrap();
        let entries = inf.entries("a");
        assert_eq!((entries[0].line, entries[0].key.as_deref()), (3, Some("key")));
        assert_eq!(entries[0].values, ["1", "two; 2"]);
        assert_eq!((entries[1].key.as_deref(), entries[1].value(2), entries[1].value(4)), (None, "a=b", "x\"y"));
        assert_eq!((inf.replaced("%N%"), inf.replaced("%other%")), ("N".to_owned(), "%other%".to_owned()));
    }

    #[test]
    fn what_is_no_inf_is_an_error_with_its_line() {
        for (text, message) in [
            ("a = 1", "line 1: an entry before the first section"),
            ("\n[A", "line 2: a section without its ]"),
            ("[A]\na = \"1", "line 2: a quotation mark without its pair"),
        ] {
            assert_eq!(Inf::parse(text).err().map(|error| error.to_string()).as_deref(), Some(message));
        }
    }
}
