//! The flags of the commands that make a workload of something: of a tree of files, or of a list of URLs.

use super::{ParseResult, whole};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use webdyno_load::workload::tree::{Content, Popularity, Sizes};
use webdyno_model::{Result, UserError};

/// Standard deviation of the logarithm of sizes: that of the files of web servers, see the tree's sizes.
const SIGMA_DEFAULT: f64 = 1.318;
/// Exponent of a tail that few files hold most of.
const SHAPE_DEFAULT: f64 = 1.2;

/// `webdyno workload make-tree`.
#[derive(Debug, Args)]
pub struct MakeTreeArgs {
    /// Directory to fill, new or empty
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Bytes of all files, such as 64M (k, M and G are powers of 1024)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub total: u64,
    /// Mean size of a file, such as 6k
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub mean_size: u64,
    /// Distribution of sizes
    #[arg(long, value_name = "LAW", value_enum, default_value_t = SizeLaw::LogNormal)]
    pub size_distribution: SizeLaw,
    /// Of log-normal sizes: standard deviation of their natural logarithm [default: 1.318]
    #[arg(long, value_name = "S", value_parser = sigma, allow_negative_numbers = true)]
    pub sigma: Option<f64>,
    /// Of pareto sizes: exponent of their tail, above 1 [default: 1.2]
    #[arg(long, value_name = "A", value_parser = shape, allow_negative_numbers = true)]
    pub shape: Option<f64>,
    /// Files per directory
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole::<u64>(1..=1_000_000, "1000"), allow_negative_numbers = true)]
    pub files_per_directory: u64,
    /// Content: bytes that cannot be compressed, or pages of words
    #[arg(long, value_name = "KIND", value_enum, default_value_t = ContentArg::Random)]
    pub content: ContentArg,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = super::load::seed, allow_negative_numbers = true)]
    pub seed: u64,
}

/// A distribution of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum SizeLaw {
    LogNormal,
    Uniform,
    Fixed,
    Pareto,
}

/// A kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum ContentArg {
    Random,
    Text,
}

impl MakeTreeArgs {
    /// The distribution with its parameter. A usage error for a parameter of another one.
    pub fn sizes(&self) -> Result<Sizes> {
        let foreign = |flag: &str, of: &str| {
            Err(UserError::usage(format!("{flag} is for sizes that are {of}"))
                .hint(format!("leave it out, or give --size-distribution {of}")))
        };
        match (self.size_distribution, self.sigma, self.shape) {
            (SizeLaw::LogNormal, sigma, None) => {
                Ok(Sizes::LogNormal { sigma: sigma.unwrap_or(SIGMA_DEFAULT) })
            }
            (SizeLaw::Pareto, None, shape) => Ok(Sizes::Pareto { shape: shape.unwrap_or(SHAPE_DEFAULT) }),
            (_, Some(_), _) => foreign("--sigma", "log-normal"),
            (_, _, Some(_)) => foreign("--shape", "pareto"),
            (SizeLaw::Uniform, None, None) => Ok(Sizes::Uniform),
            (SizeLaw::Fixed, None, None) => Ok(Sizes::Fixed),
        }
    }

    /// The kind of content.
    pub fn content(&self) -> Content {
        match self.content {
            ContentArg::Random => Content::Random,
            ContentArg::Text => Content::Text,
        }
    }
}

/// `webdyno workload from-tree`.
#[derive(Debug, Args)]
pub struct FromTreeArgs {
    /// Tree of files that the server serves
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// URL of the tree, such as http://localhost:8080/files
    #[arg(long, value_name = "BASE")]
    pub url: String,
    /// Frequency of each file: uniform (in turn), or zipf=S (rank to the power of -S; ranks by the seed) [default: uniform]
    #[arg(long, value_name = "LAW", default_value = "uniform", value_parser = popularity, hide_default_value = true)]
    pub popularity: Popularity,
    /// Print the distribution of sizes and of requested bytes, and the memory that holds most of them
    #[arg(long)]
    pub size_distribution: bool,
    /// Include files and directories whose names begin with a dot
    #[arg(long)]
    pub hidden: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = super::load::seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Workload file to write, new; the list of URLs goes beside it, as FILE.urls
    #[arg(short, long, value_name = "FILE.toml", default_value = "workload.toml")]
    pub output: PathBuf,
}

/// `webdyno workload from-urls`.
#[derive(Debug, Args)]
pub struct FromUrlsArgs {
    /// List of URLs, one per line, as for siege
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Load the URLs in random order
    #[arg(long)]
    pub random: bool,
    /// Workload file to write, new
    #[arg(short, long, value_name = "FILE.toml", default_value = "workload.toml")]
    pub output: PathBuf,
}

/// A number of bytes, above 0: `64M`, `6k`, `1.5G`, `512`.
fn bytes(text: &str) -> ParseResult<u64> {
    let wrong = || "a size, as 6k, 64M or 1.5G".to_owned();
    let unit = text.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == '.');
    let number: f64 = text[..text.len() - unit.len()].parse().map_err(|_| wrong())?;
    let scale = match unit.to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 1u64,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return Err(wrong()),
    };
    let bytes = (number * scale as f64).round();
    match bytes >= 1.0 && bytes <= (1u64 << 53) as f64 {
        true => Ok(bytes as u64),
        false => Err("a size from 1 byte to 8192T, as 64M".into()),
    }
}

fn sigma(text: &str) -> ParseResult<f64> {
    let sigma = text.parse().ok().filter(|sigma: &f64| (0.01..=5.0).contains(sigma));
    sigma.ok_or_else(|| "a number from 0.01 to 5, as 1.3".into())
}

fn shape(text: &str) -> ParseResult<f64> {
    let shape = text.parse().ok().filter(|shape: &f64| (1.01..=20.0).contains(shape));
    shape.ok_or_else(|| "a number from 1.01 to 20, as 1.2".into())
}

fn popularity(text: &str) -> ParseResult<Popularity> {
    if text == "uniform" {
        return Ok(Popularity::Uniform);
    }
    let exponent = text.strip_prefix("zipf=").and_then(|exponent| exponent.parse::<f64>().ok());
    match exponent.filter(|exponent| *exponent > 0.0 && *exponent <= 5.0) {
        Some(exponent) => Ok(Popularity::Zipf { exponent }),
        None => Err("uniform, or zipf=S with S above 0 and at most 5, as zipf=0.8".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused() {
        for (text, expected) in [
            ("64M", Some(64 << 20)),
            ("6k", Some(6 << 10)),
            ("6KiB", Some(6 << 10)),
            ("1.5GB", Some(3 << 29)),
            ("512", Some(512)),
            ("0", None),
            ("", None),
            ("M", None),
            ("-1k", None),
            ("1x", None),
            ("1.2.3k", None),
            ("99999T", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
        assert_eq!(popularity("zipf=0.8"), Ok(Popularity::Zipf { exponent: 0.8 }));
        for wrong in ["zipf", "zipf=", "zipf=0", "zipf=x", "zipf=nan", "pareto"] {
            assert!(popularity(wrong).is_err(), "{wrong}");
        }
        assert!(sigma("0").is_err() && sigma("nan").is_err() && shape("1").is_err());
    }
}
