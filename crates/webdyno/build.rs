//! Names the build by a hash of all sources, so that tool and agent know whether they are the same: a version number
//! stays while the code changes, and a hash of the program would cost every start some milliseconds. How it was built goes
//! along, for `--version`.
//!
//! Also deflates the JSON Schemas of the outputs, of which a sixth remains.
//!
//! Facts: https://doc.rust-lang.org/cargo/reference/environment-variables.html (of build scripts),
//! git-describe(1), git-rev-parse(1). FNV-1a, 64 bits (draft-eastlake-fnv): it tells builds apart, and protects from nobody.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    // Asked when it runs: a checkout that was moved keeps this program, compiled elsewhere.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let workspace = Path::new(&manifest).join("../..");
    let mut files = vec![workspace.join("Cargo.toml"), workspace.join("Cargo.lock")];
    for entry in fs::read_dir(workspace.join("crates"))? {
        let folder = entry?.path();
        if folder.ends_with("evaluation") {
            continue; // a tool for development: no part of the program
        }
        // Nor are tests.
        let source = folder.join("src");
        println!("cargo::rerun-if-changed={}", source.display());
        files.push(folder.join("Cargo.toml"));
        gather(&source, &mut files)?;
    }
    files.sort();
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    for path in files.iter().filter(|path| path.exists()) {
        let name = path.strip_prefix(&workspace).unwrap_or(path);
        let bytes = fs::read(path)?;
        hash.add(name.as_os_str().as_encoded_bytes());
        hash.add(&(bytes.len() as u64).to_le_bytes());
        hash.add(&bytes);
    }
    for path in &files[..] {
        if path.extension().is_some_and(|extension| extension == "toml" || extension == "lock") {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    println!("cargo::rustc-env=WEBDYNO_BUILD={}-{:016x}", env!("CARGO_PKG_VERSION"), hash.0);
    describe(&workspace);
    deflate_schemas(&workspace.join("docs/schemas"))
}

/// What `webdyno schema` prints: of each file its name and its text, with a NUL behind either.
fn deflate_schemas(folder: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = vec![];
    gather(folder, &mut files)?;
    files.sort();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("schemas");
    let mut deflated = DeflateEncoder::new(fs::File::create(out)?, Compression::best());
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        write!(deflated, "{}\0{}\0", name.trim_end_matches(".schema.json"), fs::read_to_string(&file)?)?;
    }
    deflated.finish().map(drop)
}

/// What `--version` says beside the build.
fn describe(workspace: &Path) {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // TARGET_DIR/PROFILE/build/webdyno-HASH/out
    let profile = out.ancestors().nth(3).and_then(Path::file_name).unwrap_or_default().display().to_string();
    let target = env::var("TARGET").unwrap_or_default();
    let rustc = printed(Command::new(env::var_os("RUSTC").unwrap_or_default()).arg("--version"));
    // Who develops would compile once more after each commit.
    let commit = if profile == "release" { commit(workspace) } else { None };
    for (name, value) in [
        ("COMMIT", commit.unwrap_or_else(|| "unknown".into())),
        ("PROFILE", profile),
        ("TARGET", target),
        (
            "RUSTC",
            rustc.map_or_else(|| "unknown".into(), |text| text.trim_start_matches("rustc ").to_owned()),
        ),
    ] {
        println!("cargo::rustc-env=WEBDYNO_{name}={value}");
    }
}

/// The commit of these sources, `-dirty` where files differ from it.
fn commit(workspace: &Path) -> Option<String> {
    let git = |words: &str| printed(Command::new("git").arg("-C").arg(workspace).args(words.split(' ')));
    let log = PathBuf::from(git("rev-parse --path-format=absolute --git-path logs/HEAD")?);
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display()); // each commit and checkout adds a line
    }
    git("describe --always --dirty --abbrev=12 --exclude=*")
}

/// The line that a program printed, if it ran well.
fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// All files below a folder.
fn gather(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => gather(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

struct Hash(u64);

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
