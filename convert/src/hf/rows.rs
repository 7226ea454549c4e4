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

/// What all these tensors are stored as, if it is the same.
pub(crate) fn common_dtype(parts: &[TensorRef<'_>]) -> Option<Dtype> {
    let first = parts.first()?.tensor.dtype;
    parts.iter().all(|part| part.tensor.dtype == first).then_some(first)
}

impl HfRows<'_> {
    /// Calls `take` with the tensor, the first number and the count of numbers of each piece of some rows, in order, as
    /// large as they lie together.
    fn pieces<E>(
        &self,
        order: RowOrder,
        rows: Range<u64>,
        mut take: impl FnMut(TensorRef<'_>, u64, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut row = rows.start;
        while row < rows.end {
            let part = self.parts[(row / self.part_rows) as usize];
            let inside = row % self.part_rows;
            let together = match order {
                RowOrder::Stored => self.part_rows - inside,
                RowOrder::Interleaved { .. } => 1,
                RowOrder::Part { part, .. } => part - inside % part,
            };
            let together = together.min(rows.end - row);
            take(part, order.stored(inside) * self.columns as u64, together as usize * self.columns)?;
            row += together;
        }
        Ok(())
    }

    /// A vector that is reordered is read element by element, so its rows are not the pipeline's.
    fn elements(&self, rows: Range<u64>, n: usize) -> Range<u64> {
        if n as u64 == (rows.end - rows.start) * self.columns as u64 { rows } else { 0..n as u64 }
    }
}

impl RowSource for HfRows<'_> {
    fn read_rows(&self, rows: Range<u64>, mut out: &mut [f32]) -> Result<(), SourceError> {
        let mut bytes = Vec::new();
        self.pieces(self.order, self.elements(rows, out.len()), |part, first, n| {
            let dtype = part.tensor.dtype;
            bytes.resize(n * dtype.bytes(), 0);
            part.read(first, &mut bytes)?;
            let (now, later) = std::mem::take(&mut out).split_at_mut(n);
            out = later;
            dtype.to_f32(&bytes, now);
            if self.plus_one {
                // Each checkpoint adds in the precision that it is stored in.
                match dtype {
                    Dtype::F16 => now.iter_mut().for_each(|x| *x = f16::from_f32(*x + 1.0).to_f32()),
                    _ => now.iter_mut().for_each(|x| *x += 1.0),
                }
            }
            Ok(())
        })
    }

    fn stored(&self) -> Option<GgmlType> {
        common_dtype(&self.parts).filter(|_| !self.plus_one).and_then(Dtype::plain)
    }

    fn read_bytes(&self, rows: Range<u64>, mut out: &mut [u8]) -> Result<(), SourceError> {
        let width = self.parts[0].tensor.dtype.bytes();
        self.pieces(self.order, self.elements(rows, out.len() / width), |part, first, n| {
            let (now, later) = std::mem::take(&mut out).split_at_mut(n * width);
            out = later;
            part.read(first, now)
        })
    }

    fn prefetch(&self, rows: Range<u64>) {
        // Rows that are interleaved lie near their places.
        let order = match self.order {
            RowOrder::Interleaved { .. } => RowOrder::Stored,
            order => order,
        };
        let prefetched = self.pieces(order, rows, |part, first, n| {
            let width = part.tensor.dtype.bytes() as u64;
            part.file.prefetch(part.tensor, first * width, n as u64 * width);
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = prefetched;
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
