//! Paths and names without what may be a secret in them: the id of a session, or the token of a link that lets somebody in.

/// Letters and digits in a row, from so many on, may be one: those of PHP, Laravel and Symfony have 26 to 64.
const LETTERS_MIN: usize = 20;

/// A text in which of each such row so many letters are told.
pub(super) fn without_secrets(text: &str, letters_told: usize) -> String {
    let is_other = |letter: char| !letter.is_ascii_alphanumeric();
    let part = |part: &str| {
        let (run, end) = part.split_at(part.find(is_other).unwrap_or(part.len()));
        let has = |kind: fn(&u8) -> bool| run.bytes().any(|byte| kind(&byte));
        let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
        match run.get(..letters_told).filter(|_| is_mixed && run.len() >= LETTERS_MIN) {
            Some(begin) => format!("{begin}...{end}"),
            None => part.to_owned(),
        }
    };
    text.split_inclusive(is_other).map(part).collect()
}
