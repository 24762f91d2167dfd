//! What the file of a body holds, by the ending of its name.
//!
//! As siege has it (`tmap` in its src/load.c), for the files that are posted; all others are forms. Text is sent
//! without the blanks at its ends, anything else byte for byte.

/// The default type of a body.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// Ending, type of content, and whether it is text.
const TYPES: &[(&str, &str, bool)] = &[
    ("bin", "application/octet-stream", false),
    ("css", "text/css", true),
    ("csv", "text/csv", true),
    ("gif", "image/gif", false),
    ("htm", "text/html", true),
    ("html", "text/html", true),
    ("jpeg", "image/jpeg", false),
    ("jpg", "image/jpeg", false),
    ("json", "application/json", false),
    ("md", "text/x-markdown", true),
    ("mp3", "audio/mpeg", false),
    ("mpeg", "video/mpeg", false),
    ("mpg", "video/mpeg", false),
    ("pdf", "application/pdf", false),
    ("png", "image/png", false),
    ("rtf", "text/rtf", true),
    ("svg", "image/svg+xml", true),
    ("tar", "application/x-tar", false),
    ("tsv", "text/tab-separated-values", true),
    ("txt", "text/plain", true),
    ("xls", "application/vnd.ms-excel", false),
    ("xml", "text/xml", true),
    ("yml", "application/x-yaml", true),
    ("zip", "application/zip", false),
];

/// The type of a file of this name, and whether it is text.
pub(super) fn of_file(name: &str) -> (&'static str, bool) {
    let ending = name.rsplit('/').next().unwrap_or(name).rsplit_once('.').map_or("", |(_, ending)| ending);
    let known = TYPES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(ending));
    known.map_or((FORM, true), |&(_, content_type, is_text)| (content_type, is_text))
}
