//! Lists of what an image of user mode may import, a module and a function a line. `module.dll *` allows all of a module.

use crate::{
    cross::toolchain,
    image_check::{Image, Import},
    workspace::{Workspace, write_if_changed},
};
use anyhow::{Context, Result, bail};
use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

/// What a list says.
#[derive(Debug, Default)]
pub struct ImportList {
    /// Its comments at the top.
    head: String,
    names: BTreeSet<String>,
    whole: BTreeSet<String>,
}

impl ImportList {
    pub fn read(workspace: &Workspace, path: &str) -> Result<Self> {
        let text = fs::read_to_string(workspace.path(path)).with_context(|| format!("cannot read {path}"))?;
        Ok(Self::parse(&text))
    }

    pub fn parse(text: &str) -> Self {
        let mut list = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if line.starts_with('#') {
                let _ = writeln!(list.head, "{line}");
            } else if let Some(module) = line.strip_suffix(" *") {
                list.whole.insert(module.to_owned());
            } else {
                list.names.insert(line.to_owned());
            }
        }
        list
    }

    /// Lines for what the image imports beyond the list, and what it does not import although the list has it.
    pub fn differences(&self, image: &Image, path: &str) -> Vec<String> {
        let (imports, modules) = self.names_of(image);
        let mut broken = Vec::new();
        for import in imports.difference(&self.names) {
            broken.push(format!("it imports {import}, which {path} does not have"));
        }
        for import in self.names.difference(&imports) {
            broken.push(format!("it does not import {import}, which {path} has"));
        }
        for module in self.whole.difference(&modules) {
            broken.push(format!("it imports nothing of {module}, which {path} has"));
        }
        broken
    }

    /// Lines for modules that the list does not have, and for those that the image does not use. Names depend on the standard library,
    /// modules hardly.
    fn other_modules(&self, image: &Image, path: &str) -> Vec<String> {
        let of_name = |name: &String| name.split(' ').next().unwrap_or_default().to_owned();
        let listed: BTreeSet<String> = self.names.iter().map(of_name).chain(self.whole.iter().cloned()).collect();
        let used: BTreeSet<String> = image.imports.iter().map(|import| import.module.to_ascii_lowercase()).collect();
        let line = |module: &String| format!("{module} is imported or in {path}, but not both");
        listed.symmetric_difference(&used).map(line).collect()
    }

    /// Names outside of modules that are allowed as a whole, and the modules among these that are used.
    fn names_of(&self, image: &Image) -> (BTreeSet<String>, BTreeSet<String>) {
        let module = |import: &Import| import.module.to_ascii_lowercase();
        let (whole, single): (Vec<&Import>, Vec<&Import>) =
            image.imports.iter().partition(|import| self.whole.contains(&module(import)));
        let names = single.into_iter().map(|import| format!("{} {}", module(import), import.name)).collect();
        (names, whole.into_iter().map(module).collect())
    }

    /// The list with these imports.
    fn blessed(&self, image: &Image) -> String {
        let (names, _) = self.names_of(image);
        let whole = self.whole.iter().map(|module| format!("{module} *"));
        let mut lines: Vec<String> = names.into_iter().chain(whole).collect();
        lines.sort();
        format!("{}{}\n", self.head, lines.join("\n"))
    }
}

/// Checks a program for Windows: x64, data not executable, no exports, and the list, which is that of the workspace's own compiler.
/// `bless` rewrites the list first.
pub fn check_program(workspace: &Workspace, program: &Path, list: &str, bless: bool) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let image = Image::parse(bytes)?;
    if bless {
        let text = ImportList::read(workspace, list)?.blessed(&image);
        write_if_changed(&workspace.path(list), text.as_bytes())?;
    }
    let imports = ImportList::read(workspace, list)?;
    let same_compiler = toolchain::is_the_lists_own()?;
    let mut broken =
        if same_compiler { imports.differences(&image, list) } else { imports.other_modules(&image, list) };
    broken.extend(violations(&image));
    if broken.is_empty() {
        return Ok(());
    }
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let next = "`cargo xtask tools --windows --bless` rewrites the list where that is right";
    bail!("{name} breaks rules:\n  {}\n{next}", broken.join("\n  "))
}

fn violations(image: &Image) -> Vec<String> {
    let mut broken = Vec::new();
    if image.machine != crate::image_check::Machine::X64 {
        broken.push("it is not for x64".to_owned());
    }
    if !image.exports.is_empty() {
        broken.push(format!("it exports {} functions", image.exports.len()));
    }
    for section in image.sections.iter().filter(|section| section.writable && section.executable) {
        broken.push(format!("{} is writable and executable", section.name));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_check::Machine;

    fn image(imports: &[(&str, &str)]) -> Image {
        let import = |(module, name): &(&str, &str)| Import { module: (*module).to_owned(), name: (*name).to_owned() };
        Image {
            bytes: Vec::new(),
            machine: Machine::X64,
            image_base: 0,
            entry: 1,
            subsystem: 3,
            characteristics: 0,
            checksum: 0,
            checksum_offset: 0,
            sections: Vec::new(),
            imports: imports.iter().map(import).collect(),
            exports: Vec::new(),
            pointers: Vec::new(),
            runtime_functions: Vec::new(),
            guard: None,
        }
    }

    #[test]
    fn lists_are_compared_in_both_directions() {
        let list = ImportList::parse("# head\na.dll One\na.dll Two\nc.dll *\n");
        let differences = |imports: &[(&str, &str)]| list.differences(&image(imports), "list");
        assert!(differences(&[("A.dll", "One"), ("a.dll", "Two"), ("C.DLL", "any"), ("c.dll", "more")]).is_empty());
        let broken = differences(&[("a.dll", "One"), ("b.dll", "Three")]);
        assert_eq!(broken.len(), 3, "{broken:?}");
        for (line, part) in broken.iter().zip(["imports b.dll Three", "not import a.dll Two", "nothing of c.dll"]) {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(list.other_modules(&image(&[("a.dll", "New"), ("c.dll", "x")]), "list"), Vec::<String>::new());
        assert_eq!(list.other_modules(&image(&[("a.dll", "One"), ("b.dll", "x")]), "list").len(), 2);
    }

    #[test]
    fn a_blessed_list_keeps_its_head_and_its_whole_modules() {
        let list = ImportList::parse("# head\nz.dll Old\nc.dll *\n");
        let text = list.blessed(&image(&[("b.dll", "Two"), ("c.dll", "x"), ("b.dll", "One")]));
        assert_eq!(text, "# head\nb.dll One\nb.dll Two\nc.dll *\n");
    }

    #[test]
    fn programs_export_nothing() {
        let mut wrong = image(&[]);
        assert!(violations(&wrong).is_empty());
        wrong.exports.push(("any".to_owned(), 1));
        wrong.machine = Machine::Arm64;
        assert_eq!(violations(&wrong).len(), 2);
    }
}
