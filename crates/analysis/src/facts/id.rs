//! The names of facts, and the tables that declare them: a name that no table has does not compile.
//!
//! A name is written as it stands in findings and files, so that one search finds the table, the rules and the output.

use std::fmt;

/// The name of a fact, with its unit: a constant of this type for each row of a [`fact_table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FactId {
    name: &'static str,
    unit: &'static str,
}

impl FactId {
    pub(super) const fn new(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit }
    }

    /// As it stands in findings and files.
    pub const fn as_str(self) -> &'static str {
        self.name
    }

    /// The unit of its values.
    pub const fn unit(self) -> &'static str {
        self.unit
    }
}

impl fmt::Display for FactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq<FactId> for String {
    fn eq(&self, id: &FactId) -> bool {
        self == id.name
    }
}

/// How a fact follows from the readings of one metric.
#[derive(Clone, Copy)]
pub(super) enum Derivation {
    /// Mean of the levels in the window.
    Mean,
    /// Largest level in the window.
    Max,
    /// Smallest level in the window.
    Min,
    /// Last level read, for what is read rarely.
    Latest,
    /// By how much the counter rose in the window.
    Rise,
    /// The counter's rise per second, times a factor (1e-6 makes a share of time from microseconds).
    Rate(f64),
}

/// What follows from one metric: `(fact, metric, how)`. A star in the metric stands for several things, such as the pools of
/// PHP-FPM: the fact is that of the largest value, and each one's own is kept beside it ([`super::Facts::each`]).
pub(super) type FactRow = (FactId, &'static str, Derivation);

/// Declares the facts of a file: `(name, unit, metric, how),` for what follows from one metric ([`FactRow`], in `ROWS`), then
/// `unit: names;` for what the file computes. A name that two tables declare does not compile.
macro_rules! fact_table {
    ($($unit:literal: $($name:ident),+;)*) => {
        #[expect(non_upper_case_globals, reason = "as in findings and files")]
        impl $crate::facts::FactId {
            $($(
                #[doc = concat!("Computed in `", module_path!(), "`.")]
                pub const $name: Self = Self::new(stringify!($name), $unit);
            )+)*
        }
    };
    (
        $(($name:ident, $unit:literal, $metric:literal, $how:expr),)+
        $($of:literal: $($computed:ident),+;)*
    ) => {
        #[expect(non_upper_case_globals, reason = "as in findings and files")]
        impl $crate::facts::FactId {
            $(
                #[doc = concat!("Derivation `", $metric, "`.")]
                pub const $name: Self = Self::new(stringify!($name), $unit);
            )+
            $($(
                #[doc = concat!("Computed in `", module_path!(), "`.")]
                pub const $computed: Self = Self::new(stringify!($computed), $of);
            )+)*
        }

        /// What follows from one metric each.
        pub(super) const ROWS: &[$crate::facts::id::FactRow] =
            &[$(($crate::facts::FactId::$name, $metric, $how),)+];
    };
}

/// The facts of these names, as an array: `fact_ids! { rate, failed_fraction }`.
macro_rules! fact_ids {
    ($($name:ident),* $(,)?) => { [$($crate::facts::FactId::$name),*] };
}
pub(crate) use fact_ids;
