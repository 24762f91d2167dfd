//! Facts of PHP: the pools of PHP-FPM and the opcode cache.
//!
//! Sources: the collectors `php_fpm` and `opcache` (docs/metrics.md).

use super::Row;

/// What follows from one metric each.
pub(super) const ROWS: &[Row] = &[];
