//! Reads a driver's `.inx`/`.inf` and installs it the way Windows set-up and the network class installer do: the model section
//! for one architecture, its install section, and the `AddReg` lines become the driver key of a device.
//!
//! It reads what an NDIS miniport's file declares about its devices (model, service, characteristics, keywords), and refuses
//! what it cannot read. The result, [`Installation`], is what NDIS reads before it calls a miniport: without `*IfType`,
//! `*MediaType` and `*PhysicalMediaType` the device installs but `MiniportInitializeEx` is never called (NDIS: Specifying NDIS
//! configuration parameters in an INF file).

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;

/// The architecture whose model section is installed; stampinf replaces `$ARCH$` by this string.
const ARCHITECTURE: &str = "amd64";

/// Why a file cannot be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InfError {
    /// The file could not be read.
    Read(String),
    /// A line does not follow the INF grammar.
    Syntax { line: usize, problem: String },
    /// A section, or an entry of a section, that an installation needs is not there.
    Missing(String),
    /// An entry has a value that set-up would refuse.
    Invalid(String),
}

impl fmt::Display for InfError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(problem) => write!(formatter, "the INF cannot be read: {problem}"),
            Self::Syntax { line, problem } => write!(formatter, "INF line {line}: {problem}"),
            Self::Missing(what) => write!(formatter, "the INF has no {what}"),
            Self::Invalid(what) => write!(formatter, "the INF is not valid: {what}"),
        }
    }
}

impl std::error::Error for InfError {}

/// How a keyword under `Ndi\Params` is edited and stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeywordKind {
    /// One of a list of values.
    Enumeration,
    /// A number, decimal unless `base` differs.
    Number,
    /// Free text.
    Edit,
}

/// One keyword of `Ndi\Params`: what the Advanced property page shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyword {
    pub name: String,
    pub description: String,
    pub kind: KeywordKind,
    /// Text that the class installer writes into the driver key of a new device; `None` writes nothing.
    pub default: Option<String>,
    /// `Optional = 1`: the value may be absent, and is so on a new device.
    pub optional: bool,
    pub minimum: Option<i64>,
    pub maximum: Option<i64>,
    /// Values of an enumeration with their display texts.
    pub choices: BTreeMap<String, String>,
}

/// What the installed package gives every device it drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub service: String,
    /// The service's binary, without its directory.
    pub binary: String,
    pub description: String,
    pub hardware_ids: Vec<String>,
    pub characteristics: u32,
    /// `*IfType`, `None` when the INF lacks it.
    pub if_type: Option<u32>,
    /// `*MediaType`, `None` when the INF lacks it.
    pub media_type: Option<u32>,
    /// `*PhysicalMediaType`, `None` when the INF lacks it.
    pub physical_media_type: Option<u32>,
    pub upper_range: Option<String>,
    pub lower_range: Option<String>,
    pub keywords: Vec<Keyword>,
}

impl Installation {
    /// The first of the three keywords without which NDIS never calls `MiniportInitializeEx`.
    #[must_use]
    pub fn missing_mandatory_keyword(&self) -> Option<&'static str> {
        if self.if_type.is_none() {
            Some("*IfType")
        } else if self.media_type.is_none() {
            Some("*MediaType")
        } else if self.physical_media_type.is_none() {
            Some("*PhysicalMediaType")
        } else {
            None
        }
    }

    /// The driver key's values of a freshly installed device: defaults of the keywords that are not optional.
    #[must_use]
    pub fn defaults(&self) -> BTreeMap<String, String> {
        self.keywords
            .iter()
            .filter(|keyword| !keyword.optional)
            .filter_map(|keyword| Some((keyword.name.clone(), keyword.default.clone()?)))
            .collect()
    }
}

/// A parsed INF: sections in lower case, lines in order, `%names%` replaced.
#[derive(Debug, Clone)]
pub struct Inx {
    sections: BTreeMap<String, Vec<InfLine>>,
}

#[derive(Debug, Clone)]
struct InfLine {
    number: usize,
    key: Option<String>,
    values: Vec<String>,
}

impl InfLine {
    fn value(&self, index: usize) -> &str {
        self.values.get(index).map_or("", String::as_str)
    }
}

impl Inx {
    /// Reads and parses the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, InfError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| InfError::Read(format!("{}: {error}", path.display())))?;
        Self::parse(&decode(&bytes)?)
    }

    /// Parses the text of an INF.
    pub fn parse(text: &str) -> Result<Self, InfError> {
        let mut sections: BTreeMap<String, Vec<InfLine>> = BTreeMap::new();
        let mut current: Option<String> = None;
        for (number, line) in logical_lines(text) {
            if let Some(rest) = line.strip_prefix('[') {
                let name = rest.split(']').next().filter(|name| name.len() < rest.len());
                let name = name.ok_or_else(|| syntax(number, "a section name without its closing bracket"))?;
                let name = name.replace("$ARCH$", ARCHITECTURE).trim().to_lowercase();
                sections.entry(name.clone()).or_default();
                current = Some(name);
                continue;
            }
            let section = current.as_ref().ok_or_else(|| syntax(number, "an entry before the first section"))?;
            let entry = parse_entry(number, &line)?;
            sections.entry(section.clone()).or_default().push(entry);
        }
        let strings = string_table(&sections);
        for line in sections.iter_mut().filter(|(name, _)| *name != "strings").flat_map(|(_, lines)| lines) {
            substitute_line(line, &strings)?;
        }
        Ok(Self { sections })
    }

    /// Follows Manufacturer, Models, DDInstall, AddReg and Services to what a device of the first model gets.
    pub fn install(&self) -> Result<Installation, InfError> {
        let class = self.value("version", "class").unwrap_or_default();
        if !class.eq_ignore_ascii_case("net") {
            return Err(InfError::Invalid(format!("Class is \"{class}\", a miniport's is \"Net\"")));
        }
        let (description, install, hardware_ids) = self.first_model()?;
        let section = self.install_section(&install)?;
        let (service, binary) = self.service(&section)?;
        let registry = self.registry(&section)?;
        Ok(Installation {
            service,
            binary,
            description,
            hardware_ids,
            characteristics: self.number(&section, "characteristics")?.unwrap_or(0),
            if_type: self.number(&section, "*iftype")?,
            media_type: self.number(&section, "*mediatype")?,
            physical_media_type: self.number(&section, "*physicalmediatype")?,
            upper_range: registry.get(r"Ndi\Interfaces", "UpperRange"),
            lower_range: registry.get(r"Ndi\Interfaces", "LowerRange"),
            keywords: registry.keywords()?,
        })
    }

    /// The model section that fits the architecture: description, install section, hardware ids of its first line.
    fn first_model(&self) -> Result<(String, String, Vec<String>), InfError> {
        let manufacturer = self.lines("manufacturer").first().ok_or_else(|| missing("[Manufacturer] entry"))?;
        let models = manufacturer.value(0);
        let decorations = manufacturer.values.iter().skip(1).map(|word| word.replace("$ARCH$", ARCHITECTURE));
        let fitting = decorations.filter(|word| decoration_fits(word)).map(|word| format!("{models}.{word}"));
        let names: Vec<String> = fitting.chain(std::iter::once(models.to_owned())).collect();
        let name = names.iter().find(|name| self.has(name));
        let name = name.ok_or_else(|| missing(&format!("model section [{}]", names.join("] or ["))))?;
        let model = self.lines(name).first().ok_or_else(|| missing(&format!("entry in [{name}]")))?;
        let description = model.key.clone().unwrap_or_default();
        if model.values.len() < 2 {
            return Err(InfError::Invalid(format!(
                "line {}: a model needs an install section and a hardware id",
                model.number
            )));
        }
        Ok((description, model.value(0).to_owned(), model.values.iter().skip(1).cloned().collect()))
    }

    fn install_section(&self, install: &str) -> Result<String, InfError> {
        let candidates = [format!("{install}.nt{ARCHITECTURE}"), format!("{install}.nt"), install.to_owned()];
        candidates
            .into_iter()
            .find(|name| self.has(name))
            .ok_or_else(|| missing(&format!("install section [{install}]")))
    }

    fn service(&self, section: &str) -> Result<(String, String), InfError> {
        let services = format!("{section}.services");
        let line =
            self.entry(&services, "addservice").ok_or_else(|| missing(&format!("AddService in [{services}]")))?;
        let name = line.value(0).to_owned();
        if name.is_empty() || parse_number(line.value(1)).is_none_or(|flags| flags & 2 == 0) {
            return Err(InfError::Invalid(format!(
                "line {}: AddService needs a name and flag 2 (ASSOCSERVICE)",
                line.number
            )));
        }
        let details = line.value(2).to_owned();
        if self.number(&details, "servicetype")? != Some(1) {
            return Err(InfError::Invalid(format!("[{details}]: ServiceType of a driver is 1")));
        }
        let binary =
            self.value(&details, "servicebinary").ok_or_else(|| missing(&format!("ServiceBinary in [{details}]")))?;
        let file = binary.rsplit(['\\', '/']).next().unwrap_or_default().to_owned();
        Ok((name, file))
    }

    fn registry(&self, section: &str) -> Result<DriverKey, InfError> {
        let mut key = DriverKey::default();
        for list in self.lines(section).iter().filter(|line| line.is_key("addreg")) {
            for name in &list.values {
                if !self.has(name) {
                    return Err(missing(&format!("section [{name}] that AddReg names")));
                }
                for line in self.lines(name) {
                    if !line.value(0).eq_ignore_ascii_case("HKR") {
                        return Err(InfError::Invalid(format!("line {}: a driver writes below HKR only", line.number)));
                    }
                    key.add(line);
                }
            }
        }
        Ok(key)
    }

    fn has(&self, section: &str) -> bool {
        self.sections.contains_key(&section.to_lowercase())
    }

    fn lines(&self, section: &str) -> &[InfLine] {
        self.sections.get(&section.to_lowercase()).map_or(&[], Vec::as_slice)
    }

    fn entry(&self, section: &str, key: &str) -> Option<&InfLine> {
        self.lines(section).iter().find(|line| line.is_key(key))
    }

    fn value(&self, section: &str, key: &str) -> Option<String> {
        self.entry(section, key).map(|line| line.value(0).to_owned())
    }

    fn number(&self, section: &str, key: &str) -> Result<Option<u32>, InfError> {
        let Some(line) = self.entry(section, key) else { return Ok(None) };
        let number = parse_number(line.value(0));
        number.map(Some).ok_or_else(|| InfError::Invalid(format!("line {}: {key} is not a number", line.number)))
    }
}

impl InfLine {
    fn is_key(&self, key: &str) -> bool {
        self.key.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(key))
    }
}

/// The values that `AddReg` puts below HKR: (subkey, value name) to text, without regard to case.
#[derive(Default)]
struct DriverKey {
    values: BTreeMap<(String, String), String>,
    /// Keyword names as the file spells them, in order.
    keyword_names: Vec<String>,
}

impl DriverKey {
    fn add(&mut self, line: &InfLine) {
        let subkey = line.value(1).trim_matches('\\');
        let lower = subkey.to_lowercase();
        if let Some(position) = lower.strip_prefix(r"ndi\params\").map(|_| r"ndi\params\".len()) {
            let name = subkey.get(position..).and_then(|rest| rest.split('\\').next()).unwrap_or_default();
            if !self.keyword_names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                self.keyword_names.push(name.to_owned());
            }
        }
        self.values.insert((lower, line.value(2).to_lowercase()), line.value(4).to_owned());
    }

    fn get(&self, subkey: &str, name: &str) -> Option<String> {
        self.values.get(&(subkey.to_lowercase(), name.to_lowercase())).cloned()
    }

    fn keywords(&self) -> Result<Vec<Keyword>, InfError> {
        self.keyword_names.iter().map(|name| self.keyword(name)).collect()
    }

    fn keyword(&self, name: &str) -> Result<Keyword, InfError> {
        let subkey = format!(r"Ndi\Params\{name}");
        let attribute = |attribute: &str| self.get(&subkey, attribute);
        let kind_name = attribute("type").unwrap_or_default().to_lowercase();
        let kind = match kind_name.as_str() {
            "enum" => KeywordKind::Enumeration,
            "int" | "long" | "word" | "dword" => KeywordKind::Number,
            "edit" => KeywordKind::Edit,
            other => return Err(InfError::Invalid(format!("keyword {name} has the unknown type \"{other}\""))),
        };
        let enumeration = format!(r"{subkey}\enum").to_lowercase();
        let choices = self.values.iter().filter(|((key, _), _)| *key == enumeration);
        let keyword = Keyword {
            name: name.to_owned(),
            description: attribute("ParamDesc").ok_or_else(|| missing(&format!("ParamDesc of keyword {name}")))?,
            kind,
            default: attribute("default"),
            optional: attribute("optional").is_some_and(|text| text.trim() == "1"),
            minimum: attribute("min").and_then(|text| text.trim().parse().ok()),
            maximum: attribute("max").and_then(|text| text.trim().parse().ok()),
            choices: choices.map(|((_, value), text)| (value.clone(), text.clone())).collect(),
        };
        keyword.check_type(&kind_name)?;
        keyword.check().map(|()| keyword.clone())
    }
}

impl Keyword {
    /// A range that the type cannot hold: an `int` has 16 bits and a sign.
    fn check_type(&self, kind: &str) -> Result<(), InfError> {
        let (least, most) = match kind {
            "int" => (i64::from(i16::MIN), i64::from(i16::MAX)),
            "word" => (0, i64::from(u16::MAX)),
            "long" => (i64::from(i32::MIN), i64::from(i32::MAX)),
            "dword" => (0, i64::from(u32::MAX)),
            _ => return Ok(()),
        };
        let bounds = [("min", self.minimum), ("max", self.maximum)];
        match bounds.into_iter().find(|(_, bound)| bound.is_some_and(|bound| !(least..=most).contains(&bound))) {
            None => Ok(()),
            Some((bound, value)) => Err(InfError::Invalid(format!(
                "{bound} {} of keyword {} is no value of type {kind}, which goes from {least} to {most}",
                value.unwrap_or_default(),
                self.name
            ))),
        }
    }

    /// What the Advanced property page could not show: a default outside the list or the range.
    fn check(&self) -> Result<(), InfError> {
        let Some(default) = &self.default else {
            if self.optional {
                return Ok(());
            }
            return Err(missing(&format!("default of keyword {}", self.name)));
        };
        if self.takes(default) {
            Ok(())
        } else {
            Err(InfError::Invalid(format!("default \"{default}\" of keyword {} is outside its own range", self.name)))
        }
    }

    /// Whether the Advanced property page would let the value be set.
    #[must_use]
    pub fn takes(&self, value: &str) -> bool {
        match self.kind {
            KeywordKind::Enumeration => self.choices.contains_key(&value.to_lowercase()),
            KeywordKind::Number => value.trim().parse::<i64>().is_ok_and(|value| {
                self.minimum.is_none_or(|minimum| minimum <= value)
                    && self.maximum.is_none_or(|maximum| value <= maximum)
            }),
            KeywordKind::Edit => true,
        }
    }

    /// The values that it takes, in words.
    #[must_use]
    pub fn values(&self) -> String {
        match self.kind {
            KeywordKind::Enumeration => {
                let choices = self.choices.iter().map(|(value, text)| format!("{value} ({text})"));
                choices.collect::<Vec<_>>().join(", ")
            }
            KeywordKind::Number => {
                let bound = |bound: Option<i64>| bound.map_or_else(|| "any".to_owned(), |bound| bound.to_string());
                format!("a number from {} to {}", bound(self.minimum), bound(self.maximum))
            }
            KeywordKind::Edit => "any text".to_owned(),
        }
    }
}

/// INF files are UTF-16 with a byte order mark, or text of one byte a character; those of the project are ASCII or UTF-8.
fn decode(bytes: &[u8]) -> Result<String, InfError> {
    if let Some(rest) = bytes.strip_prefix(&[0xFF, 0xFE]) {
        let units: Vec<u16> = rest.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16(&units).map_err(|error| InfError::Read(error.to_string()));
    }
    let text = String::from_utf8(bytes.to_vec()).map_err(|error| InfError::Read(error.to_string()))?;
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

/// Lines without comments and blanks, joined where a backslash continues them, with the number of their first line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, raw) in text.lines().enumerate() {
        let stripped = strip_comment(raw).trim();
        let (number, mut line) = open.take().unwrap_or((index + 1, String::new()));
        let (part, continues) = stripped.strip_suffix('\\').map_or((stripped, false), |part| (part, true));
        // A path may end in a backslash: the continuation character stands alone, after a blank or a comma.
        let continues = continues && (part.is_empty() || part.ends_with([' ', '\t', ',', '=']));
        line.push_str(if continues { part } else { stripped });
        if continues {
            open = Some((number, line));
        } else if !line.is_empty() {
            lines.push((number, line));
        }
    }
    lines.extend(open);
    lines
}

fn strip_comment(line: &str) -> &str {
    let mut quoted = false;
    for (position, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            ';' if !quoted => return line.get(..position).unwrap_or_default(),
            _ => {}
        }
    }
    line
}

fn parse_entry(number: usize, line: &str) -> Result<InfLine, InfError> {
    let (key, rest) = match split_key(line) {
        Some((key, rest)) => (Some(unquote(key)), rest),
        None => (None, line),
    };
    Ok(InfLine { number, key, values: split_values(number, rest)? })
}

/// `key = values`, where the equals sign is outside quotes.
fn split_key(line: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    for (position, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '=' if !quoted => return Some((line.get(..position)?.trim(), line.get(position + 1..)?)),
            _ => {}
        }
    }
    None
}

fn split_values(number: usize, text: &str) -> Result<Vec<String>, InfError> {
    let mut values = vec![String::new()];
    let mut quoted = false;
    for character in text.chars() {
        if character == '"' {
            quoted = !quoted;
        }
        match (character, values.last_mut()) {
            (',', _) if !quoted => values.push(String::new()),
            (other, Some(value)) => value.push(other),
            (_, None) => {}
        }
    }
    if quoted {
        return Err(syntax(number, "a quotation mark without its pair"));
    }
    Ok(values.iter().map(|value| unquote(value.trim())).collect())
}

/// Removes the quotation marks around a value; two marks inside stand for one.
fn unquote(value: &str) -> String {
    match value.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => value.to_owned(),
    }
}

fn string_table(sections: &BTreeMap<String, Vec<InfLine>>) -> BTreeMap<String, String> {
    let lines = sections.get("strings").into_iter().flatten();
    lines.filter_map(|line| Some((line.key.as_ref()?.to_lowercase(), line.value(0).to_owned()))).collect()
}

fn substitute_line(line: &mut InfLine, strings: &BTreeMap<String, String>) -> Result<(), InfError> {
    for text in line.key.iter_mut().chain(line.values.iter_mut()) {
        *text = substitute(line.number, text, strings)?;
    }
    Ok(())
}

/// Replaces `%name%`; `%13%` and other directory ids stay as they are, `%%` is one percent sign.
fn substitute(number: usize, text: &str, strings: &BTreeMap<String, String>) -> Result<String, InfError> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        result.push_str(before);
        let (name, behind) = after.split_once('%').ok_or_else(|| syntax(number, "a % without its pair"))?;
        if name.is_empty() {
            result.push('%');
        } else if name.chars().all(|digit| digit.is_ascii_digit()) {
            result.extend(["%", name, "%"]);
        } else {
            let value = strings.get(&name.to_lowercase());
            result.push_str(value.ok_or_else(|| syntax(number, &format!("%{name}% is not in [Strings]")))?);
        }
        rest = behind;
    }
    result.push_str(rest);
    Ok(result)
}

/// A model decoration (`NTamd64.10.0...19041`) is taken for this architecture or for none.
fn decoration_fits(decoration: &str) -> bool {
    let platform = decoration.split('.').next().unwrap_or_default().to_lowercase();
    platform == "nt" || platform == format!("nt{ARCHITECTURE}")
}

fn parse_number(text: &str) -> Option<u32> {
    let text = text.trim();
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    hexadecimal.map_or_else(|| text.parse().ok(), |digits| u32::from_str_radix(digits, 16).ok())
}

fn syntax(line: usize, problem: &str) -> InfError {
    InfError::Syntax { line, problem: problem.to_owned() }
}

fn missing(what: &str) -> InfError {
    InfError::Missing(what.to_owned())
}

/// One device of an installed package: its driver key and its place in the network.
#[derive(Debug, Clone)]
pub struct AdapterConfig {
    installation: Installation,
    values: BTreeMap<String, String>,
    addresses: Vec<InterfaceAddress>,
    if_index: Option<u32>,
}

/// An address of an interface and the length of its on-link prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceAddress {
    pub address: std::net::IpAddr,
    pub prefix_length: u8,
}

impl AdapterConfig {
    /// A new device of the package, with the defaults the class installer writes.
    pub fn from_inx(inx: &Inx) -> Result<Self, InfError> {
        let installation = inx.install()?;
        let values = installation.defaults();
        Ok(Self { installation, values, addresses: Vec::new(), if_index: None })
    }

    /// The declaration of a keyword.
    #[must_use]
    pub fn keyword(&self, name: &str) -> Option<&Keyword> {
        self.installation.keywords.iter().find(|keyword| keyword.name.eq_ignore_ascii_case(name))
    }

    /// Whether the package declares a keyword.
    #[must_use]
    pub fn has_keyword(&self, name: &str) -> bool {
        self.keyword(name).is_some()
    }

    /// Sets a value of the driver key, any text: the registry does not check it, the driver has to.
    #[must_use]
    pub fn with_keyword(mut self, name: &str, value: &str) -> Self {
        self.remove_keyword(name);
        self.values.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Removes a value from the driver key; the three mandatory keywords of the install section can be removed as well.
    #[must_use]
    pub fn without_keyword(mut self, name: &str) -> Self {
        self.remove_keyword(name);
        match name.to_lowercase().as_str() {
            "*iftype" => self.installation.if_type = None,
            "*mediatype" => self.installation.media_type = None,
            "*physicalmediatype" => self.installation.physical_media_type = None,
            _ => {}
        }
        self
    }

    /// Adds an IP address that the interface has from the start.
    #[must_use]
    pub fn with_address(mut self, address: std::net::IpAddr, prefix_length: u8) -> Self {
        let address = InterfaceAddress { address, prefix_length };
        let known: HashSet<_> = self.addresses.iter().copied().collect();
        if !known.contains(&address) {
            self.addresses.push(address);
        }
        self
    }

    /// Takes a certain interface index instead of the next free one.
    #[must_use]
    pub fn with_if_index(mut self, if_index: u32) -> Self {
        self.if_index = Some(if_index);
        self
    }

    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    #[must_use]
    pub fn addresses(&self) -> &[InterfaceAddress] {
        &self.addresses
    }

    #[must_use]
    pub fn if_index(&self) -> Option<u32> {
        self.if_index
    }

    /// The driver key's values, as `NdisReadConfiguration` sees them.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    fn remove_keyword(&mut self, name: &str) {
        self.values.retain(|known, _| !known.eq_ignore_ascii_case(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
; a comment; with "quotes"
[Version]
Signature = "$WINDOWS NT$"
Class     = Net
Provider  = %Vendor%
[Manufacturer]
%Vendor% = Models,NT$ARCH$.10.0...19041
[Models.NT$ARCH$.10.0...19041]
%Device% = Install, root\sample ; trailing
[Install]
Characteristics    = 0x81
*IfType            = 6
*MediaType         = 0
*PhysicalMediaType = 14
AddReg             = Install.Registry, \
                     Install.More
[Install.Registry]
HKR, Ndi, Service, 0, "sample"
HKR, Ndi\Interfaces, UpperRange, 0, "ndis5"
HKR, Ndi\Interfaces, LowerRange, 0, "ethernet"
HKR, Ndi\Params\*NetworkDirect, ParamDesc, 0, "NetworkDirect ""Functionality"""
HKR, Ndi\Params\*NetworkDirect, Type, 0, "enum"
HKR, Ndi\Params\*NetworkDirect, Default, 0, "1"
HKR, Ndi\Params\*NetworkDirect\enum, "0", 0, "Disabled"
HKR, Ndi\Params\*NetworkDirect\enum, "1", 0, "Enabled; 100%% sure"
[Install.More]
HKR, Ndi\Params\NetworkAddress, ParamDesc, 0, "Address"
HKR, Ndi\Params\NetworkAddress, Type, 0, "edit"
HKR, Ndi\Params\NetworkAddress, Optional, 0, "1"
[Install.Services]
AddService = sample, 2, Install.Service, Install.Log
[Install.Service]
ServiceType   = 1
ServiceBinary = %13%\sample.sys
[Install.Log]
[Strings]
Vendor = "A vendor"
Device = "A device"
"#;

    fn sample() -> Installation {
        Inx::parse(SAMPLE).expect("parses").install().expect("installs")
    }

    #[test]
    fn a_complete_file_gives_service_model_and_keywords() {
        let installation = sample();
        assert_eq!((installation.service.as_str(), installation.binary.as_str()), ("sample", "sample.sys"));
        assert_eq!(installation.description, "A device");
        assert_eq!(installation.hardware_ids, [r"root\sample"]);
        assert_eq!(installation.characteristics, 0x81);
        assert_eq!(installation.upper_range.as_deref(), Some("ndis5"));
        assert_eq!(installation.missing_mandatory_keyword(), None);
        let keyword = installation.keywords.first().expect("the first keyword");
        assert_eq!(keyword.description, "NetworkDirect \"Functionality\"");
        assert_eq!(keyword.choices.get("1").map(String::as_str), Some("Enabled; 100% sure"));
    }

    #[test]
    fn optional_keywords_are_absent_on_a_new_device() {
        let defaults = sample().defaults();
        assert_eq!(defaults.get("*NetworkDirect").map(String::as_str), Some("1"));
        assert!(!defaults.contains_key("NetworkAddress"));
    }

    #[test]
    fn each_mandatory_keyword_is_missed() {
        for name in ["*IfType", "*MediaType", "*PhysicalMediaType"] {
            let text: String =
                SAMPLE.lines().filter(|line| !line.starts_with(name)).flat_map(|line| [line, "\n"]).collect();
            let installation = Inx::parse(&text).expect("parses").install().expect("installs");
            assert_eq!(installation.missing_mandatory_keyword(), Some(name));
        }
    }

    #[test]
    fn another_class_or_a_missing_section_is_refused() {
        let refuse = |from: &str, to: &str| Inx::parse(&SAMPLE.replace(from, to)).and_then(|inx| inx.install());
        assert!(matches!(refuse("= Net\n", "= System\n"), Err(InfError::Invalid(_))));
        assert!(matches!(refuse("[Install.More]", "[Install.Les]"), Err(InfError::Missing(_))));
        assert!(matches!(refuse("%Device%", "%Devices%"), Err(InfError::Syntax { .. })));
        assert!(matches!(refuse("Default, 0, \"1\"", "Default, 0, \"2\""), Err(InfError::Invalid(_))));
        assert!(matches!(refuse("HKR, Ndi, Service", "HKLM, Ndi, Service"), Err(InfError::Invalid(_))));
    }

    #[test]
    fn a_range_that_its_type_cannot_hold_is_refused() {
        let typed = |kind: &str, most: &str| {
            let depth = r"HKR, Ndi\Params\Depth, ";
            let lines = [
                format!("{depth}ParamDesc, 0, \"Depth\""),
                format!("{depth}Type, 0, \"{kind}\""),
                format!("{depth}Default, 0, \"0\""),
                format!("{depth}Min, 0, \"0\""),
                format!("{depth}Max, 0, \"{most}\""),
            ];
            let text = SAMPLE.replace("[Install.More]", &format!("[Install.More]\n{}", lines.join("\n")));
            Inx::parse(&text).and_then(|inx| inx.install()).map(|_| ())
        };
        for (kind, most) in [("int", 32_767_i64), ("word", 65_535), ("long", 2_147_483_647), ("dword", 4_294_967_295)] {
            assert_eq!(typed(kind, &most.to_string()), Ok(()));
            let wider = typed(kind, &(most + 1).to_string());
            assert!(matches!(wider, Err(InfError::Invalid(_))), "{kind}: {wider:?}");
        }
    }

    #[test]
    fn overrides_replace_whatever_the_case() {
        let config = AdapterConfig::from_inx(&Inx::parse(SAMPLE).expect("parses")).expect("installs");
        let config = config.with_keyword("*networkdirect", "0").without_keyword("*IfType");
        assert_eq!(config.values().get("*networkdirect").map(String::as_str), Some("0"));
        assert_eq!(config.values().len(), 1);
        assert_eq!(config.installation().missing_mandatory_keyword(), Some("*IfType"));
    }
}
