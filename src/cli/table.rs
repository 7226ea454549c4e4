//! Tables for people.

use std::io::{self, Write};

/// Left-aligned columns are not padded beyond this, whatever a file calls its keys.
const MAX_PADDING: usize = 48;

/// Rows with aligned columns, below a blank line and a heading.
pub struct Table<const N: usize> {
    /// `<` or `>` for each column.
    alignment: &'static str,
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// Begins a table: `<` or `>` for each column, and its headings.
    pub fn new(alignment: &'static str, heading: [&str; N]) -> Table<N> {
        debug_assert_eq!(alignment.len(), N);
        Table { alignment, rows: vec![heading.map(str::to_owned)] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    /// Writes it.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths: [usize; N] = std::array::from_fn(|i| {
            self.rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0).min(MAX_PADDING)
        });
        writeln!(out)?;
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), alignment) in row.iter().zip(widths).zip(self.alignment.chars()) {
                let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
                let (before, after) = if alignment == '<' { ("", pad.as_str()) } else { (pad.as_str(), "") };
                line.extend([before, cell, after, "  "]);
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
