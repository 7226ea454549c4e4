//! What is written: the bytes, refusals, and the target file whatever happens.

use qgguf_gguf::{GgmlType, GgufFile, GgufWriter, Metadata, MetadataArray, MetadataValue, TensorSpec};

fn spec(name: &str, shape: &[u64], ty: GgmlType) -> TensorSpec {
    TensorSpec { name: name.into(), shape: shape.to_vec(), ty }
}

#[test]
fn every_value_and_shape_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    let mut m = Metadata::default();
    let mut set = |key: &str, value| _ = m.set(key, value);
    set("general.alignment", MetadataValue::U32(64));
    set("u8", MetadataValue::U8(255));
    set("i8", MetadataValue::I8(-128));
    set("u16", MetadataValue::U16(65535));
    set("i16", MetadataValue::I16(-32768));
    set("i32", MetadataValue::I32(i32::MIN));
    set("u64", MetadataValue::U64(u64::MAX));
    set("i64", MetadataValue::I64(i64::MIN));
    set("f32", MetadataValue::F32(0.1));
    set("f64", MetadataValue::F64(0.1));
    set("bool", MetadataValue::Bool(true));
    set("string", MetadataValue::String("\u{e9}\0x".into()));
    set("strings", MetadataValue::Array(MetadataArray::String(["", "a", "\u{20ac}"].into_iter().collect())));
    set("bools", MetadataValue::Array(MetadataArray::Bool(vec![true, false])));
    set("floats", MetadataValue::Array(MetadataArray::F64(vec![1.5, -0.0])));
    set("nothing", MetadataValue::Array(MetadataArray::U16(vec![])));
    let specs = [
        spec("none first", &[0, 3], GgmlType::F16),
        spec("scalar", &[], GgmlType::F32),
        spec("none", &[32, 0], GgmlType::Q8_0),
        spec("trailing ones", &[32, 1, 1], GgmlType::Q8_0),
        spec("none last", &[0], GgmlType::F32),
    ];
    let mut writer = GgufWriter::create(&path, 2, &m, &specs).unwrap();
    // Both tensors in one piece.
    writer.write(&(0..38).collect::<Vec<u8>>()).unwrap();
    writer.finish().unwrap();

    let file = GgufFile::open(&path).unwrap();
    assert_eq!((file.version(), file.alignment()), (2, 64));
    assert_eq!(file.metadata(), &m);
    assert_eq!(file.tensors().iter().map(TensorSpec::from).collect::<Vec<_>>(), specs);
    assert_eq!(file.tensor("scalar").unwrap().bytes(), [0, 1, 2, 3]);
    assert_eq!(file.tensor("trailing ones").unwrap().bytes(), (4..38).collect::<Vec<u8>>());
    assert!(file.tensors().iter().all(|t| t.offset % 64 == 0));
    assert_eq!(file.mapped_bytes(), file.data_offset() + 2 * 64);
}

#[test]
fn what_would_be_no_gguf_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    let refused = |version, m: &Metadata, specs: &[TensorSpec], expected: &str| {
        let error = GgufWriter::create(&path, version, m, specs).err().expect("must be refused").to_string();
        assert_eq!(error, format!("{}: {expected}", path.display()));
    };
    let none = Metadata::default();
    refused(1, &none, &[], "GGUF version 1 cannot be written (possible: 2 and 3)");
    let t = spec("t", &[4], GgmlType::F32);
    refused(3, &none, &[t.clone(), t], "tensor \"t\" would be in the file twice");
    let limits = "names have at most 63 bytes, shapes at most 4 dimensions";
    let long = "n".repeat(64);
    refused(3, &none, &[spec(&long, &[4], GgmlType::F32)], &format!("tensor \"{long}\": {limits}"));
    refused(3, &none, &[spec("t", &[1; 5], GgmlType::F32)], &format!("tensor \"t\": {limits}"));
    refused(
        3,
        &none,
        &[spec("t", &[33], GgmlType::Q8_0)],
        "tensor \"t\": no whole number of q8_0 blocks in [33]",
    );
    let mut m = Metadata::default();
    m.set("general.alignment", MetadataValue::U32(0));
    let expected = "metadata key \"general.alignment\": expected u32, a power of two up to 1048576, found 0";
    refused(3, &m, &[], expected);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files are left");
}

#[test]
fn more_data_than_tensors_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    let specs = [spec("t", &[4], GgmlType::F32)];
    let mut writer = GgufWriter::create(&path, 3, &Metadata::default(), &specs).unwrap();
    let error = writer.write(&[0; 17]).unwrap_err().to_string();
    assert!(error.ends_with("out.gguf: more data than the tensors take"), "{error}");
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files are left");
}

#[cfg(unix)]
#[test]
fn permissions_are_those_of_the_file_that_is_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    let write = |name: &str| {
        let writer = GgufWriter::create(dir.path().join(name), 3, &Metadata::default(), &[]).unwrap();
        writer.finish().unwrap();
    };
    std::fs::write(dir.path().join("plain"), b"").unwrap();
    write("new");
    assert_eq!(mode("new"), mode("plain"));
    std::fs::write(dir.path().join("old"), b"").unwrap();
    std::fs::set_permissions(dir.path().join("old"), std::fs::Permissions::from_mode(0o640)).unwrap();
    write("old");
    assert_eq!(mode("old"), 0o640);
}

#[test]
fn an_unfinished_file_leaves_the_old_one_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    std::fs::write(&path, b"old").unwrap();
    let spec = spec("t", &[4], GgmlType::F32);
    let mut writer = GgufWriter::create(&path, 3, &Metadata::default(), &[spec]).unwrap();
    writer.write(&[0; 15]).unwrap();
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.ends_with("out.gguf: tensor \"t\" got 15 of 16 bytes"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_file_in_memory_has_the_bytes_of_one_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    let mut m = Metadata::default();
    m.set("general.alignment", MetadataValue::U32(64));
    m.set("name", MetadataValue::String("odd".into()));
    let specs = [
        spec("a", &[3, 3], GgmlType::F32),
        spec("none", &[0], GgmlType::F16),
        spec("b", &[32], GgmlType::Q8_0),
    ];
    let data = |i: usize| -> Vec<u8> { (0..[36, 0, 34][i]).map(|b| b + 100 * i as u8 / 2).collect() };
    let mut writer = GgufWriter::create(&path, 3, &m, &specs).unwrap();
    (0..3).for_each(|i| writer.write(&data(i)).unwrap());
    writer.finish().unwrap();
    let bytes = qgguf_gguf::in_memory("out.gguf", &m, &specs, |i, out| {
        out.copy_from_slice(&data(i));
        Ok::<_, qgguf_gguf::WriteError>(())
    });
    assert_eq!(bytes.unwrap(), std::fs::read(&path).unwrap());
    let twice = [spec("a", &[1], GgmlType::F32), spec("a", &[1], GgmlType::F32)];
    let refused = qgguf_gguf::in_memory("out.gguf", &m, &twice, |_, _| Ok::<_, qgguf_gguf::WriteError>(()));
    assert_eq!(refused.unwrap_err().to_string(), "out.gguf: tensor \"a\" would be in the file twice");
}

#[test]
fn a_planned_file_can_be_looked_at_before_it_is_written() {
    #[derive(Debug, thiserror::Error)]
    enum Error {
        #[error(transparent)]
        Write(#[from] qgguf_gguf::WriteError),
        #[error(transparent)]
        Read(#[from] qgguf_gguf::Error),
    }
    let mut m = Metadata::default();
    m.set("general.alignment", MetadataValue::U32(64));
    let planned = |specs: &[TensorSpec]| qgguf_gguf::planned::<Error>("out.gguf", &m, specs);
    // Sixteen gigabytes that nobody has to have.
    let specs = [spec("a", &[3, 3], GgmlType::F32), spec("b", &[1 << 20, 1 << 12], GgmlType::F32)];
    let file = planned(&specs).unwrap().expect("there are as many addresses");
    let places: Vec<(&str, u64)> =
        file.tensors().iter().map(|t| (t.name.as_str(), t.offset - file.data_offset())).collect();
    assert_eq!(places, [("a", 0), ("b", 64)]);
    assert_eq!(file.tensor("a").unwrap().bytes(), [0; 36]);
    assert_eq!(file.alignment(), 64);
    let odd = planned(&[spec("a", &[31], GgmlType::Q8_0)]).err().unwrap().to_string();
    assert_eq!(odd, "out.gguf: tensor \"a\": no whole number of q8_0 blocks in [31]");
}
