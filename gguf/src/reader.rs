//! Parses the header of one GGUF: metadata and tensor records, every limit checked before memory is taken.

use std::collections::HashSet;

use crate::GgmlType;
use crate::error::Fault;
use crate::metadata::{self, Metadata, MetadataArray, MetadataValue, StringArray, number_types};
use crate::tensor::TensorInfo;

/// Names longer than this do not fit ggml's buffer of 64 bytes.
pub const MAX_TENSOR_NAME: usize = 63;
/// Dimensions of a tensor at most.
pub const MAX_DIMS: usize = 4;
/// Strings and arrays longer than this are refused whatever the file's size, as by ggml.
pub const MAX_LENGTH: u64 = 1 << 30;
/// Alignments beyond this only waste space; real files use 32, some 4096 or 65536.
pub const MAX_ALIGNMENT: u32 = 1 << 20;
/// Alignment when `general.alignment` is absent.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// What the header of a file says.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub version: u32,
    pub big_endian: bool,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
    pub alignment: u32,
    /// Where the tensor data begins.
    pub data_offset: u64,
}

/// Reads forward through the bytes; every read says what it is for.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: u64, what: impl FnOnce() -> String) -> Result<&'a [u8], Fault> {
        let left = (self.bytes.len() - self.at) as u64;
        if n > left {
            return Err(Fault::Truncated { at: self.at as u64, what: what(), needed: n, left });
        }
        let start = self.at;
        self.at += n as usize;
        Ok(&self.bytes[start..self.at])
    }

    fn array<const N: usize>(&mut self, what: impl FnOnce() -> String) -> Result<[u8; N], Fault> {
        let mut out: [u8; N] = self.take(N as u64, what)?.try_into().expect("taken at this length");
        if self.big_endian {
            out.reverse();
        }
        Ok(out)
    }

    fn u32(&mut self, what: impl FnOnce() -> String) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: impl FnOnce() -> String) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A count or length: `what` is "the length of …".
    fn length(&mut self, what: impl Fn() -> String) -> Result<u64, Fault> {
        let n = self.u64(&what)?;
        if n > MAX_LENGTH {
            return Err(Fault::value(what(), format!("at most {MAX_LENGTH}"), n));
        }
        Ok(n)
    }

    fn string(&mut self, what: impl Fn() -> String) -> Result<&'a str, Fault> {
        let n = self.length(|| format!("the length of {}", what()))?;
        let bytes = self.take(n, &what)?;
        std::str::from_utf8(bytes)
            .map_err(|e| Fault::value(what(), "UTF-8", format!("an invalid byte at {}", e.valid_up_to())))
    }

    fn bool(&mut self, what: impl FnOnce() -> String) -> Result<bool, Fault> {
        Ok(self.take(1, what)?[0] != 0)
    }
}

/// Parses a whole header. `bytes` is the file from its magic to its end.
pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Fault> {
    let mut c = Cursor { bytes, at: 0, big_endian: false };
    let magic: [u8; 4] = c.array(|| "the magic".to_owned())?;
    if magic != *b"GGUF" {
        return Err(Fault::Magic(magic));
    }
    let mut version = c.u32(|| "the version".to_owned())?;
    if version & 0xffff == 0 {
        c.big_endian = true;
        version = version.swap_bytes();
    }
    if !(2..=3).contains(&version) {
        return Err(Fault::Version(version));
    }
    let n_tensors = count(&mut c, "the tensor count")?;
    let n_kv = count(&mut c, "the metadata count")?;
    let metadata = parse_metadata(&mut c, n_kv)?;
    let alignment = alignment(&metadata)?;
    let mut tensors = parse_tensors(&mut c, n_tensors)?;
    let header_end = c.at as u64;
    let data_offset =
        if tensors.is_empty() { header_end } else { header_end.next_multiple_of(u64::from(alignment)) };
    place_tensors(&mut tensors, alignment, data_offset, bytes.len() as u64)?;
    Ok(Header { version, big_endian: c.big_endian, metadata, tensors, alignment, data_offset })
}

fn count(c: &mut Cursor<'_>, what: &str) -> Result<u64, Fault> {
    let n = c.u64(|| what.to_owned())?;
    // A record takes at least 12 bytes, so a larger count cannot be true; nothing is reserved for it.
    let limit = (c.bytes.len() - c.at) as u64 / 12;
    if n > limit {
        return Err(Fault::value(what, format!("at most {limit}, which is what the file could hold"), n));
    }
    Ok(n)
}

fn parse_metadata(c: &mut Cursor<'_>, n_kv: u64) -> Result<Metadata, Fault> {
    let mut metadata = Metadata::default();
    for i in 0..n_kv {
        let key = c.string(|| format!("metadata key {i}"))?;
        if key.is_empty() {
            return Err(Fault::value(format!("metadata key {i}"), "a name", "an empty string"));
        }
        let value = parse_value(c, key)?;
        if metadata.set(key, value).is_some() {
            return Err(Fault::Duplicate { what: "metadata key", name: key.to_owned() });
        }
    }
    Ok(metadata)
}

fn parse_value(c: &mut Cursor<'_>, key: &str) -> Result<MetadataValue, Fault> {
    let id = c.u32(|| format!("the type of metadata key \"{key}\""))?;
    let what = || format!("the value of metadata key \"{key}\"");
    macro_rules! numbers {
        ($(($v:ident, $t:ty, $id:literal, $name:literal)),*) => {
            match id {
                $($id => MetadataValue::$v(<$t>::from_le_bytes(c.array(what)?)),)*
                metadata::BOOL => MetadataValue::Bool(c.bool(what)?),
                metadata::STRING => MetadataValue::String(c.string(what)?.to_owned()),
                metadata::ARRAY => MetadataValue::Array(parse_array(c, key)?),
                _ => {
                    let what = format!("the type of metadata key \"{key}\"");
                    return Err(Fault::value(what, "0 to 12", id));
                }
            }
        };
    }
    Ok(number_types!(numbers))
}

fn parse_array(c: &mut Cursor<'_>, key: &str) -> Result<MetadataArray, Fault> {
    let type_field = || format!("the element type of metadata key \"{key}\"");
    let id = c.u32(type_field)?;
    let n = c.length(|| format!("the length of the array of metadata key \"{key}\""))?;
    let what = || format!("the array of {n} elements of metadata key \"{key}\"");
    macro_rules! numbers {
        ($(($v:ident, $t:ty, $id:literal, $name:literal)),*) => {
            match id {
                $($id => {
                    const SIZE: usize = size_of::<$t>();
                    let bytes = c.take(n * SIZE as u64, what)?;
                    let (elements, _) = bytes.as_chunks::<SIZE>();
                    let read = if c.big_endian { <$t>::from_be_bytes } else { <$t>::from_le_bytes };
                    MetadataArray::$v(elements.iter().map(|&e| read(e)).collect())
                })*
                metadata::BOOL => MetadataArray::Bool(c.take(n, what)?.iter().map(|&b| b != 0).collect()),
                metadata::STRING => MetadataArray::String(parse_strings(c, key, n)?),
                metadata::ARRAY => {
                    return Err(Fault::value(type_field(), "no array inside an array", "an array"));
                }
                _ => return Err(Fault::value(type_field(), "0 to 12", id)),
            }
        };
    }
    Ok(number_types!(numbers))
}

fn parse_strings(c: &mut Cursor<'_>, key: &str, n: u64) -> Result<StringArray, Fault> {
    let left = (c.bytes.len() - c.at) as u64;
    if n * 8 > left {
        let what = format!("the array of {n} strings of metadata key \"{key}\"");
        return Err(Fault::Truncated { at: c.at as u64, what, needed: n * 8, left });
    }
    let mut strings = StringArray::default();
    for i in 0..n {
        strings.push(c.string(|| format!("string {i} of metadata key \"{key}\""))?);
    }
    Ok(strings)
}

pub(crate) fn alignment(metadata: &Metadata) -> Result<u32, Fault> {
    const KEY: &str = "general.alignment";
    let wrong = |found: String| {
        let expected = format!("u32, a power of two up to {MAX_ALIGNMENT}");
        Fault::value(format!("metadata key \"{KEY}\""), expected, found)
    };
    match metadata.get(KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&MetadataValue::U32(n)) if n.is_power_of_two() && n <= MAX_ALIGNMENT => Ok(n),
        Some(MetadataValue::U32(n)) => Err(wrong(n.to_string())),
        Some(other) => Err(wrong(other.type_name())),
    }
}

fn parse_tensors(c: &mut Cursor<'_>, n: u64) -> Result<Vec<TensorInfo>, Fault> {
    let mut tensors = Vec::new();
    let mut names = HashSet::new();
    for i in 0..n {
        let name = c.string(|| format!("the name of tensor {i}"))?;
        if name.len() > MAX_TENSOR_NAME {
            let expected = format!("at most {MAX_TENSOR_NAME} bytes");
            return Err(Fault::value(
                format!("the name of tensor {i}"),
                expected,
                format!("{} bytes", name.len()),
            ));
        }
        if !names.insert(name) {
            return Err(Fault::Duplicate { what: "tensor", name: name.to_owned() });
        }
        tensors.push(parse_tensor(c, name)?);
    }
    Ok(tensors)
}

fn parse_tensor(c: &mut Cursor<'_>, name: &str) -> Result<TensorInfo, Fault> {
    let of = |field: &str| format!("{field} of tensor \"{name}\"");
    let n_dims = c.u32(|| of("the number of dimensions"))?;
    if n_dims as usize > MAX_DIMS {
        return Err(Fault::value(of("the number of dimensions"), format!("at most {MAX_DIMS}"), n_dims));
    }
    let mut shape = Vec::with_capacity(MAX_DIMS);
    for i in 0..n_dims {
        let dim = c.u64(|| of(&format!("dimension {i}")))?;
        if dim > i64::MAX as u64 {
            return Err(Fault::value(of(&format!("dimension {i}")), "0 to 2^63 - 1", dim));
        }
        shape.push(dim);
    }
    let id = c.u32(|| of("the type"))?;
    let ty = GgmlType::from_id(id).ok_or_else(|| {
        Fault::value(of("the type"), "a ggml type id (0 to 42, without the removed ones)", id)
    })?;
    let offset = c.u64(|| of("the offset"))?;
    let n_elements =
        shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim)).filter(|&n| n <= i64::MAX as u64);
    let Some(n_elements) = n_elements else {
        return Err(Fault::value(of("the shape"), "fewer than 2^63 elements", format!("{shape:?}")));
    };
    let row = shape.first().copied().unwrap_or(1);
    if row % ty.block_size() as u64 != 0 {
        let expected = format!("a multiple of {} for {ty}", ty.block_size());
        return Err(Fault::value(of("the row length"), expected, row));
    }
    let n_bytes = (n_elements / ty.block_size() as u64).checked_mul(ty.block_bytes() as u64);
    let Some(n_bytes) = n_bytes else {
        return Err(Fault::value(of("the shape"), "fewer than 2^64 bytes", format!("{shape:?}")));
    };
    Ok(TensorInfo { name: name.to_owned(), shape, ty, offset, n_bytes, shard: 0 })
}

/// Checks that the tensors follow each other without gap or overlap and end inside the file, and turns
/// their offsets into positions in the file.
fn place_tensors(
    tensors: &mut [TensorInfo],
    alignment: u32,
    data_offset: u64,
    file_len: u64,
) -> Result<(), Fault> {
    let mut expected = 0u64;
    for tensor in tensors {
        let of = |field: &str| format!("{field} of tensor \"{}\"", tensor.name);
        if tensor.offset != expected {
            let rule = format!("{expected}, where the tensor before it ends");
            return Err(Fault::value(of("the offset"), rule, tensor.offset));
        }
        let end =
            (expected.checked_add(tensor.n_bytes)).filter(|end| data_offset.checked_add(*end).is_some());
        let Some(end) = end else {
            return Err(Fault::value(of("the size"), "an end below 2^64", tensor.n_bytes));
        };
        if data_offset + end > file_len {
            return Err(Fault::Truncated {
                at: data_offset + expected,
                what: of("the data"),
                needed: tensor.n_bytes,
                left: file_len.saturating_sub(data_offset + expected),
            });
        }
        tensor.offset = data_offset + expected;
        // Cannot overflow: the end lies inside the file.
        expected = end.next_multiple_of(u64::from(alignment));
    }
    Ok(())
}
