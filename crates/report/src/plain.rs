//! What all plain text has in common: no control characters, lines broken at blanks.
//!
//! What a server sent may be in the text, so control characters never reach the terminal (ECMA-48 escape sequences
//! could rewrite the screen).

/// Blanks and line ends become single blanks, control characters a mark.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|letter| match letter {
            '\n' | '\r' | '\t' => ' ',
            // Besides control characters also the ones that turn the direction of writing.
            _ if letter.is_control() || is_bidirectional_control(letter) => '\u{fffd}',
            _ => letter,
        })
        .collect()
}

/// Unicode's explicit directional formatting characters (UAX #9, 2.1 to 2.5) can make a line read as another one.
fn is_bidirectional_control(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Breaks at blanks; a word longer than a line (a URL, a path) stays whole on a line of its own.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if length > 0 && length + 1 + letters > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += letters;
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}
