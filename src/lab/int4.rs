//! Group-wise quantization to four bits, as it is taught: one scale for every group of a row, two codes to a byte.
//!
//! Symmetric: `scale = absmax / 7`, codes -7 to 7, so that zero stays zero. Asymmetric: the range of the group, zero
//! included, in 15 steps, with the code of zero kept beside the scale. Scales are f16, rounded up, so that no weight is
//! beyond the last code: every weight is met within half a scale.

use half::f16;

/// Where the codes of a group lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// `scale * code` with codes -7 to 7, stored with 8 added.
    Symmetric,
    /// `scale * (code - zero)` with codes and zero 0 to 15.
    Asymmetric,
}

impl Scheme {
    /// Both.
    pub const ALL: [Scheme; 2] = [Scheme::Symmetric, Scheme::Asymmetric];

    /// `symmetric` or `asymmetric`.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Symmetric => "symmetric",
            Scheme::Asymmetric => "asymmetric",
        }
    }

    /// Steps that the range of a group is cut into: half a range (absmax) or a whole one.
    pub fn steps(self) -> f32 {
        match self {
            Scheme::Symmetric => 7.0,
            Scheme::Asymmetric => 15.0,
        }
    }
}

/// The code of zero in the symmetric scheme.
const CENTRE: u8 = 8;
/// The largest code.
const MAX_CODE: f32 = 15.0;

/// Why weights cannot be quantized.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Int4Error {
    /// A weight has no place between codes.
    #[error("weight {index} of row {row} is {value}; expected a number whose scale fits f16")]
    Value {
        /// The row.
        row: usize,
        /// The place in the row.
        index: usize,
        /// The weight.
        value: f32,
    },
    /// The weights are not rows of that length.
    #[error("{found} weights are no whole number of rows of {n_cols}")]
    Shape {
        /// Row length.
        n_cols: usize,
        /// Weights given.
        found: usize,
    },
    /// Two codes of a byte would belong to different groups.
    #[error("groups of {0} weights; expected an even number of at least 2")]
    Group(usize),
}

/// Two codes (0 to 15) to a byte: the even one in the low nibble. An odd number of codes ends with half a byte.
pub fn pack(codes: &[u8]) -> Vec<u8> {
    codes.chunks(2).map(|pair| pair[0] & 15 | pair.get(1).map_or(0, |high| high << 4)).collect()
}

/// The `n` codes of [`pack`]ed bytes.
pub fn unpack(bytes: &[u8], n: usize) -> impl Iterator<Item = u8> {
    bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).take(n)
}

/// A matrix of group-wise 4-bit weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Int4Matrix {
    scheme: Scheme,
    group: usize,
    n_cols: usize,
    /// Packed codes, every row a whole number of bytes.
    codes: Vec<u8>,
    /// One for each group, row by row.
    scales: Vec<f16>,
    /// The codes of zero, one for each group; empty if symmetric.
    zeros: Vec<u8>,
}

impl Int4Matrix {
    /// Quantizes rows of `n_cols` weights in groups of `group`; the last group of a row may be shorter.
    pub fn quantize(
        weights: &[f32],
        n_cols: usize,
        group: usize,
        scheme: Scheme,
    ) -> Result<Int4Matrix, Int4Error> {
        if group < 2 || !group.is_multiple_of(2) {
            return Err(Int4Error::Group(group));
        }
        if n_cols == 0 || !weights.len().is_multiple_of(n_cols) {
            return Err(Int4Error::Shape { n_cols, found: weights.len() });
        }
        let mut matrix =
            Int4Matrix { scheme, group, n_cols, codes: Vec::new(), scales: Vec::new(), zeros: Vec::new() };
        let mut codes = vec![0; n_cols];
        for (row, weights) in weights.chunks_exact(n_cols).enumerate() {
            for (g, (weights, codes)) in weights.chunks(group).zip(codes.chunks_mut(group)).enumerate() {
                let (scale, zero) = scale_and_zero(weights, scheme).map_err(|index| Int4Error::Value {
                    row,
                    index: g * group + index,
                    value: weights[index],
                })?;
                matrix.scales.push(scale);
                if scheme == Scheme::Asymmetric {
                    matrix.zeros.push(zero);
                }
                let scale = scale.to_f32();
                for (code, &w) in codes.iter_mut().zip(weights) {
                    let steps = if scale > 0.0 { w / scale } else { 0.0 };
                    *code = (steps.round_ties_even() + f32::from(zero)).clamp(0.0, MAX_CODE) as u8;
                }
            }
            matrix.codes.extend(pack(&codes));
        }
        Ok(matrix)
    }

    /// Rows.
    pub fn n_rows(&self) -> usize {
        self.codes.len() / self.row_bytes()
    }

    /// Weights of a row.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Bytes of codes, scales and zeros; a zero takes half a byte.
    pub fn bytes(&self) -> usize {
        self.codes.len() + 2 * self.scales.len() + self.zeros.len().div_ceil(2)
    }

    /// The scale of every group, row by row.
    pub fn scales(&self) -> impl ExactSizeIterator<Item = f32> {
        self.scales.iter().map(|scale| scale.to_f32())
    }

    /// The weights that the codes stand for, row by row.
    pub fn dequantize(&self) -> Vec<f32> {
        let mut weights = Vec::with_capacity(self.n_rows() * self.n_cols);
        for row in 0..self.n_rows() {
            for (codes, scale, zero) in self.groups(row) {
                weights.extend(codes.map(|code| scale * (f32::from(code) - zero)));
            }
        }
        weights
    }

    /// `out[row]` = the row's weights · `x`, straight from the codes: a group's sum of `code * x` is multiplied by its
    /// scale once, after the group's sum of `x` has taken the zero out of it.
    ///
    /// # Panics
    /// If `x` is no row or `out` no column of this matrix.
    pub fn matvec(&self, x: &[f32], out: &mut [f32]) {
        assert!(x.len() == self.n_cols && out.len() == self.n_rows());
        let sums: Vec<f32> = x.chunks(self.group).map(|x| x.iter().sum()).collect();
        for (row, out) in out.iter_mut().enumerate() {
            let groups = self.groups(row).zip(x.chunks(self.group)).zip(&sums);
            *out = groups
                .map(|(((codes, scale, zero), x), sum)| {
                    let dot: f32 = codes.zip(x).map(|(code, x)| f32::from(code) * x).sum();
                    scale * (dot - zero * sum)
                })
                .sum();
        }
    }

    /// Codes, scale and zero of every group of a row.
    fn groups(&self, row: usize) -> impl Iterator<Item = (impl Iterator<Item = u8>, f32, f32)> {
        let bytes = &self.codes[row * self.row_bytes()..][..self.row_bytes()];
        let first = row * self.n_cols.div_ceil(self.group);
        bytes.chunks(self.group / 2).enumerate().map(move |(g, bytes)| {
            let n = self.group.min(self.n_cols - g * self.group);
            let zero = self.zeros.get(first + g).copied().unwrap_or(CENTRE);
            (unpack(bytes, n), self.scales[first + g].to_f32(), f32::from(zero))
        })
    }

    fn row_bytes(&self) -> usize {
        self.n_cols.div_ceil(2)
    }
}

/// Scale and code of zero for a group, or the place of a weight that has none.
fn scale_and_zero(weights: &[f32], scheme: Scheme) -> Result<(f16, u8), usize> {
    if let Some(bad) = weights.iter().position(|w| !w.is_finite()) {
        return Err(bad);
    }
    let (least, most) = weights.iter().fold((0f32, 0f32), |(least, most), &w| (least.min(w), most.max(w)));
    let range = match scheme {
        Scheme::Symmetric => most.max(-least),
        Scheme::Asymmetric => most - least,
    };
    let scale = f16_at_least(range / scheme.steps());
    if scale.is_infinite() {
        let largest = |a: &usize, b: &usize| weights[*a].abs().total_cmp(&weights[*b].abs());
        return Err((0..weights.len()).max_by(largest).unwrap_or(0));
    }
    let zero = match scheme {
        Scheme::Asymmetric if scale > f16::ZERO => (-least / scale.to_f32()).round_ties_even() as u8,
        _ => CENTRE,
    };
    Ok((scale, zero))
}

/// The smallest f16 that is not below `x`, which is not negative.
fn f16_at_least(x: f32) -> f16 {
    let nearest = f16::from_f32(x);
    if nearest.to_f32() < x { f16::from_bits(nearest.to_bits() + 1) } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::theory::{gaussian_error, normals};

    #[test]
    fn all_sixteen_codes_come_back() {
        let codes: Vec<u8> = (0..16).collect();
        assert_eq!(pack(&codes), [0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe], "even codes are low");
        assert_eq!(unpack(&pack(&codes), 16).collect::<Vec<_>>(), codes);
        assert_eq!(unpack(&pack(&codes[..15]), 15).collect::<Vec<_>>(), codes[..15]);
    }

    /// Rows like those of models: of one sign, with outliers, constant, tiny, zero, of any scale.
    fn rows(n_cols: usize) -> Vec<f32> {
        let mut rows = normals(1, 12 * n_cols);
        for (row, values) in rows.chunks_exact_mut(n_cols).enumerate() {
            for (i, w) in values.iter_mut().enumerate() {
                *w = match row {
                    0 => *w,
                    1 => 5.0 + 0.1 * *w,
                    2 => -3.0 - *w * *w,
                    3 if i == 7 => 40.0,
                    4 => 0.0,
                    5 => 0.25,
                    6 => *w * 1e-6,
                    7 => *w * 1e-9,
                    8 => *w * 1e4,
                    9 => -0.125,
                    10 => w.abs() * 0.02,
                    _ => *w * 0.02,
                };
            }
        }
        rows
    }

    #[test]
    fn every_weight_is_met_within_half_a_scale() {
        for (n_cols, group) in [(256, 32), (256, 64), (256, 128), (256, 256), (200, 64), (37, 32), (1, 2)] {
            let weights = rows(n_cols);
            for scheme in Scheme::ALL {
                let matrix = Int4Matrix::quantize(&weights, n_cols, group, scheme).unwrap();
                assert_eq!((matrix.n_rows(), matrix.n_cols()), (12, n_cols));
                let met = matrix.dequantize();
                let groups = weights.chunks(n_cols).zip(met.chunks(n_cols));
                let groups = groups.flat_map(|(w, met)| w.chunks(group).zip(met.chunks(group)));
                for ((w, met), scale) in groups.zip(matrix.scales()) {
                    for (w, met) in w.iter().zip(met) {
                        // The division by the scale rounds: a weight halfway between codes may go either way.
                        let half = scale / 2.0 * (1.0 + 1e-5);
                        assert!(
                            (w - met).abs() <= half,
                            "{scheme:?} {group}: {w} became {met}, scale {scale}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn symmetric_codes_keep_zero_and_use_fifteen_levels() {
        let weights: Vec<f32> = (-7..=7).map(|q| q as f32 * 0.5).chain([3.5]).collect();
        let matrix = Int4Matrix::quantize(&weights, 16, 16, Scheme::Symmetric).unwrap();
        assert_eq!(matrix.dequantize(), weights);
        assert_eq!(matrix.bytes(), 8 + 2);
        let codes: Vec<u8> = unpack(&matrix.codes, 16).collect();
        assert_eq!(codes[..15], (1..16).collect::<Vec<u8>>());
    }

    #[test]
    fn asymmetric_codes_use_all_levels_of_one_side() {
        let weights: Vec<f32> = (0..16).map(|q| q as f32 * 0.25).collect();
        let matrix = Int4Matrix::quantize(&weights, 16, 16, Scheme::Asymmetric).unwrap();
        assert_eq!(matrix.dequantize(), weights);
        assert_eq!(matrix.bytes(), 8 + 2 + 1);
    }

    #[test]
    fn fused_and_dense_products_agree() {
        let n_cols = 200;
        let weights = &normals(2, 64 * n_cols);
        let x = &normals(3, n_cols);
        for scheme in Scheme::ALL {
            for group in [32, 64, 128, 256] {
                let matrix = Int4Matrix::quantize(weights, n_cols, group, scheme).unwrap();
                let mut fused = vec![0.0; 64];
                matrix.matvec(x, &mut fused);
                for (row, (fused, w)) in fused.iter().zip(matrix.dequantize().chunks(n_cols)).enumerate() {
                    let dense: f64 = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                    let size: f64 = w.iter().zip(x).map(|(w, x)| f64::from((w * x).abs())).sum();
                    let off = (f64::from(*fused) - dense).abs() / size;
                    assert!(off < 1e-5, "{scheme:?} {group} row {row}: {fused} {dense}");
                }
            }
        }
    }

    #[test]
    fn the_error_grows_with_the_group_as_theory_says() {
        let (n_cols, n_rows) = (1024, 64);
        let weights = normals(4, n_cols * n_rows);
        for scheme in Scheme::ALL {
            let mut before = 0.0;
            for group in [32, 64, 128, 256] {
                let met = Int4Matrix::quantize(&weights, n_cols, group, scheme).unwrap().dequantize();
                let error = crate::lab::relative_error(&weights, &met);
                let expected = gaussian_error(group, scheme);
                assert!(error > before, "{scheme:?} {group}: {error} after {before}");
                assert!(
                    (error / expected - 1.0).abs() < 0.02,
                    "{scheme:?} {group}: {error}, theory {expected}"
                );
                before = error;
            }
        }
    }

    #[test]
    fn weights_without_a_place_are_named() {
        let error = |weights: &[f32], group, scheme| {
            Int4Matrix::quantize(weights, 4, group, scheme).unwrap_err().to_string()
        };
        let expected = "weight 2 of row 1 is NaN; expected a number whose scale fits f16";
        let weights = [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, f32::NAN, 2.0];
        assert_eq!(error(&weights, 2, Scheme::Symmetric), expected);
        let weights = [1.0, f32::MAX, 0.0, -1.0];
        assert!(error(&weights, 4, Scheme::Symmetric).starts_with("weight 1 of row 0 is 34028"));
        assert!(error(&[f32::MAX, -f32::MAX, 0.0, 0.0], 4, Scheme::Asymmetric).starts_with("weight "));
        assert_eq!(
            error(&[0.0; 4], 3, Scheme::Symmetric),
            "groups of 3 weights; expected an even number of at least 2"
        );
        assert_eq!(error(&[0.0; 6], 2, Scheme::Symmetric), "6 weights are no whole number of rows of 4");
    }
}
