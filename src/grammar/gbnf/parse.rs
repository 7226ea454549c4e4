//! GBNF, read.

use std::collections::HashMap;

use super::chars::CharSet;
use super::{Node, Rule, Rules};
use crate::grammar::GrammarError;

/// Rules of a grammar.
const MAX_RULES: usize = 2_000;
/// How deep parentheses may be nested.
const MAX_DEPTH: usize = 64;
/// The largest number of a repetition (llama.cpp's).
const MAX_REPEAT: u32 = 2_000;

/// Reads a grammar. `token` gives the id of a token by `<[id]>` or its text in angle brackets.
pub fn parse(text: &str, token: &dyn Fn(&str) -> Option<u32>) -> Result<Rules, GrammarError> {
    let mut parser =
        Parser { chars: text.chars().collect(), at: 0, token, rules: Vec::new(), ids: HashMap::new() };
    parser.skip(true);
    while parser.at < parser.chars.len() {
        parser.rule()?;
        parser.skip(true);
    }
    let undefined = parser.rules.iter().find(|rule| rule.body.is_none());
    if let Some(rule) = undefined {
        return Err(GrammarError::Rules(format!("the rule {:?} is used, but not defined", rule.name)));
    }
    let Some(&root) = parser.ids.get("root") else {
        return Err(GrammarError::Rules("there is no rule \"root\"".to_owned()));
    };
    let bodies = parser.rules.into_iter().filter_map(|rule| rule.body).collect();
    Ok(Rules { bodies, root })
}

struct Parser<'a> {
    chars: Vec<char>,
    at: usize,
    token: &'a dyn Fn(&str) -> Option<u32>,
    rules: Vec<Rule>,
    ids: HashMap<String, usize>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        self.at += usize::from(found);
        found
    }

    /// The error of what is found at the current place.
    fn expected(&self, what: &str) -> GrammarError {
        let found = self.peek().map_or_else(|| "the end".to_owned(), |c| format!("{c:?}"));
        self.error(format!("expected {what}, found {found}"))
    }

    fn error(&self, what: String) -> GrammarError {
        let before = &self.chars[..self.at.min(self.chars.len())];
        let line = before.iter().filter(|&&c| c == '\n').count() + 1;
        let column = before.iter().rev().take_while(|&&c| c != '\n').count() + 1;
        GrammarError::Gbnf { line, column, what }
    }

    /// Skips blanks and comments, and line ends if `lines`.
    fn skip(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\r' | '\n' if lines => self.at += 1,
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n' && c != '\r') {
                        self.at += 1;
                    }
                }
                _ => break,
            }
        }
    }

    fn name(&mut self) -> Result<usize, GrammarError> {
        let from = self.at;
        while self.peek().is_some_and(is_name) {
            self.at += 1;
        }
        if from == self.at {
            return Err(self.expected("the name of a rule"));
        }
        let name: String = self.chars[from..self.at].iter().collect();
        let next = self.rules.len();
        let id = *self.ids.entry(name.clone()).or_insert(next);
        if id == next {
            if next == MAX_RULES {
                return Err(self.error(format!("more than {MAX_RULES} rules")));
            }
            self.rules.push(Rule { name, body: None });
        }
        Ok(id)
    }

    fn rule(&mut self) -> Result<(), GrammarError> {
        let id = self.name()?;
        if self.rules[id].body.is_some() {
            return Err(self.error(format!("the rule {:?} is defined twice", self.rules[id].name)));
        }
        self.skip(false);
        for c in "::=".chars() {
            if !self.take(c) {
                return Err(self.expected("::="));
            }
        }
        self.skip(true);
        let body = self.alternatives(0)?;
        self.rules[id].body = Some(body);
        match self.peek() {
            None | Some('\n' | '\r') => Ok(()),
            Some(_) => Err(self.expected("the end of the rule")),
        }
    }

    /// Alternatives up to a closing parenthesis, or to the end of the line at the outermost level.
    fn alternatives(&mut self, depth: usize) -> Result<Node, GrammarError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("more than {MAX_DEPTH} parentheses inside each other")));
        }
        let mut options = vec![self.sequence(depth)?];
        while self.take('|') {
            self.skip(true);
            options.push(self.sequence(depth)?);
        }
        Ok(match options.len() {
            1 => options.remove(0),
            _ => Node::Alt(options),
        })
    }

    fn sequence(&mut self, depth: usize) -> Result<Node, GrammarError> {
        let mut items: Vec<Node> = Vec::new();
        while let Some(item) = self.item(depth)? {
            let item = self.repeated(item, depth)?;
            items.push(item);
        }
        Ok(match items.len() {
            1 => items.remove(0),
            _ => Node::Seq(items),
        })
    }

    /// One symbol; none where the sequence ends.
    fn item(&mut self, depth: usize) -> Result<Option<Node>, GrammarError> {
        let Some(c) = self.peek() else { return Ok(None) };
        let node = match c {
            '"' => self.literal()?,
            '[' => self.class()?,
            '.' => {
                self.at += 1;
                Node::Chars(CharSet::any())
            }
            '<' | '!' => self.token()?,
            '(' => {
                self.at += 1;
                self.skip(true);
                let inner = self.alternatives(depth + 1)?;
                if !self.take(')') {
                    return Err(self.expected("')'"));
                }
                inner
            }
            c if is_name(c) => Node::Rule(self.name()?),
            '*' | '+' | '?' | '{' => return Err(self.expected("something to repeat")),
            _ => return Ok(None),
        };
        self.skip(depth > 0);
        Ok(Some(node))
    }

    /// The symbol with the repetitions that follow it.
    fn repeated(&mut self, mut node: Node, depth: usize) -> Result<Node, GrammarError> {
        loop {
            let (min, max) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    let bounds = self.bounds()?;
                    node = Node::Repeat(Box::new(node), bounds.0, bounds.1);
                    self.skip(depth > 0);
                    continue;
                }
                _ => return Ok(node),
            };
            self.at += 1;
            node = Node::Repeat(Box::new(node), min, max);
            self.skip(depth > 0);
        }
    }

    /// `{m}`, `{m,}`, `{m,n}` or `{,n}`.
    fn bounds(&mut self) -> Result<(u32, Option<u32>), GrammarError> {
        self.at += 1;
        self.skip(false);
        let min = self.number()?;
        self.skip(false);
        if self.take('}') {
            let n = min.ok_or_else(|| self.error("expected a number in {}".to_owned()))?;
            return Ok((n, Some(n)));
        }
        if !self.take(',') {
            return Err(self.expected("',' or '}'"));
        }
        self.skip(false);
        let max = self.number()?;
        self.skip(false);
        if !self.take('}') {
            return Err(self.expected("'}'"));
        }
        let min = min.unwrap_or(0);
        if max.is_some_and(|max| max < min) {
            return Err(self.error("a repetition at most fewer times than at least".to_owned()));
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Result<Option<u32>, GrammarError> {
        let from = self.at;
        let mut n = 0u32;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            n = n.saturating_mul(10).saturating_add(digit);
            self.at += 1;
        }
        if n > MAX_REPEAT {
            return Err(self.error(format!("at most {MAX_REPEAT} repetitions, found {n}")));
        }
        Ok((from != self.at).then_some(n))
    }

    fn literal(&mut self) -> Result<Node, GrammarError> {
        self.at += 1;
        let mut chars = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.expected("'\"'")),
                Some('"') => break,
                Some(_) => chars.push(Node::Chars(CharSet::one(self.char()?))),
            }
        }
        self.at += 1;
        Ok(if chars.len() == 1 { chars.remove(0) } else { Node::Seq(chars) })
    }

    fn class(&mut self) -> Result<Node, GrammarError> {
        self.at += 1;
        let negated = self.take('^');
        let mut ranges = Vec::new();
        while self.peek() != Some(']') {
            let low = self.char()? as u32;
            let is_range = self.peek() == Some('-') && self.chars.get(self.at + 1) != Some(&']');
            let high = if is_range {
                self.at += 1;
                self.char()? as u32
            } else {
                low
            };
            if high < low {
                return Err(self.error("a range of characters that ends before it begins".to_owned()));
            }
            ranges.push((low, high));
        }
        self.at += 1;
        let set = CharSet::new(ranges);
        let set = if negated { set.negated() } else { set };
        if set.is_empty() {
            return Err(self.error("a class without any character".to_owned()));
        }
        Ok(Node::Chars(set))
    }

    /// A character of a literal or a class.
    fn char(&mut self) -> Result<char, GrammarError> {
        let c = self.peek().ok_or_else(|| self.expected("a character"))?;
        self.at += 1;
        if c != '\\' {
            return Ok(c);
        }
        let escape = self.peek();
        self.at += 1;
        match escape {
            Some('x') => self.code(2),
            Some('u') => self.code(4),
            Some('U') => self.code(8),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some('n') => Ok('\n'),
            Some(c @ ('\\' | '"' | '[' | ']')) => Ok(c),
            _ => {
                self.at -= 1;
                Err(self.expected("one of t r n x u U \\ \" [ ] after a backslash"))
            }
        }
    }

    /// A character by the hexadecimal digits of its code point.
    fn code(&mut self, n_digits: usize) -> Result<char, GrammarError> {
        let mut code = 0u32;
        for _ in 0..n_digits {
            let digit = self.peek().and_then(|c| c.to_digit(16));
            code = code << 4 | digit.ok_or_else(|| self.expected("a hexadecimal digit"))?;
            self.at += 1;
        }
        char::from_u32(code).ok_or_else(|| self.error(format!("U+{code:X} is not a character")))
    }

    /// `<[id]>` or `<text>`, and either after `!`.
    fn token(&mut self) -> Result<Node, GrammarError> {
        let negated = self.take('!');
        let from = self.at;
        if !self.take('<') {
            return Err(self.expected("'<'"));
        }
        while self.peek().is_some_and(|c| c != '>' && c != '\n') {
            self.at += 1;
        }
        if !self.take('>') {
            return Err(self.expected("'>'"));
        }
        let name: String = self.chars[from..self.at].iter().collect();
        let id =
            (self.token)(&name).ok_or_else(|| self.error(format!("{name} is not a token of this model")))?;
        Ok(Node::Token { id, negated })
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}
