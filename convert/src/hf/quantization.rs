//! Checkpoints whose weights are quantized already: which scheme it is, by the tensors and by the configuration. Packed
//! weights are not converted; what is wrong is said by its name.

use super::checkpoint::{Checkpoint, TensorRef};
use super::config::describe;
use super::safetensors::{Dtype, StoredTensor};
use super::{Config, HfError};

/// One way to store packed weights.
struct Scheme {
    name: &'static str,
    /// How the names of packed weights end, without what they pack.
    packed: &'static str,
    /// The endings of what else is needed to unpack them.
    parts: &'static [&'static str],
}

/// All that are known; of two that pack alike the first whose parts are there.
const SCHEMES: [Scheme; 7] = [
    Scheme { name: "GPTQ", packed: ".qweight", parts: &[".scales", ".qzeros"] },
    Scheme { name: "AWQ", packed: ".qweight", parts: &[".scales", ".qzeros"] },
    Scheme { name: "compressed-tensors", packed: ".weight_packed", parts: &[".weight_scale"] },
    Scheme { name: "bitsandbytes (4 bits)", packed: ".weight.absmax", parts: &[".weight.quant_map"] },
    Scheme { name: "bitsandbytes (8 bits)", packed: ".SCB", parts: &[] },
    Scheme { name: "MXFP4", packed: "_blocks", parts: &["_scales"] },
    Scheme { name: "HQQ", packed: ".W_q", parts: &[".scale", ".zero"] },
];

/// What the configuration calls the scheme, if it names one.
fn stated(config: &Config) -> Option<String> {
    let quantization = config.get(&["quantization_config", "compression_config"])?;
    let method = quantization.get("quant_method").and_then(|method| method.as_str());
    Some(method.map_or_else(|| describe(quantization), str::to_owned))
}

/// Refuses packed weights. Returns a warning if the configuration speaks of a quantization that no tensor shows.
pub(super) fn check(config: &Config, checkpoint: &Checkpoint) -> Result<Option<String>, HfError> {
    let stated = stated(config);
    if let Some(tensor) = first_of_bytes(checkpoint) {
        let stated = stated.map_or_else(
            || "config.json has no quantization_config that says so".to_owned(),
            |method| format!("quantization_config names {method}"),
        );
        return Err(tensor.wrong(format!(
            "stored as {}, which are weights of a quantized checkpoint ({stated}); they are not converted: take the \
             checkpoint that it was made from, or dequantize it first",
            tensor.tensor.dtype.name()
        )));
    }
    let Some((tensor, base, scheme)) = first_packed(checkpoint, stated.as_deref()) else {
        return Ok(stated.map(|method| {
            format!(
                "{}: quantization_config names {method}, but all weights are plain numbers: they are taken as they are",
                config.path().display()
            )
        }));
    };
    let has = |part: &str| checkpoint.tensors().any(|other| other.tensor.name == format!("{base}{part}"));
    let missing = scheme
        .parts
        .iter()
        .find(|part| !has(part))
        .map(|part| format!("; what it is unpacked with is not even there: no tensor \"{base}{part}\""));
    let unstated = match stated {
        Some(_) => "",
        None => ", of which config.json has no quantization_config",
    };
    Err(tensor.wrong(format!(
        "this is a checkpoint quantized with {}{unstated}{}; packed weights are not converted: take the checkpoint that \
         it was made from, or unpack it first",
        scheme.name,
        missing.unwrap_or_default()
    )))
}

/// The first matrix of a layer whose numbers are single bytes.
fn first_of_bytes(checkpoint: &Checkpoint) -> Option<TensorRef<'_>> {
    let is_matrix = |t: &StoredTensor| t.shape.len() > 1 && t.name.ends_with(".weight");
    let of_bytes = |t: &StoredTensor| [Dtype::I8, Dtype::U8].contains(&t.dtype);
    checkpoint.tensors().find(|tensor| is_matrix(tensor.tensor) && of_bytes(tensor.tensor))
}

/// The first packed tensor, its name without the ending, and its scheme, which is the stated one if that packs so.
fn first_packed<'a>(
    checkpoint: &'a Checkpoint,
    stated: Option<&str>,
) -> Option<(TensorRef<'a>, &'a str, &'static Scheme)> {
    let has_indices = checkpoint.tensors().any(|tensor| tensor.tensor.name.ends_with(".g_idx"));
    let is_gptq = has_indices || stated.is_some_and(|method| method.eq_ignore_ascii_case("gptq"));
    checkpoint.tensors().find_map(|tensor| {
        let name = tensor.tensor.name.as_str();
        let fits = |scheme: &&Scheme| name.ends_with(scheme.packed) && (scheme.name != "GPTQ" || is_gptq);
        let scheme = SCHEMES.iter().find(fits)?;
        Some((tensor, name.strip_suffix(scheme.packed)?, scheme))
    })
}
