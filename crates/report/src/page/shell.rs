//! The document around a page: the bundle of `web/dist`, the data that it shows, and the summary for readers without scripts,
//! previews of mails among them.

use super::{PageData, logs, page_data};
use std::fmt::Write as _;
use webdyno_model::logs::LogsReport;
use webdyno_session::view::View;

const SCRIPT: &str = include_str!("../../../../web/dist/report.js");
const STYLE: &str = include_str!("../../../../web/dist/report.css");
/// A file asks nobody for anything, whatever is in it (CSP 3).
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

/// The session as one self-contained HTML document.
pub fn html(view: &View) -> String {
    kept(&page_data(view))
}

/// What access logs say as one self-contained HTML document; `made` names the program and its version.
pub fn logs_html(report: &LogsReport, made: &str) -> String {
    kept(&logs::page_data(report, made))
}

fn kept(data: &PageData) -> String {
    let policy = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n");
    // No string ends the element: in JSON `<` is only in strings.
    let json = serde_json::to_string(data).unwrap_or_default().replace('<', "\\u003c");
    let held = format!("<script type=\"application/json\" id=\"page-data\">{json}</script>\n");
    document(&data.title, &policy, &format!("<main>\n{}</main>\n{held}", plain_summary(data)))
}

/// The page of a session that runs: it asks `source` for its data, and `source/events` for what comes.
pub fn live_page(source: &str) -> String {
    let main = format!("<main data-source=\"{}\">\n<p>Reading the session…</p>\n</main>\n", escaped(source));
    document("webdyno", "", &main)
}

fn document(title: &str, head: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n{head}<title>{}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{body}<script>{SCRIPT}</script>\n</body>\n</html>\n",
        escaped(title)
    )
}

/// The summary as plain elements, which the script replaces.
fn plain_summary(data: &PageData) -> String {
    let summary = &data.summary;
    let mut out = format!("<p>{}</p>\n", escaped(&data.meta.join(" · ")));
    for banner in &data.banners {
        let _ = writeln!(out, "<p class=\"banner\">{}</p>", escaped(banner));
    }
    let _ = writeln!(out, "<h1>{}</h1>\n<dl>", escaped(&summary.headline));
    for point in &summary.points {
        let _ = writeln!(
            out,
            "<dt>{}</dt>\n<dd>{}<br>{}</dd>",
            point.label,
            escaped(&point.text),
            escaped(&point.note)
        );
    }
    out.push_str("</dl>\n");
    if !summary.diff.is_empty() {
        let _ = writeln!(out, "<pre>{}</pre>", escaped(&summary.diff));
    }
    out.push_str("<noscript><p>Plots, tables and evidence need JavaScript.</p></noscript>\n");
    out
}

/// Text for elements and attribute values; controls, and what could make a line read as another one (UAX #9), are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            _ if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
    out
}
