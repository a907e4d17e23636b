//! TraceLogging's encoding: an event says in itself what it is called and what its fields are.
//!
//! Source: evntprov.h, TraceLoggingProvider.h (the layout of provider traits and event metadata).

use std::fmt;

use super::Written;

/// An event, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEvent {
    pub provider: String,
    pub name: String,
    pub level: u8,
    pub keyword: u64,
    pub fields: Vec<(String, TraceValue)>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceValue {
    Text(String),
    Unsigned(u64),
    Signed(i64),
    Bytes(Vec<u8>),
}

impl TraceEvent {
    /// A field by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&TraceValue> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// The text of a field; empty where it has none.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        if let Some(TraceValue::Text(text)) = self.field(name) { text } else { "" }
    }

    /// The number of a field.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.field(name)? {
            TraceValue::Unsigned(number) => Some(*number),
            TraceValue::Signed(number) => Some(number.cast_unsigned()),
            TraceValue::Text(_) | TraceValue::Bytes(_) => None,
        }
    }

    pub(super) fn decode(written: &Written) -> Result<Self, String> {
        let provider = Bytes(sized(&written.traits)?).name()?;
        let mut metadata = Bytes(sized(&written.metadata)?);
        metadata.tag()?;
        let name = metadata.name()?;
        let mut data = Bytes(&written.data);
        let mut fields = Vec::new();
        while !metadata.0.is_empty() {
            let field = metadata.name()?;
            let form = metadata.form()?;
            let value = data.value(form).map_err(|error| format!("{name}.{field}: {error}"))?;
            fields.push((field, value));
        }
        if !data.0.is_empty() {
            return Err(format!("{name}: {} bytes more than its fields have", data.0.len()));
        }
        Ok(Self { provider, name, level: written.level, keyword: written.keyword, fields })
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.provider, self.name)?;
        for (name, value) in &self.fields {
            match value {
                TraceValue::Text(text) => write!(formatter, " {name}={text:?}")?,
                TraceValue::Unsigned(number) => write!(formatter, " {name}={number}")?,
                TraceValue::Signed(number) => write!(formatter, " {name}={number}")?,
                TraceValue::Bytes(bytes) => write!(formatter, " {name}={bytes:02x?}")?,
            }
        }
        Ok(())
    }
}

/// A block that begins with its length, which must be right.
fn sized(block: &[u8]) -> Result<&[u8], String> {
    let (length, rest) = block.split_first_chunk::<2>().ok_or("a block without a length")?;
    let length = usize::from(u16::from_le_bytes(*length));
    if length == block.len() { Ok(rest) } else { Err(format!("a block of {} bytes says {length}", block.len())) }
}

const CHAIN: u8 = 0x80;
const COUNTS: u8 = 0x60;

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| format!("{count} bytes are not there"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], String> {
        self.take(COUNT).map(|bytes| bytes.try_into().unwrap_or([0; COUNT]))
    }

    /// Seven bits a byte, the last without its highest.
    fn tag(&mut self) -> Result<(), String> {
        while self.array::<1>()?[0] & CHAIN != 0 {}
        Ok(())
    }

    /// Text up to a zero.
    fn name(&mut self) -> Result<String, String> {
        let length = self.0.iter().position(|byte| *byte == 0).ok_or("a name without an end")?;
        let name = self.take(length + 1)?;
        String::from_utf8(name[..length].to_vec()).map_err(|error| error.to_string())
    }

    /// The type of a field's value, without the flags that say that more follows.
    fn form(&mut self) -> Result<u8, String> {
        let [input] = self.array()?;
        if input & CHAIN != 0 && self.array::<1>()?[0] & CHAIN != 0 {
            self.tag()?;
        }
        if input & COUNTS != 0 { Err("arrays are not decoded".into()) } else { Ok(input & !CHAIN) }
    }

    fn value(&mut self, form: u8) -> Result<TraceValue, String> {
        Ok(match form {
            3 => TraceValue::Signed(i8::from_le_bytes(self.array()?).into()),
            4 => TraceValue::Unsigned(u8::from_le_bytes(self.array()?).into()),
            5 => TraceValue::Signed(i16::from_le_bytes(self.array()?).into()),
            6 => TraceValue::Unsigned(u16::from_le_bytes(self.array()?).into()),
            7 => TraceValue::Signed(i32::from_le_bytes(self.array()?).into()),
            8 | 13 | 20 => TraceValue::Unsigned(u32::from_le_bytes(self.array()?).into()),
            9 => TraceValue::Signed(i64::from_le_bytes(self.array()?)),
            10 | 17 | 21 => TraceValue::Unsigned(u64::from_le_bytes(self.array()?)),
            14 | 25 => TraceValue::Bytes(self.counted()?.to_vec()),
            15 => TraceValue::Bytes(self.take(16)?.to_vec()),
            2 => TraceValue::Text(self.name()?),
            23 => TraceValue::Text(String::from_utf8_lossy(self.counted()?).into_owned()),
            other => return Err(format!("a field of the type {other}, which is not decoded")),
        })
    }

    fn counted(&mut self) -> Result<&'a [u8], String> {
        let length = u16::from_le_bytes(self.array()?);
        self.take(length.into())
    }
}

#[cfg(test)]
mod tests {
    use super::{TraceEvent, TraceValue, Written};

    /// A block with its length in front.
    fn block(bytes: &[u8]) -> Vec<u8> {
        let mut block = (bytes.len() as u16 + 2).to_le_bytes().to_vec();
        block.extend(bytes);
        block
    }

    fn written(metadata: &[u8], data: &[u8]) -> Written {
        Written { level: 4, keyword: 6, metadata: block(metadata), traits: block(b"Maker\0"), data: data.to_vec() }
    }

    #[test]
    fn an_event_says_what_it_is() {
        // A string with a length, a number that is shown as a status, bytes.
        let event = written(b"\0Name\0Word\0\x97\x23Code\0\x87\x0fRaw\0\x19", b"\x02\0hi\xfe\xff\xff\xff\x01\0\x2a");
        let event = TraceEvent::decode(&event).unwrap();
        assert_eq!((&*event.provider, &*event.name, event.level, event.keyword), ("Maker", "Name", 4, 6));
        assert_eq!((event.text("Word"), event.number("Code")), ("hi", Some((-2_i64).cast_unsigned())));
        assert_eq!(event.field("Raw"), Some(&TraceValue::Bytes(vec![0x2a])));
        assert_eq!(event.field("Other"), None);
        assert_eq!(event.to_string(), "Maker Name Word=\"hi\" Code=-2 Raw=[2a]");
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        for (metadata, data, part) in [
            (&b"\0Name\0Word\0\x08"[..], &b"\x01\x02"[..], "4 bytes are not there"),
            (b"\0Name\0Word\0\x08", b"\x01\x02\x03\x04\x05", "1 bytes more"),
            (b"\0Name", b"", "without an end"),
            (b"\0Name\0Word\0\x18", b"", "the type 24"),
            (b"\0Name\0Word\0\x48", b"", "arrays"),
        ] {
            let error = TraceEvent::decode(&written(metadata, data)).unwrap_err();
            assert!(error.contains(part), "{error} should say {part}");
        }
        let mut short = written(b"\0Name\0", b"");
        short.metadata.push(0);
        assert!(TraceEvent::decode(&short).unwrap_err().contains("says"));
    }
}
