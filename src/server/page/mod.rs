//! The web page at `/`: plain modules and style sheets, built into the binary as they lie here.
//!
//! `app.js` puts it together; `vendor/` has the one library that it uses. The page asks for nothing but this server's own
//! `v1/models`, `v1/chat/completions`, `props`, `inspect` and `health`.

/// `Cache-Control` of every file: kept, but asked for again, so that a new binary shows its own page.
pub const CACHE_CONTROL: &str = "no-cache";

/// `Content-Security-Policy` of every file. The page itself allows even less (see `index.html`).
pub const CONTENT_SECURITY_POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! files {
    ($($path:literal $content_type:ident)*) => {
        &[$(($path, $content_type, include_bytes!($path))),*]
    };
}

/// Path, content type, bytes.
const FILES: &[(&str, &str, &[u8])] = files! {
    "index.html" HTML
    "base.css" CSS
    "chat.css" CSS
    "panels.css" CSS
    "favicon.svg" SVG
    "icons.svg" SVG
    "app.js" JS
    "api.js" JS
    "chat.js" JS
    "conversation.js" JS
    "dom.js" JS
    "errors.js" JS
    "markdown.js" JS
    "params.js" JS
    "server.js" JS
    "store.js" JS
    "theme.js" JS
    "views/composer.js" JS
    "views/header.js" JS
    "views/key.js" JS
    "views/message.js" JS
    "views/model.js" JS
    "views/notice.js" JS
    "views/settings.js" JS
    "views/sidebar.js" JS
    "views/thread.js" JS
    "vendor/markdown-it.mjs" JS
    "vendor/LICENCES.txt" TEXT
};

/// Content type and bytes of the file at a path without its leading slash; the empty path is the page itself.
pub fn asset(path: &str) -> Option<(&'static str, &'static [u8])> {
    let path = if path.is_empty() { "index.html" } else { path };
    let (_, content_type, bytes) = FILES.iter().find(|(name, ..)| *name == path)?;
    Some((content_type, bytes))
}

/// `ETag` of a file: a hash of its bytes (FNV-1a, 64 bits), in quotes.
pub fn etag(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{hash:016x}\"")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn files_below(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let below = |path: &Path| {
            files_below(path).into_iter().map(|file| format!("{}/{file}", name(path))).collect()
        };
        entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![name(&path)] }).collect()
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let mut lying = files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server/page"));
        lying.retain(|file| file != "mod.rs");
        lying.sort();
        let mut served: Vec<String> = FILES.iter().map(|(path, ..)| (*path).to_owned()).collect();
        served.sort();
        assert_eq!(served, lying);
    }

    #[test]
    fn a_path_is_a_name_in_the_list_and_nothing_else() {
        assert_eq!(asset(""), asset("index.html"));
        assert!(asset("").unwrap().1.starts_with(b"<!doctype html>"));
        for outside in ["mod.rs", "../page/index.html", "/index.html", "views", "views/"] {
            assert_eq!(asset(outside), None, "{outside}");
        }
    }

    #[test]
    fn a_change_changes_the_etag() {
        assert_eq!(etag(b""), "\"cbf29ce484222325\"");
        assert_eq!(etag(b"a"), "\"af63dc4c8601ec8c\"");
    }
}
