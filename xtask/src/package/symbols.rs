//! What differs from link to link in an image and its symbols: the compiler's temporary folder, which the linker's command line in the
//! symbols names, and with it the hash by which lld makes the two belong together.

use super::archive::sha256;
use anyhow::{Result, ensure};

/// The same image and symbols, whatever the temporary folder was called.
pub fn settle(image: &mut [u8], symbols: &mut [u8]) -> Result<()> {
    /// `rustc` and six characters.
    const FOLDER: &[u8] = b"/rustc";
    for start in places(symbols, b"/DEF:") {
        let line = &symbols[start..symbols.len().min(start + 1024)];
        let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        for folder in places(&line[..end], FOLDER) {
            let random = start + folder + FOLDER.len();
            if symbols.get(random + 6) == Some(&b'/') {
                symbols[random..random + 6].fill(b'0');
            }
        }
    }
    // The debug directory of the image: "RSDS", the identity, the age, the name of the symbols.
    let in_image: Vec<usize> =
        places(image, b"RSDS").into_iter().filter(|at| image[at + 12..].starts_with(MARK)).collect();
    ensure!(in_image.len() == 1, "the image names {} symbols of lld, expected one", in_image.len());
    let identity = image[in_image[0] + 4..in_image[0] + 20].to_vec();
    // The symbols: version, signature, age, identity.
    let in_symbols = places(symbols, &identity);
    ensure!(in_symbols.len() == 1, "the symbols have the image's identity {} times, expected once", in_symbols.len());
    let [image_at, symbols_at] = [in_image[0] + 4, in_symbols[0]];
    ensure!(symbols_at >= 12, "the symbols begin with their identity");
    symbols[symbols_at..symbols_at + 8].fill(0);
    symbols[symbols_at - 8..symbols_at - 4].fill(0);
    let hash = sha256(symbols).into_bytes();
    symbols[symbols_at..symbols_at + 8].copy_from_slice(&hash[..8]);
    symbols[symbols_at - 8..symbols_at - 4].copy_from_slice(&hash[..4]);
    image[image_at..image_at + 8].copy_from_slice(&hash[..8]);
    Ok(())
}

/// The second half of the identities that lld makes by hashing; the first is the hash.
const MARK: &[u8] = b"LLD PDB.";

fn places(bytes: &[u8], part: &[u8]) -> Vec<usize> {
    let found = bytes.windows(part.len()).enumerate().filter(|(_, window)| *window == part);
    found.map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::settle;

    fn linked(folder: &str, hash: [u8; 8], code: &str) -> (Vec<u8>, Vec<u8>) {
        let image = [code.as_bytes(), b"RSDS", &hash, b"LLD PDB.", &[1, 0, 0, 0], b"a.pdb\0"].concat();
        let line = format!("\0/DEF:/work/target/{folder}/lib.def /OUT:/rustcabcdef/x\0{code}");
        let head = [&[7, 0, 0, 0], &hash[..4], &[1, 0, 0, 0], &hash, b"LLD PDB."].concat();
        (image, [head, line.into_bytes()].concat())
    }

    #[test]
    fn two_links_of_the_same_code_are_equal_afterwards_and_others_are_not() {
        let settled = |folder, hash, code| {
            let (mut image, mut symbols) = linked(folder, hash, code);
            settle(&mut image, &mut symbols).unwrap();
            (image, symbols)
        };
        let first = settled("rustcAbCdEf", *b"12345678", "code");
        assert_eq!(settled("rustcGhIjKl", *b"abcdefgh", "code"), first);
        assert_ne!(settled("rustcAbCdEf", *b"12345678", "other").1[12..20], first.1[12..20]);
        // They still belong together, and nothing else has changed.
        assert_eq!(first.0[8..24], first.1[12..28]);
        assert!(
            String::from_utf8_lossy(&first.1).contains("/DEF:/work/target/rustc000000/lib.def /OUT:/rustcabcdef/x")
        );
    }

    #[test]
    fn symbols_of_another_image_are_refused() {
        let (mut image, _) = linked("rustcAbCdEf", *b"12345678", "code");
        let (_, mut symbols) = linked("rustcAbCdEf", *b"abcdefgh", "code");
        assert!(settle(&mut image, &mut symbols).unwrap_err().to_string().contains("identity 0 times"));
        assert!(settle(&mut symbols, &mut image).is_err());
    }
}
