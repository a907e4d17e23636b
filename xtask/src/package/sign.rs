//! Embedded signatures of the images, by osslsigncode. No tool here makes a catalogue: setup.ps1 does, on the test machine.

use super::archive::Files;
use crate::{
    command,
    setup::{self, Need},
};
use anyhow::{Context, Result};
use std::{fs, path::Path, process::Command};

/// Signs every image among the files.
pub fn images(files: &mut Files, pfx: &Path, pass_file: Option<&Path>, stage: &Path) -> Result<()> {
    setup::ensure(&[Need::Osslsigncode])?;
    for (name, contents) in files.iter_mut() {
        let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
        if !matches!(extension, Some("sys" | "dll" | "exe")) {
            continue;
        }
        let [unsigned, signed] = ["unsigned", "signed"].map(|state| stage.join(format!("{name}.{state}")));
        fs::write(&unsigned, &contents)?;
        // The program does not overwrite.
        let _ = fs::remove_file(&signed);
        let mut sign = Command::new("osslsigncode");
        sign.args(["sign", "-h", "sha256", "-n", "softndk", "-pkcs12"]).arg(pfx);
        if let Some(pass_file) = pass_file {
            sign.arg("-readpass").arg(pass_file);
        }
        sign.arg("-in").arg(&unsigned).arg("-out").arg(&signed);
        command::output(&mut sign).with_context(|| format!("{name} cannot be signed"))?;
        *contents = fs::read(&signed)?;
    }
    Ok(())
}
