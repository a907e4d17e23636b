//! Sources as tokens, as far as the interface definitions need it: items by the words before them.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The tokens, attributes and documentation left out.
pub fn plain(stream: TokenStream) -> Vec<TokenTree> {
    let mut tokens: Vec<TokenTree> = Vec::new();
    for token in stream {
        let after_hash = matches!(tokens.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == '#');
        match token {
            TokenTree::Group(group) if after_hash && group.delimiter() == Delimiter::Bracket => {
                tokens.pop();
            }
            token => tokens.push(token),
        }
    }
    tokens
}

pub fn word(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

pub fn is_word(token: Option<&TokenTree>, wanted: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(word)) if *word == wanted)
}

pub fn is_sign(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

pub fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// What stands between commas.
pub fn split(tokens: &[TokenTree]) -> Vec<&[TokenTree]> {
    tokens.split(|token| is_sign(Some(token), ',')).filter(|part| !part.is_empty()).collect()
}

/// Tokens as text, without the space that says nothing.
pub fn text(tokens: &[TokenTree]) -> String {
    let mut text = String::new();
    for token in tokens {
        let token = token.to_string();
        let joins = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        if joins(text.chars().next_back()) && joins(token.chars().next()) {
            text.push(' ');
        }
        text.push_str(&token);
    }
    text
}

/// Named parts: `name: Type` between commas.
pub fn named(tokens: &[TokenTree]) -> Vec<(String, String)> {
    let of = |part: &[TokenTree]| {
        let colon = part.iter().position(|token| is_sign(Some(token), ':'))?;
        let name = word(part.get(colon.checked_sub(1)?))?;
        Some((name, text(&part[colon + 1..])))
    };
    split(tokens).into_iter().filter_map(of).collect()
}

/// A number as Rust writes it: `0x2A`, `1 << 3`.
pub fn number(tokens: &[TokenTree]) -> Option<u64> {
    let text = text(tokens);
    let literal = |text: &str| {
        let plain = text.replace('_', "");
        match plain.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => plain.parse().ok(),
        }
    };
    match text.split_once("<<") {
        Some((left, right)) => literal(left)?.checked_shl(literal(right)?.try_into().ok()?),
        None => literal(&text),
    }
}
