//! `README.md`: the model card, whose front matter has what `general.*` says.

use std::fmt::Write;

use qgguf_gguf::{Metadata, MetadataValue};

use super::super::general::{HUB, TEXTS};
use super::ExportError;

/// The card, with the license and origin that the file names.
pub(super) fn card(metadata: &Metadata) -> Result<String, ExportError> {
    let mut lines = String::new();
    let mut line = |name: &str, value: serde_json::Value| _ = writeln!(lines, "{name}: {}", yaml(&value));
    for (key, names) in TEXTS {
        if let (Some(MetadataValue::String(text)), Some(name)) = (metadata.get(key), names.first()) {
            line(name, text.as_str().into());
        }
    }
    for (key, name) in [("general.tags", "tags"), ("general.languages", "language")] {
        if let Some(list) = metadata.strings(key)? {
            line(name, list.iter().collect());
        }
    }
    for (kind, name) in [("base_model", "base_model"), ("dataset", "datasets")] {
        let n = metadata.u32(&format!("general.{kind}.count"))?.unwrap_or(0);
        let url = |i| metadata.str(&format!("general.{kind}.{i}.repo_url")).ok().flatten();
        let ids: Vec<&str> =
            (0..n.min(100)).filter_map(url).map(|url| url.strip_prefix(HUB).unwrap_or(url)).collect();
        if !ids.is_empty() {
            line(name, ids.into());
        }
    }
    let name = metadata.str("general.name")?.unwrap_or("Model");
    let name = name.lines().next().unwrap_or_default();
    Ok(format!("---\n{lines}---\n\n# {name}\n\nExported from a GGUF file by qgguf.\n"))
}

/// A text or a list of texts. Every JSON text is a YAML text, but for characters that YAML wants escaped.
fn yaml(value: &serde_json::Value) -> String {
    let mut yaml = String::new();
    for c in value.to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(yaml, "\\u{:04x}", u32::from(c));
            }
            c => yaml.push(c),
        }
    }
    yaml
}
