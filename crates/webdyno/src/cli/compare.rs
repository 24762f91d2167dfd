//! The flags of `webdyno compare`.

use super::ParseResult;
use clap::Args;
use std::path::PathBuf;

/// `webdyno compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run directory of run, diagnose or tune (its best load). Alone: a tuning's baseline against its best load
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The run directory that is compared with it
    #[arg(value_name = "B")]
    pub b: Option<PathBuf>,
    /// Exit with 3 when a figure of B is worse than that of A by more than this, with its whole 95% interval: 5%
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    pub max_regression: Option<f64>,
    /// Write the comparison as JSON to FILE, or to stdout with `-` (then nothing else is written there)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// A percentage as a share of one.
fn share(text: &str) -> ParseResult<f64> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let share = percent.map(|percent| percent / 100.0).filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a percentage from 0% to 100%, as 5%".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage() {
        for (text, expected) in
            [("5%", Some(0.05)), ("0%", Some(0.0)), ("2.5 %", Some(0.025)), ("100%", Some(1.0))]
        {
            assert_eq!(share(text).ok(), expected, "{text}");
        }
        for text in ["5", "0.05", "%", "-1%", "101%", "NaN%", "five%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
