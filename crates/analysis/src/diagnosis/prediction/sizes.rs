//! The settings that a prediction knows: those that are the size of a ceiling.

use crate::limits::ceiling::{Resource, ResourceCeiling};
use webdyno_model::change::SettingChange;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A setting that can be supposed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnownSetting {
    /// What it belongs to: `apache`, `hardware`.
    pub target: &'static str,
    /// `MaxRequestWorkers`.
    pub name: &'static str,
    /// What it is of, in words.
    pub what: &'static str,
    /// Whether its values may have a decimal multiple behind them (`250M`).
    pub is_amount: bool,
    pub(crate) resource: Resource,
}

const fn known(
    (target, name): (&'static str, &'static str),
    what: &'static str,
    resource: Resource,
    is_amount: bool,
) -> KnownSetting {
    KnownSetting { target, name, what, is_amount, resource }
}

/// All of them.
pub const KNOWN: [KnownSetting; 6] = [
    known(("apache", "MaxRequestWorkers"), "workers of Apache", Resource::Workers, false),
    known(
        ("php_fpm", "pm.max_children"),
        "children of the busiest pool of PHP-FPM",
        Resource::PhpChildren,
        false,
    ),
    known(
        ("mariadb", "max_connections"),
        "connections of the database",
        Resource::DatabaseConnections,
        false,
    ),
    known(("hardware", "cores"), "processor cores that the server may use", Resource::Processors, false),
    known(("hardware", "link_bits_per_s"), "bits/s of the link to the clients", Resource::Link, true),
    known(("hardware", "memory_bytes"), "memory that the server may use", Resource::Memory, true),
];

impl KnownSetting {
    /// The change that sets it, of this pool where it is a pool's.
    pub fn to(self, value: f64, pool: Option<&str>) -> SettingChange {
        let setting = match self.target {
            "hardware" => SettingId::hardware(self.name),
            target => SettingId::of_service(target, self.name),
        };
        let setting = pool.map_or(setting.clone(), |pool| setting.of_pool(pool));
        let is_whole = value.fract() == 0.0;
        let to = if is_whole {
            SettingValue::Integer(value as i64)
        } else {
            SettingValue::Text(value.to_string())
        };
        SettingChange { setting, to }
    }

    /// The one that a change sets.
    pub(crate) fn of(change: &SettingChange) -> Option<Self> {
        let id = &change.setting;
        KNOWN.into_iter().find(|one| one.target == id.target.name() && one.name == id.name)
    }
}

/// Whether a change is of the size of this ceiling.
pub(crate) fn is_size_of(change: &SettingChange, ceiling: &ResourceCeiling) -> bool {
    let pool = change.setting.pool.as_ref();
    KnownSetting::of(change).is_some_and(|one| one.resource == ceiling.resource)
        && pool.is_none_or(|pool| ceiling.ceiling.limit.ends_with(&format!(" {pool}")))
}

/// A ceiling as large as these changes make it.
pub(crate) fn resize(one: &mut ResourceCeiling, changes: &[SettingChange]) {
    // How many workers memory holds follows from more than its size.
    let change = changes.iter().find(|change| is_size_of(change, one) && one.resource != Resource::Memory);
    let Some(size) = change.and_then(|change| change.to.number()) else { return };
    one.ceiling.binds_at_rate = one.rate_at_size(size);
    one.ceiling.max = Some(size);
}
