//! Tables for people, aligned or in Markdown.

use std::io::{self, Write};

/// Rows of cells under a heading; the first column is aligned to the left, the others to the right.
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(heading: impl IntoIterator<Item = impl Into<String>>) -> Table {
        Table { heading: heading.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row, which has as many cells as the heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Prints it, in Markdown if wanted.
    pub fn print(&self, out: &mut dyn Write, markdown: bool) -> io::Result<()> {
        let lines = || std::iter::once(&self.heading).chain(&self.rows);
        let widths: Vec<usize> = (0..self.heading.len())
            .map(|i| lines().map(|line| line[i].chars().count()).max().unwrap_or(0))
            .collect();
        for (n, line) in lines().enumerate() {
            let cells = line.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| match i {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            let cells: Vec<String> = cells.collect();
            if markdown {
                writeln!(out, "| {} |", cells.join(" | "))?;
            } else {
                writeln!(out, "{}", cells.join("  ").trim_end())?;
            }
            if markdown && n == 0 {
                writeln!(out, "|---|{}", "---:|".repeat(widths.len() - 1))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_valid_markdown() {
        let mut table = Table::new(["model", "größe"]);
        table.row(["a", "10"]);
        let print = |markdown| {
            let mut out = Vec::new();
            table.print(&mut out, markdown).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(print(false), "model  größe\na         10\n");
        assert_eq!(print(true), "| model | größe |\n|---|---:|\n| a     |    10 |\n");
    }
}
