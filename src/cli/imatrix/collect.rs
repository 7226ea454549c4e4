//! Sums of squared inputs, collected while a text is evaluated.

use std::collections::BTreeMap;

use qgguf::architectures::Activations;
use qgguf_convert::imatrix::Sums;

/// Columns that one task adds up.
const COLUMNS: usize = 64;

/// Which tensors count: those of the layers, and the output projection if it is wanted.
pub fn is_wanted(tensor: &str, process_output: bool) -> bool {
    tensor.starts_with("blk.") || (process_output && tensor == "output.weight")
}

/// Adds the squares of all rows to the sums of their tensor. Every sum takes them in the order of the rows, whatever
/// the batches and the threads are.
///
/// # Errors
/// If what is there already has another shape.
pub fn add(entries: &mut BTreeMap<String, Sums>, seen: &Activations<'_>) -> Result<(), String> {
    let n_cols = seen.n_cols;
    let n_matrices = seen.experts.map_or(1, |(n, _)| n);
    let entry = entries.entry(seen.tensor.to_owned()).or_insert_with(|| Sums::new(n_cols, n_matrices));
    entry.spread_count(n_matrices);
    if (entry.sums.len(), entry.counts.len()) != (n_cols * n_matrices, n_matrices) {
        return Err(format!(
            "tensor \"{}\": expected {n_cols} columns and {n_matrices} matrices, the matrix given with --in-file has {} \
             sums and {} counts: it was made for another model",
            seen.tensor,
            entry.sums.len(),
            entry.counts.len()
        ));
    }
    let rows = seen.x.chunks_exact(n_cols);
    match seen.experts {
        None => {
            entry.counts[0] += rows.len() as f32;
            seen.compute.run_chunks(&mut entry.sums, COLUMNS, |i, sums| {
                for row in rows.clone() {
                    add_squares(sums, &row[i * COLUMNS..]);
                }
            });
        }
        Some((_, ids)) => {
            let per_row = (ids.len() / rows.len().max(1)).max(1);
            ids.iter().for_each(|&id| entry.counts[id as usize] += 1.0);
            seen.compute.run_chunks(&mut entry.sums, n_cols, |expert, sums| {
                for (pair, _) in ids.iter().enumerate().filter(|(_, id)| **id as usize == expert) {
                    add_squares(sums, &seen.x[pair / per_row * n_cols..]);
                }
            });
        }
    }
    Ok(())
}

fn add_squares(sums: &mut [f32], x: &[f32]) {
    sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
}
