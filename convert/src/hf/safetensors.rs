//! Reads safetensors files: every claim of the header is checked against the file before it is used. Writes their headers.
//!
//! Layout: u64 length of the header, the header (JSON: name to dtype, shape and place), then the data, which the
//! tensors fill without holes and without overlaps.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use qgguf_gguf::{GgmlType, TensorSpec};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::HfError;
use crate::positional::{read_exact_at, will_need};

/// Headers longer than this are refused, as by every reader of the format.
const MAX_HEADER: u64 = 100_000_000;

/// Number types that weights are stored in.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
}

/// `(dtype, name in the header, bytes)`.
const DTYPES: [(Dtype, &str, usize); 13] = [
    (Dtype::F64, "F64", 8),
    (Dtype::F32, "F32", 4),
    (Dtype::F16, "F16", 2),
    (Dtype::BF16, "BF16", 2),
    (Dtype::I64, "I64", 8),
    (Dtype::I32, "I32", 4),
    (Dtype::I16, "I16", 2),
    (Dtype::I8, "I8", 1),
    (Dtype::U64, "U64", 8),
    (Dtype::U32, "U32", 4),
    (Dtype::U16, "U16", 2),
    (Dtype::U8, "U8", 1),
    (Dtype::Bool, "BOOL", 1),
];

/// Those that are types of GGUF, too.
const PLAIN: [(Dtype, GgmlType); 3] =
    [(Dtype::F32, GgmlType::F32), (Dtype::F16, GgmlType::F16), (Dtype::BF16, GgmlType::BF16)];

impl Dtype {
    fn from_name(name: &str) -> Option<Dtype> {
        DTYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// That of a plain type of GGUF.
    pub fn of(ty: GgmlType) -> Option<Dtype> {
        PLAIN.iter().find(|pair| pair.1 == ty).map(|pair| pair.0)
    }

    /// The plain type of GGUF that has the same bytes.
    pub fn plain(self) -> Option<GgmlType> {
        PLAIN.iter().find(|pair| pair.0 == self).map(|pair| pair.1)
    }

    fn row(self) -> &'static (Dtype, &'static str, usize) {
        DTYPES.iter().find(|row| row.0 == self).expect("every dtype has a row")
    }

    /// The name in the header, e.g. `BF16`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        self.row().2
    }

    /// Writes the numbers in `bytes` as f32, rounded to nearest where f32 is too narrow.
    ///
    /// # Panics
    /// If the lengths do not belong together.
    pub fn to_f32(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(bytes.len(), out.len() * self.bytes(), "as many numbers as there is room for");
        macro_rules! read {
            ($n:literal, $from:expr) => {{
                let (numbers, _) = bytes.as_chunks::<$n>();
                out.iter_mut().zip(numbers).for_each(|(out, &number)| *out = $from(number));
            }};
        }
        match self {
            Dtype::F64 => read!(8, |b| f64::from_le_bytes(b) as f32),
            Dtype::F32 => read!(4, f32::from_le_bytes),
            Dtype::F16 => read!(2, |b| f16::from_le_bytes(b).to_f32()),
            Dtype::BF16 => read!(2, |b| bf16::from_le_bytes(b).to_f32()),
            Dtype::I64 => read!(8, |b| i64::from_le_bytes(b) as f32),
            Dtype::I32 => read!(4, |b| i32::from_le_bytes(b) as f32),
            Dtype::I16 => read!(2, |b| f32::from(i16::from_le_bytes(b))),
            Dtype::I8 => read!(1, |b| f32::from(i8::from_le_bytes(b))),
            Dtype::U64 => read!(8, |b| u64::from_le_bytes(b) as f32),
            Dtype::U32 => read!(4, |b| u32::from_le_bytes(b) as f32),
            Dtype::U16 => read!(2, |b| f32::from(u16::from_le_bytes(b))),
            Dtype::U8 => read!(1, |b: [u8; 1]| f32::from(b[0])),
            Dtype::Bool => read!(1, |b: [u8; 1]| f32::from(u8::from(b[0] != 0))),
        }
    }
}

/// One tensor of a file.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// Its name, e.g. `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// What its numbers are stored as.
    pub dtype: Dtype,
    /// Its dimensions, row length last.
    pub shape: Vec<u64>,
    start: u64,
    end: u64,
}

impl StoredTensor {
    /// Number of elements.
    pub fn n_elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Row length; 1 for a single number.
    pub fn row_len(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }
}

/// An open safetensors file.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    file: File,
    /// Sorted by name.
    tensors: Vec<StoredTensor>,
}

impl SafetensorsFile {
    /// Opens the file and checks its header.
    pub fn open(path: &Path) -> Result<SafetensorsFile, HfError> {
        // Asked before opening: that of a pipe without a writer would wait for one.
        let kind = std::fs::metadata(path).map_err(HfError::io(path))?;
        if !kind.is_file() {
            return Err(HfError::file(path, "not a regular file"));
        }
        if kind.len() < 8 {
            let reason = format!("not a safetensors file: {} bytes, expected at least 8", kind.len());
            return Err(HfError::file(path, reason));
        }
        let file = File::open(path).map_err(HfError::io(path))?;
        let mut length = [0; 8];
        read_exact_at(&file, &mut length, 0).map_err(HfError::io(path))?;
        let (length, left) = (u64::from_le_bytes(length), kind.len() - 8);
        let limit = left.min(MAX_HEADER);
        if length > limit {
            let reason = format!("not a safetensors file: header length {length}, expected at most {limit}");
            return Err(HfError::file(path, reason));
        }
        let mut header = vec![0; length as usize];
        read_exact_at(&file, &mut header, 8).map_err(HfError::io(path))?;
        let mut tensors = parse(path, &header, left - length)?;
        for tensor in &mut tensors {
            tensor.start += 8 + length;
            tensor.end += 8 + length;
        }
        Ok(SafetensorsFile { path: path.to_owned(), file, tensors })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its tensors, sorted by name.
    pub fn tensors(&self) -> &[StoredTensor] {
        &self.tensors
    }

    /// Reads some of the data of one of its tensors, from byte `at` of it on.
    ///
    /// # Panics
    /// If the tensor ends before.
    pub fn read(&self, tensor: &StoredTensor, at: u64, out: &mut [u8]) -> io::Result<()> {
        assert!(at + out.len() as u64 <= tensor.end - tensor.start, "within the tensor");
        read_exact_at(&self.file, out, tensor.start + at)
    }

    /// Says that `n` bytes of one of its tensors will be read soon, from byte `at` of it on.
    pub fn prefetch(&self, tensor: &StoredTensor, at: u64, n: u64) {
        will_need(&self.file, tensor.start + at, n);
    }
}

/// The length and the header of a file in which these tensors, of plain types, lie one after the other. The data begins
/// at a multiple of 8 bytes.
///
/// # Panics
/// If a tensor is of another type.
pub fn header(tensors: &[TensorSpec]) -> Vec<u8> {
    let mut entries = serde_json::Map::new();
    // Weights of PyTorch are what libraries take files without this for, and what some refuse them without.
    entries.insert("__metadata__".to_owned(), serde_json::json!({ "format": "pt" }));
    let mut start = 0;
    for spec in tensors {
        let dtype = Dtype::of(spec.ty).expect("a plain type");
        let shape: Vec<u64> = spec.shape.iter().rev().copied().collect();
        let end = start + shape.iter().product::<u64>() * dtype.bytes() as u64;
        let entry =
            serde_json::json!({ "dtype": dtype.name(), "shape": shape, "data_offsets": [start, end] });
        entries.insert(spec.name.clone(), entry);
        start = end;
    }
    let mut header = serde_json::Value::Object(entries).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes
}

/// What the header says about a tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The header, with duplicates refused.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                use serde::de::Error;
                let mut entries = Vec::new();
                let mut seen = std::collections::HashSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    if !seen.insert(key.clone()) {
                        return Err(A::Error::custom(format!("tensor \"{}\" appears twice", shorten(&key))));
                    }
                    if key == "__metadata__" {
                        map.next_value::<HashMap<String, String>>()?;
                    } else {
                        let entry = map
                            .next_value()
                            .map_err(|e| A::Error::custom(format!("tensor \"{}\": {e}", shorten(&key))))?;
                        entries.push((key, entry));
                    }
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A name that cannot flood an error text.
fn shorten(name: &str) -> String {
    name.chars().take(200).collect()
}

/// The tensors of a header that `data` bytes follow. Their places are counted from the end of the header.
fn parse(path: &Path, header: &[u8], data: u64) -> Result<Vec<StoredTensor>, HfError> {
    let Header(entries) = serde_json::from_slice(header)
        .map_err(|e| HfError::file(path, format!("header of the safetensors file: {e}")))?;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        tensors.push(place(path, name, entry, data)?);
    }
    fill(path, &mut tensors, data)?;
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// Checks one entry by itself.
fn place(path: &Path, name: String, entry: Entry, data: u64) -> Result<StoredTensor, HfError> {
    let wrong = |reason: String| HfError::tensor(path, &shorten(&name), reason);
    let dtype = Dtype::from_name(&entry.dtype).ok_or_else(|| {
        let known: Vec<_> = DTYPES.iter().map(|row| row.1).collect();
        let hint = match entry.dtype.starts_with("F8_") || entry.dtype.starts_with("F4") {
            true => "; weights of so few bits are those of a quantized checkpoint: take the one that it was made from",
            false => "",
        };
        let dtype = shorten(&entry.dtype);
        wrong(format!("dtype {dtype} cannot be converted (possible: {}){hint}", known.join(", ")))
    })?;
    let [start, end] = entry.data_offsets;
    if start > end {
        return Err(wrong(format!("data at bytes {start}..{end}: the end is before the beginning")));
    }
    if end > data {
        return Err(wrong(format!(
            "data at bytes {start}..{end}, but the file has {data} bytes of data: it is truncated or damaged"
        )));
    }
    let size = entry.shape.iter().try_fold(dtype.bytes() as u64, |n, &dim| n.checked_mul(dim));
    if size != Some(end - start) {
        return Err(wrong(format!(
            "shape {} of {} takes {}, but {} bytes are stored",
            shorten(&format!("{:?}", entry.shape)),
            dtype.name(),
            size.map_or("more than 2^64 bytes".to_owned(), |n| format!("{n} bytes")),
            end - start
        )));
    }
    Ok(StoredTensor { name, dtype, shape: entry.shape, start, end })
}

/// Checks that the tensors fill the data without holes and overlaps.
fn fill(path: &Path, tensors: &mut [StoredTensor], data: u64) -> Result<(), HfError> {
    tensors.sort_by_key(|tensor| (tensor.start, tensor.end));
    let mut at = 0;
    for tensor in tensors.iter() {
        if tensor.start != at {
            let what =
                if tensor.start < at { "overlaps the tensor before it" } else { "leaves a hole before it" };
            let reason = format!("data begins at byte {}, expected {at}: it {what}", tensor.start);
            return Err(HfError::tensor(path, &shorten(&tensor.name), reason));
        }
        at = tensor.end;
    }
    if at != data {
        let reason =
            format!("the tensors end at byte {at} of the data, but the file has {data} bytes of data");
        return Err(HfError::file(path, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(header: &str, data: u64) -> String {
        parse(Path::new("m.safetensors"), header.as_bytes(), data).unwrap_err().to_string()
    }

    #[test]
    fn lies_about_tensors_are_named() {
        let f32s = |name: &str, shape: &str, place: &str| {
            format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":{place}}}"#)
        };
        let cases = [
            (
                format!("{{{}}}", f32s("a", "[2]", "[0,8]")),
                4,
                "tensor \"a\": data at bytes 0..8, but the file has 4",
            ),
            (format!("{{{}}}", f32s("a", "[3]", "[0,8]")), 8, "shape [3] of F32 takes 12 bytes, but 8 bytes"),
            (
                format!("{{{}}}", f32s("a", "[9223372036854775807,9]", "[0,8]")),
                8,
                "takes more than 2^64 bytes",
            ),
            (format!("{{{}}}", f32s("a", "[2]", "[8,0]")), 8, "data at bytes 8..0: the end is before"),
            (
                format!("{{{},{}}}", f32s("a", "[2]", "[0,8]"), f32s("b", "[2]", "[4,12]")),
                12,
                "tensor \"b\": data begins at byte 4, expected 8: it overlaps",
            ),
            (
                format!("{{{},{}}}", f32s("a", "[2]", "[0,8]"), f32s("b", "[1]", "[12,16]")),
                16,
                "tensor \"b\": data begins at byte 12, expected 8: it leaves a hole",
            ),
            (format!("{{{}}}", f32s("a", "[2]", "[0,8]")), 12, "the tensors end at byte 8 of the data"),
            (
                format!("{{{},{}}}", f32s("a", "[2]", "[0,8]"), f32s("a", "[2]", "[0,8]")),
                8,
                "tensor \"a\" appears twice",
            ),
            (
                r#"{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}"#.into(),
                1,
                "dtype F8_E4M3 cannot be",
            ),
            (
                r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#.into(),
                4,
                "tensor \"a\": invalid value",
            ),
            (r#"{"a":{"dtype":"F32","shape":[1]}}"#.into(), 0, "missing field `data_offsets`"),
            (r#"{"__metadata__":[1]}"#.into(), 0, "expected a map"),
            ("[1,2]".into(), 0, "expected an object of tensors"),
            ("{".into(), 0, "EOF"),
        ];
        for (header, data, expected) in cases {
            let found = error(&header, data);
            assert!(found.starts_with("m.safetensors: ") && found.contains(expected), "{header}: {found}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow() {
        let deep = "[".repeat(10_000);
        for header in [
            deep.clone(),
            format!("{{\"a\":{deep}"),
            format!("{{\"a\":{{\"dtype\":{deep}"),
            format!("{{\"a\":{{\"shape\":{deep}"),
            format!("{{\"__metadata__\":{{\"a\":{deep}"),
        ] {
            assert!(error(&header, 0).starts_with("m.safetensors: header of the safetensors file: "));
        }
    }

    #[test]
    fn a_header_longer_than_the_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [u64::MAX.to_le_bytes().as_slice(), b"{}"].concat()).unwrap();
        let error = SafetensorsFile::open(file.path()).unwrap_err().to_string();
        let expected = "not a safetensors file: header length 18446744073709551615, expected at most 2";
        assert_eq!(error, format!("{}: {expected}", file.path().display()));
    }

    #[test]
    fn every_dtype_becomes_f32() {
        let mut out = [0.0];
        Dtype::F64.to_f32(&0.1f64.to_le_bytes(), &mut out);
        assert_eq!(out, [0.1f32]);
        Dtype::I64.to_f32(&(-3i64).to_le_bytes(), &mut out);
        assert_eq!(out, [-3.0]);
        Dtype::U16.to_f32(&65535u16.to_le_bytes(), &mut out);
        assert_eq!(out, [65535.0]);
        Dtype::BF16.to_f32(&[0x80, 0xbf], &mut out);
        assert_eq!(out, [-1.0]);
        Dtype::Bool.to_f32(&[2], &mut out);
        assert_eq!(out, [1.0]);
    }
}
