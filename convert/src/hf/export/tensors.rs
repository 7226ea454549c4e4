//! Tensors of a GGUF under the names, in the shapes and in the order of rows that a checkpoint has.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use qgguf_gguf::{GgmlType, GgufFile, TensorInfo, TensorSpec};

use super::super::families::{Change, Dims, Family, TensorRule, fill, template};
use super::super::rows::interleaved;
use super::super::safetensors::Dtype;
use super::ExportError;
use crate::gguf_rows::{GgufRows, Shards};
use crate::pipeline::{OutputTensor, RowSource, SourceError};

/// The tensors of a file, each with its rule.
pub(super) struct Tensors<'a> {
    known: Vec<(&'a TensorInfo, &'static TensorRule, Vec<u64>)>,
}

impl<'a> Tensors<'a> {
    /// Finds the rule of every tensor, and a tensor for every rule.
    pub fn of(family: &Family, file: &'a GgufFile) -> Result<Tensors<'a>, ExportError> {
        // Of several ways to store a tensor the first is the usual one.
        let mut rules: HashMap<&str, &'static TensorRule> = HashMap::new();
        family.rules().for_each(|rule| _ = rules.entry(rule.gguf).or_insert(rule));
        let mut known = Vec::new();
        for info in file.tensors().iter().filter(|info| !family.derived.contains(&info.name.as_str())) {
            let (pattern, numbers) = template(&info.name);
            let Some(rule) = rules.get(pattern.as_str()) else {
                let reason = format!("tensor \"{}\": a {} has no such tensor", info.name, family.class);
                return Err(ExportError::Model(reason));
            };
            known.push((info, *rule, numbers));
        }
        Ok(Tensors { known })
    }

    /// The type that most matrices get.
    pub fn matrix_type(&self, ty: Option<GgmlType>) -> GgmlType {
        let mut sizes: HashMap<GgmlType, u64> = HashMap::new();
        for (info, ..) in self.known.iter().filter(|(info, ..)| info.shape.len() > 1) {
            *sizes.entry(ty.unwrap_or(plain(info.ty))).or_default() += info.n_elements();
        }
        sizes.into_iter().max_by_key(|&(ty, n)| (n, ty)).map_or(GgmlType::F32, |(ty, _)| ty)
    }

    /// All tensors of the checkpoint, sorted by name, which is the order that the converter keeps.
    pub fn plan(
        &self,
        family: &Family,
        file: &GgufFile,
        dims: &Dims,
        shards: &'a Shards,
        ty: Option<GgmlType>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<OutputTensor<'a>>, ExportError> {
        if family.permuted && !dims.head_dim.is_multiple_of(2) {
            let reason = format!("heads of {} rows have no halves", dims.head_dim);
            return Err(ExportError::Model(reason));
        }
        self.complete(family, dims)?;
        warnings.extend(self.unused_biases(family));
        let mut planned = Vec::new();
        for (info, rule, numbers) in &self.known {
            if numbers.first().is_some_and(|&layer| layer >= dims.n_layer) {
                let reason = format!("the model has only {} layers", dims.n_layer);
                return Err(ExportError::Model(format!("tensor \"{}\": {reason}", info.name)));
            }
            if rule.change == Change::Drop {
                warnings.push(format!("{} is left out: a {} has none", info.name, family.class));
                continue;
            }
            let n_parts = if rule.change == Change::Expert { dims.n_expert } else { 1 };
            let shape = dims.shape(rule);
            let mut expected: Vec<u64> = shape.iter().rev().copied().collect();
            if rule.change == Change::Expert {
                expected.push(n_parts);
            }
            if info.shape != expected {
                return Err(ExportError::Model(format!(
                    "tensor \"{}\": shape {:?}, expected {expected:?} by the metadata",
                    info.name, info.shape
                )));
            }
            let spec_type = match plain(info.ty) {
                _ if stays_f32(&info.name, &shape) => GgmlType::F32,
                own => ty.unwrap_or(own),
            };
            let minus_one = family.norms_from_one && info.name.ends_with("norm.weight");
            if minus_one {
                warnings.extend(inexact(file, info));
            }
            let head = matches!(rule.change, Change::PermuteQ | Change::PermuteK).then_some(dims.head_dim);
            let part_rows = shape[..shape.len() - 1].iter().product::<u64>();
            for part in 0..n_parts {
                let numbers: Vec<u64> = numbers.iter().copied().chain([part]).collect();
                planned.push(OutputTensor {
                    spec: TensorSpec {
                        name: fill(rule.hf, &numbers),
                        shape: shape.iter().rev().copied().collect(),
                        ty: spec_type,
                    },
                    importance: None,
                    source: Box::new(ExportRows {
                        rows: shards.rows(info),
                        ty: info.ty,
                        first: part * part_rows,
                        head,
                        is_vector: shape.len() == 1,
                        minus_one,
                    }),
                });
            }
        }
        planned.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Ok(planned)
    }

    /// Names the first bias that transformers' class has no place for, and says how many there are.
    fn unused_biases(&self, family: &Family) -> Option<String> {
        let names = self.known.iter().map(|(info, ..)| info.name.as_str());
        let mut unused = names.filter(|name| name.ends_with(".bias") && !family.biases.include(name));
        let first = unused.next()?;
        let others = match unused.count() {
            0 => String::new(),
            n => format!(" (and {n} more)"),
        };
        Some(format!("{first}{others}: transformers' {} has no such bias and leaves it out", family.class))
    }

    /// Every tensor that the family needs is there.
    fn complete(&self, family: &Family, dims: &Dims) -> Result<(), ExportError> {
        let names: HashSet<&str> = self.known.iter().map(|(info, ..)| info.name.as_str()).collect();
        for rule in family.rules().filter(|rule| !rule.optional) {
            let n = if rule.gguf.contains("{}") { dims.n_layer } else { 1 };
            let missing = (0..n).map(|il| fill(rule.gguf, &[il])).find(|name| !names.contains(name.as_str()));
            if let Some(name) = missing {
                return Err(ExportError::Model(format!("tensor \"{name}\" is missing")));
            }
        }
        Ok(())
    }
}

/// Says of a norm that is stored less one how many weights do not come back when one is added.
fn inexact(file: &GgufFile, info: &TensorInfo) -> Option<String> {
    let tensor = file.tensor(&info.name).filter(|tensor| tensor.ty() == GgmlType::F32)?;
    let weights = tensor.bytes().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
    let n = weights.filter(|w| (w - 1.0) + 1.0 != *w).count();
    (n > 0).then(|| format!("{}: {n} weights less one are rounded and come back otherwise", info.name))
}

/// What a type becomes if nobody names another.
fn plain(ty: GgmlType) -> GgmlType {
    if Dtype::of(ty).is_some() { ty } else { GgmlType::F16 }
}

/// Vectors, norms and routers, which are f32 in every GGUF.
fn stays_f32(name: &str, shape: &[u64]) -> bool {
    shape.len() < 2 || name.contains("ffn_gate_inp")
}

/// Rows of a tensor of the checkpoint.
struct ExportRows {
    rows: GgufRows,
    ty: GgmlType,
    /// The row of the GGUF where they begin.
    first: u64,
    /// Rows of a head, whose halves are interleaved.
    head: Option<u64>,
    /// Its elements are what is reordered.
    is_vector: bool,
    /// Norms here multiply by one more than what is stored.
    minus_one: bool,
}

impl ExportRows {
    /// Reads rows one by one where they are reordered, else together; `read` gets rows of the GGUF.
    fn each<T>(
        &self,
        rows: Range<u64>,
        out: &mut [T],
        mut read: impl FnMut(Range<u64>, &mut [T]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let Some(head) = self.head.filter(|_| !self.is_vector) else {
            return read(self.first + rows.start..self.first + rows.end, out);
        };
        let columns = out.len() / (rows.end - rows.start).max(1) as usize;
        for (row, out) in rows.zip(out.chunks_exact_mut(columns.max(1))) {
            let row = self.first + interleaved(head, row);
            read(row..row + 1, out)?;
        }
        Ok(())
    }

    /// Puts the elements of a vector in their order.
    fn reorder<T: Copy>(&self, out: &mut [T], of_element: usize) {
        let Some(head) = self.head.filter(|_| self.is_vector) else { return };
        let stored = out.to_vec();
        for (i, out) in out.chunks_exact_mut(of_element).enumerate() {
            let at = interleaved(head, i as u64) as usize * of_element;
            out.copy_from_slice(&stored[at..at + of_element]);
        }
    }
}

impl RowSource for ExportRows {
    fn read_rows(&self, rows: Range<u64>, out: &mut [f32]) -> Result<(), SourceError> {
        self.each(rows, out, |rows, out| self.rows.read_rows(rows, out))?;
        self.reorder(out, 1);
        if self.minus_one {
            out.iter_mut().for_each(|x| *x -= 1.0);
        }
        Ok(())
    }

    fn stored(&self) -> Option<GgmlType> {
        (!self.minus_one).then_some(self.ty)
    }

    fn read_bytes(&self, rows: Range<u64>, out: &mut [u8]) -> Result<(), SourceError> {
        self.each(rows, out, |rows, out| self.rows.read_bytes(rows, out))?;
        // Only plain types are copied, whose blocks are elements.
        self.reorder(out, self.ty.block_bytes());
        Ok(())
    }

    fn prefetch(&self, rows: Range<u64>) {
        self.rows.prefetch(self.first + rows.start..self.first + rows.end);
    }
}
