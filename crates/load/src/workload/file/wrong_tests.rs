//! Wrong workload files, each with what is reported of it: `wrong_files.txt`, renewed with `WEBDYNO_UPDATE_GOLDEN=1`.
//! And no file, however wrong, ends in anything but an error.

use super::draft;
use std::io;
use std::path::Path;
use webdyno_model::UserError;
use webdyno_model::workload::Workload;

/// Cases stand one after the other: the file behind `=== file`, what is reported behind `--- told`.
const CASES: &str = include_str!("wrong_files.txt");

/// The files beside a workload.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes: &[u8] = match path.to_str().unwrap_or_default() {
        "circle.toml" => b"include = [\"inner.toml\"]",
        "inner.toml" => b"seed = 1\ninclude = [\"./circle.toml\"]",
        "wrong.toml" => b"seed = 1\nusers = true",
        "users.csv" => b"login,password\nann,x\nbob,y\n",
        "user.csv" => b"user,password\nann,x\n",
        "uneven.csv" => b"login,password\nann,x\nbob,y,z\n",
        "latin1.csv" => b"login\nj\xf6rg\n",
        "empty.csv" => b"",
        "header.csv" => b"login,password\n",
        "good.txt" => b"http://h/\n",
        "bad.txt" => b"http://h/\nftp://h/\n",
        _ => return Err(io::ErrorKind::NotFound.into()),
    };
    Ok(bytes.to_vec())
}

fn parse(text: &str) -> Result<Workload, UserError> {
    draft(text, Path::new("w.toml"), &mut read).and_then(|draft| draft.workload_as_written())
}

fn message(text: &str) -> String {
    match parse(text) {
        Ok(_) => "nothing\n".into(),
        Err(error) => {
            assert_eq!(error.exit_code(), 2, "{text}");
            format!("{}\nhint: {}\n", error.message, error.hint.unwrap_or_default())
        }
    }
}

#[test]
fn each_wrong_file_is_reported_with_place_and_cause() {
    let mut renewed = String::new();
    let mut failures = vec![];
    for case in CASES.split("=== file\n").skip(1) {
        let (text, expected) = case.split_once("--- told\n").unwrap();
        let message = message(text);
        let is_told = message != "nothing\n" && !message.ends_with("hint: \n");
        if message.trim_end() != expected.trim_end() || !is_told {
            failures.push(format!("{text}\n{message}"));
        }
        renewed.push_str(&format!("=== file\n{text}--- told\n{message}\n"));
    }
    if std::env::var_os("WEBDYNO_UPDATE_GOLDEN").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/workload/file/wrong_files.txt");
        std::fs::write(path, renewed).unwrap();
        return;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
