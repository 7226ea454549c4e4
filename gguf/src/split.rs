//! Split models: finds and checks the siblings of a shard.
//!
//! Shards are called `PREFIX-00001-of-0000N.gguf`; the first has all metadata, each has the keys `split.no`
//! (from 0), `split.count` and `split.tensors.count` (over all shards).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::shard::Shard;

/// `no`, `count` and the total number of tensors, as one shard states them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SplitKeys {
    no: u32,
    count: u32,
    tensors: u32,
}

/// Given any shard, opens and returns all, in order; a file that is not split is returned alone.
pub(crate) fn open_all(opened: Shard) -> Result<Vec<Shard>, Error> {
    let Some(keys) = split_keys(&opened)? else { return Ok(vec![opened]) };
    let name = opened.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let suffix = suffix(keys.no, keys.count);
    let Some(prefix) = name.strip_suffix(&suffix) else {
        let reason =
            format!("shard {} of {} must have a name that ends in \"{suffix}\"", keys.no + 1, keys.count);
        return Err(Error::Split { path: opened.path, reason });
    };
    let path_of = |no: u32| opened.path.with_file_name(format!("{prefix}{}", self::suffix(no, keys.count)));
    extra_shard(&path_of(keys.count - 1), prefix, keys.count)?;

    let paths: Vec<PathBuf> = (0..keys.count).map(path_of).collect();
    let mut opened = Some(opened);
    let mut shards: Vec<Shard> = Vec::new();
    for (no, path) in (0..keys.count).zip(paths) {
        let shard = match opened.take_if(|_| no == keys.no) {
            Some(shard) => shard,
            None => Shard::open(&path).map_err(|e| missing(e, no, keys.count))?,
        };
        check(&shard, SplitKeys { no, ..keys })?;
        if let Some(first) = shards.first() {
            same_architecture(first, &shard)?;
        }
        shards.push(shard);
    }
    no_tensor_twice(&shards)?;
    let found: usize = shards.iter().map(|shard| shard.header.tensors.len()).sum();
    if found != keys.tensors as usize {
        let reason = format!(
            "the {} shards have {found} tensors, but split.tensors.count is {}",
            keys.count, keys.tensors
        );
        return Err(Error::Split { path: shards.swap_remove(0).path, reason });
    }
    Ok(shards)
}

/// A tensor may be in one shard only.
fn no_tensor_twice(shards: &[Shard]) -> Result<(), Error> {
    let mut owners: HashMap<&str, &Path> = HashMap::new();
    for shard in shards {
        for tensor in &shard.header.tensors {
            if let Some(other) = owners.insert(&tensor.name, &shard.path) {
                let reason = format!("tensor \"{}\" is in {}, too", tensor.name, other.display());
                return Err(Error::Split { path: shard.path.clone(), reason });
            }
        }
    }
    Ok(())
}

fn suffix(no: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", no + 1)
}

/// Where shard `no` (from 0) of a model lies whose shards begin with `prefix`.
pub fn shard_path(prefix: &Path, no: u32, count: u32) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix(no, count));
    path.into()
}

/// The split keys, or `None` for a file that is not one of several.
fn split_keys(shard: &Shard) -> Result<Option<SplitKeys>, Error> {
    let metadata = &shard.header.metadata;
    let wrong = |reason: String| Error::Split { path: shard.path.clone(), reason };
    let named = |error: Error| wrong(error.to_string());
    let count = metadata.u32("split.count").map_err(named)?.unwrap_or(0);
    if count <= 1 {
        return Ok(None);
    }
    let no = metadata.require_u32("split.no").map_err(named)?;
    let tensors = metadata.require_u32("split.tensors.count").map_err(named)?;
    if count > u32::from(u16::MAX) {
        return Err(wrong(format!("split.count {count} is more than {}", u16::MAX)));
    }
    if no >= count {
        return Err(wrong(format!("split.no {no} is not below split.count {count}")));
    }
    Ok(Some(SplitKeys { no, count, tensors }))
}

fn check(shard: &Shard, expected: SplitKeys) -> Result<(), Error> {
    let found = split_keys(shard)?;
    if found == Some(expected) {
        return Ok(());
    }
    let show = |k: SplitKeys| format!("shard {} of {} with {} tensors in all", k.no + 1, k.count, k.tensors);
    let found = found.map_or("a file that is not split".to_owned(), show);
    let reason = format!("not a shard of this model: expected {}, found {found}", show(expected));
    Err(Error::Split { path: shard.path.clone(), reason })
}

/// Shards beyond the first need not say their architecture; one that says another belongs to another model.
fn same_architecture(first: &Shard, shard: &Shard) -> Result<(), Error> {
    const KEY: &str = "general.architecture";
    let of = |shard: &Shard| {
        let wrong = |error: Error| Error::Split { path: shard.path.clone(), reason: error.to_string() };
        Ok(shard.header.metadata.str(KEY).map_err(wrong)?.map(str::to_owned))
    };
    match (of(first)?, of(shard)?) {
        (Some(expected), Some(found)) if found != expected => {
            let reason = format!("not a shard of this model: expected {KEY} {expected}, found {found}");
            Err(Error::Split { path: shard.path.clone(), reason })
        }
        _ => Ok(()),
    }
}

fn missing(error: Error, no: u32, count: u32) -> Error {
    match error {
        Error::Io { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::Split { path, reason: format!("shard {} of {count} is missing", no + 1) }
        }
        error => error,
    }
}

/// A shard of the same name beyond the last means that two splits of a model are mixed up.
fn extra_shard(last: &Path, prefix: &str, count: u32) -> Result<(), Error> {
    let extra = last.with_file_name(format!("{prefix}{}", suffix(count, count)));
    if extra.exists() {
        let reason = format!("one shard too many: the model has {count}");
        return Err(Error::Split { path: extra, reason });
    }
    Ok(())
}
