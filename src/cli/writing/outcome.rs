//! What became of a model's tensors: sizes, bits and errors by type, and the tensors that lost most.

use std::collections::BTreeMap;
use std::io::{self, Write};

use qgguf_convert::deviation::Deviation;
use qgguf_convert::pipeline::TensorReport;
use qgguf_gguf::GgmlType;
use serde_json::{Value, json};

use super::progress::source_bytes;
use crate::cli::table::Table;
use crate::cli::terminal::escape;

/// How many of the tensors that lost most are shown.
const N_WORST: usize = 5;

/// Tensors of one type together, or all.
#[derive(Default, Clone, Copy)]
struct Totals {
    n_tensors: usize,
    n_elements: u64,
    before: u64,
    after: u64,
    deviation: Deviation,
}

impl Totals {
    fn add(&mut self, report: &TensorReport) {
        self.n_tensors += 1;
        self.n_elements += report.n_elements;
        self.before += before(report);
        self.after += report.n_bytes;
        self.deviation.add(&report.deviation);
    }

    fn bits(&self) -> f64 {
        8.0 * self.after as f64 / self.n_elements.max(1) as f64
    }

    fn row(&self, name: &str) -> [String; 8] {
        let error = |text: String| if self.deviation.n == 0 { "-".to_owned() } else { text };
        [
            name.to_owned(),
            self.n_tensors.to_string(),
            self.n_elements.to_string(),
            self.before.to_string(),
            self.after.to_string(),
            format!("{:.2}", self.bits()),
            error(format!("{:.3e}", self.deviation.rmse())),
            error(format!("{:.3e}", self.deviation.max)),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "n_tensors": self.n_tensors,
            "n_parameters": self.n_elements,
            "bytes_before": self.before,
            "bytes_after": self.after,
            "bits_per_weight": self.bits(),
            "rmse": rmse(&self.deviation),
            "max_error": max(&self.deviation),
        })
    }
}

/// Of a tensor without a type before, what it takes now.
fn before(report: &TensorReport) -> u64 {
    source_bytes(report.from, report.n_elements).unwrap_or(report.n_bytes)
}

fn rmse(deviation: &Deviation) -> Option<f64> {
    (deviation.n > 0).then(|| deviation.rmse())
}

fn max(deviation: &Deviation) -> Option<f32> {
    (deviation.n > 0).then_some(deviation.max)
}

/// All tensors of the files that were written, or that would be.
pub struct Outcome<'r> {
    reports: &'r [TensorReport],
    types: BTreeMap<GgmlType, Totals>,
    all: Totals,
}

impl<'r> Outcome<'r> {
    /// Adds up.
    pub fn of(reports: &'r [TensorReport]) -> Outcome<'r> {
        let (mut types, mut all) = (BTreeMap::<_, Totals>::new(), Totals::default());
        for report in reports {
            types.entry(report.to).or_default().add(report);
            all.add(report);
        }
        Outcome { reports, types, all }
    }

    /// The converted tensors with the largest root mean squared errors.
    fn worst(&self) -> Vec<&'r TensorReport> {
        let mut worst: Vec<_> = self.reports.iter().filter(|report| report.deviation.n > 0).collect();
        worst.sort_by(|a, b| b.deviation.rmse().total_cmp(&a.deviation.rmse()));
        worst.truncate(N_WORST);
        worst
    }

    /// Tables of types, and of the tensors that lost most.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let heading = ["TYPES", "tensors", "weights", "before", "after", "bits", "rmse", "max error"];
        let mut table = Table::new("<>>>>>>>", heading);
        self.types.iter().for_each(|(ty, totals)| table.row(totals.row(ty.name())));
        table.row(self.all.row("all"));
        table.print(out)?;
        let worst = self.worst();
        if worst.is_empty() {
            return Ok(());
        }
        let mut table = Table::new("<<>>", ["LARGEST ERRORS", "type", "rmse", "max error"]);
        for report in worst {
            table.row([
                escape(&report.name).into_owned(),
                report.to.to_string(),
                format!("{:.3e}", report.deviation.rmse()),
                format!("{:.3e}", report.deviation.max),
            ]);
        }
        table.print(out)
    }

    /// Every tensor with its types and sizes.
    pub fn print_tensors(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new("<><<>>", ["TENSORS", "shape", "from", "to", "before", "after"]);
        for report in self.reports {
            let shape: Vec<String> = report.shape.iter().map(u64::to_string).collect();
            table.row([
                escape(&report.name).into_owned(),
                shape.join(" x "),
                report.from.map_or_else(|| "-".to_owned(), |ty| ty.to_string()),
                report.to.to_string(),
                before(report).to_string(),
                report.n_bytes.to_string(),
            ]);
        }
        table.print(out)
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let tensor = |report: &TensorReport| {
            json!({
                "name": report.name,
                "shape": report.shape,
                "from": report.from.map(GgmlType::name),
                "to": report.to.name(),
                "bytes_before": before(report),
                "bytes_after": report.n_bytes,
                "rmse": rmse(&report.deviation),
                "max_error": max(&report.deviation),
                "n_overflow": report.overflow.n,
            })
        };
        let mut object = self.all.json();
        object["types"] = self.types.iter().map(|(ty, totals)| (ty.to_string(), totals.json())).collect();
        object["worst"] = self.worst().iter().map(|report| report.name.clone()).collect();
        object["tensors"] = self.reports.iter().map(tensor).collect();
        object
    }
}
