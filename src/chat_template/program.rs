//! A compiled template, with Python's operators and with bounds on what it may build.
//!
//! The engine's operators and statements cannot be replaced from outside, so its instructions are, by calls of filters
//! under names that no template can write:
//! - `+` adds lists lazily and without charging for it there: a template that doubles a list forty times makes it allocate
//!   terabytes. `~` has its own notation of floats. `<` orders values of different types, which Python refuses, and `for`
//!   goes over none.
//! - Values are compared, hashed, printed and dropped recursively and without charge. So whatever a template builds out
//!   of other values is walked once, at the budget's cost: it cannot hold itself, nor nest deeply, nor be a small graph
//!   that is a huge tree.

use std::collections::BTreeMap;

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, eval, make_string_output, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};

use super::TemplateError;
use super::python::{pay_for_bytes, str_of};

const NAME: &str = "chat";

/// The instructions of a template and of its blocks.
pub(super) struct Program<'a> {
    main: Instructions<'a>,
    blocks: BTreeMap<&'a str, Instructions<'a>>,
}

impl<'a> Program<'a> {
    /// Compiles a template as [`super::source::for_engine`] makes it.
    pub(super) fn compile(source: &'a str) -> Result<Program<'a>, TemplateError> {
        let failed = |e: Error| TemplateError::new(&e, source);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(failed)?;
        let mut generator = CodeGenerator::new(NAME, source);
        generator.compile_stmt(&parse(source, NAME, syntax).map_err(failed)?);
        let (main, blocks) = generator.finish();
        let main = checked(&main, source)?;
        let blocks = blocks.iter().map(|(name, block)| Ok((*name, checked(block, source)?)));
        Ok(Program { main, blocks: blocks.collect::<Result<_, TemplateError>>()? })
    }

    /// Renders with the variables of `context`. The environment needs the filters of [`add_operators`].
    pub(super) fn run(&self, env: &Environment<'_>, context: Value) -> Result<String, Error> {
        let mut out = String::new();
        eval(env, &self.main, context, &self.blocks, &mut make_string_output(&mut out), AutoEscape::None)?;
        Ok(out)
    }
}

/// A call of a filter with `n` arguments, without a slot in the engine's cache.
fn filter(name: &'static str, n: u16) -> Instruction<'static> {
    Instruction::ApplyFilter(name, Some(n), u8::MAX)
}

/// The instructions with operators replaced and checks inserted.
fn checked<'a>(old: &Instructions<'a>, source: &'a str) -> Result<Instructions<'a>, TemplateError> {
    let mut groups = Vec::new();
    let mut previous = None;
    while let Some(instruction) = old.get(groups.len() as u32) {
        let group = replacement(instruction, previous);
        let line = old.get_line(groups.len() as u32);
        groups.push(group.map_err(|detail| TemplateError::syntax(line, detail))?);
        previous = Some(instruction);
    }
    let mut len = 0;
    let mut begins: Vec<u32> = Vec::with_capacity(groups.len() + 1);
    for group in &groups {
        begins.push(len);
        len += group.len() as u32;
    }
    begins.push(len);

    let mut new = Instructions::new(NAME, source);
    for (at, group) in (0..).zip(groups) {
        for mut instruction in group {
            relocate(&mut instruction, &begins);
            match (old.get_span(at), old.get_line(at)) {
                (Some(span), _) => new.add_with_span(instruction, span),
                (None, Some(line)) => new.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX)),
                (None, None) => new.add(instruction),
            };
        }
    }
    Ok(new)
}

/// Filters that make new containers of the values they are given.
const BUILDERS: [&str; 8] = ["batch", "chain", "dictsort", "groupby", "list", "map", "slice", "zip"];

/// What stands for an instruction.
fn replacement<'a>(
    old: &Instruction<'a>,
    previous: Option<&Instruction<'a>>,
) -> Result<Vec<Instruction<'a>>, &'static str> {
    use Instruction as I;
    let bounded = || filter("[bounded]", 1);
    Ok(match old {
        I::Add => vec![filter("+", 2)],
        I::StringConcat => vec![filter("~", 2)],
        I::Lt => vec![filter("<", 2)],
        I::Lte => vec![filter("<=", 2)],
        I::Gt => vec![filter(">", 2)],
        I::Gte => vec![filter(">=", 2)],
        I::PushLoop(_) => vec![filter("[for]", 1), old.clone()],
        I::BuildList(_)
        | I::BuildTuple(_)
        | I::BuildMap(_)
        | I::Mul
        | I::CallFunction("dict" | "namespace", _) => {
            vec![old.clone(), bounded()]
        }
        I::ApplyFilter(name, ..) if BUILDERS.contains(name) => vec![old.clone(), bounded()],
        I::Eq | I::Ne | I::In | I::CompareAndPreserve(_) => {
            vec![bounded(), I::Swap, bounded(), I::Swap, old.clone()]
        }
        // The namespace is looked at once more, because only now it may hold itself.
        I::SetAttr(_) => match previous {
            Some(I::Lookup(name)) => vec![old.clone(), I::Lookup(name), bounded(), I::DiscardTop],
            _ => return Err("only attributes of a namespace variable can be set"),
        },
        _ => vec![old.clone()],
    })
}

/// Turns an old jump target into a new one.
fn relocate(instruction: &mut Instruction, begins: &[u32]) {
    use Instruction as I;
    match instruction {
        I::Jump(target)
        | I::JumpIfFalse(target)
        | I::JumpIfFalseOrPop(target)
        | I::JumpIfTrueOrPop(target)
        | I::Iterate(target)
        | I::BuildMacro(_, target, _) => *target = begins[*target as usize],
        _ => {}
    }
}

/// Adds the filters that stand for operators and checks.
pub(super) fn add_operators(env: &mut Environment) {
    env.add_filter("[bounded]", |state: &State, value: Value| walk(state, &value, 0).map(|()| value));
    env.add_filter("[for]", |value: Value| match value.is_none() {
        true => Err(Error::new(ErrorKind::InvalidOperation, "none cannot be iterated over")),
        false => Ok(value),
    });
    env.add_filter("+", add);
    env.add_filter("~", concat);
    env.add_filter("<", |a: &Value, b: &Value| ordered("<", a, b).map(|()| a < b));
    env.add_filter("<=", |a: &Value, b: &Value| ordered("<=", a, b).map(|()| a <= b));
    env.add_filter(">", |a: &Value, b: &Value| ordered(">", a, b).map(|()| a > b));
    env.add_filter(">=", |a: &Value, b: &Value| ordered(">=", a, b).map(|()| a >= b));
}

/// Pays for every value inside, and refuses what nests too deeply.
fn walk(state: &State, value: &Value, depth: usize) -> Result<(), Error> {
    const MAX_DEPTH: usize = 200;
    if depth > MAX_DEPTH {
        let detail = format!("a value holds itself, or others more than {MAX_DEPTH} deep");
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    let is_map = value.kind() == ValueKind::Map;
    if is_map || is_list(value) {
        for item in value.try_iter()?.checked() {
            let item = item?;
            state.consume_fuel(1)?;
            walk(state, &item, depth + 1)?;
            if is_map {
                walk(state, &value.get_item(&item)?, depth + 1)?;
            }
        }
    }
    Ok(())
}

fn unsupported(operator: &str, a: &Value, b: &Value) -> Error {
    let detail = format!("{operator} does not work on {} and {}", a.kind(), b.kind());
    Error::new(ErrorKind::InvalidOperation, detail)
}

fn add(state: &State, a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        pay_for_bytes(state, a.len() + b.len())?;
        return Ok(Value::from([a, b].concat()));
    }
    if is_list(a) && is_list(b) && a.is_tuple() == b.is_tuple() {
        let mut items = Vec::new();
        for item in a.try_iter()?.checked().chain(b.try_iter()?.checked()) {
            state.consume_fuel(1)?;
            items.push(item?);
        }
        return Ok(if a.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) });
    }
    if let (Some(x), Some(y)) = (integer(a), integer(b)) {
        let sum = x.checked_add(y).ok_or_else(|| unsupported("+", a, b))?;
        return Ok(i64::try_from(sum).map_or_else(|_| Value::from(sum), Value::from));
    }
    match (float(a), float(b)) {
        (Some(x), Some(y)) => Ok(Value::from(x + y)),
        _ => Err(unsupported("+", a, b)),
    }
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// An integer or a truth value.
fn integer(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

/// A number or a truth value as a float.
pub(super) fn float(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    }
}

fn concat(state: &State, a: &Value, b: &Value) -> Result<String, Error> {
    Ok(str_of(state, a)? + &str_of(state, b)?)
}

/// Fails unless Python has an order for the two values.
fn ordered(operator: &str, a: &Value, b: &Value) -> Result<(), Error> {
    let comparable = (float(a).is_some() && float(b).is_some())
        || (a.as_str().is_some() && b.as_str().is_some())
        || (is_list(a) && is_list(b) && a.is_tuple() == b.is_tuple());
    if comparable { Ok(()) } else { Err(unsupported(operator, a, b)) }
}
