//! Tables of shares as coloured cells.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{TEXT, text};
use crate::cli::error::{Failure, Result};

/// Maps side by side that share their rows; values are shares, 0 to 1.
pub struct HeatMap {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// The name of every row.
    pub rows: Vec<String>,
    pub maps: Vec<Map>,
}

/// What one map shows, and its values, `[row][column]`; rows may differ in length.
pub struct Map {
    pub label: String,
    pub values: Vec<Vec<f64>>,
}

/// Pixels of a cell, of the space around maps, and of the lines of words above them.
const CELL: (i32, i32) = (26, 20);
const MARGIN: i32 = 60;
const HEAD: i32 = 96;
/// The colours of nothing and of everything.
const LOW: (f64, f64, f64) = (247.0, 251.0, 255.0);
const HIGH: (f64, f64, f64) = (8.0, 48.0, 107.0);

impl HeatMap {
    /// The maps as the text of an SVG file.
    pub fn svg(&self) -> Result<String> {
        let width: i32 = self.maps.iter().map(|map| map.width() + MARGIN).sum();
        // The words above need some room, however small the maps are.
        let width = (width + MARGIN / 2).max(12 * self.title.chars().count() as i32);
        let height = HEAD + self.rows.len() as i32 * CELL.1 + MARGIN / 2;
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, (width as u32, height as u32)).into_drawing_area())
            .map_err(|error| Failure::text(format!("cannot draw the heat map: {error}")))?;
        Ok(svg)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        area.fill(&WHITE)?;
        area.draw(&Text::new(self.title.as_str(), (MARGIN, 14), text(22)))?;
        let mut left = MARGIN;
        for map in &self.maps {
            area.draw(&Text::new(map.label.as_str(), (left, 46), text(TEXT)))?;
            area.draw(&Text::new(self.x_label.as_str(), (left - MARGIN + 12, HEAD - 20), text(12)))?;
            area.draw(&Text::new(self.y_label.as_str(), (left - MARGIN + 12, HEAD - 4), text(12)))?;
            for column in 0..map.n_columns() {
                let at = (left + column as i32 * CELL.0 + 6, HEAD - 18);
                area.draw(&Text::new(column.to_string(), at, text(12)))?;
            }
            for (row, (name, values)) in self.rows.iter().zip(&map.values).enumerate() {
                let top = HEAD + row as i32 * CELL.1;
                area.draw(&Text::new(name.as_str(), (left - 24, top + 4), text(12)))?;
                for (column, &value) in values.iter().enumerate() {
                    let corner = (left + column as i32 * CELL.0, top);
                    let opposite = (corner.0 + CELL.0 - 1, corner.1 + CELL.1 - 1);
                    area.draw(&Rectangle::new([corner, opposite], colour(value).filled()))?;
                    let on = if value > 0.5 { &WHITE } else { &BLACK };
                    let style = ("sans-serif", 11).into_font().color(on);
                    let percent = format!("{:.0}", 100.0 * value);
                    area.draw(&Text::new(percent, (corner.0 + 5, corner.1 + 5), style))?;
                }
            }
            left += map.width() + MARGIN;
        }
        area.present()
    }
}

impl Map {
    fn n_columns(&self) -> usize {
        self.values.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn width(&self) -> i32 {
        self.n_columns() as i32 * CELL.0
    }
}

/// Between [`LOW`] and [`HIGH`]; not a number is grey.
fn colour(value: f64) -> RGBColor {
    if value.is_nan() {
        return RGBColor(160, 160, 160);
    }
    let mix = |low: f64, high: f64| (low + (high - low) * value.clamp(0.0, 1.0)).round() as u8;
    RGBColor(mix(LOW.0, HIGH.0), mix(LOW.1, HIGH.1), mix(LOW.2, HIGH.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_share_has_a_cell_and_the_larger_one_is_darker() {
        let map = |label: &str, values: &[&[f64]]| Map {
            label: label.to_owned(),
            values: values.iter().map(|row| row.to_vec()).collect(),
        };
        let maps = vec![map("first", &[&[0.0, 1.0], &[0.25]]), map("self", &[&[0.5], &[f64::NAN]])];
        let (x_label, y_label) = ("head".to_owned(), "layer".to_owned());
        let rows = vec!["0".to_owned(), "7".to_owned()];
        let svg = HeatMap { title: "<model>".to_owned(), x_label, y_label, rows, maps }.svg().unwrap();
        // One rectangle is the background.
        assert_eq!(svg.matches("<rect").count(), 1 + 5, "{svg}");
        for word in ["&lt;model&gt;", "first", "self", "head", "layer", "#F7FBFF", "#08306B", "\n25\n"] {
            assert!(svg.contains(word), "{word} in {svg}");
        }
    }
}
