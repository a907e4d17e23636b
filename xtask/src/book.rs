//! `cargo xtask book`: the pages of `docs/` and the README as one book with a search.
//!
//! mdBook wants all its pages in one folder, so that they are copied below the target folder first. A file that a page includes is
//! copied to the same place beside that folder. A link that leaves that folder, to a source or a test, loses its target and keeps its
//! words.

use crate::{cargo_tool::CargoTool, command, workspace::Workspace};
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const MDBOOK: CargoTool = CargoTool { name: "mdbook", version: "0.5.4", features: Some("search") };

/// Build the documentation as a book with a search
///
/// Says where its first page is. The first time it installs mdBook below target/tools, which takes some minutes.
#[derive(clap::Args)]
pub struct BookArguments {}

pub fn run(_: &BookArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let mdbook = MDBOOK.require(&workspace)?;
    let folder = workspace.path("target/book");
    stage(workspace.root(), &folder)?;
    let mut build = Command::new(mdbook);
    command::output(build.arg("build").arg(&folder)).context("the book does not build")?;
    println!("book: {}", folder.join("book/index.html").display());
    Ok(())
}

/// Copies the pages, the files that they include, the pictures and the settings.
fn stage(root: &Path, folder: &Path) -> Result<()> {
    let pages = folder.join("src");
    if pages.exists() {
        fs::remove_dir_all(&pages).with_context(|| format!("cannot empty {}", pages.display()))?;
    }
    fs::create_dir_all(pages.join("pictures"))?;
    fs::copy(root.join("docs/book.toml"), folder.join("book.toml")).context("docs/book.toml cannot be copied")?;
    for path in files(&root.join("docs"), "md")? {
        let page = fs::read_to_string(&path)?;
        for name in included(&page) {
            stage_included(root, &pages, name)?;
        }
        fs::write(pages.join(path.file_name().unwrap_or_default()), without_ways_out(&page))?;
    }
    let readme = fs::read_to_string(root.join("README.md"))?;
    fs::write(pages.join("README.md"), without_ways_out(&readme.replace("](docs/", "](")))?;
    for path in files(&root.join("docs/pictures"), "svg")? {
        fs::copy(&path, pages.join("pictures").join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// The files that a page includes, by their paths from the page's folder.
fn included(page: &str) -> impl Iterator<Item = &str> {
    page.split("{{#include ").skip(1).filter_map(|rest| Some(rest.split_once("}}")?.0))
}

fn stage_included(root: &Path, pages: &Path, name: &str) -> Result<()> {
    let copy = pages.join(name);
    fs::create_dir_all(copy.parent().unwrap_or(pages))?;
    fs::copy(root.join("docs").join(name), copy).with_context(|| format!("{name} cannot be included"))?;
    Ok(())
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|own| own == extension));
    Ok(paths)
}

/// The text with the words alone of each link to a file that is no page of the book.
fn without_ways_out(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, words, target, after)) = next_link(rest) {
        kept.push_str(before);
        if leads_out(target) {
            kept.push_str(words);
        } else {
            kept.push_str(&rest[before.len()..rest.len() - after.len()]);
        }
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// The first link of a line's length: what is before it, its words, its target, and what is behind it.
fn next_link(text: &str) -> Option<(&str, &str, &str, &str)> {
    let middle = text.find("](")?;
    let begin = text[..middle].rfind('[')?;
    let end = middle + text[middle..].find(')')?;
    Some((&text[..begin], &text[begin + 1..middle], &text[middle + 2..end], &text[end + 1..]))
}

fn leads_out(target: &str) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    let is_markdown = Path::new(path).extension().is_some_and(|extension| extension == "md");
    let is_page = path.is_empty() || path.starts_with("https:") || (!path.contains("..") && is_markdown);
    let is_outside = ["CHANGELOG.md", "SECURITY.md"].contains(&path);
    is_outside || !(is_page || path.starts_with("pictures/"))
}

#[cfg(test)]
mod tests {
    use super::{Workspace, included, stage, without_ways_out};
    use std::fs;

    #[test]
    fn links_to_pages_stay_and_others_lose_their_target() {
        let page = "see [rules](rules.md#x), [here](#part), ![p](pictures/a.svg), [src](../tests/c-consumer) and [log](CHANGELOG.md).";
        let staged = "see [rules](rules.md#x), [here](#part), ![p](pictures/a.svg), src and log.";
        assert_eq!(without_ways_out(page), staged);
    }

    #[test]
    fn staged_pages_find_the_files_that_they_include() {
        let workspace = Workspace::find().unwrap();
        let folder = workspace.path("target/book-test");
        stage(workspace.root(), &folder).unwrap();
        let page = fs::read_to_string(folder.join("src/own-driver.md")).unwrap();
        let names: Vec<_> = included(&page).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        for name in names {
            let source = fs::read(workspace.path("docs").join(name)).unwrap();
            assert_eq!(fs::read(folder.join("src").join(name)).unwrap(), source, "{name}");
        }
    }
}
