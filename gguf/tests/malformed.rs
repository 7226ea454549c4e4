//! Broken files: each case has one fault, made from a good file, and the error that names it.

use proptest::prelude::*;
use qgguf_gguf::{GgufFile, Metadata, MetadataArray, MetadataValue};

/// A small GGUF as its parts, so that a case can break one of them.
#[derive(Clone)]
struct Parts {
    magic: Vec<u8>,
    version: u32,
    n_tensors: Option<u64>,
    n_kv: Option<u64>,
    kv: Vec<Pair>,
    tensors: Vec<Record>,
    alignment: u64,
    data: Option<usize>,
}

/// A metadata key with its value as bytes.
#[derive(Clone)]
struct Pair {
    key: Vec<u8>,
    /// The length to claim, if not that of the key.
    key_len: Option<u64>,
    ty: u32,
    payload: Vec<u8>,
}

fn pair(key: &str, ty: u32, payload: Vec<u8>) -> Pair {
    Pair { key: key.into(), key_len: None, ty, payload }
}

#[derive(Clone)]
struct Record {
    name: Vec<u8>,
    name_len: Option<u64>,
    n_dims: Option<u32>,
    dims: Vec<u64>,
    ty: u32,
    offset: u64,
}

fn record(name: &str, dims: &[u64], ty: u32, offset: u64) -> Record {
    Record { name: name.into(), name_len: None, n_dims: None, dims: dims.to_vec(), ty, offset }
}

fn string(s: &str) -> Vec<u8> {
    let mut out = (s.len() as u64).to_le_bytes().to_vec();
    out.extend(s.as_bytes());
    out
}

fn array(ty: u32, n: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = ty.to_le_bytes().to_vec();
    out.extend(n.to_le_bytes());
    out.extend(payload);
    out
}

impl Parts {
    /// Two keys; a of 4 f32 (16 bytes, padded to 32) and b of 64 q8_0 weights (68 bytes, padded to 96).
    fn good() -> Parts {
        Parts {
            magic: b"GGUF".to_vec(),
            version: 3,
            n_tensors: None,
            n_kv: None,
            kv: vec![
                pair("general.architecture", 8, string("llama")),
                pair("answer", 4, 42u32.to_le_bytes().to_vec()),
            ],
            tensors: vec![record("a", &[4], 0, 0), record("b", &[32, 2], 8, 32)],
            alignment: 32,
            data: None,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.clone();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_kv.unwrap_or(self.kv.len() as u64).to_le_bytes());
        for Pair { key, key_len, ty, payload } in &self.kv {
            out.extend(key_len.unwrap_or(key.len() as u64).to_le_bytes());
            out.extend(key);
            out.extend(ty.to_le_bytes());
            out.extend(payload);
        }
        for t in &self.tensors {
            out.extend(t.name_len.unwrap_or(t.name.len() as u64).to_le_bytes());
            out.extend(&t.name);
            out.extend(t.n_dims.unwrap_or(t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(t.ty.to_le_bytes());
            out.extend(t.offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        out.resize(out.len() + self.data.unwrap_or(32 + 96), 0);
        out
    }
}

fn error_of(bytes: Vec<u8>) -> String {
    GgufFile::from_bytes("bad.gguf", bytes).err().expect("the file must be refused").to_string()
}

/// The good file with one change is refused with exactly this text.
fn refused(change: impl FnOnce(&mut Parts), expected: &str) {
    let mut parts = Parts::good();
    change(&mut parts);
    assert_eq!(error_of(parts.bytes()), format!("bad.gguf: {expected}"));
}

#[test]
fn the_good_file_is_good() {
    let file = GgufFile::from_bytes("good.gguf", Parts::good().bytes()).unwrap();
    assert_eq!(file.architecture().unwrap(), "llama");
    assert_eq!(file.metadata().u32("answer").unwrap(), Some(42));
    assert_eq!(file.tensors().len(), 2);
    assert_eq!(file.tensor("b").unwrap().bytes().len(), 68);
}

#[test]
fn headers() {
    refused(
        |p| p.magic = b"GGML".to_vec(),
        "not a GGUF file: expected the magic \"GGUF\", found [47, 47, 4d, 4c]",
    );
    refused(
        |p| p.magic = b"PK\x03\x04".to_vec(),
        "not a GGUF file: expected the magic \"GGUF\", found [50, 4b, 03, 04]",
    );
    refused(
        |p| p.version = 1,
        "GGUF version 1 is not supported (supported: 2 and 3); version 1 has 32-bit counts and no current tool reads it",
    );
    refused(|p| p.version = 0, "GGUF version 0 is not supported (supported: 2 and 3)");
    refused(|p| p.version = 4, "GGUF version 4 is not supported (supported: 2 and 3)");
    refused(|p| p.version = u32::MAX, "GGUF version 4294967295 is not supported (supported: 2 and 3)");
    refused(|p| p.version = 4 << 24, "GGUF version 4 is not supported (supported: 2 and 3)");
    let tensors = |n: u64, text: &str| {
        let expected =
            format!("the tensor count: expected at most 25, which is what the file could hold, found {text}");
        refused(|p| p.n_tensors = Some(n), &expected);
    };
    tensors(1 << 60, "1152921504606846976");
    tensors(u64::MAX, "18446744073709551615");
    let keys = |n: u64, text: &str| {
        let expected = format!(
            "the metadata count: expected at most 24, which is what the file could hold, found {text}"
        );
        refused(|p| p.n_kv = Some(n), &expected);
    };
    keys(1 << 40, "1099511627776");
    keys(u64::MAX, "18446744073709551615");
}

#[test]
fn counts_that_promise_too_much() {
    refused(
        |p| p.n_kv = Some(3),
        "the length of the name of tensor 1: expected at most 1073741824, found 10234101760",
    );
    refused(
        |p| p.n_kv = Some(1),
        "the shape of tensor \"answer\": expected fewer than 2^63 elements, found [4294967338, 1516123455488, 1024, 0]",
    );
    refused(
        |p| p.n_tensors = Some(3),
        "the offset of tensor \"\": expected 128, where the tensor before it ends, found 0",
    );
}

#[test]
fn keys() {
    refused(|p| p.kv[1].key = Vec::new(), "metadata key 1: expected a name, found an empty string");
    refused(
        |p| p.kv[1].key = b"general.architecture".to_vec(),
        "metadata key \"general.architecture\" appears twice",
    );
    refused(|p| p.kv[1].key = vec![b'x', 0xff], "metadata key 1: expected UTF-8, found an invalid byte at 1");
    refused(
        |p| p.kv[0].key_len = Some(1 << 31),
        "the length of metadata key 0: expected at most 1073741824, found 2147483648",
    );
    refused(
        |p| p.kv[0].key_len = Some(u64::MAX),
        "the length of metadata key 0: expected at most 1073741824, found 18446744073709551615",
    );
    refused(
        |p| p.kv[0].key_len = Some(1 << 20),
        "truncated at byte 32: metadata key 0 needs 1048576 bytes, 288 are left",
    );
}

#[test]
fn values() {
    let with = |ty: u32, payload: Vec<u8>, expected: &str| {
        refused(|p| p.kv[1] = pair("answer", ty, payload), expected)
    };
    with(13, vec![0; 4], "the type of metadata key \"answer\": expected 0 to 12, found 13");
    with(u32::MAX, vec![0; 4], "the type of metadata key \"answer\": expected 0 to 12, found 4294967295");
    with(
        8,
        u64::MAX.to_le_bytes().to_vec(),
        "the length of the value of metadata key \"answer\": expected at most 1073741824, found 18446744073709551615",
    );
    with(
        8,
        (1u64 << 30).to_le_bytes().to_vec(),
        "truncated at byte 95: the value of metadata key \"answer\" needs 1073741824 bytes, 225 are left",
    );
    with(
        8,
        [2u64.to_le_bytes().to_vec(), vec![0xc3, 0x28]].concat(),
        "the value of metadata key \"answer\": expected UTF-8, found an invalid byte at 0",
    );
    with(
        9,
        array(9, 1, &array(4, 0, &[])),
        "the element type of metadata key \"answer\": expected no array inside an array, found an array",
    );
    with(9, array(13, 1, &[0; 8]), "the element type of metadata key \"answer\": expected 0 to 12, found 13");
    with(
        9,
        array(4, u64::MAX, &[]),
        "the length of the array of metadata key \"answer\": expected at most 1073741824, found 18446744073709551615",
    );
    with(
        9,
        array(12, 1 << 30, &[]),
        "truncated at byte 99: the array of 1073741824 elements of metadata key \"answer\" needs 8589934592 bytes, 221 are left",
    );
    with(
        9,
        array(0, 1 << 20, &[]),
        "truncated at byte 99: the array of 1048576 elements of metadata key \"answer\" needs 1048576 bytes, 221 are left",
    );
    with(
        9,
        array(7, 1 << 20, &[]),
        "truncated at byte 99: the array of 1048576 elements of metadata key \"answer\" needs 1048576 bytes, 221 are left",
    );
    with(
        9,
        array(8, 1 << 30, &[]),
        "truncated at byte 99: the array of 1073741824 strings of metadata key \"answer\" needs 8589934592 bytes, 221 are left",
    );
    with(
        9,
        array(8, 1, &(1u64 << 20).to_le_bytes()),
        "truncated at byte 107: string 0 of metadata key \"answer\" needs 1048576 bytes, 213 are left",
    );
    with(
        9,
        array(8, 1, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff]),
        "string 0 of metadata key \"answer\": expected UTF-8, found an invalid byte at 0",
    );
}

#[test]
fn alignments() {
    let with = |ty: u32, payload: Vec<u8>, found: &str| {
        let kv = pair("general.alignment", ty, payload);
        let expected = format!(
            "metadata key \"general.alignment\": expected u32, a power of two up to 1048576, found {found}"
        );
        refused(|p| p.kv.push(kv), &expected);
    };
    with(4, 0u32.to_le_bytes().to_vec(), "0");
    with(4, 3u32.to_le_bytes().to_vec(), "3");
    with(4, 48u32.to_le_bytes().to_vec(), "48");
    with(4, (1u32 << 21).to_le_bytes().to_vec(), "2097152");
    with(4, u32::MAX.to_le_bytes().to_vec(), "4294967295");
    with(5, 32i32.to_le_bytes().to_vec(), "i32");
    with(10, 32u64.to_le_bytes().to_vec(), "u64");
    with(8, string("32"), "string");
}

#[test]
fn tensor_records() {
    refused(|p| p.tensors[1].name = b"a".to_vec(), "tensor \"a\" appears twice");
    refused(
        |p| p.tensors[0].name = vec![b'n'; 64],
        "the name of tensor 0: expected at most 63 bytes, found 64 bytes",
    );
    refused(
        |p| p.tensors[0].name_len = Some(1 << 40),
        "the length of the name of tensor 0: expected at most 1073741824, found 1099511627776",
    );
    refused(
        |p| p.tensors[0].name = vec![0x80],
        "the name of tensor 0: expected UTF-8, found an invalid byte at 0",
    );
    refused(
        |p| p.tensors[0].n_dims = Some(5),
        "the number of dimensions of tensor \"a\": expected at most 4, found 5",
    );
    refused(
        |p| p.tensors[0].n_dims = Some(u32::MAX),
        "the number of dimensions of tensor \"a\": expected at most 4, found 4294967295",
    );
    refused(
        |p| p.tensors[0].dims = vec![1 << 63],
        "dimension 0 of tensor \"a\": expected 0 to 2^63 - 1, found 9223372036854775808",
    );
    refused(
        |p| p.tensors[0].dims = vec![1 << 40, 1 << 40],
        "the shape of tensor \"a\": expected fewer than 2^63 elements, found [1099511627776, 1099511627776]",
    );
    refused(
        |p| p.tensors[0].dims = vec![1 << 62],
        "the shape of tensor \"a\": expected fewer than 2^64 bytes, found [4611686018427387904]",
    );
    for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, u32::MAX] {
        let expected = format!(
            "the type of tensor \"a\": expected a ggml type id (0 to 42, without the removed ones), found {id}"
        );
        refused(|p| p.tensors[0].ty = id, &expected);
    }
    refused(
        |p| p.tensors[1].dims = vec![33, 2],
        "the row length of tensor \"b\": expected a multiple of 32 for q8_0, found 33",
    );
    refused(
        |p| (p.tensors[1].dims, p.tensors[1].ty) = (vec![128], 12),
        "the row length of tensor \"b\": expected a multiple of 256 for q4_K, found 128",
    );
}

#[test]
fn tensor_places() {
    // Overlapping, unaligned, with a gap, beyond the end, and so far that sums overflow.
    for offset in [0, 16, 33, 64, 1 << 20, u64::MAX - 31] {
        let expected = format!(
            "the offset of tensor \"b\": expected 32, where the tensor before it ends, found {offset}"
        );
        refused(|p| p.tensors[1].offset = offset, &expected);
    }
    refused(
        |p| p.tensors[0].offset = 32,
        "the offset of tensor \"a\": expected 0, where the tensor before it ends, found 32",
    );
    refused(
        |p| p.tensors[1].dims = vec![32, 1 << 50],
        "truncated at byte 224: the data of tensor \"b\" needs 38280596832649216 bytes, 96 are left",
    );
    refused(
        |p| p.tensors[0].dims = vec![(1 << 61) - 1],
        "truncated at byte 192: the data of tensor \"a\" needs 9223372036854775804 bytes, 128 are left",
    );
}

#[test]
fn data_that_ends_too_early() {
    refused(
        |p| p.data = Some(32 + 67),
        "truncated at byte 224: the data of tensor \"b\" needs 68 bytes, 67 are left",
    );
    refused(
        |p| p.data = Some(32),
        "truncated at byte 224: the data of tensor \"b\" needs 68 bytes, 0 are left",
    );
    refused(
        |p| p.data = Some(15),
        "truncated at byte 192: the data of tensor \"a\" needs 16 bytes, 15 are left",
    );
    refused(
        |p| p.data = Some(0),
        "truncated at byte 192: the data of tensor \"a\" needs 16 bytes, 0 are left",
    );
    // The padding after the last tensor may be missing, as for llama.cpp.
    let parts = Parts { data: Some(32 + 68), ..Parts::good() };
    assert!(GgufFile::from_bytes("good.gguf", parts.bytes()).is_ok());
}

#[test]
fn empty_and_tiny_files() {
    assert_eq!(error_of(Vec::new()), "bad.gguf: truncated at byte 0: the magic needs 4 bytes, 0 are left");
    assert_eq!(
        error_of(b"GGU".to_vec()),
        "bad.gguf: truncated at byte 0: the magic needs 4 bytes, 3 are left"
    );
    assert_eq!(
        error_of(b"GGUF".to_vec()),
        "bad.gguf: truncated at byte 4: the version needs 4 bytes, 0 are left"
    );
}

#[test]
fn a_file_cut_anywhere_is_refused_by_what_is_missing() {
    let whole = Parts::good().bytes();
    let needed = 192 + 32 + 68;
    for n in 0..needed {
        let error = error_of(whole[..n].to_vec());
        assert!(
            error.contains("truncated") || error.contains("which is what the file could hold"),
            "{n}: {error}"
        );
    }
}

#[test]
fn files_with_every_type_of_value_open_whole_and_not_cut() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/reader");
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let open = |bytes: &[u8]| GgufFile::from_bytes("seed.gguf", bytes.to_vec());
    let seeds = ["v3.gguf", "v2.gguf", "v3-big-endian.gguf"].map(read);
    let files = seeds.each_ref().map(|seed| open(seed).unwrap());
    assert_eq!(files.each_ref().map(|f| (f.version(), f.big_endian())), [(3, false), (2, false), (3, true)]);
    for (file, seed) in files.iter().zip(&seeds) {
        // Version and byte order change no value and no place.
        assert_eq!((file.metadata(), file.tensors()), (files[0].metadata(), files[0].tensors()));
        assert_eq!((file.metadata().len(), file.tensors().len()), (25, 5));
        let last = file.tensors().last().unwrap();
        let needed = (last.offset + last.n_bytes) as usize;
        for n in 0..needed {
            let error = open(&seed[..n]).err().unwrap_or_else(|| panic!("cut to {n} bytes")).to_string();
            assert!(error.contains("truncated") || error.contains("the file could hold"), "{n}: {error}");
        }
        assert!(open(&seed[..needed]).is_ok(), "only padding is missing");
    }
}

#[test]
fn big_endian_files_can_be_looked_at_but_not_used() {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_be_bytes());
    out.extend(1u64.to_be_bytes());
    out.extend(1u64.to_be_bytes());
    out.extend(3u64.to_be_bytes());
    out.extend(b"key");
    out.extend(9u32.to_be_bytes());
    out.extend(3u32.to_be_bytes());
    out.extend(2u64.to_be_bytes());
    out.extend((-2i16).to_be_bytes());
    out.extend(700i16.to_be_bytes());
    out.extend(1u64.to_be_bytes());
    out.extend(b"t");
    out.extend(1u32.to_be_bytes());
    out.extend(2u64.to_be_bytes());
    out.extend(0u32.to_be_bytes());
    out.extend(0u64.to_be_bytes());
    out.resize(out.len().next_multiple_of(32) + 8, 0);
    let file = GgufFile::from_bytes("be.gguf", out).unwrap();
    assert!(file.big_endian());
    assert_eq!(file.metadata().get("key"), Some(&MetadataValue::Array(MetadataArray::I16(vec![-2, 700]))));
    let error = file.require_tensor("t").unwrap_err().to_string();
    assert_eq!(error, "tensor \"t\" is stored big-endian, which can be inspected but not used");
}

#[test]
fn metadata_of_another_type_names_key_and_types() {
    let mut m = Metadata::default();
    m.set("u8", MetadataValue::U8(7));
    m.set("negative", MetadataValue::I64(-1));
    m.set("text", MetadataValue::String("x".into()));
    m.set("list", MetadataValue::Array(MetadataArray::I32(vec![1, 2])));
    assert_eq!(m.u32("u8").unwrap(), Some(7));
    assert_eq!(m.u32_per_layer("u8", 3).unwrap(), Some(vec![7; 3]));
    assert_eq!(m.u32_per_layer("list", 2).unwrap(), Some(vec![1, 2]));
    assert_eq!(m.u32("absent").unwrap(), None);
    let text = |e: qgguf_gguf::Error| e.to_string();
    assert_eq!(
        text(m.u32("text").unwrap_err()),
        "metadata key \"text\": expected an integer in the range of u32, found string"
    );
    assert_eq!(
        text(m.u32("negative").unwrap_err()),
        "metadata key \"negative\": expected an integer in the range of u32, found i64 -1"
    );
    assert_eq!(text(m.str("u8").unwrap_err()), "metadata key \"u8\": expected string, found u8 7");
    assert_eq!(
        text(m.strings("list").unwrap_err()),
        "metadata key \"list\": expected array of string, found array of i32"
    );
    assert_eq!(
        text(m.require_str("absent").unwrap_err()),
        "metadata key \"absent\" is missing (expected string)"
    );
    assert_eq!(
        text(m.u32_per_layer("list", 3).unwrap_err()),
        "metadata key \"list\": expected an integer in the range of u32, or an array of 3 of them, found array of i32 of 2"
    );
}

proptest! {
    #[test]
    fn any_change_of_bytes_is_an_error_or_a_file(
        changes in prop::collection::vec((0usize..320, any::<u8>()), 1..6),
        cut in 0usize..320,
    ) {
        let mut bytes = Parts::good().bytes();
        for (at, byte) in changes {
            let n = bytes.len();
            bytes[at % n] = byte;
        }
        bytes.truncate(bytes.len() - cut.saturating_sub(200).min(bytes.len()));
        if let Ok(file) = GgufFile::from_bytes("any.gguf", bytes) {
            for tensor in file.tensors() {
                prop_assert_eq!(file.tensor(&tensor.name).unwrap().bytes().len() as u64, tensor.n_bytes);
            }
        }
    }
}
