//! Two kernel hosts in two processes: one offers a file, the other one pulls it by RDMA Read across iWARP on Linux's TCP.

use crate::{
    host_pair::{self, CLIENT, HostPair, LISTEN_AT, SERVER},
    workspace::Workspace,
};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{self, Write, stdout},
    path::{Path, PathBuf},
};

/// Bytes of the generated file that are made at a time.
const CHUNK: usize = 1 << 16;

/// Options of `cargo xtask demo --machines 2`.
#[derive(clap::Parser)]
#[command(name = "cargo xtask demo --machines 2", no_binary_name = true)]
pub(super) struct TwoMachinesArguments {
    /// Bytes of the generated file, with K, M or G for powers of 1024
    #[arg(long, default_value = "64M", value_parser = parse_size)]
    size: u64,
}

/// What runs.
pub(super) struct DemoPrograms {
    pub ndkctl: PathBuf,
    pub image: PathBuf,
    pub dll: PathBuf,
}

/// A folder that goes with the demonstration.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is below target/.
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn run(workspace: &Workspace, programs: &DemoPrograms, arguments: &TwoMachinesArguments) -> Result<()> {
    let own = std::process::id();
    let folder = Folder(workspace.path("target/demo").join(own.to_string()));
    fs::create_dir_all(&folder.0).with_context(|| format!("cannot make {}", folder.0.display()))?;
    let (source, dest) = (folder.0.join("source"), folder.0.join("copy"));

    heading(1, &format!("make a file of {} bytes", arguments.size))?;
    generate(&source, arguments.size, own).with_context(|| format!("cannot write {}", source.display()))?;

    heading(2, "boot a kernel host as machine 1: it loads softndk.sys and offers the file (ndkctl nd pull --server)")?;
    let pair = HostPair { ndkctl: &programs.ndkctl, image: &programs.image, options: &[] };
    let pull = |machine| {
        let mut command = pair.command(machine, &["nd", "pull"]);
        command.arg("--dll").arg(&programs.dll);
        command
    };
    let mut server = pull(SERVER);
    server.args(["--server", LISTEN_AT, "--source"]).arg(&source);
    let [given, pulled] = host_pair::run(&mut server, |address| {
        println!("machine 1 listens at {address}");
        heading(
            3,
            "boot another one in a process of its own as machine 2: it pulls the file (ndkctl nd pull --client)",
        )?;
        let mut client = pull(CLIENT);
        client.args(["--client", address, "--dest"]).arg(&dest);
        Ok(client)
    })?;

    heading(4, "both have unloaded their drivers; compare the file with its copy")?;
    println!("machine 1 gave   {} bytes, SHA-256 {}", given["bytes"], text(&given["source_sha256"]));
    println!("machine 2 pulled {} bytes, SHA-256 {}", pulled["bytes"], text(&pulled["dest_sha256"]));
    let (reads, seconds) = (&pulled["reads"], pulled["elapsed"].as_f64().unwrap_or_default() / 1e9);
    println!("{reads} RDMA reads took {seconds:.3} s: {:.0} MB/s", pulled["rate"].as_f64().unwrap_or_default());
    check(&given, &pulled, arguments.size)?;
    ensure!(are_equal(&source, &dest)?, "the copy is not the file");
    println!("\nThe file and its copy are equal. Both hosts ended with nothing left behind.");
    Ok(())
}

fn heading(number: u32, what: &str) -> io::Result<()> {
    println!("\n[{number}/4] {what}");
    stdout().flush()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("missing")
}

/// Whether both say the same of the whole file.
fn check(given: &Value, pulled: &Value, size: u64) -> Result<()> {
    ensure!(given["bytes"] == size && pulled["bytes"] == size, "not all {size} bytes went");
    let hashes = [&given["source_sha256"], &pulled["source_sha256"], &pulled["dest_sha256"]];
    ensure!(hashes[0].is_string() && hashes.iter().all(|hash| *hash == hashes[0]), "the hashes differ: {hashes:?}");
    Ok(())
}

fn are_equal(one: &Path, other: &Path) -> Result<bool> {
    Ok(fs::read(one)? == fs::read(other)?)
}

/// Writes bytes that do not repeat.
fn generate(path: &Path, size: u64, seed: u32) -> io::Result<()> {
    let mut file = File::create(path)?;
    let (mut state, mut rest) = (u64::from(seed) | 1 << 40, size);
    let mut chunk = vec![0; CHUNK];
    while rest > 0 {
        for word in chunk.chunks_exact_mut(8) {
            // The generator xorshift64.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let part = rest.min(CHUNK as u64);
        file.write_all(&chunk[..part as usize])?;
        rest -= part;
    }
    Ok(())
}

/// Reads a size: a number, with K, M or G for powers of 1024.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("\"{text}\" has no unit of K, M or G")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("\"{text}\" is not a size such as 8M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("\"{text}\" is more than 64 bits hold"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::json;

    #[test]
    fn size_is_the_only_option() {
        let size = |words: &[&str]| TwoMachinesArguments::try_parse_from(words).map(|arguments| arguments.size);
        assert_eq!((size(&[]).unwrap(), size(&["--size", "8M"]).unwrap()), (64 << 20, 8 << 20));
        assert_eq!((size(&["--size", "0"]).unwrap(), size(&["--size=3K"]).unwrap()), (0, 3 << 10));
        for words in [&["--size", "8T"][..], &["--size", "M"], &["--size", "99999999999G"], &["--pings", "3"]] {
            assert!(size(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn any_difference_of_the_reports_is_a_failure() {
        let given = json!({ "bytes": 7, "source_sha256": "a" });
        let pulled = json!({ "bytes": 7, "source_sha256": "a", "dest_sha256": "a" });
        assert!(check(&given, &pulled, 7).is_ok());
        assert!(check(&given, &pulled, 8).is_err());
        for (field, other) in [("bytes", json!(6)), ("source_sha256", json!("b")), ("dest_sha256", Value::Null)] {
            let mut pulled = pulled.clone();
            pulled[field] = other;
            assert!(check(&given, &pulled, 7).is_err(), "{field}");
        }
        assert!(check(&json!({ "bytes": 7 }), &json!({ "bytes": 7 }), 7).is_err(), "no hash");
    }

    #[test]
    fn generated_file_has_its_size() {
        let folder = Folder(std::env::temp_dir().join(format!("softndk-demo-test-{}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        let path = folder.0.join("file");
        for size in [0, 1, CHUNK as u64, CHUNK as u64 + 9] {
            generate(&path, size, 1).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), size);
        }
        let bytes = fs::read(&path).unwrap();
        assert_ne!(bytes[..8], bytes[CHUNK..CHUNK + 8]);
    }
}
