//! Finding the smallest prefix of an ordering whose mass reaches a goal, without sorting everything.

use std::ops::Range;

use qgguf_kernels::{Above, Kernels};

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
    /// Every token inside weighs at least this; the tokens outside that do are all in the buffer of ranked tokens.
    pub floor: f32,
    /// How many tokens are inside.
    pub count: usize,
    /// Whether all tokens inside are in the buffer of ranked tokens.
    pub all_ranked: bool,
}

/// A whole vocabulary with its weights.
pub(super) struct Vocabulary<'a> {
    pub kernels: Kernels,
    pub logits: &'a [f32],
    pub weights: &'a [f32],
}

impl Vocabulary<'_> {
    /// Finds the [`Cut`] at which `reached` first holds. `mass` is the sum of all weights, and no token that weighs
    /// less than `least` can be inside.
    ///
    /// When the heaviest tokens are few and reach, only those are ranked. Otherwise a strided sample guesses two
    /// weights that enclose the cut, one pass over the weights checks them, and only when few tokens are left
    /// between the two are they ranked, into `ranked`.
    pub fn cut(
        &self,
        mass: f64,
        least: f32,
        reached: impl Fn(f64) -> bool,
        ranked: &mut Vec<Ranked>,
        sample: &mut Vec<f32>,
        ids: &mut Vec<u32>,
    ) -> Option<Cut> {
        /// This many tokens are cheaper to rank than another pass over a large vocabulary.
        const FEW: usize = 4096;
        /// A model that is fairly sure has its mass in tokens of at least this weight.
        const HEAD: f32 = 1.0 / 512.0;
        let head = least.max(HEAD);
        if self.sampled().filter(|&w| w >= head).count() * self.stride() <= FEW {
            self.rank(head, f32::INFINITY, ranked, ids);
            if reached(ranked.iter().map(|item| f64::from(item.1)).sum()) {
                let (key, _) = last_of_prefix(ranked, 0.0, reached)?;
                let count = ranked.iter().filter(|item| item.0 <= key).count();
                return Some(Cut { key, floor: head, count, all_ranked: true });
            }
        }
        // Tokens of `floor..ceiling` are in question, those from `ceiling` up are inside.
        let (mut floor, mut ceiling) = (least, f32::INFINITY);
        let mut from_floor = Above { count: self.weights.len(), mass };
        let mut inside = Above::default();
        while from_floor.count - inside.count > FEW {
            let open = from_floor.mass - inside.mass;
            let guess = self.guess(floor..ceiling, open, |m| reached(inside.mass + m), sample);
            let Some(thresholds) = guess else { break };
            let before = from_floor.count - inside.count;
            // From the higher threshold down: the first that reaches is the new floor.
            for (threshold, above) in
                thresholds.into_iter().zip(self.kernels.mass_above(self.weights, thresholds))
            {
                if reached(above.mass) {
                    (floor, from_floor) = (threshold, above);
                    break;
                }
                (ceiling, inside) = (threshold, above);
            }
            if from_floor.count - inside.count > before / 2 {
                break;
            }
        }
        self.rank(floor, ceiling, ranked, ids);
        let (key, _) = last_of_prefix(ranked, inside.mass, reached)?;
        let count = inside.count + ranked.iter().filter(|item| item.0 <= key).count();
        Some(Cut { key, floor, count, all_ranked: inside.count == 0 })
    }

    /// Fills `ranked` with the tokens that weigh at least `floor`, above 0, and less than `ceiling`.
    fn rank(&self, floor: f32, ceiling: f32, ranked: &mut Vec<Ranked>, ids: &mut Vec<u32>) {
        ids.clear();
        self.kernels.indices_within(self.weights, floor.max(f32::MIN_POSITIVE), ceiling, ids);
        ranked.clear();
        ranked.extend(ids.iter().map(|&id| {
            let (weight, logit) = (self.weights[id as usize], self.logits[id as usize]);
            (probability_key(weight, logit, id), weight)
        }));
    }

    /// About 2048 weights from all over the vocabulary.
    fn sampled(&self) -> impl Iterator<Item = f32> {
        self.weights.iter().step_by(self.stride()).copied()
    }

    /// Odd, to stay out of step with whatever pattern the vocabulary has.
    fn stride(&self) -> usize {
        (self.weights.len() / 2048).max(1) | 1
    }

    /// Two weights in `range`, the larger first, between which a sample expects the cut; `None` when so few tokens
    /// are in the range that they can be ranked, or when the sample cannot tell them apart. `mass` is the range's.
    fn guess(
        &self,
        range: Range<f32>,
        mass: f64,
        reached: impl Fn(f64) -> bool,
        sample: &mut Vec<f32>,
    ) -> Option<[f32; 2]> {
        sample.clear();
        sample.extend(self.sampled().filter(|w| range.contains(w)));
        if sample.len() < 48 {
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
        // One to two standard deviations of the cut's place in the sample.
        let spread = sample.len().isqrt() * 3 / 2;
        let high = sample[at.saturating_sub(spread)];
        let low = sample[(at + spread).min(sample.len() - 1)];
        (high > low).then_some([high, low])
    }
}
