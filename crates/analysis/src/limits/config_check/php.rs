//! PHP: its opcode cache.

use super::{Contradiction, Placed, Severity, contradiction, placed, placed_in, remedy, whole};
use crate::facts::Facts;
use webdyno_model::change::ApplyClass;

const ID: &str = "opcache-off";

/// Every script is compiled anew for each request.
pub(crate) fn opcache_off(facts: &Facts) -> Option<Contradiction> {
    let services = facts.backends("php_fpm").chain(&facts.service);
    let off = services.flat_map(|service| {
        let scoped = placed_in(service, "opcache.enable", |_| true);
        let all = placed(service, "opcache.enable").into_iter().chain(scoped);
        all.map(|placed| (service.service.clone(), placed)).collect::<Vec<_>>()
    });
    let is_off = |placed: &Placed| {
        let value = placed.value.to_string().to_ascii_lowercase();
        ["0", "off", "no", "false", ""].contains(&value.as_str())
    };
    let (service, found) = off.into_iter().find(|(_, placed)| is_off(placed))?;
    let summary = format!(
        "opcache.enable is {}: PHP reads and compiles every script anew for each request, which takes more processor time \
         than most of them need to run.",
        found.told()
    );
    let service = if service == "apache" { "php" } else { "php_fpm" };
    let remedy = remedy(
        (service, "opcache.enable"),
        (Some(found.value.clone()), whole(1.0)),
        ApplyClass::Reload,
        (
            "compiled scripts are kept in memory that all processes share".into(),
            "a script that was replaced is seen after opcache.revalidate_freq seconds",
        ),
    );
    let cited = super::fact("opcache.enable", "bool", &found).into_iter().collect();
    Some(contradiction((Severity::Slow, 0.9), ID, summary, cited, remedy))
}
