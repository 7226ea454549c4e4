//! Rows of a checkpoint's tensors, as the GGUF has them: stacked, reordered, shifted.

use std::ops::Range;

use half::f16;
use qgguf_gguf::GgmlType;

use super::checkpoint::TensorRef;
use super::safetensors::Dtype;
use crate::pipeline::{RowSource, SourceError};

/// In which order the rows of a tensor come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// As they are stored.
    Stored,
    /// The two halves of each head interleaved, as Llama's original rotary embedding has them.
    Interleaved {
        /// Rows of a head.
        head: u64,
    },
    /// Of every `whole` rows only `part`, from `first` on.
    Part {
        /// Rows of one unit.
        whole: u64,
        /// Those that are taken.
        part: u64,
        /// Where they begin.
        first: u64,
    },
}

impl RowOrder {
    /// Which stored row is row `row`.
    pub fn stored(self, row: u64) -> u64 {
        match self {
            RowOrder::Stored => row,
            RowOrder::Interleaved { head } => {
                let (start, at) = (row / head * head, row % head);
                start + at % 2 * (head / 2) + at / 2
            }
            RowOrder::Part { whole, part, first } => row / part * whole + first + row % part,
        }
    }
}

/// The row of a GGUF in which a checkpoint's row is, of those that are [`RowOrder::Interleaved`].
pub(crate) fn interleaved(head: u64, row: u64) -> u64 {
    let (start, at) = (row / head * head, row % head);
    start + at % (head / 2) * 2 + at / (head / 2)
}

/// Rows of one tensor of the checkpoint, or of several stacked.
pub(crate) struct HfRows<'a> {
    /// One after the other; all of one shape.
    pub parts: Vec<TensorRef<'a>>,
    /// Row length; 1 for a vector whose elements are reordered.
    pub columns: usize,
    /// Rows of each part.
    pub part_rows: u64,
    /// Their order within a part.
    pub order: RowOrder,
    /// One is added to every weight.
    pub plus_one: bool,
}

impl HfRows<'_> {
    /// Calls `take` with the stored bytes of some rows in order, in pieces as large as they lie together.
    fn pieces(&self, rows: Range<u64>, mut take: impl FnMut(Dtype, &[u8])) {
        let mut row = rows.start;
        while row < rows.end {
            let part = self.parts[(row / self.part_rows) as usize];
            let inside = row % self.part_rows;
            let together = match self.order {
                RowOrder::Stored => (self.part_rows - inside).min(rows.end - row),
                _ => 1,
            };
            let width = self.columns * part.tensor.dtype.bytes();
            let start = self.order.stored(inside) as usize * width;
            take(part.tensor.dtype, &part.file.bytes(part.tensor)[start..start + together as usize * width]);
            row += together;
        }
    }

    /// A vector that is reordered is read element by element, so its rows are not the pipeline's.
    fn elements(&self, rows: Range<u64>, n: usize) -> Range<u64> {
        if n as u64 == (rows.end - rows.start) * self.columns as u64 { rows } else { 0..n as u64 }
    }

    fn dtype(&self) -> Dtype {
        self.parts[0].tensor.dtype
    }
}

impl RowSource for HfRows<'_> {
    fn read_rows(&self, rows: Range<u64>, out: &mut [f32]) -> Result<(), SourceError> {
        let rows = self.elements(rows, out.len());
        let mut at = 0;
        self.pieces(rows, |dtype, bytes| {
            let n = bytes.len() / dtype.bytes();
            dtype.to_f32(bytes, &mut out[at..at + n]);
            at += n;
        });
        if self.plus_one {
            // Each checkpoint adds in the precision that it is stored in.
            match self.dtype() {
                Dtype::F16 => out.iter_mut().for_each(|x| *x = f16::from_f32(*x + 1.0).to_f32()),
                _ => out.iter_mut().for_each(|x| *x += 1.0),
            }
        }
        Ok(())
    }

    fn stored(&self) -> Option<GgmlType> {
        match self.dtype() {
            _ if self.plus_one => None,
            Dtype::F32 => Some(GgmlType::F32),
            Dtype::F16 => Some(GgmlType::F16),
            Dtype::BF16 => Some(GgmlType::BF16),
            _ => None,
        }
    }

    fn read_bytes(&self, rows: Range<u64>, out: &mut [u8]) -> Result<(), SourceError> {
        let rows = self.elements(rows, out.len() / self.dtype().bytes());
        let mut at = 0;
        self.pieces(rows, |_, bytes| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        });
        Ok(())
    }
}

/// Weights that are in no file.
pub(crate) struct Generated(pub Vec<f32>);

impl RowSource for Generated {
    fn read_rows(&self, _: Range<u64>, out: &mut [f32]) -> Result<(), SourceError> {
        out.copy_from_slice(&self.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaving_pairs_the_halves_of_a_head() {
        let order = RowOrder::Interleaved { head: 8 };
        let rows: Vec<u64> = (0..16).map(|row| order.stored(row)).collect();
        assert_eq!(rows, [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]);
        let back: Vec<u64> = rows.iter().map(|&row| interleaved(8, row)).collect();
        assert_eq!(back, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn the_second_half_of_every_unit() {
        let order = RowOrder::Part { whole: 4, part: 2, first: 2 };
        assert_eq!((0..4).map(|row| order.stored(row)).collect::<Vec<_>>(), [2, 3, 6, 7]);
    }
}
