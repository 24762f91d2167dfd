//! A page of Markdown that reads well as plain text, 100 columns wide (CommonMark 0.31: headings, lists, fenced code).

use crate::plain::{sanitize, wrap};

/// The width of prose; commands, paths and diffs stay whole.
const COLUMNS: usize = 100;

/// Markdown that grows line by line.
#[derive(Default)]
pub(super) struct Markdown {
    out: String,
}

impl Markdown {
    /// The finished text.
    pub(super) fn finish(self) -> String {
        self.out
    }

    /// The one title.
    pub(super) fn title(&mut self, text: &str) {
        self.line(&format!("# {}", escape_text(text)));
    }

    /// A heading, with an empty line above it.
    pub(super) fn heading(&mut self, text: &str) {
        self.line("");
        self.line(&format!("## {}", escape_text(text)));
    }

    /// A wrapped paragraph. Under a heading there is no empty line: a page is short.
    pub(super) fn paragraph(&mut self, text: &str) {
        for line in wrap(&escape_text(text), COLUMNS) {
            self.line(&line);
        }
    }

    /// An empty line, between paragraphs.
    pub(super) fn gap(&mut self) {
        self.line("");
    }

    /// An item of a list: a label, then the text.
    pub(super) fn item(&mut self, label: &str, text: &str) {
        let text = format!("{label}: {}", escape_text(text));
        for (index, line) in wrap(&text, COLUMNS - 2).iter().enumerate() {
            self.line(&format!("{}{line}", if index == 0 { "- " } else { "  " }));
        }
    }

    /// Commands or a diff as they are. The fence is longer than any within, so that nothing in it ends it.
    pub(super) fn code<'a>(&mut self, language: &str, lines: impl Iterator<Item = &'a str> + Clone) {
        let longest = lines.clone().map(longest_fence).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        self.line(&format!("{fence}{language}"));
        for line in lines {
            // A configuration may be set with tabs.
            let tabbed: Vec<String> = line.split('\t').map(sanitize).collect();
            self.out.push_str(&tabbed.join("\t"));
            self.out.push('\n');
        }
        self.line(&fence);
    }

    fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }
}

/// Text without control characters and without the beginning of an HTML tag (CommonMark 0.31, 6.6).
fn escape_text(text: &str) -> String {
    let clean = sanitize(text);
    let mut out = String::with_capacity(clean.len());
    for (at, letter) in clean.char_indices() {
        let next = clean[at + letter.len_utf8()..].chars().next();
        let opens = next.is_some_and(|next| next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?'));
        if letter == '<' && opens {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// The longest run of backticks in a line.
fn longest_fence(line: &str) -> usize {
    line.split(|letter| letter != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_within_ends_a_block_or_becomes_a_tag() {
        let mut page = Markdown::default();
        page.paragraph("p99<200ms, <script> and </b>");
        page.code("diff", "+```\n+\t\u{1b}[2J\n ".lines());
        assert_eq!(
            page.finish(),
            "p99<200ms, \\<script> and \\</b>\n````diff\n+```\n+\t\u{fffd}[2J\n \n````\n"
        );
    }
}
