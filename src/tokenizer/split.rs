//! Splitting a text into words with regular expressions, in linear time.
//!
//! The published patterns only ask a character for its general category, or whether it is in some list. So the
//! text is first turned into one *class* byte per character, and the patterns run on those bytes with an engine
//! that does not backtrack. The one lookahead they need, `\s+(?!\S)`, is a matter of giving back the last
//! character of a run of white space ([`Spaces`]).
//!
//! ASCII characters are their own class; of the others, white space is 0x0B (so that `\s` has it), and the rest
//! is 0xD0 plus a digit for the category. Subcategories (`\p{Lu}`) are not told apart, as in llama.cpp.

use std::ops::{Range, RangeInclusive};

use regex::bytes::{Regex, RegexBuilder};
use unicode_general_category::{GeneralCategory, get_general_category};

/// One step of a pre-tokenizer; each splits what the steps before it have left whole.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A pattern over category classes.
    Categories(&'static str, Spaces),
    /// A pattern over a list of characters, whose class is 0xE0 (all other non-ASCII ones are 0xD0).
    List(&'static [RangeInclusive<char>], &'static str),
    /// Runs of numbers, by themselves and cut into threes from the right.
    NumbersByThree,
    /// `(?=(\d{3})+(?!\d))`: cuts wherever a multiple of three ASCII digits follows.
    DigitsByThree,
}

/// How much of a run of white space that nothing else took is one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spaces {
    /// As matched.
    Whole,
    /// `\s+(?!\S)|\s+`: all but the last, which belongs to what follows; without anything following, all.
    AllButLast,
    /// The same in a pattern whose earlier alternatives take what ends in a line break.
    AllButLastUnlessLineBreak,
    /// Powers of two, the largest first, as `\s{512}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s` has it.
    PowersOfTwo,
}

/// A pre-tokenizer, ready to run.
#[derive(Debug)]
pub(super) struct Splitter {
    steps: Vec<(Step, Option<Regex>)>,
}

impl Splitter {
    /// Compiles the patterns.
    pub fn new(steps: &[Step]) -> Splitter {
        let compile = |step: &Step| match step {
            Step::Categories(pattern, _) | Step::List(_, pattern) => Some(
                RegexBuilder::new(&expand(pattern))
                    .unicode(false)
                    .build()
                    .expect("the patterns are constants of this program"),
            ),
            Step::NumbersByThree | Step::DigitsByThree => None,
        };
        Splitter { steps: steps.iter().map(|step| (*step, compile(step))).collect() }
    }

    /// The words of a text, in order and without gaps.
    pub fn words<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> + use<'t> {
        let mut ends = Vec::from_iter((!text.is_empty()).then(|| text.chars().count()));
        let mut categories = None;
        for (step, regex) in &self.steps {
            let of_list;
            let classes = match step {
                Step::List(list, _) => {
                    of_list = text.chars().map(|c| list_class(c, list)).collect::<Vec<_>>();
                    &of_list
                }
                _ => categories.get_or_insert_with(|| text.chars().map(category_class).collect::<Vec<_>>()),
            };
            ends = split(step, regex.as_ref(), classes, &ends);
        }
        let mut chars = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        let (mut start, mut passed) = (chars.next().unwrap_or(0), 0);
        ends.into_iter().map(move |end| {
            let to = chars.nth(end - passed - 1).unwrap_or(text.len());
            let word = &text[start..to];
            (start, passed) = (to, end);
            word
        })
    }
}

/// Applies a step to every piece; pieces are given by where they end.
fn split(step: &Step, regex: Option<&Regex>, classes: &[u8], pieces: &[usize]) -> Vec<usize> {
    let mut out = Ends { ends: Vec::with_capacity(pieces.len()), last: 0 };
    let mut start = 0;
    for &end in pieces {
        match (step, regex) {
            (Step::Categories(_, spaces), Some(regex)) => {
                split_piece(regex, *spaces, classes, start..end, &mut out);
            }
            (_, Some(regex)) => split_piece(regex, Spaces::Whole, classes, start..end, &mut out),
            (Step::NumbersByThree, _) => by_three(classes, start..end, is_number, true, &mut out),
            (_, None) => by_three(classes, start..end, |class| class.is_ascii_digit(), false, &mut out),
        }
        out.push(end);
        start = end;
    }
    out.ends
}

/// Ends of pieces, none of them empty.
struct Ends {
    ends: Vec<usize>,
    last: usize,
}

impl Ends {
    fn push(&mut self, end: usize) {
        if end > self.last {
            self.ends.push(end);
            self.last = end;
        }
    }
}

fn split_piece(regex: &Regex, spaces: Spaces, classes: &[u8], piece: Range<usize>, out: &mut Ends) {
    let mut at = piece.start;
    while let Some(found) = regex.find(&classes[at..piece.end]).filter(|found| !found.is_empty()) {
        let start = at + found.start();
        let end = at + found.end();
        out.push(start);
        at = start;
        if spaces.are(&classes[start..end]) {
            let mut left = end - start;
            while left > 0 {
                let taken = spaces.taken(left, end == piece.end);
                at += taken;
                left -= taken;
                out.push(at);
                // The last one may belong to what follows.
                if left <= 1 {
                    break;
                }
            }
        } else {
            at = end;
            out.push(at);
        }
    }
}

impl Spaces {
    /// True for a match that only `\s+` can have made.
    fn are(self, matched: &[u8]) -> bool {
        let [first, .., last] = matched else { return false };
        match self {
            Spaces::Whole => false,
            Spaces::AllButLast => is_space(*first) && is_space(*last),
            Spaces::AllButLastUnlessLineBreak | Spaces::PowersOfTwo => {
                is_space(*first) && is_space(*last) && !matches!(last, b'\r' | b'\n')
            }
        }
    }

    /// How many of a run of white space make the next piece, given whether the run ends what there is.
    fn taken(self, run: usize, at_end: bool) -> usize {
        let limit = if at_end { run } else { (run - 1).max(1) };
        match self {
            Spaces::PowersOfTwo => 1 << limit.min(512).ilog2(),
            _ => limit,
        }
    }
}

/// Cuts runs of digits into threes from the right and, if `isolate` is set, from everything else.
fn by_three(
    classes: &[u8],
    piece: Range<usize>,
    is_digit: impl Fn(u8) -> bool,
    isolate: bool,
    out: &mut Ends,
) {
    let mut at = piece.start;
    while at < piece.end {
        let run = classes[at..piece.end].iter().take_while(|class| is_digit(**class)).count();
        let end = at + run;
        let isolate = isolate && run > 0;
        if isolate {
            out.push(at);
        }
        (at + run % 3..end).step_by(3).for_each(|cut| out.push(cut));
        if isolate {
            out.push(end);
        }
        at = end + 1;
    }
}

fn is_space(class: u8) -> bool {
    matches!(class, b' ' | b'\t'..=b'\r')
}

fn is_number(class: u8) -> bool {
    class.is_ascii_digit() || class == 0xD1
}

/// Writes `\p{X}` out as the classes that it means.
fn expand(pattern: &str) -> String {
    let members = [
        (r"\p{N}", r"0-9\xD1"),
        (r"\p{L}", r"A-Za-z\xD2"),
        (r"\p{P}", r"!-#%-*,-/:;?@\[\\\]_{}\xD3"),
        (r"\p{M}", r"\xD4"),
        (r"\p{S}", r"$+<=>\^`|~\xD5"),
    ];
    let mut expanded = String::with_capacity(pattern.len() * 2);
    let mut in_brackets = false;
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        if let Some((name, members)) = members.iter().find(|(name, _)| rest.starts_with(name)) {
            let (open, close) = if in_brackets { ("", "") } else { ("[", "]") };
            expanded.extend([open, members, close]);
            rest = &rest[name.len()..];
            continue;
        }
        let len = if c == '\\' { 2 } else { c.len_utf8() };
        in_brackets = match c {
            '[' => true,
            ']' => false,
            _ => in_brackets,
        };
        expanded.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    expanded
}

/// White space beyond ASCII.
fn is_wide_space(c: char) -> bool {
    matches!(
        c,
        '\u{85}' | '\u{a0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200a}' | '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

fn list_class(c: char, list: &[RangeInclusive<char>]) -> u8 {
    match c {
        _ if c.is_ascii() => c as u8,
        _ if is_wide_space(c) => 0x0B,
        _ if list.iter().any(|range| range.contains(&c)) => 0xE0,
        _ => 0xD0,
    }
}

fn category_class(c: char) -> u8 {
    use GeneralCategory::*;
    if c.is_ascii() {
        return c as u8;
    }
    if is_wide_space(c) {
        return 0x0B;
    }
    match get_general_category(c) {
        DecimalNumber | LetterNumber | OtherNumber => 0xD1,
        UppercaseLetter | LowercaseLetter | TitlecaseLetter | ModifierLetter | OtherLetter => 0xD2,
        ConnectorPunctuation | DashPunctuation | OpenPunctuation | ClosePunctuation | InitialPunctuation
        | FinalPunctuation | OtherPunctuation => 0xD3,
        NonspacingMark | SpacingMark | EnclosingMark => 0xD4,
        MathSymbol | CurrencySymbol | ModifierSymbol | OtherSymbol => 0xD5,
        _ => 0xD0,
    }
}
