//! Line charts and heat maps as SVG.

mod heat_map;

use std::ops::Range;

use plotters::prelude::*;

use super::error::{Failure, Result};
pub use heat_map::{HeatMap, Map};

/// Lines over a common axis.
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub lines: Vec<Line>,
}

/// Points in ascending order of x, and what they show.
pub struct Line {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

/// Pixels of the whole and of the words in it.
const SIZE: (u32, u32) = (1100, 600);
const TEXT: u32 = 16;
/// Pixels of a line of the legend, and of the stroke in front of its label.
const LEGEND_LINE: i32 = 24;
const STROKE: i32 = 24;

impl Chart {
    /// The chart as the text of an SVG file.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())
            .map_err(|error| Failure::text(format!("cannot draw the chart: {error}")))?;
        Ok(svg)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, plotters::coord::Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (x, y) = (axis(points().map(|p| p.0)), axis(points().map(|p| p.1).chain([0.0])));

        // Few whole numbers, if any, stand on a short axis.
        let fractions = x.end - x.start < 4.0;
        let precision = if y.end - y.start < 0.1 { 1e6 } else { 1e3 };
        area.fill(&WHITE)?;
        let longest = self.lines.iter().map(|line| line.label.chars().count() as u32).max().unwrap_or(0);
        let legend_width = (STROKE as u32 + 30 + longest * TEXT * 5 / 9).min(SIZE.0 / 2);
        let (area, legend) = area.split_horizontally(SIZE.0 - legend_width);
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, text(24))
            .margin(14)
            .x_label_area_size(48)
            .y_label_area_size(84)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .x_label_formatter(&|x| {
                if fractions || x.fract() == 0.0 { format!("{x}") } else { String::new() }
            })
            .y_label_formatter(&|y| format!("{}", (y * precision).round() / precision))
            .axis_desc_style(text(18))
            .label_style(text(TEXT))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (i, line) in self.lines.iter().enumerate() {
            let style = Palette99::pick(i).filled().stroke_width(2);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(4))?;
            let y = 70 + LEGEND_LINE * i as i32;
            legend.draw(&PathElement::new([(0, y), (STROKE, y)], style))?;
            legend.draw(&Text::new(line.label.as_str(), (STROKE + 8, y - TEXT as i32 / 2), text(TEXT)))?;
        }
        area.present()
    }
}

/// What an axis has to span; plotters does not end on one of no length.
fn axis(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    match high - low {
        length if length > 0.0 && length.is_finite() => low - 0.03 * length..high + 0.03 * length,
        _ if low.is_finite() && high.is_finite() => low - 1.0..high + 1.0,
        _ => 0.0..1.0,
    }
}

fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_lines_and_words() {
        let line = |label: &str| Line { label: label.to_owned(), points: vec![(1.0, 10.0), (2.0, 19.0)] };
        let chart = Chart {
            title: "<title>".to_owned(),
            x_label: "threads".to_owned(),
            y_label: "tokens per second".to_owned(),
            lines: vec![line("first"), line("second")],
        };
        let svg = chart.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for word in ["&lt;title&gt;", "threads", "tokens per second", "first", "second"] {
            assert!(svg.contains(word), "{word} in {svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
    }

    #[test]
    fn a_single_point_and_no_point_at_all_can_be_drawn() {
        assert_eq!(axis([4.0].into_iter()), 3.0..5.0);
        assert_eq!(axis([0.0, 100.0].into_iter()), -3.0..103.0);
        let chart = |points| Chart {
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            lines: vec![Line { label: "l".to_owned(), points }],
        };
        assert!(chart(vec![(4.0, 0.0)]).svg().is_ok());
        assert!(chart(Vec::new()).svg().is_ok());
    }
}
