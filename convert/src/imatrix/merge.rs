//! Importance matrices of several texts as one.

use super::{Imatrix, Sums};

/// Why two importance matrices do not fit together.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// They are of different models.
    #[error(
        "tensor \"{tensor}\": expected {expected} sums and {counts} counts as before, found {found} and {found_counts}: \
         made for another model"
    )]
    Shape {
        /// The tensor.
        tensor: String,
        /// Sums so far.
        expected: usize,
        /// Counts so far.
        counts: usize,
        /// Sums of the other matrix.
        found: usize,
        /// Counts of the other matrix.
        found_counts: usize,
    },
    /// A sum of chunks of different sizes has no meaning.
    #[error("expected chunks of {expected} tokens as before, found {found}")]
    ChunkSize {
        /// Size so far.
        expected: u32,
        /// Size of the other matrix.
        found: u32,
    },
}

impl Imatrix {
    /// Gives a matrix without a chunk size, out of a file of the older format, the sums and counts that it would have
    /// with this one.
    pub fn assume_chunk_size(&mut self, chunk_size: u32) {
        if self.chunk_size == 0 {
            self.chunk_size = chunk_size;
            let entries = self.entries.values_mut();
            let values = entries.flat_map(|entry| entry.sums.iter_mut().chain(&mut entry.counts));
            values.for_each(|value| *value *= chunk_size as f32);
        }
    }

    /// Adds what another matrix knows, of the same model and with chunks of the same size. Nothing is changed if they
    /// do not fit.
    pub fn merge(&mut self, mut other: Imatrix) -> Result<(), MergeError> {
        if self.entries.is_empty() {
            *self = other;
            return Ok(());
        }
        other.assume_chunk_size(self.chunk_size);
        if self.chunk_size != other.chunk_size {
            return Err(MergeError::ChunkSize { expected: self.chunk_size, found: other.chunk_size });
        }
        for (name, own) in &mut self.entries {
            let Some(entry) = other.entries.get_mut(name) else { continue };
            own.spread_count(entry.counts.len());
            entry.spread_count(own.counts.len());
            if (own.sums.len(), own.counts.len()) != (entry.sums.len(), entry.counts.len()) {
                return Err(MergeError::Shape {
                    tensor: name.clone(),
                    expected: own.sums.len(),
                    counts: own.counts.len(),
                    found: entry.sums.len(),
                    found_counts: entry.counts.len(),
                });
            }
        }
        for (name, entry) in other.entries {
            let own = self.entries.entry(name).or_default();
            own.sums.resize(entry.sums.len(), 0.0);
            own.counts.resize(entry.counts.len(), 0.0);
            own.sums.iter_mut().zip(entry.sums).for_each(|(own, value)| *own += value);
            own.counts.iter_mut().zip(entry.counts).for_each(|(own, value)| *own += value);
        }
        for dataset in other.datasets {
            if !self.datasets.contains(&dataset) {
                self.datasets.push(dataset);
            }
        }
        self.count_chunks();
        Ok(())
    }

    /// Sets the number of chunks to what the counts say.
    pub fn count_chunks(&mut self) {
        let count = self.entries.values().map(Sums::max_count).fold(0.0, f32::max);
        self.n_chunks = (count / self.chunk_size.max(1) as f32) as u32;
    }
}

impl Sums {
    /// Makes one count for all matrices one for each of `n`; the older format has no others.
    pub fn spread_count(&mut self, n: usize) {
        if self.counts.len() == 1 {
            self.counts = vec![self.counts[0]; n];
        }
    }
}
