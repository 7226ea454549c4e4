//! `qgguf export`: a folder that convert reads, complete or not at all.

use std::fs;
use std::path::Path;

use crate::handmade::Gguf;
use crate::support::{failure, json, qgguf, stdout, tiny_model};

/// What is in a folder, by name.
fn listing(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn an_exported_model_is_converted_and_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, back) = (dir.path().join("kjv"), dir.path().join("back.gguf"));
    let flags = "export --outtype f32 --json -o";
    let report = json(qgguf(flags).arg(&folder).arg(tiny_model()));
    assert_eq!((&report["class"], &report["n_tensors"]), (&"Qwen3ForCausalLM".into(), &46.into()));
    assert_eq!(listing(dir.path()), ["kjv"]);
    let files = [
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(listing(&folder), files);
    stdout(qgguf("convert --outtype f32 -o").arg(&back).arg(&folder));
    let say = |model: &Path| {
        stdout(qgguf("run --temp 0 -n 24 -m").arg(model).args(["-p", "And the LORD said unto"]))
    };
    assert_eq!(say(&back), say(&tiny_model()));
}

#[cfg(unix)]
#[test]
fn a_folder_gets_the_rights_of_any_other() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let [made, exported] = ["made", "exported"].map(|name| dir.path().join(name));
    fs::create_dir(&made).unwrap();
    // An empty folder is as good as none, and a trailing slash no reason to fail.
    fs::create_dir(&exported).unwrap();
    let with_slash = format!("{}/", exported.display());
    stdout(qgguf("export -o").arg(with_slash).arg(tiny_model()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&exported), mode(&made));
    // An empty folder stays the one it is, whoever stands in it.
    let here = dir.path().join("here");
    fs::create_dir(&here).unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o700)).unwrap();
    stdout(qgguf("export -o .").arg(tiny_model()).current_dir(&here));
    assert_eq!((mode(&here) & 0o777, listing(&here)), (0o700, listing(&exported)));
    let missing = failure(qgguf("export -o missing/x").arg(tiny_model()).current_dir(dir.path()), 1);
    assert!(missing.starts_with("qgguf: cannot write missing/x: No such file"), "{missing}");
}

#[test]
fn nothing_is_replaced_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name);
    fs::create_dir(out("full")).unwrap();
    fs::write(out("full/kept"), "old").unwrap();
    fs::write(out("file"), "old").unwrap();
    let mut unknown = Gguf::new();
    unknown.f32_tensor("token_embd.weight", &[32, 2], &[0.0; 64]);
    let unknown = unknown.save(dir.path(), "unknown.gguf");
    let cut = out("cut.gguf");
    fs::write(&cut, &fs::read(tiny_model()).unwrap()[..100_000]).unwrap();
    let before = listing(dir.path());

    let fail = |model: &Path, place: &str, code| {
        let line = failure(qgguf("export -o").arg(out(place)).arg(model), code);
        line.replace(&format!("{}/", dir.path().display()), "")
    };
    let tiny = tiny_model();
    assert_eq!(
        fail(&tiny, "full", 1),
        "qgguf: cannot write full: the folder is not empty; name one that does not exist"
    );
    assert!(fail(&tiny, "file", 1).starts_with("qgguf: cannot write file: Not a directory"));
    assert!(fail(&tiny, "no/such/place", 1).starts_with("qgguf: cannot write no/such/place: No such file"));
    let line = fail(&unknown, "new", 1);
    assert!(
        line.starts_with("qgguf: unknown.gguf: architecture \"test\" cannot be exported (possible: llama, "),
        "{line}"
    );
    assert!(fail(&cut, "new", 1).contains("cut.gguf"));
    assert!(fail(&out("absent.gguf"), "new", 1).contains("absent.gguf"));
    failure(qgguf("export --outtype q8_0 -o").arg(out("new")).arg(&tiny), 2);
    assert_eq!(listing(dir.path()), before);
    assert_eq!(fs::read(out("full/kept")).unwrap(), b"old");
}
