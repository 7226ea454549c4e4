//! GGUF files made by hand, byte by byte, also ones that no writer would make.

use std::path::{Path, PathBuf};

/// A GGUF in the making.
#[derive(Default)]
pub struct Gguf {
    pub big_endian: bool,
    metadata: Vec<u8>,
    tensors: Vec<u8>,
    data: Vec<u8>,
    counts: [u64; 2],
}

/// Bytes of a value in the order of the file.
macro_rules! put {
    ($gguf:expr, $to:ident, $($value:expr),+) => {
        $({
            let bytes = if $gguf.big_endian { $value.to_be_bytes() } else { $value.to_le_bytes() };
            $gguf.$to.extend(bytes);
        })+
    };
}

impl Gguf {
    /// An empty file that names an architecture.
    pub fn new() -> Gguf {
        let mut gguf = Gguf::default();
        gguf.string("general.architecture", "test");
        gguf
    }

    fn key(&mut self, key: &str, ty: u32) {
        self.counts[1] += 1;
        put!(self, metadata, key.len() as u64);
        self.metadata.extend(key.as_bytes());
        put!(self, metadata, ty);
    }

    pub fn u16(&mut self, key: &str, value: u16) {
        self.key(key, 2);
        put!(self, metadata, value);
    }

    pub fn u32(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        put!(self, metadata, value);
    }

    pub fn f32(&mut self, key: &str, value: f32) {
        self.key(key, 6);
        put!(self, metadata, value);
    }

    pub fn f32s(&mut self, key: &str, values: &[f32]) {
        self.key(key, 9);
        put!(self, metadata, 6u32, values.len() as u64);
        values.iter().for_each(|v| put!(self, metadata, v));
    }

    pub fn bool(&mut self, key: &str, value: bool) {
        self.key(key, 7);
        put!(self, metadata, u8::from(value));
    }

    pub fn f64(&mut self, key: &str, value: f64) {
        self.key(key, 12);
        put!(self, metadata, value);
    }

    pub fn string(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        put!(self, metadata, value.len() as u64);
        self.metadata.extend(value.as_bytes());
    }

    pub fn strings(&mut self, key: &str, values: &[&str]) {
        self.key(key, 9);
        put!(self, metadata, 8u32, values.len() as u64);
        for value in values {
            put!(self, metadata, value.len() as u64);
            self.metadata.extend(value.as_bytes());
        }
    }

    /// A tensor of a type id, with its bytes as they shall be in the file.
    pub fn tensor(&mut self, name: &str, shape: &[u64], ty: u32, bytes: &[u8]) {
        self.counts[0] += 1;
        put!(self, tensors, name.len() as u64);
        self.tensors.extend(name.as_bytes());
        put!(self, tensors, shape.len() as u32);
        shape.iter().for_each(|dim| put!(self, tensors, dim));
        put!(self, tensors, ty, self.data.len() as u64);
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    pub fn f32_tensor(&mut self, name: &str, shape: &[u64], values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensor(name, shape, 0, &bytes);
    }

    /// Writes the file into a directory.
    pub fn save(mut self, dir: &Path, name: &str) -> PathBuf {
        let head = std::mem::take(&mut self.metadata);
        self.metadata.extend(b"GGUF");
        put!(self, metadata, 3u32, self.counts[0], self.counts[1]);
        let mut file = self.metadata;
        file.extend([head, self.tensors].concat());
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(self.data);
        let path = dir.join(name);
        std::fs::write(&path, file).unwrap();
        path
    }
}
