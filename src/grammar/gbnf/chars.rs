//! Sets of characters.

use std::fmt::Write;

/// The last code point.
const LAST: u32 = 0x10_FFFF;

/// A set of code points: ascending ranges, both ends included, with gaps between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CharSet(Vec<(u32, u32)>);

impl CharSet {
    /// Every character.
    pub fn any() -> CharSet {
        CharSet(vec![(0, LAST)])
    }

    /// One character.
    pub fn one(c: char) -> CharSet {
        CharSet(vec![(c as u32, c as u32)])
    }

    /// The characters of these ranges, in any order.
    pub fn new(mut ranges: Vec<(u32, u32)>) -> CharSet {
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match joined.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => joined.push((low, high)),
            }
        }
        CharSet(joined)
    }

    /// All others.
    pub fn negated(&self) -> CharSet {
        let mut ranges = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0;
        for &(low, high) in &self.0 {
            if next < low {
                ranges.push((next, low - 1));
            }
            next = high + 1;
        }
        if next <= LAST {
            ranges.push((next, LAST));
        }
        CharSet(ranges)
    }

    /// Adds another set; true if that changed anything.
    pub fn extend(&mut self, other: &CharSet) -> bool {
        if other.0.is_empty() || *self == *other {
            return false;
        }
        let union = CharSet::new(self.0.iter().chain(&other.0).copied().collect());
        let changed = union != *self;
        *self = union;
        changed
    }

    /// True if both have a character.
    pub fn meets(&self, other: &CharSet) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.1 < y.0 {
                a.next();
            } else if y.1 < x.0 {
                b.next();
            } else {
                return true;
            }
        }
        false
    }

    /// True without a character.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the character is in it.
    #[cfg(test)]
    pub fn contains(&self, c: char) -> bool {
        self.0.iter().any(|&(low, high)| (low..=high).contains(&(c as u32)))
    }

    /// Appends it as a class of a regular expression.
    pub fn write_regex(&self, out: &mut String) {
        out.push('[');
        for &(low, high) in &self.0 {
            let _ = write!(out, "\\x{{{low:X}}}");
            if low != high {
                let _ = write!(out, "-\\x{{{high:X}}}");
            }
        }
        out.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_negated() {
        let set = CharSet::new(vec![(5, 7), (1, 3), (4, 4), (10, 10)]);
        assert_eq!(set, CharSet(vec![(1, 7), (10, 10)]));
        assert_eq!(set.negated(), CharSet(vec![(0, 0), (8, 9), (11, LAST)]));
        assert_eq!(set.negated().negated(), set);
        assert_eq!(CharSet::any().negated(), CharSet::default());
    }

    #[test]
    fn sets_meet_where_a_character_is_in_both() {
        let set = |ranges: &[(u32, u32)]| CharSet::new(ranges.to_vec());
        assert!(set(&[(1, 3), (8, 9)]).meets(&set(&[(4, 8)])));
        assert!(!set(&[(1, 3), (8, 9)]).meets(&set(&[(4, 7), (10, 20)])));
        assert!(!CharSet::default().meets(&CharSet::any()));
    }
}
