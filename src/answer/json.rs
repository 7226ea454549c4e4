//! JSON read character by character: where a value ends, and that it is one.

/// Text that is no JSON, or that nests too deeply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Deeper values are refused, as the usual parsers do.
const MAX_DEPTH: usize = 100;

/// Where in a value the next character stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Before a value.
    Value,
    /// After `{`, before a key or `}`.
    FirstKey,
    /// After a comma in an object.
    NextKey,
    /// After a key.
    Colon,
    /// After `[`, before a value or `]`.
    FirstItem,
    /// After a value in an object or an array.
    After,
    /// In a string, which may be a key.
    String { key: bool, escape: Escape, high: bool },
    /// In a number.
    Number(Number),
    /// In `true`, `false` or `null`: what is still to come.
    Word(&'static str),
    /// After the outermost value.
    Done,
}

/// How far an escape sequence of a string has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    None,
    Backslash,
    /// The hexadecimal digits so far, their number and value.
    Unicode(u8, u16),
}

/// How far a number has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

/// A reader of one JSON value.
///
/// Control characters inside strings, which JSON forbids and models write, are accepted; [`escaped`] makes them JSON.
#[derive(Debug, Clone)]
pub(super) struct Json {
    place: Place,
    /// The open containers; true for objects.
    open: Vec<bool>,
}

impl Json {
    pub(super) fn new() -> Json {
        Json { place: Place::Value, open: Vec::new() }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Number of open containers.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_done(&self) -> bool {
        self.place == Place::Done
    }

    /// Reads the next character.
    pub(super) fn feed(&mut self, c: char) -> Result<(), Malformed> {
        let blank = matches!(c, ' ' | '\t' | '\n' | '\r');
        match self.place {
            Place::String { key, escape, high } => self.feed_string(c, key, escape, high)?,
            Place::Word(rest) => self.feed_word(c, rest)?,
            Place::Number(number) => match number.next(c) {
                Some(next) => self.place = Place::Number(next),
                None if number.may_end() => {
                    self.end_value();
                    return self.feed(c);
                }
                None => return Err(Malformed),
            },
            _ if blank => {}
            Place::Value => self.begin_value(c)?,
            Place::FirstItem if c == ']' => self.close(false)?,
            Place::FirstItem => self.begin_value(c)?,
            Place::FirstKey if c == '}' => self.close(true)?,
            Place::FirstKey | Place::NextKey if c == '"' => {
                self.place = Place::String { key: true, escape: Escape::None, high: false };
            }
            Place::Colon if c == ':' => self.place = Place::Value,
            Place::After => match c {
                ',' if self.open.last() == Some(&true) => self.place = Place::NextKey,
                ',' => self.place = Place::Value,
                '}' => self.close(true)?,
                ']' => self.close(false)?,
                _ => return Err(Malformed),
            },
            Place::FirstKey | Place::NextKey | Place::Colon | Place::Done => return Err(Malformed),
        }
        Ok(())
    }

    fn begin_value(&mut self, c: char) -> Result<(), Malformed> {
        self.place = match c {
            '{' | '[' if self.open.len() >= MAX_DEPTH => return Err(Malformed),
            '{' => {
                self.open.push(true);
                Place::FirstKey
            }
            '[' => {
                self.open.push(false);
                Place::FirstItem
            }
            '"' => Place::String { key: false, escape: Escape::None, high: false },
            't' => Place::Word("rue"),
            'f' => Place::Word("alse"),
            'n' => Place::Word("ull"),
            '-' => Place::Number(Number::Minus),
            '0' => Place::Number(Number::Zero),
            '1'..='9' => Place::Number(Number::Integer),
            _ => return Err(Malformed),
        };
        Ok(())
    }

    fn close(&mut self, object: bool) -> Result<(), Malformed> {
        if self.open.pop() != Some(object) {
            return Err(Malformed);
        }
        self.end_value();
        Ok(())
    }

    fn end_value(&mut self) {
        self.place = if self.open.is_empty() { Place::Done } else { Place::After };
    }

    fn feed_word(&mut self, c: char, rest: &'static str) -> Result<(), Malformed> {
        let rest = rest.strip_prefix(c).ok_or(Malformed)?;
        if rest.is_empty() {
            self.end_value();
        } else {
            self.place = Place::Word(rest);
        }
        Ok(())
    }

    /// `high`: the first half of a surrogate pair was read, and its second half has to follow.
    fn feed_string(&mut self, c: char, key: bool, escape: Escape, high: bool) -> Result<(), Malformed> {
        let place = |escape, high| Place::String { key, escape, high };
        self.place = match (escape, c) {
            (Escape::None, '\\') => place(Escape::Backslash, high),
            (Escape::Backslash, 'u') => place(Escape::Unicode(0, 0), high),
            (Escape::Unicode(n, value), _) => {
                let digit = c.to_digit(16).ok_or(Malformed)? as u16;
                let value = value << 4 | digit;
                match (n, value, high) {
                    (0..3, ..) => place(Escape::Unicode(n + 1, value), high),
                    (_, 0xD800..0xDC00, false) => place(Escape::None, true),
                    (_, 0xDC00..0xE000, true) => place(Escape::None, false),
                    (_, 0xD800..0xE000, _) | (.., true) => return Err(Malformed),
                    _ => place(Escape::None, false),
                }
            }
            _ if high => return Err(Malformed),
            (Escape::None, '"') if key => Place::Colon,
            (Escape::None, '"') => {
                self.end_value();
                return Ok(());
            }
            (Escape::None, _) => place(Escape::None, false),
            (Escape::Backslash, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => place(Escape::None, false),
            (Escape::Backslash, _) => return Err(Malformed),
        };
        Ok(())
    }
}

impl Number {
    fn next(self, c: char) -> Option<Number> {
        use Number::*;
        Some(match (self, c) {
            (Minus, '0') => Zero,
            (Minus, '1'..='9') | (Integer, '0'..='9') => Integer,
            (Zero | Integer, '.') => Point,
            (Point | Fraction, '0'..='9') => Fraction,
            (Zero | Integer | Fraction, 'e' | 'E') => E,
            (E, '+' | '-') => Sign,
            (E | Sign | Exponent, '0'..='9') => Exponent,
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        use Number::*;
        matches!(self, Zero | Integer | Fraction | Exponent)
    }
}

/// Appends a character of a JSON text as JSON has it: control characters inside a string are escaped.
pub(super) fn push_escaped(out: &mut String, place: Place, c: char) {
    match (place, c) {
        (Place::String { escape: Escape::None, .. }, '\0'..' ') => push_in_string(out, c),
        _ => out.push(c),
    }
}

/// Appends a character of plain text as it stands inside a JSON string.
pub(super) fn push_in_string(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
        _ => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(text: &str) -> bool {
        let mut json = Json::new();
        text.chars().all(|c| json.feed(c).is_ok()) && {
            // A number ends with what follows it.
            json.is_done() || (json.depth() == 0 && json.feed(' ').is_ok() && json.is_done())
        }
    }

    #[test]
    fn reads_what_a_parser_reads() {
        for text in [
            "{}",
            "[]",
            "{\"a\":1}",
            "{\"a\" : [ 1 , -0.5e+3, true,false , null ] }",
            "\"a\\u00e9\\n\"",
            "-0",
            "0.0",
            "1e5",
            "\"\\ud83d\\ude00\"",
            "[[],{}]",
            "{\"a\":{\"b\":[{}]}}",
            " 1 ",
            "true",
            // And what it does not.
            "",
            "{",
            "{a:1}",
            "{'a':1}",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "01",
            "1.",
            "-",
            "1e",
            "tru",
            "{\"a\"}",
            "{\"a\":}",
            "[}",
            "{]",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\ud83d\"",
            "\"\\ud83dx\"",
            "\"\\ude00\"",
            "\"\\ud83d\\n\"",
            "{} x",
            "{\"a\":1 \"b\":2}",
            "[,1]",
            "{,}",
            "nul",
            "+1",
            ".5",
            "\"a",
            "1 2",
        ] {
            let expected = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(reads(text), expected, "{text}");
        }
        assert!(!reads(&("[".repeat(101) + &"]".repeat(101))));
        assert!(reads(&("[".repeat(100) + &"]".repeat(100))));
    }

    #[test]
    fn control_characters_in_strings_become_escapes() {
        let (mut json, mut out) = (Json::new(), String::new());
        for c in "{\"a\nb\":\n\"\t\u{1}\"}".chars() {
            let place = json.place();
            json.feed(c).unwrap();
            push_escaped(&mut out, place, c);
        }
        assert_eq!(out, "{\"a\\nb\":\n\"\\t\\u0001\"}");
    }
}
