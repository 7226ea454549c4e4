//! Lists of values on the command line, as llama-bench takes them: `512,1024`, `1-8`, `64-512+64`, `1-32*2`.

use std::ops::RangeInclusive;

use qgguf_kernels::KvType;

use super::plan::LoadMode;
use crate::cli::args::MAX_THREADS;

/// The values of one flag.
#[derive(Clone, Debug)]
pub struct List<T>(Vec<T>);

/// More values than anyone has the time to measure; a typing error rather than a wish.
const MAX_VALUES: usize = 10_000;
/// llama-bench counts in 32 bits.
const MAX: i64 = i32::MAX as i64;

/// The values of a flag that was given any number of times; `default` if it was not given.
pub fn values<T: Clone>(given: &[List<T>], default: T) -> Vec<T> {
    let all: Vec<T> = given.iter().flat_map(|list| list.0.iter().cloned()).collect();
    if all.is_empty() { vec![default] } else { all }
}

/// Numbers from 0.
pub fn counts(text: &str) -> Result<List<usize>, String> {
    numbers(text, 0..=MAX)
}

/// Numbers from 1.
pub fn sizes(text: &str) -> Result<List<usize>, String> {
    numbers(text, 1..=MAX)
}

/// Numbers of threads.
pub fn threads(text: &str) -> Result<List<usize>, String> {
    numbers(text, 1..=MAX_THREADS)
}

/// Numbers of layers on other devices; llama.cpp has a meaning for -1 and -2.
pub fn layers(text: &str) -> Result<List<i64>, String> {
    numbers(text, -2..=MAX)
}

/// Types of the cache.
pub fn kv_types(text: &str) -> Result<List<KvType>, String> {
    text.split(',').map(str::parse).collect::<Result<_, _>>().map(List)
}

/// Whether files are mapped, as llama-bench asked before it had load modes.
pub fn mmap(text: &str) -> Result<List<LoadMode>, String> {
    let value = |item| match item {
        "0" => Ok(LoadMode::None),
        "1" => Ok(LoadMode::Auto),
        _ => Err(format!("\"{item}\" is neither 0 nor 1")),
    };
    text.split(',').map(value).collect::<Result<_, _>>().map(List)
}

/// Whether attention is fused: llama.cpp's -1 or `auto`, 0 or `off`, 1 or `on`.
pub fn flash_attention(text: &str) -> Result<List<i64>, String> {
    let value = |item| match item {
        "auto" | "-1" => Ok(-1),
        "off" | "0" => Ok(0),
        "on" | "1" => Ok(1),
        _ => Err(format!("\"{item}\" is none of on, off and auto")),
    };
    text.split(',').map(value).collect::<Result<_, _>>().map(List)
}

/// A prompt's length and a number of generated tokens.
pub fn pair(text: &str) -> Result<(usize, usize), String> {
    match *counts(text)?.0 {
        [n_prompt, n_gen] => Ok((n_prompt, n_gen)),
        _ => Err("two numbers with a comma between them are needed".to_owned()),
    }
}

fn numbers<T: TryFrom<i64>>(text: &str, allowed: RangeInclusive<i64>) -> Result<List<T>, String> {
    let mut all = Vec::new();
    for item in text.split(',') {
        for n in range(item)? {
            if !allowed.contains(&n) {
                return Err(format!("{n} is not from {} to {}", allowed.start(), allowed.end()));
            }
            if all.len() == MAX_VALUES {
                return Err(format!("more than {MAX_VALUES} values"));
            }
            all.push(T::try_from(n).map_err(|_| format!("{n} is out of range"))?);
        }
    }
    Ok(List(all))
}

/// The numbers of `first`, `first-last`, `first-last+step` or `first-last*factor`.
fn range(text: &str) -> Result<impl Iterator<Item = i64>, String> {
    let number = |text: &str| text.parse::<i64>().map_err(|_| format!("\"{text}\" is not a number"));
    let dash = text.char_indices().skip(1).find(|&(_, c)| c == '-');
    let (first, last, factor, step) = match dash {
        None => (number(text)?, number(text)?, 1, 1),
        Some((at, _)) => {
            let (first, rest) = (&text[..at], &text[at + 1..]);
            let (last, factor, step) = match rest.split_once(['+', '*']) {
                None => (rest, 1, 1),
                Some((last, n)) if rest[last.len()..].starts_with('+') => (last, 1, number(n)?),
                Some((last, n)) => (last, number(n)?, 0),
            };
            (number(first)?, number(last)?, factor, step)
        }
    };
    let next = move |n: i64| n.checked_mul(factor)?.checked_add(step);
    if first > last {
        return Err(format!("the range \"{text}\" ends before it begins"));
    }
    if first < last && next(first).is_none_or(|second| second <= first) {
        return Err(format!("the range \"{text}\" does not grow"));
    }
    Ok(std::iter::successors(Some(first), move |&n| next(n)).take_while(move |&n| n <= last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_llama_bench() {
        let list = |text| counts(text).unwrap().0;
        assert_eq!(list("5"), [5]);
        assert_eq!(list("0,512,7"), [0, 512, 7]);
        assert_eq!(list("2-5"), [2, 3, 4, 5]);
        assert_eq!(list("10-20+4,1"), [10, 14, 18, 1]);
        assert_eq!(list("1-9*2"), [1, 2, 4, 8]);
        assert_eq!(list("3-3"), [3]);
        assert_eq!(layers("-1,99").unwrap().0, [-1, 99]);
    }

    #[test]
    fn wrong_lists_say_what_is_wrong() {
        for (text, what) in [
            ("", "\"\" is not a number"),
            ("1,,2", "\"\" is not a number"),
            ("a-b", "\"a\" is not a number"),
            ("é-1", "\"é\" is not a number"),
            ("1-2+", "\"\" is not a number"),
            ("-1", "-1 is not from 0 to 2147483647"),
            ("9-1", "ends before it begins"),
            ("0-8*2", "does not grow"),
            ("1-8+0", "does not grow"),
            ("0-100000", "more than 10000 values"),
            ("99999999999", "99999999999 is not from 0 to 2147483647"),
            ("99999999999999999999", "is not a number"),
        ] {
            let error = counts(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
        assert!(sizes("0").is_err() && threads("4,4000").is_err());
        assert!(pair("1").is_err() && pair("1,2,3").is_err() && pair("1,-2").is_err());
    }

    #[test]
    fn repeated_flags_append() {
        assert_eq!(values(&[counts("1,2").unwrap(), counts("3").unwrap()], 9), [1, 2, 3]);
        assert_eq!(values(&[], 9), [9]);
    }
}
