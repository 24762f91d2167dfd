//! The manual's chapters on words that reports use and that are no findings. Sources stand in each of them.

/// Words with their chapters, each of which begins with the word and what it means in a line.
pub const CHAPTERS: &[(&str, &str)] = &[
    ("page-time", include_str!("chapters/page-time.md")),
    ("waterfall", include_str!("chapters/waterfall.md")),
    ("think-time", include_str!("chapters/think-time.md")),
    ("session", include_str!("chapters/session.md")),
];
