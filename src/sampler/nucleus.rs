//! Finding the smallest prefix of an ordering whose mass reaches a goal, without sorting everything.

use std::ops::Range;

use super::weights::{Above, above, for_each_at_least};

/// A token's place in an ordering (smaller keys come first) and its weight.
pub(super) type Ranked = (u128, f32);

/// The key of "more probable first": weight, then logit (weights can round together), then the lower id.
pub(super) fn probability_key(weight: f32, logit: f32, id: u32) -> u128 {
    u128::from(!weight.to_bits()) << 64 | u128::from(!ascending_bits(logit)) << 32 | u128::from(id)
}

/// Bits that order as the floats do; both zeros are one.
fn ascending_bits(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

/// The key of "larger logit first, then the lower id".
pub(super) fn logit_key(logit: f32, id: u32) -> u64 {
    u64::from(!ascending_bits(logit)) << 32 | u64::from(id)
}

/// The last key of the smallest prefix (by key) for which `reached` holds of its mass, that is `before` + the sum of
/// its weights, and that mass; those of all items when it holds of no prefix. Weighted quickselect: expected linear time, `items` is reordered.
///
/// `None` when there are no items.
pub(super) fn last_of_prefix(
    items: &mut [Ranked],
    before: f64,
    reached: impl Fn(f64) -> bool,
) -> Option<(u128, f64)> {
    /// Below this a sort costs less than further selection.
    const SMALL: usize = 64;
    let (mut start, mut end, mut mass) = (0, items.len(), before);
    // The mass is usually at the head, so look at the first eighths until one does not suffice.
    let mut part = 8;
    while end - start > SMALL {
        let middle = (end - start) / part;
        let (head, _, _) = items[start..end].select_nth_unstable_by_key(middle, |item| item.0);
        let with_head = mass + head.iter().map(|item| f64::from(item.1)).sum::<f64>();
        if reached(with_head) {
            end = start + middle;
        } else {
            mass = with_head;
            start += middle;
            part = 2;
        }
    }
    items[start..end].sort_unstable_by_key(|item| item.0);
    for item in &items[start..end] {
        mass += f64::from(item.1);
        if reached(mass) {
            return Some((item.0, mass));
        }
    }
    items[start..end].last().map(|item| (item.0, mass))
}

/// Where the smallest prefix of a whole vocabulary, by [`probability_key`], ends.
pub(super) struct Cut {
    /// The last key inside.
    pub key: u128,
    /// Every token inside weighs at least this; every other token that does is in the buffer of ranked tokens.
    pub floor: f32,
}

/// Finds the [`Cut`] at which `reached` first holds; `least` is a weight below which no token can be inside.
///
/// A strided sample guesses two weights that enclose the cut, one pass over the weights checks them, and only when
/// few tokens are left between the two are they ranked (into `ranked`, whose memory is reused). `mass` is the sum
/// of all weights.
pub(super) fn cut_vocabulary(
    logits: &[f32],
    weights: &[f32],
    mass: f64,
    least: f32,
    reached: impl Fn(f64) -> bool,
    ranked: &mut Vec<Ranked>,
    sample: &mut Vec<f32>,
) -> Option<Cut> {
    /// This many tokens are cheaper to rank than another pass over a large vocabulary.
    const FEW: usize = 4096;
    // Tokens of `floor..ceiling` are in question, those from `ceiling` up are inside.
    let (mut floor, mut ceiling) = (least, f32::INFINITY);
    let (mut below, mut inside) = (Above { count: weights.len(), mass }, Above::default());
    if weights.len() > FEW {
        below = above(weights, [floor, ceiling])[0];
    }
    while below.count - inside.count > FEW {
        let Some([high, low]) =
            guess(weights, floor..ceiling, below.mass - inside.mass, |m| reached(inside.mass + m), sample)
        else {
            break;
        };
        let [at_high, at_low] = above(weights, [high, low]);
        let left = below.count - inside.count;
        if reached(at_high.mass) {
            (floor, below) = (high, at_high);
        } else {
            (ceiling, inside) = (high, at_high);
            if reached(at_low.mass) {
                (floor, below) = (low, at_low);
            } else {
                (ceiling, inside) = (low, at_low);
            }
        }
        if below.count - inside.count > left / 2 {
            break;
        }
    }
    ranked.clear();
    for_each_at_least(weights, floor.max(f32::MIN_POSITIVE), |i, w| {
        if w < ceiling {
            ranked.push((probability_key(w, logits[i], i as u32), w));
        }
    });
    let (key, _) = last_of_prefix(ranked, inside.mass, reached)?;
    Some(Cut { key, floor })
}

/// Two weights in `range`, larger first, between which a sample expects the cut; `None` when the sample is too
/// small to say or has a single value.
fn guess(
    weights: &[f32],
    range: Range<f32>,
    mass: f64,
    reached: impl Fn(f64) -> bool,
    sample: &mut Vec<f32>,
) -> Option<[f32; 2]> {
    const SAMPLE: usize = 2048;
    sample.clear();
    let stride = (weights.len() / SAMPLE).max(1) | 1;
    sample.extend(weights.iter().step_by(stride).copied().filter(|w| range.contains(w)));
    if sample.len() < 32 {
        return None;
    }
    sample.sort_unstable_by(|a, b| b.total_cmp(a));
    let scale = mass / sample.iter().map(|&w| f64::from(w)).sum::<f64>();
    let mut sum = 0.0;
    let at = sample.iter().position(|&w| {
        sum += f64::from(w) * scale;
        reached(sum)
    });
    let at = at.unwrap_or(sample.len() - 1);
    // About two standard deviations of the place in the sample.
    let spread = sample.len().isqrt();
    let high = sample[at.saturating_sub(spread)];
    let low = sample[(at + spread).min(sample.len() - 1)];
    (high > low).then_some([high, low])
}
