//! What all plain text has in common: no control characters, lines broken at blanks.
//!
//! What a server sent may be in the text, so control characters never reach the terminal (ECMA-48 escape sequences
//! could rewrite the screen).

/// Blanks and line ends become single blanks, control characters a mark.
pub fn sanitize(text: &str) -> String {
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

/// Stands for what was left out.
const GAP: &str = "...";

/// The beginning and the end of a text that is longer than so many letters: of names and URLs both ends tell them apart.
pub(crate) fn shorten_middle(text: &str, width: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    let Some(kept) = width.checked_sub(GAP.len()).filter(|_| letters.len() > width) else {
        return letters.iter().take(width).collect();
    };
    let (first, last) = (&letters[..kept.div_ceil(2)], &letters[letters.len() - kept / 2..]);
    first.iter().chain(&GAP.chars().collect::<Vec<_>>()).chain(last).collect()
}

/// The same text for a terminal that shows ASCII alone: letters of ours have one that stands for them, others become `?`.
/// Each stays one letter wide, so that tables and pictures stay as they are.
pub fn ascii(text: &str) -> String {
    let letter = |letter: char| match letter {
        _ if letter.is_ascii() => letter,
        '\u{b5}' => 'u',
        '\u{2588}' => '#',
        '\u{2592}' => '=',
        '\u{2589}'..='\u{258f}' | '\u{2591}' => '.',
        _ => '?',
    };
    text.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_ends_of_a_long_name_stay() {
        for (width, expected) in [
            (40, "/shop/articles/1.jpg"),
            (20, "/shop/articles/1.jpg"),
            (11, "/sho....jpg"),
            (2, "/s"),
            (0, ""),
        ] {
            assert_eq!(shorten_middle("/shop/articles/1.jpg", width), expected);
        }
    }

    proptest! {
        // Invariant: nothing is longer than it may be, nor cut where it need not be; and ASCII keeps every width.
        #[test]
        fn widths_hold(text in any::<String>(), width in 0usize..60) {
            let (short, letters) = (shorten_middle(&text, width), text.chars().count());
            prop_assert!(short.chars().count() == letters.min(width));
            prop_assert!(letters > width || short == text);
            let plain = ascii(&text);
            prop_assert!(plain.is_ascii() && plain.chars().count() == letters);
        }
    }
}
