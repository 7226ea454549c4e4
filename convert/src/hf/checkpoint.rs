//! Finds a checkpoint and opens all of its safetensors files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::safetensors::{SafetensorsFile, StoredTensor};
use super::{HfError, json};
use crate::pipeline::SourceError;

/// Name of the file that says which shard has which tensor.
const INDEX: &str = "model.safetensors.index.json";
/// What describes an adapter.
const ADAPTER: &str = "adapter_config.json";
/// Endings of checkpoints that are Python pickles.
const PICKLES: [&str; 4] = ["bin", "pt", "pth", "ckpt"];

/// The folder that an argument means: a folder, that of a `.safetensors` file, or a repository in the cache of
/// Hugging Face (`org/name`).
#[derive(Clone, Debug)]
pub struct Location {
    /// The folder with `config.json`.
    pub dir: PathBuf,
    /// The only weights to use, if a file was named that is not one of several.
    pub file: Option<PathBuf>,
    /// What the model is called: the folder's or the repository's name.
    pub name: String,
    /// The repository's id, if one was named.
    pub repository: Option<String>,
}

impl Location {
    /// Looks for a folder, a file and a cached repository, in this order.
    pub fn find(input: &Path) -> Result<Location, HfError> {
        match fs::metadata(input) {
            Ok(kind) if kind.is_dir() => {
                let dir = input.to_owned();
                Ok(Location { name: folder_name(&dir), dir, file: None, repository: None })
            }
            Ok(_) => Location::of_file(input),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Location::in_cache(input).unwrap_or_else(|| Err(HfError::io(input)(e)))
            }
            Err(e) => Err(HfError::io(input)(e)),
        }
    }

    /// Says of a folder with an adapter, and no model, what it is.
    pub(crate) fn refuse_adapter(&self) -> Result<(), HfError> {
        let Some(adapter) = json::read_object(&self.dir.join(ADAPTER))? else { return Ok(()) };
        let is_named =
            |file: &PathBuf| file.file_name().is_some_and(|name| name == "adapter_model.safetensors");
        let has_model = self.dir.join(INDEX).exists() || self.dir.join("model.safetensors").exists();
        if has_model && !self.file.as_ref().is_some_and(is_named) {
            return Ok(());
        }
        let text = |key: &str| adapter.get(key).and_then(Value::as_str);
        let of = text("base_model_name_or_path").map_or(String::new(), |base| format!(" of {}", short(base)));
        let kind = text("peft_type").map_or(String::new(), |kind| format!("{} ", short(kind)));
        Err(HfError::file(
            &self.dir,
            format!(
                "this is an adapter ({kind}{ADAPTER}{of}), not a model: merge it into its model first (peft: \
                 merge_and_unload, then save_pretrained) and convert that"
            ),
        ))
    }

    fn of_file(path: &Path) -> Result<Location, HfError> {
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if PICKLES.contains(&ending) {
            return Err(pickle(path));
        }
        if ending != "safetensors" {
            return Err(HfError::file(path, "expected a folder or a .safetensors file"));
        }
        let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = parent.unwrap_or(Path::new(".")).to_owned();
        Ok(Location { name: folder_name(&dir), dir, file: Some(path.to_owned()), repository: None })
    }

    /// The newest snapshot of `org/name`, `None` if the text is no such id.
    fn in_cache(input: &Path) -> Option<Result<Location, HfError>> {
        let id = input.to_str()?;
        let (org, name) = id.split_once('/')?;
        let plain = |s: &str| !s.is_empty() && !s.starts_with('.') && !s.contains(['/', '\\']);
        if !plain(org) || !plain(name) {
            return None;
        }
        let cache = cache_dir()?.join(format!("models--{org}--{name}"));
        if !cache.is_dir() {
            let reason = format!("no such folder, and the Hugging Face cache has no {}", cache.display());
            return Some(Err(HfError::file(input, reason)));
        }
        let snapshots = cache.join("snapshots");
        let main = fs::read_to_string(cache.join("refs/main")).ok().map(|hash| snapshots.join(hash.trim()));
        let dir = main.filter(|dir| dir.is_dir()).or_else(|| {
            let all = fs::read_dir(&snapshots).ok()?;
            let dirs = all.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
            dirs.max_by_key(|path| fs::metadata(path).and_then(|m| m.modified()).ok())
        });
        Some(match dir {
            Some(dir) => {
                Ok(Location { dir, file: None, name: name.to_owned(), repository: Some(id.to_owned()) })
            }
            None => Err(HfError::file(&cache, "no snapshot was downloaded")),
        })
    }
}

/// `$HF_HUB_CACHE`, `$HF_HOME/hub`, or `~/.cache/huggingface/hub`.
fn cache_dir() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("HF_HUB_CACHE")
        .or_else(|| var("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| var("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
        .or_else(|| var("HOME").map(|home| home.join(".cache/huggingface/hub")))
}

/// A name as an error shows it.
fn short(name: &str) -> String {
    name.chars().take(100).collect()
}

fn folder_name(dir: &Path) -> String {
    // `.` and `..` have a name only once they are resolved.
    let resolved = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    resolved.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn pickle(path: &Path) -> HfError {
    HfError::file(
        path,
        "this is a Python pickle, which can run any code when it is read, so it is not read here; convert it to \
         safetensors first (transformers: model.save_pretrained(DIR, safe_serialization=True))",
    )
}

/// All tensors of a checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    files: Vec<SafetensorsFile>,
}

/// A tensor and the file it lies in.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    /// The file.
    pub file: &'a SafetensorsFile,
    /// Its entry there.
    pub tensor: &'a StoredTensor,
}

impl TensorRef<'_> {
    /// The error for something wrong with it.
    pub(crate) fn wrong(&self, reason: impl ToString) -> HfError {
        HfError::tensor(self.file.path(), &self.tensor.name, reason)
    }

    /// Reads the bytes of some of its numbers, from number `first` on.
    pub(crate) fn read(&self, first: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let at = first * self.tensor.dtype.bytes() as u64;
        let failed = |e| self.wrong(format!("cannot read it at byte {at}: {e}"));
        Ok(self.file.read(self.tensor, at, out).map_err(failed)?)
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    fn names(&self, file: &Path) -> bool {
        self.weight_map.values().any(|shard| file.file_name() == Some(shard.as_ref()))
    }
}

impl Checkpoint {
    /// Opens all files; what the index says and what they have must agree.
    pub fn open(location: &Location) -> Result<Checkpoint, HfError> {
        let dir = &location.dir;
        // A file that is a shard stands for all of them.
        let is_meant = |index: &Index| location.file.as_ref().is_none_or(|file| index.names(file));
        let index = read_index(dir)?.filter(is_meant);
        let paths: Vec<PathBuf> = match (&location.file, &index) {
            (_, Some(index)) => shards(dir, index)?,
            (Some(file), None) => vec![file.clone()],
            (None, None) => weights(dir)?,
        };
        let files = paths.iter().map(|path| SafetensorsFile::open(path)).collect::<Result<Vec<_>, _>>()?;
        let checkpoint = Checkpoint { files };
        let owners = checkpoint.owners()?;
        if let Some(index) = index {
            agree(&dir.join(INDEX), &index, &owners)?;
        }
        Ok(checkpoint)
    }

    /// File by file, in each in the order of their names.
    pub fn tensors(&self) -> impl Iterator<Item = TensorRef<'_>> {
        self.files.iter().flat_map(|file| file.tensors().iter().map(move |tensor| TensorRef { file, tensor }))
    }

    /// Which file has which tensor.
    fn owners(&self) -> Result<HashMap<&str, &Path>, HfError> {
        let mut owners = HashMap::new();
        for TensorRef { file, tensor } in self.tensors() {
            if let Some(other) = owners.insert(tensor.name.as_str(), file.path()) {
                let reason = format!("it is in {}, too", other.display());
                return Err(HfError::tensor(file.path(), &tensor.name, reason));
            }
        }
        Ok(owners)
    }
}

fn read_index(dir: &Path) -> Result<Option<Index>, HfError> {
    let path = dir.join(INDEX);
    let text = json::read_text(&path)?;
    text.map(|text| json::parse(&path, &text)).transpose()
}

/// The files that the index names, which must lie in the folder.
fn shards(dir: &Path, index: &Index) -> Result<Vec<PathBuf>, HfError> {
    let names: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    if names.is_empty() {
        return Err(HfError::file(&dir.join(INDEX), "\"weight_map\" names no files"));
    }
    names
        .into_iter()
        .map(|name| {
            let path = dir.join(name);
            if Path::new(name).components().count() != 1 || path.file_name().is_none() {
                let reason =
                    format!("\"weight_map\": expected names of files in the same folder, found {name:?}");
                return Err(HfError::file(&dir.join(INDEX), reason));
            }
            match fs::metadata(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    Err(HfError::file(&path, format!("this shard is missing ({INDEX} names it)")))
                }
                _ => Ok(path),
            }
        })
        .collect()
}

/// Files of a folder without an index: `model*.safetensors`, sorted.
fn weights(dir: &Path) -> Result<Vec<PathBuf>, HfError> {
    let entries = fs::read_dir(dir).map_err(HfError::io(dir))?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>().map_err(HfError::io(dir))?;
    paths.sort();
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let found: Vec<PathBuf> = paths
        .iter()
        .filter(|path| name(path).starts_with("model") && name(path).ends_with(".safetensors"))
        .cloned()
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let is_pickle = |path: &&PathBuf| {
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        PICKLES.contains(&ending) && !name(path).starts_with("training_args")
    };
    let other = paths.iter().find(|path| name(path).ends_with(".safetensors"));
    match (other, paths.iter().find(is_pickle)) {
        (Some(other), _) => {
            let reason = format!(
                "no model*.safetensors in this folder; if all weights are in {}, name that file",
                other.display()
            );
            Err(HfError::file(dir, reason))
        }
        (None, Some(path)) => Err(pickle(path)),
        (None, None) => Err(HfError::file(dir, "no model*.safetensors in this folder")),
    }
}

/// The index and the files must have the same tensors in the same places.
fn agree(path: &Path, index: &Index, owners: &HashMap<&str, &Path>) -> Result<(), HfError> {
    for (name, shard) in &index.weight_map {
        match owners.get(name.as_str()) {
            None => {
                return Err(HfError::tensor(
                    path,
                    name,
                    format!("it is in none of the files, expected in {shard}"),
                ));
            }
            Some(owner) if owner.file_name().is_none_or(|found| found != shard.as_str()) => {
                let reason = format!("expected in {shard}, found in {}", owner.display());
                return Err(HfError::tensor(path, name, reason));
            }
            Some(_) => {}
        }
    }
    let extra = owners.iter().filter(|(name, _)| !index.weight_map.contains_key(**name)).min();
    match extra {
        Some((name, owner)) => {
            Err(HfError::tensor(path, name, format!("{} has it, but the index does not", owner.display())))
        }
        None => Ok(()),
    }
}
