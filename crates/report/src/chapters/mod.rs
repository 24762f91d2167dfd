//! The manual's chapters on words that reports use and that are no findings. Sources stand in each of them.

/// Words with their chapters, each of which begins with the word and what it means in a line.
pub const CHAPTERS: &[(&str, &str)] = &[
    ("page-time", include_str!("page-time.md")),
    ("waterfall", include_str!("waterfall.md")),
    ("think-time", include_str!("think-time.md")),
    ("session", include_str!("session.md")),
];
