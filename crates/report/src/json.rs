//! JSON for programs: the schemas of docs/contract.md, as the model's types give them.

use webdyno_model::diagnosis::{CHECK_SCHEMA, CheckOutput};
use webdyno_model::{Result, UserError};
use webdyno_session::view::{Outcome, View};

/// The outcome in its own schema, pretty-printed, with a final newline. An error when the session ended before there
/// was an outcome.
pub fn json(view: &View) -> Result<String> {
    let rendered = match &view.outcome {
        Outcome::Run(run) => serde_json::to_string_pretty(run),
        Outcome::Diagnosis(check) if check.schema == CHECK_SCHEMA => {
            serde_json::to_string_pretty(&CheckOutput::of(check))
        }
        Outcome::Diagnosis(diagnosis) => serde_json::to_string_pretty(diagnosis),
        Outcome::Tune(tune) => serde_json::to_string_pretty(tune),
        Outcome::Capacity(found) => serde_json::to_string_pretty(found),
        Outcome::Observation(observation) => serde_json::to_string_pretty(observation),
        Outcome::Sweep(sweep) => serde_json::to_string_pretty(sweep),
        Outcome::Nothing => return Err(no_result_error(view)),
    };
    rendered
        .map(|text| text + "\n")
        .map_err(|error| UserError::cannot_run(format!("cannot write the {} as json: {error}", view.command)))
}

fn no_result_error(view: &View) -> UserError {
    UserError::cannot_run(format!(
        "the `{}` of {} ended before there was anything to report",
        view.command, view.started_at
    ))
    .hint("`webdyno report DIR` without --json shows what was recorded; then run the command again")
}
