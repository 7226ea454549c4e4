//! Which lines the results make.

use std::collections::BTreeSet;

use super::row::Row;
use crate::cli::plot::{Chart, Line};

/// Tokens per second over depth if there are several, else over threads: a line for each combination of the
/// other parameters.
pub fn of(rows: &[Row]) -> Chart {
    let varies = |key: &dyn Fn(&Row) -> String| rows.iter().map(key).collect::<BTreeSet<_>>().len() > 1;
    let over_depth = varies(&|row| row.test.n_depth.to_string());
    // What tells the lines apart, beside the test.
    type Part = (&'static str, fn(&Row) -> String);
    let mut parts: Vec<Part> = vec![
        ("", |row| row.model_type.clone()),
        ("", |row| row.test.model.display().to_string()),
        ("ngl ", |row| row.test.n_gpu_layers.to_string()),
        ("fa ", |row| row.test.flash_attn.to_string()),
        ("lm ", |row| row.test.load_mode.name().to_owned()),
        ("b ", |row| row.test.n_batch.to_string()),
        ("ub ", |row| row.test.n_ubatch.to_string()),
        ("k ", |row| row.test.type_k.name().to_owned()),
        ("v ", |row| row.test.type_v.name().to_owned()),
    ];
    if over_depth {
        parts.push(("t ", |row| row.test.n_threads.to_string()));
    }
    parts.retain(|(_, value)| varies(value));

    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let x = if over_depth { row.test.n_depth } else { row.test.n_threads };
        let mut label = row.test.shape_name();
        for (name, value) in &parts {
            label += &format!(", {name}{}", value(row));
        }
        let point = (x as f64, row.tokens_per_second().0);
        match lines.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { label, points: vec![point] }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let title = rows.first().map_or(String::new(), |row| row.model_type.clone());
    let several = varies(&|row| row.test.model.display().to_string());
    Chart {
        title: if several { "tokens per second".to_owned() } else { title },
        x_label: if over_depth { "tokens in the context" } else { "threads" }.to_owned(),
        y_label: "tokens per second".to_owned(),
        lines,
    }
}
