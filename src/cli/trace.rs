//! `--trace DIR`: every named intermediate as a `.npy` file.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use qgguf::npy;
use qgguf::session::Session;
use qgguf::threads::lock;

use super::error::{Context, Failure, Result};

/// Collects the intermediates of a session in a directory.
///
/// One file per name and layer (`ffn_out-3.npy`), shape `[rows, row length]`; later evaluations append their
/// rows, so that the files do not depend on how the tokens were split.
pub struct Trace {
    state: Arc<Mutex<State>>,
}

struct State {
    dir: PathBuf,
    /// Rows and row length in each file so far.
    shapes: HashMap<String, [usize; 2]>,
    error: Option<Failure>,
}

impl Trace {
    /// Creates the directory and listens to `session`.
    pub fn start(dir: &Path, session: &mut Session) -> Result<Trace> {
        fs::create_dir_all(dir).context(format!("cannot create {}", dir.display()))?;
        let state = State { dir: dir.to_owned(), shapes: HashMap::new(), error: None };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        session.engine_mut().set_trace(Some(Box::new(move |name, layer, shape, values| {
            let mut state = lock(&shared);
            if state.error.is_none() {
                state.error = state.append(name, layer, shape, values).err();
            }
        })));
        Ok(Trace { state })
    }

    /// Reports the first error and where the files are.
    pub fn finish(self) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        super::note!("qgguf: wrote {} intermediates to {}", state.shapes.len(), state.dir.display());
        Ok(())
    }
}

impl State {
    fn append(&mut self, name: &str, layer: Option<usize>, shape: [usize; 2], values: &[f32]) -> Result<()> {
        let name = layer.map_or_else(|| name.to_owned(), |layer| format!("{name}-{layer}"));
        let path = self.dir.join(format!("{name}.npy"));
        let before = self.shapes.get(&name).copied();
        let rows = before.map_or(0, |before| before[0]) + shape[0];
        append_rows(&path, before.is_none(), [rows, shape[1]], values)
            .context(format!("cannot write {}", path.display()))?;
        self.shapes.insert(name, [rows, shape[1]]);
        Ok(())
    }
}

/// Appends rows to a file and writes its header anew; `shape` is that of the whole file.
fn append_rows(path: &Path, new: bool, shape: [usize; 2], values: &[f32]) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(new).open(path)?;
    file.write_all(&npy::header(shape))?;
    file.seek(SeekFrom::End(0))?;
    npy::write_values(&mut file, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_later_evaluations_are_appended() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State { dir: dir.path().to_owned(), shapes: HashMap::new(), error: None };
        fs::write(dir.path().join("q-1.npy"), [7; 1000]).unwrap();
        state.append("q", Some(1), [2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        state.append("q", Some(1), [1, 2], &[5.0, 6.0]).unwrap();
        let bytes = fs::read(dir.path().join("q-1.npy")).unwrap();
        assert_eq!(bytes[..npy::HEADER_LEN], npy::header([3, 2]));
        let values: Vec<f32> =
            bytes[npy::HEADER_LEN..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}
