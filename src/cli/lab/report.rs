//! What was measured, as tables, JSON and a chart.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use qgguf::lab::compare::{Answer, Difference};
use qgguf::lab::variant::{Changed, Original, Selection, Variant};
use serde_json::{Value, json};

use super::kinds::Kind;
use super::table::Table;
use crate::cli::plot::{Chart, Line};

/// Greedy tokens of the shorter comparison.
const SHORT: usize = 32;

/// Everything that was measured.
pub struct Report {
    model: String,
    selection: Selection,
    n_predict: usize,
    n_bytes: u64,
    n_weights: u64,
    /// Names and lengths of the prompts.
    pub prompts: Vec<(String, usize)>,
    /// The variants that answered every prompt.
    pub variants: Vec<Measured>,
    /// Nothing was left out.
    pub complete: bool,
}

/// One variant.
pub struct Measured {
    kind: Kind,
    n_bytes: u64,
    /// The relative error of all changed weights together, and what theory expects of Gaussian ones.
    error: f64,
    theory: Option<f64>,
    changed: Vec<Changed>,
    answers: Vec<Compared>,
}

/// The answer to one prompt.
struct Compared {
    difference: Difference,
    /// Shares of equal greedy tokens, among the first [`SHORT`] and among all.
    equal: [f64; 2],
}

impl Measured {
    /// Compares a variant's answers with those of the original.
    pub fn new(kind: Kind, variant: &Variant, expected: &[Answer], answers: &[Answer]) -> Measured {
        let compared = expected.iter().zip(answers).map(|(a, b)| Compared {
            difference: a.difference(b),
            equal: [a.share_of_equal(b, SHORT), a.share_of_equal(b, usize::MAX)],
        });
        let has_theory = variant.changed.iter().all(|c| kind.theory(c.n_cols).is_some());
        let theory = has_theory.then(|| variant.total(|c| kind.theory(c.n_cols).unwrap_or_default()));
        Measured {
            kind,
            n_bytes: variant.n_bytes,
            error: variant.total(|c| c.error),
            theory,
            answers: compared.collect(),
            changed: variant.changed.clone(),
        }
    }

    fn mean(&self, of: impl Fn(&Compared) -> f64) -> f64 {
        self.answers.iter().map(of).sum::<f64>() / self.answers.len() as f64
    }

    /// Bits for each quantized weight.
    fn bits(&self) -> f64 {
        let (bytes, weights) = self
            .changed
            .iter()
            .fold((0, 0), |(bytes, weights), c| (bytes + c.n_bytes, weights + c.n_weights as u64));
        8.0 * bytes as f64 / weights as f64
    }

    fn n_same_argmax(&self) -> usize {
        self.answers.iter().filter(|a| a.difference.same_argmax).count()
    }
}

impl Report {
    /// Nothing measured yet.
    pub fn new(path: &Path, selection: Selection, original: &Original, n_predict: usize) -> Report {
        Report {
            model: path.display().to_string(),
            selection,
            n_predict,
            n_bytes: original.n_bytes(),
            n_weights: original.n_weights(),
            prompts: Vec::new(),
            variants: Vec::new(),
            complete: false,
        }
    }

    /// Tables for people.
    pub fn print(&self, out: &mut dyn Write, markdown: bool, every_matrix: bool) -> io::Result<()> {
        let title =
            |out: &mut dyn Write, text: &str| writeln!(out, "{}{text}\n", if markdown { "### " } else { "" });
        title(out, &format!("All prompts ({}; original {} bytes)", self.selected(), self.n_bytes))?;
        self.summary().print(out, markdown)?;
        writeln!(out)?;
        title(out, "Each prompt")?;
        self.by_prompt().print(out, markdown)?;
        writeln!(out)?;
        title(out, "Relative error of the weights in %, and in brackets what Gaussian weights would have")?;
        self.by_matrix(every_matrix).print(out, markdown)?;
        if !self.complete {
            writeln!(out, "\ninterrupted: variants are missing")?;
        }
        Ok(())
    }

    fn selected(&self) -> &'static str {
        match self.selection {
            Selection::All => "all matrices",
            Selection::OnlyOutput => "only the output projection",
            Selection::ExceptOutput => "all but output projection and embeddings",
        }
    }

    /// Headings of the shares of equal tokens: of the first [`SHORT`] and of all, if these are more.
    fn equal_headings(&self) -> Vec<String> {
        let mut lengths = vec![self.n_predict.min(SHORT), self.n_predict];
        lengths.dedup();
        lengths.iter().map(|n| format!("equal of {n} %")).collect()
    }

    fn summary(&self) -> Table {
        let equal = self.equal_headings();
        let n_equal = equal.len();
        let heading = [
            "variant",
            "bytes",
            "bits",
            "weights off %",
            "theory %",
            "logits off %",
            "cosine",
            "same argmax",
            "diverges after",
        ];
        let mut table = Table::new(heading.map(str::to_owned).into_iter().chain(equal));
        for v in &self.variants {
            let before = |c: &Compared| c.difference.first_divergence.unwrap_or(c.difference.n_tokens) as f64;
            let cells = [
                v.kind.name(),
                v.n_bytes.to_string(),
                format!("{:.2}", v.bits()),
                percent(v.error),
                v.theory.map_or("-".to_owned(), percent),
                percent(v.mean(|c| c.difference.relative_rms)),
                format!("{:.5}", v.mean(|c| c.difference.cosine)),
                format!("{} of {}", v.n_same_argmax(), v.answers.len()),
                format!("{:.1}", v.mean(before)),
            ];
            let equal = (0..n_equal).map(|i| format!("{:.0}", 100.0 * v.mean(|c| c.equal[i])));
            table.row(cells.into_iter().chain(equal));
        }
        table
    }

    fn by_prompt(&self) -> Table {
        let equal_headings = self.equal_headings();
        let n_equal = equal_headings.len();
        let heading =
            ["variant", "prompt", "tokens", "logits off %", "cosine", "same argmax", "diverges after"];
        let mut table = Table::new(heading.map(str::to_owned).into_iter().chain(equal_headings));
        for v in &self.variants {
            for ((name, n_tokens), Compared { difference: d, equal }) in self.prompts.iter().zip(&v.answers) {
                let cells = [
                    v.kind.name(),
                    name.clone(),
                    n_tokens.to_string(),
                    percent(d.relative_rms),
                    format!("{:.5}", d.cosine),
                    if d.same_argmax { "yes" } else { "no" }.to_owned(),
                    d.first_divergence.map_or("never".to_owned(), |n| n.to_string()),
                ];
                let equal = equal[..n_equal].iter().map(|share| format!("{:.0}", 100.0 * share));
                table.row(cells.into_iter().chain(equal));
            }
        }
        table
    }

    /// A row for each matrix, or for each kind of matrix with the mean over the layers.
    fn by_matrix(&self, every: bool) -> Table {
        let mut heading = vec!["matrix".to_owned()];
        heading.extend(self.variants.iter().map(|v| v.kind.name()));
        let mut table = Table::new(heading);
        let name = |changed: &Changed| match changed.tensor.strip_prefix("blk.") {
            Some(rest) if !every => rest.split_once('.').map_or(rest, |(_, part)| part).to_owned(),
            _ => changed.tensor.clone(),
        };
        let mut names: Vec<String> = Vec::new();
        for changed in self.variants.iter().flat_map(|v| &v.changed) {
            if !names.contains(&name(changed)) {
                names.push(name(changed));
            }
        }
        let by_name: Vec<BTreeMap<String, Vec<&Changed>>> = self
            .variants
            .iter()
            .map(|v| {
                let mut by_name = BTreeMap::<String, Vec<&Changed>>::new();
                v.changed.iter().for_each(|changed| by_name.entry(name(changed)).or_default().push(changed));
                by_name
            })
            .collect();
        for name in names {
            let cells = self.variants.iter().zip(&by_name).map(|(v, by_name)| {
                let Some(changed) = by_name.get(&name) else { return "-".to_owned() };
                let error = changed.iter().map(|c| c.error).sum::<f64>() / changed.len() as f64;
                match v.kind.theory(changed[0].n_cols) {
                    Some(theory) => format!("{} ({})", percent(error), percent(theory)),
                    None => percent(error),
                }
            });
            let mut row = vec![name.clone()];
            row.extend(cells);
            table.row(row);
        }
        table
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let compared = |((name, n_tokens), c): (&(String, usize), &Compared)| {
            json!({
                "prompt": name,
                "n_tokens": n_tokens,
                "relative_rms": c.difference.relative_rms,
                "cosine": c.difference.cosine,
                "same_argmax": c.difference.same_argmax,
                "first_divergence": c.difference.first_divergence,
                "equal_tokens_short": c.equal[0],
                "equal_tokens": c.equal[1],
            })
        };
        let variant = |v: &Measured| {
            let changed = |c: &Changed| {
                json!({
                    "tensor": c.tensor,
                    "n_weights": c.n_weights,
                    "bytes": c.n_bytes,
                    "error": c.error,
                    "theory": v.kind.theory(c.n_cols),
                })
            };
            json!({
                "name": v.kind.name(),
                "scheme": v.kind.int4().map(|(scheme, _)| scheme.name()),
                "group": v.kind.int4().map(|(_, group)| group),
                "bytes": v.n_bytes,
                "bits_per_weight": v.bits(),
                "error": v.error,
                "theory": v.theory,
                "prompts": self.prompts.iter().zip(&v.answers).map(compared).collect::<Vec<_>>(),
                "tensors": v.changed.iter().map(changed).collect::<Vec<_>>(),
            })
        };
        json!({
            "model": self.model,
            "bytes": self.n_bytes,
            "n_weights": self.n_weights,
            "selection": self.selected(),
            "n_predict": self.n_predict,
            "n_short": self.n_predict.min(SHORT),
            "complete": self.complete,
            "variants": self.variants.iter().map(variant).collect::<Vec<_>>(),
        })
    }

    /// The mean difference of the logits over the size of the group.
    pub fn chart(&self) -> Chart {
        let groups = || self.variants.iter().filter_map(|v| v.kind.int4()).map(|(_, group)| group as f64);
        let ends = [groups().fold(f64::INFINITY, f64::min), groups().fold(0.0, f64::max)];
        let mut lines: Vec<Line> = Vec::new();
        for v in &self.variants {
            let off = 100.0 * v.mean(|c| c.difference.relative_rms);
            let (label, points) = match v.kind.int4() {
                Some((scheme, group)) => (scheme.name().to_owned(), vec![(group as f64, off)]),
                // What has no groups to choose is a level to compare with.
                None => (v.kind.name(), ends.map(|group| (group, off)).to_vec()),
            };
            match lines.iter_mut().find(|line| line.label == label) {
                Some(line) => line.points.extend(points),
                None => lines.push(Line { label, points }),
            }
        }
        lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let name = Path::new(&self.model).file_name().unwrap_or_default().to_string_lossy();
        Chart {
            title: format!("{name} in four bits"),
            x_label: "weights in a group".to_owned(),
            y_label: "difference of the logits in %".to_owned(),
            lines,
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}
