//! Metadata values and typed access to them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Error;

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum MetadataValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
    /// An array; the format allows no arrays of arrays.
    Array(MetadataArray),
}

/// An array of metadata values, all of one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum MetadataArray {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(StringArray),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Strings, one after the other in one buffer: a vocabulary is two allocations, not 150,000. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringArray {
    text: Arc<String>,
    ends: Arc<Vec<usize>>,
}

impl StringArray {
    /// Appends a string.
    pub fn push(&mut self, s: &str) {
        let text = Arc::make_mut(&mut self.text);
        text.push_str(s);
        Arc::make_mut(&mut self.ends).push(text.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String number `i`.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|i| self.get(i).expect("i is below the length"))
    }
}

impl<S: AsRef<str>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> StringArray {
        let mut array = StringArray::default();
        strings.into_iter().for_each(|s| array.push(s.as_ref()));
        array
    }
}

/// Calls `$apply!` once with all number types: `(variant, Rust type, GGUF id, name)`.
macro_rules! number_types {
    ($apply:ident) => {
        $apply! {
            (U8, u8, 0, "u8"), (I8, i8, 1, "i8"), (U16, u16, 2, "u16"), (I16, i16, 3, "i16"),
            (U32, u32, 4, "u32"), (I32, i32, 5, "i32"), (F32, f32, 6, "f32"),
            (U64, u64, 10, "u64"), (I64, i64, 11, "i64"), (F64, f64, 12, "f64")
        }
    };
}
pub(crate) use number_types;

/// GGUF type id of booleans.
pub(crate) const BOOL: u32 = 7;
/// GGUF type id of strings.
pub(crate) const STRING: u32 = 8;
/// GGUF type id of arrays.
pub(crate) const ARRAY: u32 = 9;

impl MetadataValue {
    /// The type's id in the file.
    pub fn type_id(&self) -> u32 {
        macro_rules! ids {
            ($(($v:ident, $t:ty, $id:literal, $name:literal)),*) => {
                match self {
                    $(MetadataValue::$v(_) => $id,)*
                    MetadataValue::Bool(_) => BOOL,
                    MetadataValue::String(_) => STRING,
                    MetadataValue::Array(_) => ARRAY,
                }
            };
        }
        number_types!(ids)
    }

    /// The type's name, e.g. `u32` or `array of string`.
    pub fn type_name(&self) -> String {
        match self {
            MetadataValue::Array(array) => format!("array of {}", type_name(array.type_id())),
            _ => type_name(self.type_id()).to_owned(),
        }
    }

    /// True for arrays.
    pub fn is_array(&self) -> bool {
        matches!(self, MetadataValue::Array(_))
    }

    /// The value as a signed integer, if it is an integer of any width.
    pub fn as_integer(&self) -> Option<i128> {
        use MetadataValue::*;
        Some(match *self {
            U8(v) => v.into(),
            I8(v) => v.into(),
            U16(v) => v.into(),
            I16(v) => v.into(),
            U32(v) => v.into(),
            I32(v) => v.into(),
            U64(v) => v.into(),
            I64(v) => v.into(),
            _ => return None,
        })
    }
}

impl MetadataArray {
    /// The element type's id in the file.
    pub fn type_id(&self) -> u32 {
        macro_rules! ids {
            ($(($v:ident, $t:ty, $id:literal, $name:literal)),*) => {
                match self {
                    $(MetadataArray::$v(_) => $id,)*
                    MetadataArray::Bool(_) => BOOL,
                    MetadataArray::String(_) => STRING,
                }
            };
        }
        number_types!(ids)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        macro_rules! lens {
            ($(($v:ident, $t:ty, $id:literal, $name:literal)),*) => {
                match self {
                    $(MetadataArray::$v(a) => a.len(),)*
                    MetadataArray::Bool(a) => a.len(),
                    MetadataArray::String(a) => a.len(),
                }
            };
        }
        number_types!(lens)
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i` as a value of its own.
    pub fn get(&self, i: usize) -> Option<MetadataValue> {
        macro_rules! gets {
            ($(($v:ident, $t:ty, $id:literal, $name:literal)),*) => {
                match self {
                    $(MetadataArray::$v(a) => a.get(i).copied().map(MetadataValue::$v),)*
                    MetadataArray::Bool(a) => a.get(i).copied().map(MetadataValue::Bool),
                    MetadataArray::String(a) => a.get(i).map(|s| MetadataValue::String(s.to_owned())),
                }
            };
        }
        number_types!(gets)
    }

    /// The elements as values.
    pub fn iter(&self) -> impl Iterator<Item = MetadataValue> + '_ {
        (0..self.len()).map_while(|i| self.get(i))
    }
}

/// The name of a value type id.
pub(crate) fn type_name(id: u32) -> &'static str {
    macro_rules! names {
        ($(($v:ident, $t:ty, $id:literal, $name:literal)),*) => {
            match id {
                $($id => $name,)*
                BOOL => "bool",
                STRING => "string",
                ARRAY => "array",
                _ => "unknown",
            }
        };
    }
    number_types!(names)
}

/// All metadata of a file, in file order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, MetadataValue)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Sets a key: a new one is appended, an existing one keeps its place. Returns the old value.
    pub fn set(&mut self, key: &str, value: MetadataValue) -> Option<MetadataValue> {
        if let Some(&i) = self.index.get(key) {
            return Some(std::mem::replace(&mut self.entries[i].1, value));
        }
        self.index.insert(key.to_owned(), self.entries.len());
        self.entries.push((key.to_owned(), value));
        None
    }

    /// Takes a key out. Those behind it move up.
    pub fn remove(&mut self, key: &str) -> Option<MetadataValue> {
        let i = self.index.remove(key)?;
        self.index.values_mut().filter(|at| **at > i).for_each(|at| *at -= 1);
        Some(self.entries.remove(i).1)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &MetadataValue)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// An integer of any width that fits u32.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.typed(key, "an integer in the range of u32", |v| v.as_integer()?.try_into().ok())
    }

    /// An integer of any width that fits u64.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.typed(key, "an integer in the range of u64", |v| v.as_integer()?.try_into().ok())
    }

    /// An integer of any width that fits i32.
    pub fn i32(&self, key: &str) -> Result<Option<i32>, Error> {
        self.typed(key, "an integer in the range of i32", |v| v.as_integer()?.try_into().ok())
    }

    /// A floating-point number; f64 is rounded.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "f32", |v| match *v {
            MetadataValue::F32(v) => Some(v),
            MetadataValue::F64(v) => Some(v as f32),
            _ => None,
        })
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "bool", |v| if let MetadataValue::Bool(v) = v { Some(*v) } else { None })
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.typed(key, "string", |v| if let MetadataValue::String(v) = v { Some(v.as_str()) } else { None })
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&StringArray>, Error> {
        self.typed(key, "array of string", |v| match v {
            MetadataValue::Array(MetadataArray::String(v)) => Some(v),
            _ => None,
        })
    }

    /// An array of f32.
    pub fn f32_array(&self, key: &str) -> Result<Option<&[f32]>, Error> {
        self.typed(key, "array of f32", |v| match v {
            MetadataValue::Array(MetadataArray::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of i32.
    pub fn i32_array(&self, key: &str) -> Result<Option<&[i32]>, Error> {
        self.typed(key, "array of i32", |v| match v {
            MetadataValue::Array(MetadataArray::I32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// A required [`Metadata::u32`].
    pub fn require_u32(&self, key: &str) -> Result<u32, Error> {
        required(key, "an integer", self.u32(key)?)
    }

    /// A required [`Metadata::f32`].
    pub fn require_f32(&self, key: &str) -> Result<f32, Error> {
        required(key, "f32", self.f32(key)?)
    }

    /// A required [`Metadata::str`].
    pub fn require_str(&self, key: &str) -> Result<&str, Error> {
        required(key, "string", self.str(key)?)
    }

    /// One integer per layer: an array of exactly `n_layer`, or one number for all.
    pub fn u32_per_layer(&self, key: &str, n_layer: usize) -> Result<Option<Vec<u32>>, Error> {
        self.per_layer(key, n_layer, "an integer in the range of u32", |v| v.as_integer()?.try_into().ok())
    }

    /// One truth value per layer: an array of exactly `n_layer`, or one for all.
    pub fn bool_per_layer(&self, key: &str, n_layer: usize) -> Result<Option<Vec<bool>>, Error> {
        self.per_layer(key, n_layer, "bool", |v| match *v {
            MetadataValue::Bool(v) => Some(v),
            _ => None,
        })
    }

    fn per_layer<T: Clone>(
        &self,
        key: &str,
        n_layer: usize,
        expected: &str,
        read: impl Fn(&MetadataValue) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Error> {
        let wrong = |found: String| Error::WrongType {
            key: key.to_owned(),
            expected: format!("{expected}, or an array of {n_layer} of them"),
            found,
        };
        match self.get(key) {
            None => Ok(None),
            Some(value @ MetadataValue::Array(array)) => {
                if array.len() != n_layer {
                    return Err(wrong(format!("{} of {}", value.type_name(), array.len())));
                }
                let values: Option<Vec<T>> = array.iter().map(|v| read(&v)).collect();
                values.map(Some).ok_or_else(|| wrong(describe(value)))
            }
            Some(value) => match read(value) {
                Some(v) => Ok(Some(vec![v; n_layer])),
                None => Err(wrong(describe(value))),
            },
        }
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a MetadataValue) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| Error::WrongType {
            key: key.to_owned(),
            expected: expected.to_owned(),
            found: describe(value),
        })
    }
}

/// Type and, for single numbers, the value: what an error should show.
fn describe(value: &MetadataValue) -> String {
    match value.as_integer() {
        Some(v) => format!("{} {v}", value.type_name()),
        None => value.type_name(),
    }
}

fn required<T>(key: &str, expected: &'static str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| Error::MissingKey { key: key.to_owned(), expected })
}
