//! The format before GGUF: entries one after the other, little-endian, no magic number.

use std::collections::BTreeMap;

use super::{Imatrix, Sums};

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: u64, what: &str) -> Result<&'a [u8], String> {
        let left = (self.bytes.len() - self.at) as u64;
        if n > left {
            return Err(format!(
                "no importance matrix: {what} at byte {} needs {n} bytes, {left} are left",
                self.at
            ));
        }
        let start = self.at;
        self.at += n as usize;
        Ok(&self.bytes[start..self.at])
    }

    fn i32(&mut self, what: &str) -> Result<i32, String> {
        Ok(i32::from_le_bytes(self.take(4, what)?.try_into().expect("taken at this length")))
    }

    /// A number of things, of which there must be at least `min`.
    fn count(&mut self, min: i32, what: &str) -> Result<u64, String> {
        let at = self.at;
        match self.i32(what)? {
            n if n >= min => Ok(n as u64),
            n => Err(format!("no importance matrix: {what} at byte {at} is {n}, expected at least {min}")),
        }
    }

    fn string(&mut self, n: u64, what: &str) -> Result<&'a str, String> {
        let bytes = self.take(n, what)?;
        std::str::from_utf8(bytes).map_err(|_| format!("no importance matrix: {what} is not UTF-8"))
    }

    fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

/// Reads a file from its bytes.
pub(super) fn read(bytes: &[u8]) -> Result<Imatrix, String> {
    let mut c = Cursor { bytes, at: 0 };
    let n_entries = c.count(1, "the number of entries")?;
    let mut imatrix = Imatrix { entries: BTreeMap::new(), datasets: Vec::new(), n_chunks: 0, chunk_size: 0 };
    for i in 0..n_entries {
        let n = c.count(1, &format!("the length of name {i}"))?;
        let name = c.string(n, &format!("name {i}"))?;
        // Sums are stored divided by their counts and multiplied by this number of calls.
        let calls = c.i32(&format!("the number of calls of \"{name}\""))?;
        let n = c.count(1, &format!("the number of values of \"{name}\""))?;
        let values = c.take(4 * n, &format!("the values of \"{name}\""))?;
        let sums = values.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let entry = Sums { sums, counts: vec![if calls > 0 { calls as f32 } else { 1.0 }] };
        if imatrix.entries.insert(name.to_owned(), entry).is_some() {
            return Err(format!("\"{name}\" appears twice"));
        }
    }
    // The end of the oldest files.
    if !c.is_at_end() {
        imatrix.n_chunks = c.i32("the number of chunks")?.try_into().unwrap_or(0);
        let n = c.count(0, "the length of the name of the text")?;
        imatrix.datasets.push(c.string(n, "the name of the text")?.to_owned());
    }
    Ok(imatrix)
}

/// The bytes of a file. Sums are stored as means times a number of calls, which is that of chunks.
pub(super) fn to_bytes(imatrix: &Imatrix) -> Vec<u8> {
    let mut out = Vec::new();
    let length = |out: &mut Vec<u8>, n: usize| out.extend((n as i32).to_le_bytes());
    length(&mut out, imatrix.reached().count());
    for (name, entry) in imatrix.reached() {
        let calls = (entry.max_count() / imatrix.chunk_size.max(1) as f32).ceil();
        length(&mut out, name.len());
        out.extend(name.as_bytes());
        length(&mut out, calls as usize);
        length(&mut out, entry.sums.len());
        let values = entry.importance().into_iter().map(|value| value * calls);
        out.extend(values.flat_map(f32::to_le_bytes));
    }
    let dataset = imatrix.datasets.last().map_or("", |dataset| dataset);
    length(&mut out, imatrix.n_chunks as usize);
    length(&mut out, dataset.len());
    out.extend(dataset.as_bytes());
    out
}
