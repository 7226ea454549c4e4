//! llama.cpp's grammar format, rewritten for the engine.
//!
//! GBNF is about characters; the engine splits the text into lexemes first and takes the longest. What needs no recursion
//! becomes one lexeme, a regular expression, which is fast; where the longest lexeme could be the wrong one, it is taken
//! apart down to single characters, which is exact (`lexemes` tells). A grammar without recursion is one lexeme.

mod automaton;
mod chars;
mod lexemes;
#[cfg(test)]
mod naive;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::GrammarError;
use chars::CharSet;
use lexemes::{Part, Plan};

/// A part of a rule.
#[derive(Clone, Debug)]
enum Node {
    /// One of these characters.
    Chars(CharSet),
    /// This token, or any other one.
    Token { id: u32, negated: bool },
    /// One after another.
    Seq(Vec<Node>),
    /// One of them.
    Alt(Vec<Node>),
    /// At least and at most so many times.
    Repeat(Box<Node>, u32, Option<u32>),
    /// What a rule says.
    Rule(usize),
}

/// A rule while the grammar is being read.
struct Rule {
    name: String,
    body: Option<Node>,
}

/// A grammar: the bodies of its rules, and which one is the start.
#[derive(Debug)]
struct Rules {
    bodies: Vec<Node>,
    root: usize,
}

/// The grammar in the engine's dialect of Lark.
pub(super) fn to_lark(text: &str, token: &dyn Fn(&str) -> Option<u32>) -> Result<String, GrammarError> {
    let rules = parse::parse(text, token)?;
    Ok(write(&lexemes::plan(&rules)?))
}

/// Writes Lark: rules are `r0`, `r1`, …, lexemes `T0`, `T1`, ….
fn write(plan: &Plan) -> String {
    let mut out = String::from("start: r0\n");
    for (i, rule) in plan.rules.iter().enumerate() {
        let _ = write!(out, "r{i}: ");
        write_part(rule, plan, &mut out);
        out.push('\n');
    }
    for (i, lexeme) in plan.lexemes.iter().enumerate() {
        // The engine wants no empty lexemes: they are left out where they are used.
        let not_empty = if lexeme.nullable { " & /(?s:.+)/" } else { "" };
        let _ = writeln!(out, "T{i}: /{}/{not_empty}", lexeme.regex);
    }
    out
}

fn write_part(part: &Part, plan: &Plan, out: &mut String) {
    match part {
        Part::Lexeme(i) => {
            let optional = if plan.lexemes[*i].nullable { "?" } else { "" };
            let _ = write!(out, "T{i}{optional}");
        }
        Part::Token { id, negated } => {
            let _ = write!(out, "<[{}{id}]>", if *negated { "^" } else { "" });
        }
        Part::Rule(i) => {
            let _ = write!(out, "r{i}");
        }
        Part::Seq(items) => write_list(items, " ", plan, out),
        Part::Alt(items) => write_list(items, " | ", plan, out),
        Part::Repeat(inner, min, max) => {
            out.push('(');
            write_part(inner, plan, out);
            let _ = match max {
                Some(max) => write!(out, "){{{min},{max}}}"),
                None => write!(out, "){{{min},}}"),
            };
        }
    }
}

fn write_list(items: &[Part], between: &str, plan: &Plan, out: &mut String) {
    if items.is_empty() {
        return out.push_str("\"\"");
    }
    out.push('(');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(between);
        }
        write_part(item, plan, out);
    }
    out.push(')');
}
