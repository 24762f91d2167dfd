//! The flags of what a request carries, and the body that they come to.

use super::ParseResult;
use clap::Args;
use std::io::Read;
use std::path::{Path, PathBuf};
use webdyno_load::workload::forms;
use webdyno_load::workload::forms::{File, Part};
use webdyno_model::error::io_error;
use webdyno_model::workload::body::Body;
use webdyno_model::{ErrorKind, Result, UserError};

/// A body larger than this is not what this engine is for.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// What each request carries.
#[derive(Debug, Clone, Default, Args)]
pub struct BodyArgs {
    /// Body of each request
    #[arg(short, long, value_name = "STRING", conflicts_with_all = ["body_file", "form"])]
    pub body: Option<String>,
    /// Body of each request, from FILE
    #[arg(long, value_name = "FILE", conflicts_with = "form")]
    pub body_file: Option<PathBuf>,
    /// Form field, NAME=VALUE, NAME=@FILE or NAME=@FILE;type=TYPE (repeatable)
    #[arg(short = 'F', long, value_name = "FIELD", value_parser = field)]
    pub form: Vec<FormField>,
}

/// A field of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormField {
    name: String,
    value: FieldValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldValue {
    Text(String),
    File { path: PathBuf, content_type: Option<String> },
}

/// A body, and the header that belongs to it.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestBody {
    /// Empty for none.
    pub body: Body,
    /// `Content-Type`, where neither the user said it nor it goes without saying.
    pub content_type: Option<String>,
}

impl BodyArgs {
    /// Whether requests carry a body, be it an empty one.
    pub fn is_given(&self) -> bool {
        self.body.is_some() || self.body_file.is_some() || !self.form.is_empty()
    }

    /// Reads files and puts the body together. A usage error for a file that cannot be read, for a body that is too
    /// large, and for a `Content-Type` of the user's that a form with files cannot have.
    pub fn read(&self, headers: &[(String, String)]) -> Result<RequestBody> {
        if self.form.is_empty() {
            let bytes = match &self.body_file {
                Some(path) => read(path, "the body")?,
                None => self.body.as_deref().unwrap_or_default().into(),
            };
            return Ok(RequestBody { body: check_size(bytes)?.into(), content_type: None });
        }
        let given = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let with_files = self.form.iter().any(|field| matches!(field.value, FieldValue::File { .. }));
        if let (Some((_, value)), true) = (given, with_files) {
            return Err(UserError::usage(format!(
                "Content-Type says `{value}`, and a form with files needs its own, which names the boundary"
            ))
            .hint("leave the header out"));
        }
        let parts: Vec<Part> = self.form.iter().map(FormField::part).collect::<Result<_>>()?;
        let (bytes, content_type) = forms::encode(&parts);
        Ok(RequestBody {
            body: check_size(bytes)?.into(),
            content_type: given.is_none().then_some(content_type),
        })
    }
}

impl FormField {
    fn part(&self) -> Result<Part> {
        let (bytes, file) = match &self.value {
            FieldValue::Text(text) => (text.clone().into_bytes(), None),
            FieldValue::File { path, content_type } => {
                let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
                (
                    read(path, &format!("field {} of the form from", self.name))?,
                    Some(File { name, content_type: content_type.clone() }),
                )
            }
        };
        Ok(Part { name: self.name.clone(), bytes, file })
    }
}

/// The bytes of a file; no more of them than a body may have, and one.
fn read(path: &Path, what: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    let opened = std::fs::File::open(path);
    let got = opened.and_then(|file| file.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes));
    match got {
        Ok(_) if bytes.len() as u64 > BODY_BYTES_MAX => Err(UserError::usage(format!(
            "{} has more than {BODY_BYTES_MAX} bytes, which is the most that can be sent",
            path.display()
        ))
        .hint("send a smaller body")),
        Ok(_) => Ok(bytes),
        Err(error) => {
            let reported = io_error(&format!("read {what}"), path.display(), &error);
            let hint =
                reported.hint.clone().unwrap_or_else(|| "give a file that can be read: ls -l FILE".into());
            Err(UserError { kind: ErrorKind::Usage, hint: Some(hint), ..reported })
        }
    }
}

fn check_size(bytes: Vec<u8>) -> Result<Vec<u8>> {
    let length = bytes.len() as u64;
    if length <= BODY_BYTES_MAX {
        return Ok(bytes);
    }
    let reported =
        UserError::usage(format!("the body has {length} bytes, at most {BODY_BYTES_MAX} can be sent"));
    Err(reported.hint("send a smaller body"))
}

fn field(text: &str) -> ParseResult<FormField> {
    let wrong = || "a form field, as NAME=VALUE, or NAME=@FILE for a file".to_owned();
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let value = match value.strip_prefix('@') {
        None => FieldValue::Text(value.into()),
        Some("") => return Err(wrong()),
        Some(file) => {
            let (path, content_type) = match file.rsplit_once(";type=") {
                Some((path, content_type)) => (path, Some(content_type.to_owned())),
                None => (file, None),
            };
            if content_type.as_deref().is_some_and(|kind| !forms::is_media_type(kind)) {
                return Err("a media type behind ;type=, as NAME=@FILE;type=text/plain".into());
            }
            FieldValue::File { path: path.into(), content_type }
        }
    };
    Ok(FormField { name: name.into(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[&str]) -> BodyArgs {
        BodyArgs { form: fields.iter().map(|text| field(text).unwrap()).collect(), ..BodyArgs::default() }
    }

    fn file_value(path: &str, content_type: Option<&str>) -> FieldValue {
        FieldValue::File { path: path.into(), content_type: content_type.map(str::to_owned) }
    }

    #[test]
    fn fields_are_texts_or_files() {
        for (text, name, value) in [
            ("a=b=c", "a", FieldValue::Text("b=c".into())),
            ("a=", "a", FieldValue::Text(String::new())),
            ("a=x;type=text/plain", "a", FieldValue::Text("x;type=text/plain".into())),
            ("f=@/x/y.png", "f", file_value("/x/y.png", None)),
            (
                "f=@a;b;type=text/plain; charset=utf-8",
                "f",
                file_value("a;b", Some("text/plain; charset=utf-8")),
            ),
        ] {
            assert_eq!(field(text).unwrap(), FormField { name: name.into(), value }, "{text}");
        }
        for text in ["a", "=b", "f=@", "f=@x;type=", "f=@x;type=png", "f=@x;type=a/b\r\nX: y"] {
            assert!(field(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_form_says_its_type_unless_the_user_did() {
        let output = vec![("content-type".to_owned(), "text/x".to_owned())];
        let texts = form(&["a=1", "b=2"]);
        let payload = texts.read(&[]).unwrap();
        assert_eq!(payload.body.bytes(), b"a=1&b=2");
        assert_eq!(payload.content_type.as_deref(), Some(forms::URLENCODED));
        assert_eq!(texts.read(&output).unwrap().content_type, None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        std::fs::write(&path, b"\0\xff\r\n").unwrap();
        let files = form(&["a=1", &format!("f=@{}", path.display())]);
        let payload = files.read(&[]).unwrap();
        assert!(payload.content_type.unwrap().starts_with("multipart/form-data; boundary="));
        assert!(payload.body.bytes().windows(4).any(|four| four == b"\0\xff\r\n"));
        assert_eq!(files.read(&output).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn bodies_come_from_files_as_they_are_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("body");
        let from = |path: &Path| BodyArgs { body_file: Some(path.into()), ..BodyArgs::default() };
        let bytes: Vec<u8> = (0..=255).collect();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(from(&path).read(&[]).unwrap().body.bytes(), bytes);
        for (path, part) in [
            (folder.path().join("missing"), "missing"),
            (folder.path().to_owned(), "cannot read the body"),
            // It has no end and no length.
            ("/dev/zero".into(), "has more than 67108864 bytes"),
        ] {
            let reported = from(&path).read(&[]).unwrap_err();
            assert!(reported.message.contains(part) && reported.exit_code() == 2, "{reported}");
            assert!(reported.hint.is_some() && !reported.message.contains("os error"), "{reported}");
            let reported = form(&[&format!("f=@{}", path.display())]).read(&[]).unwrap_err();
            let part = part.replace("the body", "field f of the form");
            assert!(reported.message.contains("field f") || part.contains("bytes"), "{reported}");
            let part = part.as_str();
            assert!(reported.message.contains(part) && reported.exit_code() == 2, "{reported}");
        }
    }
}
