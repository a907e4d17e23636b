//! A file that appears under its name only when it is complete.
//!
//! It is written under a temporary name in the same folder and renamed. It keeps what replacing a file would lose: a link stays a link
//! and its target is written, a file that was there keeps its permissions and its owner, and a new one has those that any program
//! gives. A file that may not be written, a device, and a link to nothing are refused. An interrupt (Ctrl-C, a signal that ends the
//! program) removes the temporary file.

use crate::failure::{Failure, Kind};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tempfile::NamedTempFile;

/// What a shell reports for a program that an interrupt ended.
const INTERRUPTED: i32 = 130;

/// The temporary files that there are, for an interrupt to remove. It may name one that is gone already.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file on its way.
#[derive(Debug)]
pub struct Destination {
    /// Where it goes: the name that was given, or the target of the link with that name.
    target: PathBuf,
    // In this order: the file goes before the list forgets it.
    temporary: NamedTempFile,
    listed: Listed,
}

impl Destination {
    /// Checks that the file may be written, and makes the temporary one.
    pub fn at(path: &Path) -> Result<Self, Failure> {
        let (target, there) = target(path)?;
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        clean_up_when_interrupted();
        let (temporary, listed) = temporary(folder).map_err(|error| Failure::file("write into", folder, &error))?;
        if let Some(there) = there {
            keep_attributes(temporary.as_file(), &there).map_err(|error| Failure::file("write", path, &error))?;
        }
        Ok(Self { target, temporary, listed })
    }

    /// The file to write into.
    #[must_use]
    pub fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// Gives the file its name.
    pub fn finish(self) -> Result<(), Failure> {
        let Self { target, temporary, listed } = self;
        let named = temporary.persist(&target);
        drop(listed);
        named.map(drop).map_err(|error| Failure::file("write", &target, &error.error))
    }
}

/// An entry of [`TEMPORARY`].
#[derive(Debug)]
struct Listed(PathBuf);

impl Drop for Listed {
    fn drop(&mut self) {
        lock().retain(|name| *name != self.0);
    }
}

fn lock() -> MutexGuard<'static, Vec<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where writing to this name ends, and what is there.
fn target(path: &Path) -> Result<(PathBuf, Option<Metadata>), Failure> {
    let refuse = |cause: &str, next_step: &str| {
        Err(Failure::new(Kind::File, format!("cannot write {}", path.display()), cause, next_step))
    };
    if fs::symlink_metadata(path).is_err() {
        // Nothing is there; a folder that is missing is found when the temporary file is made.
        return Ok((path.to_owned(), None));
    }
    let Ok(target) = fs::canonicalize(path) else {
        return refuse("it is a link to a file that is not there", "name the file itself, or remove the link");
    };
    let there = fs::metadata(&target).map_err(|error| Failure::file("write", path, &error))?;
    if there.is_dir() {
        return refuse("it is a folder", "name the file to write in it");
    }
    if !there.is_file() {
        return refuse("it is no regular file", "name a file, or one that is not there yet");
    }
    // The system lets an administrator write a read-only file. Replacing it would not even ask.
    if there.permissions().readonly() {
        return refuse("it is read-only", "make it writable first, or name another file");
    }
    OpenOptions::new().write(true).open(&target).map_err(|error| Failure::file("write", path, &error))?;
    Ok((target, Some(there)))
}

fn temporary(folder: &Path) -> io::Result<(NamedTempFile, Listed)> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".ndkctl-");
    // Less what the umask takes away, as for every new file; a temporary file would be for its owner alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    // Locked until the file is in the list: no interrupt comes in between.
    let mut names = lock();
    let temporary = builder.tempfile_in(folder)?;
    let name = temporary.path().to_owned();
    names.push(name.clone());
    Ok((temporary, Listed(name)))
}

/// Owner and permissions of the file that is replaced.
fn keep_attributes(file: &File, there: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        // Only an administrator may give files away; for others the owner is the one who writes.
        let _ = fchown(file, Some(there.uid()), Some(there.gid()));
        file.set_permissions(there.permissions())?;
    }
    #[cfg(windows)]
    let _ = (file, there);
    Ok(())
}

/// Removes temporary files when the program is interrupted, and ends it.
fn clean_up_when_interrupted() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without a handler an interrupt leaves the file: that is no reason not to write it.
        let _ = ctrlc::set_handler(|| {
            // Locked until the end: no further file is made.
            let names = lock();
            for name in names.iter() {
                // It may have its name by now.
                let _ = fs::remove_file(name);
            }
            std::process::exit(INTERRUPTED);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::Destination;
    use crate::failure::Kind;
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    fn write(path: &Path, text: &str) {
        let destination = Destination::at(path).unwrap();
        destination.file().write_all(text.as_bytes()).unwrap();
        destination.finish().unwrap();
    }

    fn refused(path: &Path) -> String {
        let failure = Destination::at(path).unwrap_err();
        assert_eq!(failure.kind, Kind::File);
        failure.cause
    }

    #[test]
    fn file_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let destination = Destination::at(&path).unwrap();
        assert!(!path.exists());
        let beside = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().file_name();
        assert!(beside.to_string_lossy().starts_with(".ndkctl-"));
        drop(destination);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        write(&path, "text");
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn folder_and_a_name_in_no_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(refused(folder.path()), "it is a folder");
        refused(&folder.path().join("no/such"));
    }

    #[test]
    fn read_only_file_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        fs::write(&path, "kept").unwrap();
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        assert_eq!(refused(&path), "it is read-only");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }

    #[cfg(unix)]
    mod on_unix {
        use super::{refused, write};
        use std::fs::{self, Permissions};
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        use std::path::Path;

        fn mode(path: &Path) -> u32 {
            fs::metadata(path).unwrap().mode() & 0o777
        }

        #[test]
        fn new_file_has_the_permissions_of_any_new_file() {
            let folder = tempfile::tempdir().unwrap();
            let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
            fs::write(&plain, "").unwrap();
            write(&ours, "text");
            assert_eq!(mode(&ours), mode(&plain));
        }

        #[test]
        fn replaced_file_keeps_its_permissions() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("there");
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            write(&path, "new");
            assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o640, "new"));
        }

        #[test]
        fn link_stays_a_link_and_its_target_is_written() {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("elsewhere")).unwrap();
            let (file, link) = (folder.path().join("elsewhere/file"), folder.path().join("link"));
            fs::write(&file, "old").unwrap();
            symlink("elsewhere/file", &link).unwrap();
            write(&link, "new");
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        }

        #[test]
        fn link_to_nothing_and_a_device_are_refused() {
            let folder = tempfile::tempdir().unwrap();
            let link = folder.path().join("link");
            symlink("nothing", &link).unwrap();
            assert_eq!(refused(&link), "it is a link to a file that is not there");
            assert_eq!(refused(Path::new("/dev/null")), "it is no regular file");
        }
    }
}
