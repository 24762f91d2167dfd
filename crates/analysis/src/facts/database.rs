//! Facts of the database behind the site.
//!
//! Source: the collector `mariadb` (docs/metrics.md).

use super::Row;

/// What follows from one metric each.
pub(super) const ROWS: &[Row] = &[];
