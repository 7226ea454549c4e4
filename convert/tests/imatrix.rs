//! Both formats of importance matrices, and files that are none.

mod support;

use qgguf_convert::imatrix::{Imatrix, Sums};
use qgguf_gguf::{GgmlType, GgufWriter, Metadata, MetadataArray, MetadataValue, TensorSpec};
use support::fixtures;

#[test]
fn both_formats_say_the_same() {
    let Some(dir) = fixtures() else { return };
    let new = Imatrix::read(&dir.join("kjv/imatrix.gguf")).unwrap();
    let old = Imatrix::read(&dir.join("kjv/imatrix.dat")).unwrap();
    assert_eq!((new.entries.len(), new.n_chunks, new.chunk_size), (28, 100, 512));
    assert_eq!((old.entries.len(), old.n_chunks, old.chunk_size), (28, 100, 0));
    assert_eq!(
        (&new.datasets, &old.datasets),
        (&vec!["calib.txt".to_owned()], &vec!["calib.txt".to_owned()])
    );
    for (name, entry) in &new.entries {
        assert_eq!(entry.counts, [51_200.0], "{name}");
        let (a, b) = (entry.importance(), old.entries[name].importance());
        assert_eq!(a.len(), b.len(), "{name}");
        // The old format divides and multiplies before it stores.
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 2e-7 * a.abs()), "{name}");
    }
}

#[test]
fn experts_without_data_weigh_every_column_alike() {
    let sums = Sums { sums: vec![2.0, 4.0, 7.0, 9.0], counts: vec![2.0, 0.0] };
    assert_eq!(sums.importance(), [1.0, 2.0, 1.0, 1.0]);
    let shared = Sums { sums: vec![2.0, 4.0, 7.0, 9.0], counts: vec![2.0] };
    assert_eq!(shared.importance(), [1.0, 2.0, 3.5, 4.5]);
}

#[test]
fn a_matrix_fits_by_columns_and_experts() {
    let mut matrix = Imatrix::default();
    let entry = Sums { sums: vec![1.0; 64], counts: vec![1.0, 1.0] };
    matrix.entries.insert("w".to_owned(), entry.clone());
    matrix.entries.insert("token_embd.weight".to_owned(), entry);
    let tensor = |name: &str, shape: &[u64]| TensorSpec {
        name: name.to_owned(),
        shape: shape.to_vec(),
        ty: GgmlType::F16,
    };
    assert_eq!(matrix.importance(&tensor("w", &[32, 9, 2])).unwrap().map(|v| v.len()), Some(64));
    assert_eq!(matrix.importance(&tensor("v", &[32, 9, 2])).unwrap(), None);
    assert_eq!(matrix.importance(&tensor("token_embd.weight", &[32, 9])).unwrap(), None);
    assert_eq!(
        matrix.importance(&tensor("w", &[32, 9, 3])).unwrap_err().to_string(),
        "tensor \"w\": the importance matrix has 64 values for it, expected 96 (32 columns, 3 matrices); it was made \
         for another model"
    );
}

/// What is wrong with a file of these bytes, without its name.
fn fault(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let error = Imatrix::read(file.path()).unwrap_err().to_string();
    error.strip_prefix(&format!("{}: ", file.path().display())).unwrap().to_owned()
}

#[test]
fn broken_old_files_are_refused() {
    let entry = |values: &[f32]| {
        let mut bytes = vec![1, 0, 0, 0];
        bytes.extend(b"x\x05\0\0\0");
        bytes.extend((values.len() as i32).to_le_bytes());
        values.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
        bytes
    };
    let file = |n: i32, entries: &[Vec<u8>]| [n.to_le_bytes().as_slice(), &entries.concat()].concat();
    assert_eq!(fault(b""), "no importance matrix: the number of entries at byte 0 needs 4 bytes, 0 are left");
    assert_eq!(
        fault(&file(-1, &[])),
        "no importance matrix: the number of entries at byte 0 is -1, expected at least 1"
    );
    assert_eq!(
        fault(&file(1, &[entry(&[])])),
        "no importance matrix: the number of values of \"x\" at byte 13 is 0, expected at least 1"
    );
    assert_eq!(fault(&file(2, &[entry(&[1.0]), entry(&[2.0])])), "\"x\" appears twice");
    assert_eq!(
        fault(&file(1, &[entry(&[f32::NAN])])),
        "\"x\": NaN among its values, expected finite ones from 0"
    );
    assert_eq!(fault(&file(1, &[entry(&[-1.0])])), "\"x\": -1 among its values, expected finite ones from 0");
}

#[test]
fn broken_new_files_are_refused() {
    let write = |keys: &[&str], sums: &[(&str, u64)]| {
        let mut metadata = Metadata::default();
        for key in keys {
            let value = match *key {
                "imatrix.datasets" => MetadataValue::Array(MetadataArray::String(["a"].iter().collect())),
                _ => MetadataValue::U32(7),
            };
            metadata.set(key, value);
        }
        let spec = |&(name, n): &(&str, u64)| TensorSpec {
            name: name.to_owned(),
            shape: vec![n],
            ty: GgmlType::F32,
        };
        let tensors: Vec<TensorSpec> = sums.iter().map(spec).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("imatrix");
        let mut writer = GgufWriter::create(&path, 3, &metadata, &tensors).unwrap();
        sums.iter().for_each(|(_, n)| writer.write(&vec![0; 4 * *n as usize]).unwrap());
        writer.finish().unwrap();
        std::fs::read(&path).unwrap()
    };
    let keys = ["imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"];
    assert_eq!(
        fault(&write(&["general.name"], &[])),
        "metadata key \"imatrix.datasets\" is missing (expected array of string: is this an importance matrix?)"
    );
    assert_eq!(
        fault(&write(&keys, &[("x", 3)])),
        "no tensors called *.in_sum2: is this an importance matrix?"
    );
    assert_eq!(
        fault(&write(&keys, &[("x.in_sum2", 3), ("x.counts", 2)])),
        "\"x\": 3 sums and 2 counts, expected some for each count"
    );
    assert_eq!(
        fault(&write(&keys, &[("x.in_sum2", 3)])),
        "\"x\": 3 sums and 0 counts, expected some for each count"
    );
}
