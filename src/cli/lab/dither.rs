//! `qgguf lab dither`: an original for experiments, made of a quantized file.

use std::path::PathBuf;

use half::f16;
use qgguf::lab::dither::{Noise, types};
use qgguf_gguf::{GgmlType, GgufFile, GgufWriter, MetadataValue, TensorInfo, TensorSpec, TensorView};

use crate::cli::error::{Context, Failure, Result};
use crate::cli::interrupt;
use crate::cli::output::refuse_overwriting;
use crate::cli::terminal::{self, note};

/// Make an f16 original of a quantized file: its weights, moved off their grid by seeded noise
///
/// The weights of a quantized file lie on its grid; quantized again to the same type they lose nothing, so that such a
/// file can stand in for no original. Here every weight is moved by an evenly spread random part of at most 0.45 of the
/// distance to its neighbours on the grid, which is where the original weights may have been. The result depends on
/// the file and the seed only. It is not the original: it answers a little worse than the quantized file.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  qgguf lab dither SmolLM2-135M-Instruct.Q4_1.gguf smollm2-f16.gguf --seed 1
  qgguf lab int4 -m smollm2-f16.gguf")]
pub struct Args {
    /// A quantized GGUF
    input: PathBuf,
    /// Where the f16 GGUF goes
    output: PathBuf,
    /// Which noise
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
}

/// `general.file_type` of files that are mostly f16.
const MOSTLY_F16: u32 = 1;
/// Weights that are moved at a time, at least one row.
const STEP_WEIGHTS: usize = 1 << 18;

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    let file = GgufFile::open(&args.input)?;
    refuse_overwriting(&args.output, file.paths())?;
    let is_number = |info: &TensorInfo| info.ty.block_size() == 1;
    let named = || args.input.display();
    let quantized = || file.tensors().iter().filter(|info| !is_number(info));
    if quantized().next().is_none() {
        return Err(Failure::text("no tensor is quantized: such a file needs no noise")).context(named());
    }
    if let Some(info) = quantized().find(|info| types().all(|ty| ty != info.ty)) {
        let known: Vec<&str> = types().map(GgmlType::name).collect();
        let reason = format!(
            "tensor \"{}\" is {}, whose weights lie on no even grid; expected {}",
            terminal::escape(&info.name),
            info.ty,
            known.join(", ")
        );
        return Err(Failure::text(reason)).context(named());
    }
    let specs: Vec<TensorSpec> = file
        .tensors()
        .iter()
        .map(|info| TensorSpec { ty: if is_number(info) { info.ty } else { GgmlType::F16 }, ..info.into() })
        .collect();
    let mut metadata = file.metadata().clone();
    metadata.set("general.file_type", MetadataValue::U32(MOSTLY_F16));
    metadata.set("qgguf.dither.seed", MetadataValue::U64(args.seed));
    // The shards of a split file become one.
    for key in ["split.no", "split.count", "split.tensors.count"] {
        metadata.remove(key);
    }

    interrupt::listen();
    let running = interrupt::Generation::begin();
    let mut writer = GgufWriter::create(&args.output, 3, &metadata, &specs)?;
    for (i, info) in file.tensors().iter().enumerate() {
        if running.interrupted() {
            note!("qgguf: interrupted; nothing was written");
            return Err(Failure::Interrupted);
        }
        let view = file.require_tensor(&info.name).context(named())?;
        if is_number(info) {
            writer.write(view.bytes())?;
        } else {
            dither(&mut writer, view, Noise::new(args.seed, i as u64)).context(named())?;
        }
    }
    writer.finish()?;
    let n_moved: u64 = quantized().map(TensorInfo::n_elements).sum();
    note!(
        "qgguf: wrote {}: {} weights in {} tensors moved, seed {}",
        terminal::escape(&args.output.display().to_string()),
        terminal::count(n_moved),
        quantized().count(),
        args.seed
    );
    Ok(())
}

/// Writes a tensor with its weights moved, some rows at a time.
fn dither(writer: &mut GgufWriter, view: TensorView<'_>, mut noise: Noise) -> Result<()> {
    let row_len = view.info().row_len() as usize;
    let Some(row_bytes) = view.ty().row_bytes(row_len).filter(|&n| n > 0) else { return Ok(()) };
    let n_rows = (STEP_WEIGHTS / row_len).max(1);
    let (mut weights, mut halves) = (Vec::new(), Vec::new());
    for rows in view.bytes().chunks(n_rows * row_bytes) {
        weights.resize(rows.len() / row_bytes * row_len, 0.0);
        noise.dither(view.ty(), rows, &mut weights)?;
        halves.clear();
        halves.extend(weights.iter().flat_map(|&w| f16::from_f32(w).to_le_bytes()));
        writer.write(&halves)?;
    }
    Ok(())
}
