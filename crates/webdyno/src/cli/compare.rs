//! The flags of `webdyno compare`.

use super::values::ParseResult;
use clap::Args;
use std::path::PathBuf;

/// `webdyno compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run directory; of a tuning alone: its baseline against its best load
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Run directory to compare with it
    ///
    /// Two loads of run --repeat 3 or more are compared by the spread between their runs, others by their seconds
    #[arg(value_name = "B")]
    pub b: Option<PathBuf>,
    /// Exit with 3 where B is worse by more, as 5%
    ///
    /// The whole 95% interval of a figure has to lie beyond it
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    pub max_regression: Option<f64>,
    /// Write it as JSON to FILE (- for stdout)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// A percentage as a share of one.
fn share(text: &str) -> ParseResult<f64> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let share = percent.map(|percent| percent / 100.0).filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a percentage from 0% to 100%, as 5%".into())
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
