//! A look at a server without traffic: its ceilings, and the settings that contradict each other.

use crate::diagnosis::next_limit::next_limit;
use crate::facts;
use crate::limits::{LimitId, ceilings, config_findings};
use crate::measurement::Measurement;
use crate::resources::live_traffic::live_traffic;
use webdyno_model::Result;
use webdyno_model::diagnosis::{CHECK_SCHEMA, Diagnosis, Finding, TimeBreakdown};

/// Checks what was read in a look. Pure: the same measurement gives the same answer, byte for byte.
pub fn check(measurement: &Measurement) -> Result<Diagnosis> {
    let facts = facts::facts(measurement, None)?;
    let mut findings = config_findings(&facts);
    if findings.is_empty() {
        findings.push(no_config_findings());
    }
    Ok(Diagnosis {
        schema: CHECK_SCHEMA.into(),
        bottleneck: findings[0].id.clone(),
        next_limit: next_limit(&facts, &findings),
        ceilings: ceilings(&facts),
        time_breakdown_us: TimeBreakdown::default(),
        processor_time: None,
        missing: crate::diagnosis::missing::missing(measurement),
        findings,
        experiments: vec![],
        run: None,
        site: Some(crate::resources::site_profile::site(&facts, None)),
        live_traffic: live_traffic(measurement),
        environment: measurement.server.clone().unwrap_or_default(),
    })
}

/// How sure it is that what was read contradicts nothing: what was not read is listed beside it.
const CONFIDENCE: f64 = 0.7;

fn no_config_findings() -> Finding {
    Finding {
        id: LimitId::Healthy.into(),
        summary: "No problem found: no settings contradict each other, and memory and tables hold what they allow, as far \
                  as they could be read."
            .into(),
        confidence: CONFIDENCE,
        explains_fraction: None,
        facts: vec![],
        remedies: vec![],
    }
}
