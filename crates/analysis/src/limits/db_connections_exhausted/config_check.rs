//! A database that cannot serve all workers.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::config_check::{
    ConfigFinding, LocatedSetting, Severity, apache, config_finding, embedded, fact, located, pools, remedy,
    whole_number,
};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::setting::SettingId;

/// Fewer connections than workers that may each want one.
pub(crate) fn fewer_connections_than_workers(facts: &Facts) -> Option<ConfigFinding> {
    let database = facts.backends("mariadb").next();
    let allowed = database.and_then(|service| located(service, "max_connections"));
    let limit = allowed
        .as_ref()
        .and_then(LocatedSetting::number)
        .or_else(|| facts.value(FactId::ahead_database_limit))?;
    let (workers, who, mut cited) = workers(facts)?;
    (workers > limit).then_some(())?;
    cited.extend(allowed.as_ref().and_then(|allowed| fact("max_connections", "connections", allowed)));
    cited.extend(facts.cite(&[FactId::ahead_database_limit]));
    let displayed = allowed.as_ref().map_or_else(|| format_number(limit), LocatedSetting::with_location);
    let summary = format!(
        "{who} may connect to the database at once, but it allows {displayed} connections. Under full load the rest are \
         refused, and their pages are errors."
    );
    // Some for those who administrate it.
    let wanted = (workers * 1.1).ceil() + 10.0;
    let remedy = remedy(
        SettingId::of_service("mariadb", "max_connections"),
        (Some(whole_number(limit)), whole_number(wanted)),
        ApplyClass::Live,
        (
            format!(
                "one for each of {} workers, plus 10%, plus ten for administration",
                format_number(workers)
            ),
            "each connection uses memory for its buffers while it sorts or joins",
        ),
    );
    Some(config_finding((Severity::Fails, 0.7), LimitId::DbConnectionsExhausted, summary, cited, remedy))
}

/// How many may ask at once, who they are, and by which settings.
fn workers(facts: &Facts) -> Option<(f64, String, Vec<webdyno_model::fact::Fact>)> {
    let pools = pools(facts);
    if !pools.is_empty() {
        let sum: f64 = pools.iter().filter_map(|(_, located)| located.number()).sum();
        let named: Vec<String> =
            pools.iter().map(|(pool, located)| format!("pool {pool}: {}", located.with_location())).collect();
        let cited = pools.iter().filter_map(|(_, located)| fact("pm.max_children", "processes", located));
        let who = format!("{} PHP-FPM children ({})", format_number(sum), named.join(", "));
        return Some((sum, who, cited.collect()));
    }
    let service = apache(facts)?;
    let module = embedded(service)?;
    let allowed = located(service, "MaxRequestWorkers")?;
    let who = format!("{} Apache workers with {module}", allowed.with_location());
    Some((allowed.number()?, who, fact("MaxRequestWorkers", "workers", &allowed).into_iter().collect()))
}
