//! Files that are written beside their target, and put there when they are complete.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// The temporary files and folders of this process.
static ALL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn all() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that goes away with its owner, unless it was put in its place.
pub struct Temporary(PathBuf);

impl Temporary {
    /// A new file in the folder of `target`, with the mode that any new file would get there.
    pub fn beside(target: &Path) -> io::Result<(File, Temporary)> {
        if target.file_name().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file name"));
        }
        let mut cause = None;
        let create = |path: &Path| {
            let file = File::options().read(true).write(true).create_new(true).open(path);
            file.inspect_err(|e| cause = e.raw_os_error())
        };
        let mut all = all();
        let made = tempfile::Builder::new().prefix(".qgguf-").suffix(".part").make_in(folder(target), create);
        // Nobody has heard of the file's name, which the error has.
        let made = made.map_err(|e| cause.map_or(e, io::Error::from_raw_os_error))?;
        let (file, path) = made.keep().map_err(|e| e.error)?;
        all.insert(path.clone());
        Ok((file, Temporary(path)))
    }

    /// Puts the file in its place.
    pub fn persist(self, target: &Path) -> io::Result<()> {
        let mut all = all();
        fs::rename(&self.0, target)?;
        all.remove(&self.0);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut all = all();
        if all.remove(&self.0) {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// A hidden folder that goes away with its owner.
pub struct TemporaryFolder(TempDir);

impl TemporaryFolder {
    /// A new folder in `parent`.
    pub fn inside(parent: &Path) -> io::Result<TemporaryFolder> {
        let mut all = all();
        let folder = tempfile::Builder::new().prefix(".qgguf-").tempdir_in(parent)?;
        all.insert(folder.path().to_owned());
        Ok(TemporaryFolder(folder))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        all().remove(self.0.path());
    }
}

/// Removes all temporary files and folders. None is made while what this returns lives: after it, the process can end.
pub fn remove_temporaries() -> impl Sized {
    let mut all = all();
    while let Some(path) = all.pop_first() {
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    all
}

/// The folder of a file.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_what_was_not_put_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        let count = || fs::read_dir(dir.path()).unwrap().count();
        let (_, dropped) = Temporary::beside(&target).unwrap();
        assert_eq!(count(), 1);
        drop(dropped);
        assert_eq!(count(), 0);
        let (_, temporary) = Temporary::beside(&target).unwrap();
        assert!(temporary.persist(&dir.path().join("no/such/folder")).is_err());
        assert_eq!(count(), 0);
        let (_, temporary) = Temporary::beside(&target).unwrap();
        temporary.persist(&target).unwrap();
        assert_eq!((count(), target.is_file()), (1, true));
    }
}
