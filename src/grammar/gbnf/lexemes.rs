//! Which parts of a grammar can be lexemes: regular ones whose longest match is always the right one.
//!
//! The engine reads all lexemes that may come at a place at once and takes the longest. That is wrong where a lexeme could
//! have ended, another one (or itself, longer) could go on with the next character, and that character may also follow the
//! first. Such a longer lexeme is taken apart into its parts, until nothing of the kind is left: single characters never go on.
//! The test errs on the safe side: any two lexemes count as possible at the same place.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::automaton::Automaton;
use super::chars::CharSet;
use super::{Node, Rules};
use crate::grammar::GrammarError;

/// Characters, alternatives and the like of all rules, those that are used by others counted with them.
const MAX_SIZE: usize = 10_000;
/// How many rules may be used by one another in a row, without recursion.
const MAX_HEIGHT: usize = 200;
/// Pairs of ways on looked at.
const MAX_PAIRS: usize = 5_000_000;
/// What stands for a count without an end.
const MANY: usize = usize::MAX / 2;

/// A grammar over lexemes.
#[derive(Debug)]
pub struct Plan {
    /// The rules that are left; the first is the start.
    pub rules: Vec<Part>,
    /// Lexemes, each regular expression once.
    pub lexemes: Vec<Lexeme>,
}

/// A part of a rule.
#[derive(Clone, Debug)]
pub enum Part {
    /// A lexeme, or nothing if that matches the empty text.
    Lexeme(usize),
    /// This token, or any other one.
    Token { id: u32, negated: bool },
    /// One after another.
    Seq(Vec<Part>),
    /// One of them.
    Alt(Vec<Part>),
    /// At least and at most so many times.
    Repeat(Box<Part>, u32, Option<u32>),
    /// A rule of the plan.
    Rule(usize),
}

/// A regular part of a grammar.
#[derive(Debug)]
pub struct Lexeme {
    /// For the engine.
    pub regex: String,
    /// True if it matches the empty text.
    pub nullable: bool,
    automaton: Automaton,
}

/// The lexemes of a grammar and what is left of its rules.
///
/// # Errors
/// A grammar that is too large, or for which this cannot be told in reasonable time.
pub fn plan(rules: &Rules) -> Result<Plan, GrammarError> {
    let regular = regular(rules)?;
    let mut apart = HashSet::new();
    let mut fuel = MAX_PAIRS;
    loop {
        let plan = Planner::new(rules, &regular, &apart).plan();
        let long = too_long(&plan, &mut fuel).ok_or(GrammarError::TooLarge {
            what: "steps to find the grammar's lexemes",
            limit: MAX_PAIRS,
            found: MAX_PAIRS + 1,
        })?;
        if long.is_empty() {
            return Ok(plan);
        }
        apart.extend(long);
    }
}

/// Which rules need no recursion and no tokens. Written out they must have a reasonable size.
fn regular(rules: &Rules) -> Result<Vec<bool>, GrammarError> {
    // Size and height of a rule, once those it uses are known.
    let mut known: Vec<Option<(usize, usize)>> = vec![None; rules.bodies.len()];
    loop {
        let mut changed = false;
        for (i, body) in rules.bodies.iter().enumerate() {
            if known[i].is_none()
                && let Some(extent) = extent(body, &known)
            {
                known[i] = Some((extent.0, extent.1 + 1));
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let size = known.iter().flatten().map(|known| known.0).max().unwrap_or(0);
    let height = known.iter().flatten().map(|known| known.1).max().unwrap_or(0);
    let check = |what, limit, found| match found > limit {
        true => Err(GrammarError::TooLarge { what, limit, found }),
        false => Ok(()),
    };
    check("symbols of the grammar with its rules written out", MAX_SIZE, size)?;
    check("rules of the grammar used by one another", MAX_HEIGHT, height)?;
    Ok(known.iter().map(Option::is_some).collect())
}

/// Size and height of a node, if all rules in it are known.
fn extent(node: &Node, known: &[Option<(usize, usize)>]) -> Option<(usize, usize)> {
    match node {
        Node::Chars(_) => Some((1, 0)),
        Node::Token { .. } => None,
        Node::Seq(items) | Node::Alt(items) => {
            items.iter().try_fold((1, 0), |(size, height): (usize, usize), item| {
                let item = extent(item, known)?;
                Some(((size + item.0).min(MANY), height.max(item.1)))
            })
        }
        Node::Repeat(inner, ..) => extent(inner, known).map(|(size, height)| ((size + 1).min(MANY), height)),
        Node::Rule(rule) => known[*rule],
    }
}

/// Turns rules into a plan.
struct Planner<'a> {
    rules: &'a Rules,
    regular: &'a [bool],
    /// Regular expressions that may not be lexemes.
    apart: &'a HashSet<String>,
    plan: Plan,
    lexemes: HashMap<String, usize>,
    /// Numbers of the rules in the plan, and those that are still to be written there.
    numbers: HashMap<usize, usize>,
    open: Vec<usize>,
}

impl<'a> Planner<'a> {
    fn new(rules: &'a Rules, regular: &'a [bool], apart: &'a HashSet<String>) -> Planner<'a> {
        Planner {
            rules,
            regular,
            apart,
            plan: Plan { rules: Vec::new(), lexemes: Vec::new() },
            lexemes: HashMap::new(),
            numbers: HashMap::new(),
            open: Vec::new(),
        }
    }

    fn plan(mut self) -> Plan {
        self.number(self.rules.root);
        let mut parts = HashMap::new();
        while let Some(rule) = self.open.pop() {
            let part = self.part(&self.rules.bodies[rule]);
            parts.insert(self.numbers[&rule], part);
        }
        self.plan.rules = (0..parts.len()).filter_map(|i| parts.remove(&i)).collect();
        self.plan
    }

    fn number(&mut self, rule: usize) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(rule).or_insert_with(|| {
            self.open.push(rule);
            next
        })
    }

    fn part(&mut self, node: &Node) -> Part {
        if self.is_regular(node) {
            let mut regex = String::new();
            write_regex(node, self.rules, &mut regex);
            if matches!(node, Node::Chars(_)) || !self.apart.contains(&regex) {
                return Part::Lexeme(self.lexeme(node, regex));
            }
        }
        match node {
            Node::Chars(_) => Part::Seq(Vec::new()),
            Node::Token { id, negated } => Part::Token { id: *id, negated: *negated },
            Node::Seq(items) => Part::Seq(items.iter().map(|item| self.part(item)).collect()),
            Node::Alt(items) => Part::Alt(items.iter().map(|item| self.part(item)).collect()),
            Node::Repeat(inner, min, max) => Part::Repeat(Box::new(self.part(inner)), *min, *max),
            Node::Rule(rule) => Part::Rule(self.number(*rule)),
        }
    }

    fn is_regular(&self, node: &Node) -> bool {
        match node {
            Node::Chars(_) => true,
            Node::Token { .. } => false,
            Node::Seq(items) | Node::Alt(items) => items.iter().all(|item| self.is_regular(item)),
            Node::Repeat(inner, ..) => self.is_regular(inner),
            Node::Rule(rule) => self.regular[*rule],
        }
    }

    fn lexeme(&mut self, node: &Node, regex: String) -> usize {
        if let Some(&i) = self.lexemes.get(&regex) {
            return i;
        }
        let automaton = Automaton::new(node, self.rules);
        let nullable = automaton.is_nullable();
        let i = self.plan.lexemes.len();
        self.lexemes.insert(regex.clone(), i);
        self.plan.lexemes.push(Lexeme { regex, nullable, automaton });
        i
    }
}

fn write_regex(node: &Node, rules: &Rules, out: &mut String) {
    let mut list = |items: &[Node], between: &str| {
        out.push_str("(?:");
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(between);
            }
            write_regex(item, rules, out);
        }
        out.push(')');
    };
    match node {
        Node::Chars(chars) => chars.write_regex(out),
        Node::Token { .. } => {}
        Node::Seq(items) => list(items, ""),
        Node::Alt(items) => list(items, "|"),
        Node::Repeat(inner, min, max) => {
            out.push_str("(?:");
            write_regex(inner, rules, out);
            let _ = match max {
                Some(max) => write!(out, "){{{min},{max}}}"),
                None => write!(out, "){{{min},}}"),
            };
        }
        Node::Rule(rule) => write_regex(&rules.bodies[*rule], rules, out),
    }
}

/// The regular expressions of lexemes that could take what belongs to others; none if the fuel runs out.
fn too_long(plan: &Plan, fuel: &mut usize) -> Option<HashSet<String>> {
    let follow = Follow::of(plan);
    let mut long = HashSet::new();
    for (short, follow) in plan.lexemes.iter().zip(&follow) {
        if follow.is_empty() {
            continue;
        }
        for other in &plan.lexemes {
            if short.automaton.goes_on(&other.automaton, fuel)?.meets(follow) {
                long.insert(other.regex.clone());
            }
        }
    }
    Some(long)
}

/// What may come after each lexeme: the first characters of the next.
struct Follow<'a> {
    plan: &'a Plan,
    /// First characters of each rule, and whether it may be empty.
    first: Vec<(CharSet, bool)>,
    after_rule: Vec<CharSet>,
    after_lexeme: Vec<CharSet>,
    changed: bool,
}

impl<'a> Follow<'a> {
    fn of(plan: &'a Plan) -> Vec<CharSet> {
        let mut follow = Follow {
            plan,
            first: vec![(CharSet::default(), false); plan.rules.len()],
            after_rule: vec![CharSet::default(); plan.rules.len()],
            after_lexeme: vec![CharSet::default(); plan.lexemes.len()],
            changed: true,
        };
        while std::mem::take(&mut follow.changed) {
            for (i, rule) in plan.rules.iter().enumerate() {
                let (chars, nullable) = follow.first(rule);
                let known = &mut follow.first[i];
                follow.changed |= known.0.extend(&chars) | (nullable != known.1);
                known.1 |= nullable;
            }
        }
        follow.changed = true;
        while std::mem::take(&mut follow.changed) {
            for (i, rule) in plan.rules.iter().enumerate() {
                let after = follow.after_rule[i].clone();
                follow.spread(rule, &after);
            }
        }
        follow.after_lexeme
    }

    fn first(&self, part: &Part) -> (CharSet, bool) {
        match part {
            Part::Lexeme(i) => {
                let lexeme = &self.plan.lexemes[*i];
                (lexeme.automaton.first(), lexeme.nullable)
            }
            // Tokens with text may begin with anything; those without are told from lexemes by the engine.
            Part::Token { .. } => (CharSet::any(), false),
            Part::Rule(i) => self.first[*i].clone(),
            Part::Seq(items) => {
                let mut chars = CharSet::default();
                for item in items {
                    let (first, nullable) = self.first(item);
                    chars.extend(&first);
                    if !nullable {
                        return (chars, false);
                    }
                }
                (chars, true)
            }
            Part::Alt(items) => {
                items.iter().map(|item| self.first(item)).fold((CharSet::default(), false), |mut all, one| {
                    all.0.extend(&one.0);
                    (all.0, all.1 || one.1)
                })
            }
            Part::Repeat(inner, min, max) => {
                let (chars, nullable) = self.first(inner);
                (if *max == Some(0) { CharSet::default() } else { chars }, nullable || *min == 0)
            }
        }
    }

    /// Tells the lexemes and rules of a part what comes after it.
    fn spread(&mut self, part: &Part, after: &CharSet) {
        match part {
            Part::Lexeme(i) => self.changed |= self.after_lexeme[*i].extend(after),
            Part::Token { .. } => {}
            Part::Rule(i) => self.changed |= self.after_rule[*i].extend(after),
            Part::Seq(items) => {
                let mut after = after.clone();
                for item in items.iter().rev() {
                    self.spread(item, &after);
                    let (mut first, nullable) = self.first(item);
                    if nullable {
                        first.extend(&after);
                    }
                    after = first;
                }
            }
            Part::Alt(items) => items.iter().for_each(|item| self.spread(item, after)),
            Part::Repeat(inner, _, max) => {
                let mut after = after.clone();
                if *max != Some(1) {
                    after.extend(&self.first(inner).0);
                }
                self.spread(inner, &after);
            }
        }
    }
}
