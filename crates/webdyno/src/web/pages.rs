//! The pages as HTML: shells whose scripts read data from the server, and build everything else of text.

/// The script and style of history and comparison, built by Vite from web/src/sessions.
pub const SESSIONS_JS: &str = include_str!("../../../../web/dist/sessions.js");
/// See above.
pub const SESSIONS_CSS: &str = include_str!("../../../../web/dist/sessions.css");

/// The way back lies above the report, at the left of the window.
const NAV_STYLE: &str = "header.sessions { padding: 0.6rem 0.9rem 0; font-size: 0.9rem; }";

/// The report of the session whose data is at `source`, with a way back to all of them, if there are more. The nonce marks the
/// script and the style that are the program's own.
pub fn session(source: &str, all: Option<&str>, nonce: &str) -> String {
    let header = all.map_or(String::new(), |path| {
        format!("<header class=\"sessions\"><a href=\"{path}\">All sessions</a></header>\n")
    });
    // A style sheet has no element in it, and what comes before the script is escaped: the first ones are those of the page.
    webdyno_report::live_page(source)
        .replacen(
            "<style>",
            &format!("<link rel=\"icon\" href=\"data:,\">\n<style nonce=\"{nonce}\">{NAV_STYLE}"),
            1,
        )
        .replacen("<body>", &format!("<body>\n{header}"), 1)
        .replacen("<script>", &format!("<script nonce=\"{nonce}\">"), 1)
}

/// `history` or `compare`, below the path `base`.
pub fn sessions(page: &str, base: &str) -> String {
    format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sessions · webdyno</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{base}assets/sessions.css">
</head>
<body>
<main data-page="{page}" data-base="{base}"></main>
<noscript>This page needs JavaScript; `webdyno history` and `webdyno compare` show the same as text.</noscript>
<script src="{base}assets/sessions.js"></script>
</body>
</html>
"#
    )
}
