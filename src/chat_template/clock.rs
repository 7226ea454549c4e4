//! The local time that a template may ask for with `strftime_now`.

use jiff::civil::DateTime;
use jiff::fmt::strtime;

/// A date and a time of day without a time zone, as `datetime.now()` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime(DateTime);

impl LocalTime {
    /// The time now, in the time zone of the system.
    pub fn now() -> LocalTime {
        LocalTime(jiff::ZonedDateTime::now().datetime())
    }

    /// A given time, to make renderings repeatable; `None` if there is no such date or time of day.
    pub fn new(year: i16, month: i8, day: i8, hour: i8, minute: i8, second: i8) -> Option<LocalTime> {
        DateTime::new(year, month, day, hour, minute, second, 0).ok().map(LocalTime)
    }

    /// Python's `strftime`. A format that is not understood is an error, in one line.
    pub(super) fn format(&self, format: &str) -> Result<String, String> {
        strtime::format(without_zone(format), self.0).map_err(|e| format!("strftime_now({format:?}): {e}"))
    }
}

/// Python writes nothing for the zone (`%z`, `%Z`) of a time that has none.
fn without_zone(format: &str) -> String {
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, c == '%') {
            (_, true) => match chars.next() {
                Some('z' | 'Z') => {}
                next => out.extend([Some(c), next].into_iter().flatten()),
            },
            (c, false) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_python_does() {
        let time = LocalTime::new(2025, 1, 5, 15, 4, 9).unwrap();
        for (format, expected) in [
            ("%d %b %Y", "05 Jan 2025"),
            ("%Y-%m-%d %H:%M:%S", "2025-01-05 15:04:09"),
            ("%A, %B %e. %-d/%-m %y %j", "Sunday, January  5. 5/1 25 005"),
            ("%a %I:%M %p 100%%[%z%Z]", "Sun 03:04 PM 100%[]"),
            ("%F %T %D %R", "2025-01-05 15:04:09 01/05/25 15:04"),
            ("сегодня", "сегодня"),
        ] {
            assert_eq!(time.format(format).unwrap(), expected);
        }
        let error = time.format("%Q?").unwrap_err();
        assert!(error.starts_with("strftime_now(\"%Q?\"): ") && !error.contains('\n'), "{error}");
        assert!(time.format("%").is_err());
    }

    #[test]
    fn there_is_no_thirtieth_of_february() {
        assert_eq!(LocalTime::new(2025, 2, 30, 0, 0, 0), None);
        assert!(LocalTime::now().format("%Y").unwrap().parse::<u32>().unwrap() >= 2025);
    }
}
