//! A page of plain text, 80 columns wide: headings, wrapped paragraphs, tables, bars.

use crate::TextStyle;
use crate::plain::{sanitize, wrap};

/// The width that every terminal has.
pub(super) const COLUMNS: usize = 80;
/// The indent of everything under a heading.
const INDENT: usize = 2;
/// Between two columns of a table.
const GAP: usize = 2;
/// A column of words is never narrower than this.
const WORDS_MIN: usize = 8;

/// Text that grows line by line.
#[derive(Default)]
pub(super) struct TextPage {
    out: String,
    style: TextStyle,
}

/// What a title says, as a colour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Bad,
    Warning,
    Title,
}

impl Tone {
    /// Select Graphic Rendition (ECMA-48, 8.3.117): bold, with a colour where there is one.
    fn sgr(self) -> &'static str {
        match self {
            Self::Good => "1;32",
            Self::Bad => "1;31",
            Self::Warning => "1;33",
            Self::Title => "1",
        }
    }
}

/// How a table's column is set.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ColumnAlign {
    /// Words: set left, wrapped when the line would be too long.
    Words,
    /// Numbers: set right, never wrapped.
    Number,
}

impl TextPage {
    /// An empty page.
    pub(super) fn new(style: TextStyle) -> Self {
        Self { style, ..Self::default() }
    }

    /// The finished text.
    pub(super) fn finish(self) -> String {
        self.out
    }

    /// A title, with an empty line above it unless it is the first line.
    pub(super) fn heading(&mut self, title: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.title(Tone::Title, title, "");
    }

    /// A title in the colour of what it says, with a text at the right edge where there is room for it.
    pub(super) fn title(&mut self, tone: Tone, title: &str, right: &str) {
        let (title, right) = (sanitize(title), sanitize(right));
        let (letters, beside) = (title.chars().count(), right.chars().count());
        for line in wrap(&title, COLUMNS) {
            self.line(&self.painted(tone, &line));
        }
        if beside > 0 && letters + GAP + beside <= COLUMNS {
            self.out.pop();
            let gap = " ".repeat(COLUMNS - letters - beside);
            self.line(&format!("{gap}{right}"));
        } else if beside > 0 {
            self.paragraph(&right);
        }
    }

    fn painted(&self, tone: Tone, text: &str) -> String {
        match self.style.has_color {
            true => format!("\u{1b}[{}m{text}\u{1b}[0m", tone.sgr()),
            false => text.to_owned(),
        }
    }

    /// As [`TextPage::item`], in at most so many lines: what is left out is marked.
    pub(super) fn short_item(&mut self, label: &str, text: &str, lines_max: usize) {
        let hang = if label.is_empty() { INDENT } else { INDENT + label.chars().count() + 1 };
        let lines = wrap(&sanitize(text), COLUMNS - hang);
        let has_more = lines.len() > lines_max;
        for (index, line) in lines.iter().take(lines_max).enumerate() {
            let start = if index == 0 && !label.is_empty() {
                format!("{}{} ", " ".repeat(INDENT), sanitize(label))
            } else {
                " ".repeat(hang)
            };
            let is_cut = has_more && index + 1 == lines_max;
            self.line(&(start + &if is_cut { cut(line, COLUMNS - hang) } else { line.clone() }));
        }
    }

    /// An empty line.
    pub(super) fn gap(&mut self) {
        self.out.push('\n');
    }

    /// A wrapped paragraph under the heading.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.hanging_paragraph("", text, INDENT);
    }

    /// A wrapped paragraph that is set further in.
    pub(super) fn indented_paragraph(&mut self, text: &str) {
        self.hanging_paragraph("", text, 3 * INDENT);
    }

    /// `label text`, the following lines set under the text.
    pub(super) fn item(&mut self, label: &str, text: &str) {
        self.hanging_paragraph(label, text, INDENT);
    }

    /// As [`TextPage::item`], set further in.
    pub(super) fn indented_item(&mut self, label: &str, text: &str) {
        self.hanging_paragraph(label, text, 3 * INDENT);
    }

    /// A command to copy: one line however long, so that it can be copied whole.
    pub(super) fn command(&mut self, command: &str) {
        let line = format!("{}$ {}", " ".repeat(3 * INDENT), sanitize(command));
        self.line(&line);
    }

    /// A line as it is, for paths and diffs.
    pub(super) fn verbatim(&mut self, text: &str) {
        let line = format!("{}{}", " ".repeat(INDENT), sanitize(text));
        self.line(&line);
    }

    /// Rows of cells under each other. Words that do not fit into the page are wrapped within their column.
    pub(super) fn table(&mut self, columns: &[ColumnAlign], rows: &[Vec<String>]) {
        self.table_with_commands(columns, rows, &[]);
    }

    /// As [`TextPage::table`], each row followed by the command that shows the same by hand.
    pub(super) fn table_with_commands(
        &mut self,
        columns: &[ColumnAlign],
        rows: &[Vec<String>],
        commands: &[&str],
    ) {
        let cleaned = |row: &Vec<String>| row.iter().map(|cell| sanitize(cell)).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(cleaned).collect();
        let widths = column_widths(columns, &rows);
        for (index, row) in rows.iter().enumerate() {
            self.row(columns, row, &widths);
            if let Some(command) = commands.get(index).filter(|command| !command.is_empty()) {
                self.command(command);
            }
        }
    }

    fn row(&mut self, columns: &[ColumnAlign], row: &[String], widths: &[usize]) {
        let cells: Vec<Vec<String>> =
            row.iter().zip(widths).map(|(cell, &width)| wrap_hard(cell, width)).collect();
        for index in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut line = " ".repeat(INDENT);
            for (position, (cell, (column, &width))) in
                cells.iter().zip(columns.iter().zip(widths)).enumerate()
            {
                let gap = if position > 0 { GAP } else { 0 };
                let text = cell.get(index).map_or("", String::as_str);
                let padding = " ".repeat(width.saturating_sub(text.chars().count()));
                line.push_str(&" ".repeat(gap));
                match column {
                    ColumnAlign::Words => line.extend([text, &padding]),
                    ColumnAlign::Number => line.extend([padding.as_str(), text]),
                }
            }
            self.line(&line);
        }
    }

    fn hanging_paragraph(&mut self, label: &str, text: &str, indent: usize) {
        let label = sanitize(label);
        let hang = if label.is_empty() { indent } else { indent + label.chars().count() + 1 };
        // A label that takes most of the line stands alone above its text.
        let (first, hang) = if hang > COLUMNS / 2 {
            for line in wrap(&label, COLUMNS - indent) {
                self.line(&format!("{}{line}", " ".repeat(indent)));
            }
            (" ".repeat(indent + INDENT), indent + INDENT)
        } else if label.is_empty() {
            (" ".repeat(indent), indent)
        } else {
            (format!("{}{label} ", " ".repeat(indent)), hang)
        };
        for (index, line) in wrap(&sanitize(text), COLUMNS - hang).iter().enumerate() {
            let start = if index == 0 { first.clone() } else { " ".repeat(hang) };
            self.line(&(start + line));
        }
    }

    fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }
}

fn column_widths(columns: &[ColumnAlign], rows: &[Vec<String>]) -> Vec<usize> {
    let widest =
        |index: usize| rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count()).max();
    let mut widths: Vec<usize> = (0..columns.len()).map(|index| widest(index).unwrap_or(0)).collect();
    let gaps = INDENT + GAP * columns.len().saturating_sub(1);
    loop {
        let total = gaps + widths.iter().sum::<usize>();
        let words = (0..columns.len())
            .filter(|&index| columns[index] == ColumnAlign::Words && widths[index] > WORDS_MIN);
        match words.max_by_key(|&index| widths[index]) {
            Some(index) if total > COLUMNS => widths[index] -= 1,
            _ => return widths,
        }
    }
}

/// A line of which more follows that is not shown; a path or URL is never cut.
fn cut(line: &str, width: usize) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    let length = |words: &[&str]| words.iter().map(|word| word.chars().count() + 1).sum::<usize>() + 3;
    while words.len() > 1 && length(&words) > width {
        words.pop();
    }
    format!("{} ...", words.join(" ").trim_end_matches([',', ';', ':', '.']))
}

/// As [`wrap`], and words longer than the width are broken too.
fn wrap_hard(text: &str, width: usize) -> Vec<String> {
    let lines = wrap(text, width);
    let broken = lines.iter().flat_map(|line| {
        let letters: Vec<char> = line.chars().collect();
        letters.chunks(width.max(1)).map(|part| part.iter().collect::<String>()).collect::<Vec<_>>()
    });
    broken.collect()
}

/// A bar for a share of one, to an eighth of a column; something that is not nothing shows at least that.
pub(super) fn bar(share: f64, width: usize) -> String {
    /// One eighth to seven eighths of a column (Unicode, block elements).
    const EIGHTHS: [char; 7] =
        ['\u{258f}', '\u{258e}', '\u{258d}', '\u{258c}', '\u{258b}', '\u{258a}', '\u{2589}'];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * 8.0 * width as f64).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let part = (eighths % 8).checked_sub(1).map(|index| EIGHTHS[index]);
    std::iter::repeat_n('\u{2588}', eighths / 8).chain(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_server_sends_cannot_drive_the_terminal() {
        let mut page = TextPage::default();
        page.paragraph("a\u{1b}[2Jb\nc\u{202e}d");
        page.command("x\r\u{7}y");
        assert_eq!(page.finish(), "  a\u{fffd}[2Jb c\u{fffd}d\n      $ x \u{fffd}y\n");
    }

    #[test]
    fn a_wide_table_wraps_words_and_no_numbers() {
        let mut page = TextPage::default();
        let row = vec!["a very long name ".repeat(6), "1,234,567/s".into(), "x".repeat(30)];
        page.table(&[ColumnAlign::Words, ColumnAlign::Number, ColumnAlign::Words], &[row]);
        let text = page.finish();
        assert!(text.contains("1,234,567/s"), "{text}");
        assert_eq!((text.matches("very").count(), text.matches('x').count()), (6, 30), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    proptest! {
        // Invariant: wrapping loses no word, and no line with a break in it is longer than the page.
        #[test]
        fn wrapping_keeps_all_words(text in "([a-z]{1,30} ){0,40}", label in "[a-z]{0,60}") {
            let mut page = TextPage::default();
            page.item(&label, &text);
            let out = page.finish();
            prop_assert!(out.lines().all(|line| line.chars().count() <= COLUMNS), "{}", out);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let with_label = format!("{label} {text}");
            let expected = if text.trim().is_empty() { vec![] } else { words(&with_label) };
            prop_assert!(expected.is_empty() || words(&out) == expected);
        }
    }
}
