//! The contents of the files of a tree: incompressible bytes, or a page of words.

use crate::random::SplitMix;

/// The stream of random numbers that contents are made of.
const STREAM: u64 = 0x636f_6e74;
/// What every page begins with, as far as it is long enough.
const PAGE: &[u8] = b"<!DOCTYPE html>\n<title>a page of a test</title>\n<p>\n";
/// What pages are made of: with a blank behind each, gzip makes about a third of it.
const WORDS: [&str; 64] = [
    "a",
    "about",
    "after",
    "all",
    "also",
    "an",
    "and",
    "answer",
    "are",
    "as",
    "at",
    "be",
    "between",
    "but",
    "by",
    "cache",
    "can",
    "client",
    "connection",
    "content",
    "each",
    "file",
    "first",
    "for",
    "from",
    "has",
    "have",
    "header",
    "in",
    "into",
    "is",
    "it",
    "its",
    "length",
    "load",
    "memory",
    "more",
    "not",
    "number",
    "of",
    "on",
    "one",
    "or",
    "page",
    "process",
    "read",
    "request",
    "response",
    "second",
    "server",
    "so",
    "status",
    "than",
    "that",
    "the",
    "then",
    "there",
    "time",
    "to",
    "was",
    "when",
    "which",
    "with",
    "worker",
];

/// The kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing can compress it.
    Random,
    /// Pages of English words, which gzip makes about a third of.
    Text,
}

impl Content {
    /// The ending of such files' names.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Random => "bin",
            Self::Text => "html",
        }
    }
}

/// The content of one file, from its beginning to its end.
#[derive(Debug)]
pub struct Filler {
    content: Content,
    random: SplitMix,
    /// Bytes generated so far.
    given: u64,
    /// The word that is being written, with its blank.
    word: [u8; 16],
    word_left: std::ops::Range<usize>,
}

impl Filler {
    /// The content of file `number` of the tree of this seed.
    pub fn new(content: Content, seed: u64, number: u64) -> Self {
        let random = SplitMix::stream(seed, STREAM, number);
        Self { content, random, given: 0, word: [0; 16], word_left: 0..0 }
    }

    /// Fills the next bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        match self.content {
            Content::Random => self.fill_random(bytes),
            Content::Text => self.fill_text(bytes),
        }
        self.given += bytes.len() as u64;
    }

    fn fill_random(&mut self, bytes: &mut [u8]) {
        // Whole numbers only, wherever the file is cut: callers fill multiples of 8 but for the end.
        for eight in bytes.chunks_mut(8) {
            let number = self.random.next().to_le_bytes();
            eight.copy_from_slice(&number[..eight.len()]);
        }
    }

    fn fill_text(&mut self, bytes: &mut [u8]) {
        let begin = (PAGE.len() as u64).saturating_sub(self.given) as usize;
        let begin = begin.min(bytes.len());
        let from = (self.given as usize).min(PAGE.len());
        bytes[..begin].copy_from_slice(&PAGE[from..from + begin]);
        let mut at = begin;
        while at < bytes.len() {
            if self.word_left.is_empty() {
                let drawn = self.random.next();
                let word = WORDS[(drawn & 63) as usize].as_bytes();
                self.word[..word.len()].copy_from_slice(word);
                self.word[word.len()] = if (drawn >> 6) & 15 == 0 { b'\n' } else { b' ' };
                self.word_left = 0..word.len() + 1;
            }
            let part = self.word_left.len().min(bytes.len() - at);
            let from = self.word_left.start;
            bytes[at..at + part].copy_from_slice(&self.word[from..from + part]);
            self.word_left.start += part;
            at += part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn made(content: Content, number: u64, bytes: usize, piece: usize) -> Vec<u8> {
        let mut filler = Filler::new(content, 1, number);
        let mut all = vec![0; bytes];
        all.chunks_mut(piece).for_each(|piece| filler.fill(piece));
        all
    }

    #[test]
    fn contents_are_what_they_are_called() {
        let packed = |bytes: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap().len() as f64 / bytes.len() as f64
        };
        assert!(packed(&made(Content::Random, 0, 60_000, 60_000)) > 0.99);
        let text = packed(&made(Content::Text, 0, 60_000, 60_000));
        assert!((0.15..0.45).contains(&text), "{text}");
        assert!(made(Content::Text, 3, 300, 300).starts_with(PAGE));
        assert_eq!(made(Content::Text, 3, 5, 5), b"<!DOC");
    }

    #[test]
    fn contents_repeat_and_differ() {
        for content in [Content::Random, Content::Text] {
            let one = made(content, 7, 5000, 5000);
            assert_eq!(one, made(content, 7, 5000, 64));
            assert_eq!(one[..800], made(content, 7, 800, 800));
            assert_ne!(one[100..], made(content, 8, 5000, 5000)[100..]);
        }
    }
}
