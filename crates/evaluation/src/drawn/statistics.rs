//! Shares with their intervals. Pure.

use webdyno_analysis::measurement::statistics::share_ci95;

/// So many of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Those that are so.
    pub part: usize,
    /// All.
    pub of: usize,
}

impl Share {
    /// How many of these are so.
    pub fn of<T>(all: impl IntoIterator<Item = T>, is_so: impl Fn(&T) -> bool) -> Self {
        let mut share = Self::default();
        for one in all {
            share.of += 1;
            share.part += usize::from(is_so(&one));
        }
        share
    }

    /// As a fraction; `None` of none.
    pub fn fraction(self) -> Option<f64> {
        (self.of > 0).then(|| self.part as f64 / self.of as f64)
    }

    /// Its 95% interval after Wilson; `None` of none.
    pub fn interval(self) -> Option<[f64; 2]> {
        share_ci95(self.part as u64, self.of as u64)
    }

    /// As text: `38 of 40, 95% (83 to 99)`.
    pub fn text(self) -> String {
        let (Some(share), Some([low, high])) = (self.fraction(), self.interval()) else {
            return "none".into();
        };
        let percent = |share: f64| (share * 100.0).round();
        format!("{} of {}, {}% ({} to {})", self.part, self.of, percent(share), percent(low), percent(high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_wilson() {
        // Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        for (part, of, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let [from, to] = Share { part, of }.interval().unwrap();
            assert!((from - low).abs() < 5e-5 && (to - high).abs() < 5e-5, "{part} of {of}: {from} to {to}");
        }
        let [low, high] = Share { part: 20, of: 20 }.interval().unwrap();
        assert!(low > 0.8 && high > 0.999 && high <= 1.0);
        assert_eq!(Share::default().interval(), None);
        assert_eq!(Share::default().text(), "none");
        assert_eq!(Share::of([1, 2, 3, 4], |one| *one > 1).text(), "3 of 4, 75% (30 to 95)");
    }
}
