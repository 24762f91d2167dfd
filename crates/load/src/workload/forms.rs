//! Forms as bodies of requests, as browsers send them: `application/x-www-form-urlencoded` (WHATWG URL, section 5) or,
//! with a file among the parts, `multipart/form-data` (RFC 7578; names escaped as in WHATWG HTML, 4.10.21.8).

use url::form_urlencoded::Serializer;

/// What the parts of a form with names and texts alone are called.
pub const URLENCODED: &str = "application/x-www-form-urlencoded";
/// The default type of a file: RFC 7578, 4.4 and RFC 2046, 4.5.1.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// One part of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The name of the field.
    pub name: String,
    /// What it holds.
    pub bytes: Vec<u8>,
    /// Set for a file.
    pub file: Option<File>,
}

/// What is reported of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name, without directories.
    pub name: String,
    /// Its type; `None` when not given.
    pub content_type: Option<String>,
}

/// A form in bytes, and the `Content-Type` that describes them.
pub fn encode(parts: &[Part]) -> (Vec<u8>, String) {
    if parts.iter().any(|part| part.file.is_some()) { multipart(parts) } else { urlencoded(parts) }
}

fn urlencoded(parts: &[Part]) -> (Vec<u8>, String) {
    let mut form = Serializer::new(String::new());
    for part in parts {
        form.append_pair(&part.name, &String::from_utf8_lossy(&part.bytes));
    }
    (form.finish().into_bytes(), URLENCODED.into())
}

/// As `multipart/form-data`, whatever the parts are.
pub fn multipart(parts: &[Part]) -> (Vec<u8>, String) {
    let boundary = boundary(parts);
    let mut body = vec![];
    for part in parts {
        let mut head =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"", escaped(&part.name));
        if let Some(file) = &part.file {
            let content_type = file.content_type.as_deref().unwrap_or(UNKNOWN_TYPE);
            let name = escaped(&file.name);
            head.push_str(&format!("; filename=\"{name}\"\r\nContent-Type: {content_type}"));
        }
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(b"\r\n\r\n");
        body.extend_from_slice(&part.bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (body, format!("multipart/form-data; boundary={boundary}"))
}

/// Whether it may stand in a header as a type: RFC 9110, 8.3.1, roughly.
pub fn is_media_type(text: &str) -> bool {
    let visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    visible && text.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty())
}

/// A line that occurs in no part. Always the same one for the same form, so that a load can be repeated.
fn boundary(parts: &[Part]) -> String {
    let occurs = |boundary: &str| {
        let sought = boundary.as_bytes();
        parts.iter().any(|part| part.bytes.windows(sought.len()).any(|window| window == sought))
    };
    let boundaries = (0u64..).map(|number| format!("webdyno-boundary-{number}"));
    boundaries.into_iter().find(|boundary| !occurs(boundary)).unwrap_or_default()
}

/// A name between quotes.
fn escaped(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, value: &str) -> Part {
        Part { name: name.into(), bytes: value.into(), file: None }
    }

    fn file(name: &str, file: &str, content_type: Option<&str>, bytes: &[u8]) -> Part {
        let file = File { name: file.into(), content_type: content_type.map(str::to_owned) };
        Part { name: name.into(), bytes: bytes.into(), file: Some(file) }
    }

    #[test]
    fn texts_alone_are_urlencoded() {
        let (body, content_type) = encode(&[text("a b", "1&2=3"), text("é", "ü+\r\n"), text("a b", "")]);
        assert_eq!(String::from_utf8(body).unwrap(), "a+b=1%262%3D3&%C3%A9=%C3%BC%2B%0D%0A&a+b=");
        assert_eq!(content_type, "application/x-www-form-urlencoded");
    }

    #[test]
    fn with_a_file_each_part_has_its_head() {
        let parts = [
            text("user", "ann"),
            file("pic\"1\"", "a\nb.png", Some("image/png"), b"\0\r\n\xff"),
            file("raw", "x", None, b""),
        ];
        let (body, content_type) = encode(&parts);
        assert_eq!(content_type, "multipart/form-data; boundary=webdyno-boundary-0");
        let expected = "--webdyno-boundary-0\r\nContent-Disposition: form-data; name=\"user\"\r\n\r\nann\r\n\
             --webdyno-boundary-0\r\nContent-Disposition: form-data; name=\"pic%221%22\"; filename=\"a%0Ab.png\"\r\n\
             Content-Type: image/png\r\n\r\n\0\r\n?\r\n\
             --webdyno-boundary-0\r\nContent-Disposition: form-data; name=\"raw\"; filename=\"x\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n\r\n--webdyno-boundary-0--\r\n";
        let binary_at = body.iter().position(|&byte| byte == 0xff).unwrap();
        let mut shown = body.clone();
        shown[binary_at] = b'?';
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }

    #[test]
    fn the_boundary_occurs_in_no_part() {
        let tricky = b"--webdyno-boundary-0 and webdyno-boundary-1";
        let (body, content_type) = encode(&[file("f", "f", None, tricky)]);
        assert!(content_type.ends_with("boundary=webdyno-boundary-2"));
        let text = String::from_utf8(body).unwrap();
        assert_eq!(text.matches("webdyno-boundary-2").count(), 2);
    }
}
