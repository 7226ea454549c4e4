//! Models split over files: all found from any of them, and what is wrong with a set is named.

use qgguf_gguf::{GgmlType, GgufFile, GgufWriter, Metadata, MetadataValue, TensorSpec};

/// A model split over files in a fresh folder; returns the folder.
fn split_model(n: u16, change: impl Fn(u16, &mut Metadata)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for no in 0..n {
        write_shard(&dir, no, n, &format!("t{no}"), &mut |m| change(no, m));
    }
    dir
}

/// One shard, with one tensor of 16 bytes that hold its number.
fn write_shard(
    dir: &tempfile::TempDir,
    no: u16,
    n: u16,
    tensor: &str,
    change: &mut dyn FnMut(&mut Metadata),
) {
    let mut m = Metadata::default();
    if no == 0 {
        m.set("general.architecture", MetadataValue::String("llama".into()));
    }
    m.set("split.no", MetadataValue::U16(no));
    m.set("split.count", MetadataValue::U16(n));
    m.set("split.tensors.count", MetadataValue::I32(n.into()));
    change(&mut m);
    let spec = TensorSpec { name: tensor.into(), shape: vec![4], ty: GgmlType::F32 };
    let mut writer = GgufWriter::create(dir.path().join(shard(no, n)), 3, &m, &[spec]).unwrap();
    writer.write(&[no as u8; 16]).unwrap();
    writer.finish().unwrap();
}

fn shard(no: u16, n: u16) -> String {
    format!("m-{:05}-of-{n:05}.gguf", no + 1)
}

fn split_error(dir: &tempfile::TempDir, name: &str) -> String {
    let error = GgufFile::open(dir.path().join(name)).err().expect("must be refused").to_string();
    error.replace(&format!("{}/", dir.path().display()), "")
}

#[test]
fn any_shard_opens_the_whole_model() {
    let dir = split_model(3, |_, _| {});
    for no in 0..3 {
        let file = GgufFile::open(dir.path().join(shard(no, 3))).unwrap();
        assert_eq!(file.architecture().unwrap(), "llama");
        assert_eq!(file.tensors().len(), 3);
        for t in 0..3u8 {
            assert_eq!(file.tensor(&format!("t{t}")).unwrap().bytes(), [t; 16]);
        }
    }
}

#[test]
fn missing_extra_and_foreign_shards_are_named() {
    let dir = split_model(3, |_, _| {});
    std::fs::remove_file(dir.path().join(shard(1, 3))).unwrap();
    assert_eq!(split_error(&dir, &shard(2, 3)), "m-00002-of-00003.gguf: shard 2 of 3 is missing");

    let dir = split_model(2, |_, _| {});
    std::fs::copy(dir.path().join(shard(1, 2)), dir.path().join("m-00003-of-00002.gguf")).unwrap();
    assert_eq!(split_error(&dir, &shard(0, 2)), "m-00003-of-00002.gguf: one shard too many: the model has 2");

    let dir = split_model(2, |_, _| {});
    std::fs::copy(dir.path().join(shard(0, 2)), dir.path().join(shard(1, 2))).unwrap();
    assert_eq!(
        split_error(&dir, &shard(0, 2)),
        "m-00002-of-00002.gguf: not a shard of this model: expected shard 2 of 2 with 2 tensors in all, found shard 1 of 2 with 2 tensors in all"
    );

    let dir =
        split_model(2, |no, m| drop((no == 1).then(|| m.set("split.tensors.count", MetadataValue::I32(9)))));
    assert_eq!(
        split_error(&dir, &shard(0, 2)),
        "m-00002-of-00002.gguf: not a shard of this model: expected shard 2 of 2 with 2 tensors in all, found shard 2 of 2 with 9 tensors in all"
    );

    let dir = split_model(2, |_, m| drop(m.set("split.tensors.count", MetadataValue::I32(5))));
    assert_eq!(
        split_error(&dir, &shard(0, 2)),
        "m-00001-of-00002.gguf: the 2 shards have 2 tensors, but split.tensors.count is 5"
    );

    let dir = split_model(2, |_, _| {});
    std::fs::rename(dir.path().join(shard(0, 2)), dir.path().join("model.gguf")).unwrap();
    assert_eq!(
        split_error(&dir, "model.gguf"),
        "model.gguf: shard 1 of 2 must have a name that ends in \"-00001-of-00002.gguf\""
    );

    let dir = split_model(2, |no, m| drop((no == 0).then(|| m.set("split.no", MetadataValue::U16(7)))));
    assert_eq!(
        split_error(&dir, &shard(0, 2)),
        "m-00001-of-00002.gguf: split.no 7 is not below split.count 2"
    );

    let other = MetadataValue::String("qwen3".into());
    let dir = split_model(2, |no, m| {
        if no == 1 {
            m.set("general.architecture", other.clone());
        }
    });
    assert_eq!(
        split_error(&dir, &shard(0, 2)),
        "m-00002-of-00002.gguf: not a shard of this model: expected general.architecture llama, found qwen3"
    );
}

#[test]
fn split_keys_that_cannot_be_are_named_with_their_file() {
    let error_with = |key: &str, value: MetadataValue| {
        let dir = split_model(2, |no, m| drop((no == 1).then(|| m.set(key, value.clone()))));
        split_error(&dir, &shard(0, 2))
    };
    assert_eq!(
        error_with("split.no", MetadataValue::String("1".into())),
        "m-00002-of-00002.gguf: metadata key \"split.no\": expected an integer in the range of u32, found string"
    );
    assert_eq!(
        error_with("split.tensors.count", MetadataValue::I32(-1)),
        "m-00002-of-00002.gguf: metadata key \"split.tensors.count\": expected an integer in the range of u32, found i32 -1"
    );
    assert_eq!(
        error_with("split.count", MetadataValue::U32(1 << 20)),
        "m-00002-of-00002.gguf: split.count 1048576 is more than 65535"
    );
    assert_eq!(
        error_with("split.count", MetadataValue::U16(0)),
        "m-00002-of-00002.gguf: not a shard of this model: expected shard 2 of 2 with 2 tensors in all, found a file that is not split"
    );
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    // Also where the number of tensors is that of the distinct ones.
    for n_tensors in [2, 1] {
        let dir = tempfile::tempdir().unwrap();
        for no in 0..2 {
            let mut edit = |m: &mut Metadata| _ = m.set("split.tensors.count", MetadataValue::U32(n_tensors));
            write_shard(&dir, no, 2, "t", &mut edit);
        }
        assert_eq!(
            split_error(&dir, &shard(0, 2)),
            "m-00002-of-00002.gguf: tensor \"t\" is in m-00001-of-00002.gguf, too"
        );
    }
}

#[test]
fn a_big_endian_shard_cannot_be_used_either() {
    let dir = split_model(2, |_, _| {});
    let mut out = b"GGUF".to_vec();
    let string = |out: &mut Vec<u8>, s: &str| {
        out.extend((s.len() as u64).to_be_bytes());
        out.extend(s.as_bytes());
    };
    out.extend(3u32.to_be_bytes());
    out.extend(1u64.to_be_bytes());
    out.extend(3u64.to_be_bytes());
    for (key, value) in [("split.no", 1u32), ("split.count", 2), ("split.tensors.count", 2)] {
        string(&mut out, key);
        out.extend(4u32.to_be_bytes());
        out.extend(value.to_be_bytes());
    }
    string(&mut out, "t1");
    out.extend(1u32.to_be_bytes());
    out.extend(4u64.to_be_bytes());
    out.extend(0u32.to_be_bytes());
    out.extend(0u64.to_be_bytes());
    out.resize(out.len().next_multiple_of(32) + 16, 0);
    std::fs::write(dir.path().join(shard(1, 2)), out).unwrap();
    let file = GgufFile::open(dir.path().join(shard(0, 2))).unwrap();
    assert!(file.require_tensor("t0").is_ok());
    let error = file.require_tensor("t1").unwrap_err().to_string();
    assert_eq!(error, "tensor \"t1\" is stored big-endian, which can be inspected but not used");
}
