//! NumPy's `.npy` files, as far as logits and traces need them: format 1.0, little-endian f32, C order.

use std::io::{self, Write};

/// Length of every header written here, so that one can be replaced by another in place.
pub const HEADER_LEN: usize = 128;

/// The header of an array of `rows` × `cols`; the values follow it (see [`write_values`]), row by row.
pub fn header([rows, cols]: [usize; 2]) -> [u8; HEADER_LEN] {
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    let mut header = [b' '; HEADER_LEN];
    header[..6].copy_from_slice(b"\x93NUMPY");
    header[6..8].copy_from_slice(&[1, 0]);
    header[8..10].copy_from_slice(&(HEADER_LEN as u16 - 10).to_le_bytes());
    header[10..10 + dict.len()].copy_from_slice(dict.as_bytes());
    header[HEADER_LEN - 1] = b'\n';
    header
}

/// Writes values after a header.
pub fn write_values(out: &mut (impl Write + ?Sized), values: &[f32]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(4 * values.len().min(4096));
    for chunk in values.chunks(4096) {
        bytes.clear();
        bytes.extend(chunk.iter().flat_map(|value| value.to_le_bytes()));
        out.write_all(&bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_what_numpy_reads() {
        let header = header([3, 4096]);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let dict = std::str::from_utf8(&header[10..]).unwrap();
        assert_eq!(dict.trim_end(), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4096), }");
        assert!(dict.ends_with(" \n"));
    }

    #[test]
    fn the_largest_shape_fits_the_header() {
        assert!(header([usize::MAX; 2]).ends_with(b"\n"));
    }

    #[test]
    fn values_are_little_endian() {
        let mut out = Vec::new();
        write_values(&mut out, &[1.0, -2.5]).unwrap();
        assert_eq!(out, [0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
    }
}
