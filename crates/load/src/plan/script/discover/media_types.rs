//! MIME types of what a browser fetches for a page.

/// A MIME type in lower case, without its parameters.
fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(super) fn is_style_type(kind: &str) -> bool {
    matches!(essence(kind).as_str(), "" | "text/css")
}

/// Image types that all current browsers show.
pub(super) fn is_image_type(kind: &str) -> bool {
    matches!(
        essence(kind).as_str(),
        "image/avif"
            | "image/webp"
            | "image/png"
            | "image/apng"
            | "image/jpeg"
            | "image/jpg"
            | "image/gif"
            | "image/svg+xml"
            | "image/bmp"
            | "image/x-icon"
            | "image/vnd.microsoft.icon"
    )
}

pub(super) fn is_font_type(kind: &str) -> bool {
    let kind = essence(kind);
    kind.starts_with("font/")
        || kind.starts_with("application/font-")
        || kind.starts_with("application/x-font-")
}

/// MIME Sniffing standard, 4.6: JavaScript MIME types, which count without parameters only.
pub(super) fn is_script_type(kind: &str) -> bool {
    let kind = kind.trim().to_ascii_lowercase();
    let Some(name) = kind.strip_prefix("text/").or_else(|| kind.strip_prefix("application/")) else {
        return false;
    };
    let name = name.strip_prefix("x-").unwrap_or(name);
    matches!(name, "javascript" | "ecmascript" | "jscript" | "livescript") || name.starts_with("javascript1.")
}
