//! Output files: complete, or not there at all. Whatever cannot be written is named.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use qgguf_gguf::{Temporary, follow_links};

use super::error::{Context, Failure, Result};
use super::interrupt;

/// A writer whose errors say what could not be written.
pub struct Named<W> {
    name: String,
    out: W,
}

/// An error of a writer with a name.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {name}: {source}")]
struct NamedError {
    name: String,
    source: io::Error,
}

impl<W> Named<W> {
    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|source| io::Error::new(source.kind(), NamedError { name: self.name.clone(), source }))
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.named(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.named(result)
    }
}

/// Standard output, for this thread alone.
pub fn stdout() -> Named<io::StdoutLock<'static>> {
    Named { name: "standard output".to_owned(), out: io::stdout().lock() }
}

/// Writes `path` through `write`: beside its place first, then renamed; a symbolic link is followed. What is not a regular
/// file (a pipe, `/dev/stdout`) is written straight away.
pub fn write_file<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let failed = || format!("cannot write {}", path.display());
    let named = |out| BufWriter::new(Named { name: path.display().to_string(), out });
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        let mut out = named(OpenOptions::new().write(true).open(path).context(failed())?);
        let value = write(&mut out)?;
        out.flush()?;
        return Ok(value);
    }
    let place = follow_links(path).context(failed())?;
    interrupt::listen();
    let (file, temporary) = Temporary::beside(&place).context(failed())?;
    let mut out = named(file);
    let value = write(&mut out)?;
    out.flush()?;
    temporary.persist(&place).context(failed())?;
    Ok(value)
}

/// Refuses to write over an input: a mistake here would cost a model or a text.
pub fn refuse_overwriting<'p>(output: &Path, inputs: impl IntoIterator<Item = &'p Path>) -> Result<()> {
    // To be compared, files are opened, which never ends at a pipe nobody writes to.
    let is_file = |path: &Path| fs::metadata(path).is_ok_and(|m| m.is_file());
    let same = |input: &&Path| {
        is_file(output) && is_file(input) && same_file::is_same_file(input, output).unwrap_or(false)
    };
    match inputs.into_iter().find(same) {
        Some(input) => {
            let (output, input) = (output.display(), input.display());
            Err(Failure::text(format!("the output {output} is the input {input}")))
        }
        None => Ok(()),
    }
}

/// Fails if `path` is an input, or if [`write_file`] could not begin: long work should not end with a result that has no
/// place.
pub fn check_output<'p>(path: &Path, inputs: impl IntoIterator<Item = &'p Path>) -> Result<()> {
    refuse_overwriting(path, inputs)?;
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return Ok(());
    }
    let failed = || format!("cannot write {}", path.display());
    if path.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory)).context(failed());
    }
    let place = follow_links(path).context(failed())?;
    interrupt::listen();
    Temporary::beside(&place).context(failed())?;
    Ok(())
}

/// [`check_output`] for `--plot`, whose file is an SVG.
pub fn check_plot<'p>(path: Option<&Path>, inputs: impl IntoIterator<Item = &'p Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    if path.extension().is_none_or(|extension| extension != "svg") {
        return Err(Failure::usage("--plot draws SVG: the file's name has to end in .svg"));
    }
    check_output(path, inputs)
}

#[cfg(test)]
mod tests {
    use super::super::error::Failure;
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        write_file(&path, |out| Ok(out.write_all(b"old")?)).unwrap();
        let failed = write_file(&path, |out| {
            out.write_all(b"half")?;
            Err::<(), _>(Failure::text("no more"))
        });
        assert_eq!(failed.unwrap_err().line(), "no more");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_impossible_place_is_named() {
        let failed = write_file(Path::new("/nonexistent/out"), |_| Ok(())).unwrap_err().line();
        assert!(failed.starts_with("cannot write /nonexistent/out: "), "{failed}");
    }

    #[test]
    #[cfg(unix)]
    fn links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (target, link) in [("file", "link"), ("circle", "circle")] {
            std::os::unix::fs::symlink(target, path(link)).unwrap();
        }
        for text in ["new", "newer"] {
            write_file(&path("link"), |out| Ok(out.write_all(text.as_bytes())?)).unwrap();
            assert_eq!(fs::read(path("file")).unwrap(), text.as_bytes());
        }
        assert!(path("link").is_symlink());
        let circle = path("circle");
        let expected = format!("cannot write {}: Too many levels of symbolic links", circle.display());
        let failed = [write_file(&circle, |_| Ok(())), check_output(&circle, [])];
        assert!(failed.into_iter().all(|result| result.unwrap_err().line().starts_with(&expected)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
