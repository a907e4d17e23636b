//! The rules of the keywords below `Ndi\Params`: what the Advanced page and the class installer can work with.

use super::{Inf, text::Entry};
use std::collections::BTreeMap;

/// The standardized keywords that this driver may offer, with the values that it implements. Others with an asterisk are refused.
const STANDARD: &[(&str, &[&str])] = &[("*NetworkDirect", &["0", "1"]), ("*NetworkDirectTechnology", &["1", "4"])];

/// A keyword: its attributes and the values of its enumeration.
#[derive(Default)]
struct Keyword {
    line: usize,
    attributes: BTreeMap<String, String>,
    choices: Vec<String>,
}

pub fn violations(inf: &Inf, entries: &[&Entry]) -> Vec<String> {
    let keywords = read(inf, entries);
    let missing = STANDARD.iter().filter(|(name, _)| !keywords.contains_key(*name));
    let mut broken: Vec<String> = missing.map(|(name, _)| format!("the keyword {name} is missing")).collect();
    for (name, keyword) in &keywords {
        broken.extend(judge(name, keyword).into_iter().map(|what| format!("line {}: {name}: {what}", keyword.line)));
    }
    broken
}

fn read(inf: &Inf, entries: &[&Entry]) -> BTreeMap<String, Keyword> {
    let mut keywords: BTreeMap<String, Keyword> = BTreeMap::new();
    for entry in entries {
        let Some(rest) = entry.value(1).strip_prefix(r"Ndi\Params\") else { continue };
        let (name, below) = rest.split_once('\\').unwrap_or((rest, ""));
        let keyword = keywords.entry(name.to_owned()).or_default();
        if keyword.line == 0 {
            keyword.line = entry.line;
        }
        if below.eq_ignore_ascii_case("enum") {
            keyword.choices.push(entry.value(2).to_owned());
        } else {
            keyword.attributes.insert(entry.value(2).to_lowercase(), inf.replaced(entry.value(4)));
        }
    }
    keywords
}

fn judge(name: &str, keyword: &Keyword) -> Vec<String> {
    let mut broken = Vec::new();
    let attribute = |name: &str| keyword.attributes.get(name).map(String::as_str);
    if attribute("paramdesc").is_none_or(str::is_empty) {
        broken.push("it has no ParamDesc, the text of the Advanced page".to_owned());
    }
    let optional = match attribute("optional") {
        Some("0") => false,
        Some("1") => true,
        other => {
            broken.push(format!("Optional is {}, it has to be 0 or 1", other.unwrap_or("missing")));
            false
        }
    };
    let default = attribute("default");
    if default.is_none() && !optional {
        broken.push("it is not optional and has no Default".to_owned());
    }
    if let Some((_, values)) = STANDARD.iter().find(|(standard, _)| *standard == name) {
        if keyword.choices != *values {
            broken.push(format!(
                "the values are {}, the driver implements {}",
                keyword.choices.join(", "),
                values.join(", ")
            ));
        }
    } else if name.starts_with('*') {
        broken.push("an asterisk is for standardized keywords, and the driver does not implement this one".to_owned());
    }
    let kind = attribute("type").unwrap_or("missing");
    broken.extend(match kind {
        "enum" => enumeration(keyword, default),
        "edit" => number(keyword, "limittext").is_none().then(|| "an edit has a LimitText".to_owned()),
        "int" => range(keyword, default, -0x8000, 0x7FFF),
        "word" => range(keyword, default, 0, 0xFFFF),
        "long" => range(keyword, default, -0x8000_0000, 0x7FFF_FFFF),
        "dword" => range(keyword, default, 0, 0xFFFF_FFFF),
        other => Some(format!("the type is {other}; there are enum, edit, int, word, long and dword")),
    });
    broken
}

fn enumeration(keyword: &Keyword, default: Option<&str>) -> Option<String> {
    let there = |default: &str| keyword.choices.iter().any(|choice| choice == default);
    match default {
        _ if keyword.choices.is_empty() => Some("an enum without values".to_owned()),
        Some(default) if !there(default) => Some(format!("the default {default} is none of its values")),
        _ => None,
    }
}

fn number(keyword: &Keyword, attribute: &str) -> Option<i64> {
    keyword.attributes.get(attribute)?.parse().ok()
}

fn range(keyword: &Keyword, default: Option<&str>, least: i64, most: i64) -> Option<String> {
    let (Some(minimum), Some(maximum), Some(_)) =
        (number(keyword, "min"), number(keyword, "max"), number(keyword, "step"))
    else {
        return Some("a number has Min, Max and Step".to_owned());
    };
    if minimum < least || maximum > most || minimum > maximum {
        return Some(format!("the range {minimum} to {maximum} does not fit its type, {least} to {most}"));
    }
    let inside = |default: &str| default.parse::<i64>().is_ok_and(|default| (minimum..=maximum).contains(&default));
    default
        .filter(|default| !inside(default))
        .map(|default| format!("the default {default} is not in {minimum} to {maximum}"))
}
