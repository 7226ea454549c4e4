//! Arbitrary bytes as a GGUF: opening never panics, takes memory only in proportion to the input, and what
//! opens can be walked: every value and error has a text, and every tensor's data lies in the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qgguf_gguf::{GgufFile, MetadataValue};

fuzz_target!(|bytes: &[u8]| {
    let file = match GgufFile::from_bytes("fuzz.gguf", bytes.to_vec()) {
        Ok(file) => file,
        Err(error) => return assert!(error.to_string().starts_with("fuzz.gguf: ")),
    };
    let metadata = file.metadata();
    for (key, value) in metadata.iter() {
        assert_eq!(metadata.get(key).map(MetadataValue::type_id), Some(value.type_id()));
        if let MetadataValue::Array(array) = value {
            assert_eq!(array.iter().count(), array.len());
        }
        // Typed access says what it finds or what is wrong; which of them depends on the input.
        let errors = [
            metadata.u32(key).err(),
            metadata.u64(key).err(),
            metadata.i32(key).err(),
            metadata.f32(key).err(),
            metadata.bool(key).err(),
            metadata.str(key).err(),
            metadata.strings(key).err(),
            metadata.u32_per_layer(key, 3).err(),
            metadata.bool_per_layer(key, 3).err(),
        ];
        assert!(errors.iter().flatten().all(|error| error.to_string().contains("expected")));
    }
    for (i, info) in file.tensors().iter().enumerate() {
        assert_eq!(file.tensor_index(&info.name), Some(i));
        let view = file.tensor_at(i);
        assert_eq!(view.bytes().len() as u64, info.n_bytes);
        assert_eq!(info.offset % u64::from(file.alignment()), 0);
        assert!(info.n_elements() == 0 || info.row_len() * info.n_rows() == info.n_elements());
    }
});
