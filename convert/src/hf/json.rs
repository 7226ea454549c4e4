//! Reads the small files of a checkpoint: JSON that may be broken, missing or no file at all.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::HfError;

/// Text files beyond this are refused; the largest `tokenizer.json` have 40 MB.
const MAX_BYTES: u64 = 512 << 20;

/// The text of a file, `None` if there is no such file.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, HfError> {
    read_bytes(path)?
        .map(|bytes| {
            String::from_utf8(bytes).map_err(|e| {
                let at = e.utf8_error().valid_up_to();
                HfError::file(path, format!("expected UTF-8, found an invalid byte at {at}"))
            })
        })
        .transpose()
}

/// The bytes of a file, `None` if there is no such file.
pub(crate) fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, HfError> {
    // Asked before opening: that of a pipe without a writer would wait for one.
    let kind = match fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        kind => kind.map_err(HfError::io(path))?,
    };
    if !kind.is_file() {
        return Err(HfError::file(path, "not a regular file"));
    }
    if kind.len() > MAX_BYTES {
        return Err(HfError::file(path, format!("{} bytes, expected at most {MAX_BYTES}", kind.len())));
    }
    fs::read(path).map(Some).map_err(HfError::io(path))
}

/// A JSON object in a file, `None` if there is no such file.
pub(crate) fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, HfError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    match parse(path, &text)? {
        Value::Object(object) => Ok(Some(object)),
        _ => Err(HfError::file(path, "expected a JSON object")),
    }
}

/// The value that the text of a file stands for.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, HfError> {
    if text.starts_with('\u{feff}') {
        return Err(HfError::file(path, "expected JSON, found a byte order mark (EF BB BF) in front of it"));
    }
    serde_json::from_str(text).map_err(|e| HfError::file(path, e))
}

/// A number that reads as `x` again, as short as it can be.
pub(crate) fn number(x: f32) -> Value {
    let short: f64 = x.to_string().parse().expect("a number is written as one");
    if short as f32 == x { short.into() } else { f64::from(x).into() }
}
