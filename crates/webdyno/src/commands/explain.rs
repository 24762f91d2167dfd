//! `webdyno explain ID`: the manual's chapter on a finding.

use crate::cli::ExplainArgs;
use crate::terminal;
use webdyno_analysis::rules;
use webdyno_model::{Result, UserError};

/// Prints a chapter, or the list of all.
pub fn explain(arguments: &ExplainArgs) -> Result<u8> {
    let text = match &arguments.id {
        None => list(),
        Some(id) => rules::by_id(id).map(rules::Rule::manual).ok_or_else(|| unknown(id))?,
    };
    terminal::print(&text)?;
    Ok(0)
}

fn list() -> String {
    let line = |rule: &rules::Rule| {
        let first = rule.manual().lines().next().unwrap_or_default().to_owned();
        let says = first.split_once(": ").map_or(String::new(), |(_, says)| says.to_owned());
        format!("{:26} {says}\n", rule.id)
    };
    rules::ALL.iter().map(line).collect()
}

fn unknown(id: &str) -> UserError {
    let distance = |rule: &&rules::Rule| strsim::damerau_levenshtein(id, rule.id);
    let nearest = rules::ALL.iter().min_by_key(distance).filter(|rule| distance(rule) <= rule.id.len() / 2);
    let error = UserError::usage(format!("there is no finding `{id}`"));
    match nearest {
        Some(rule) => error.hint(format!("did you mean `{}`? `webdyno explain` lists all", rule.id)),
        None => error.hint("`webdyno explain` lists all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_id_suggests_the_right_one() {
        for (typed, meant) in [
            ("apache-worker-exhausted", "apache-workers-exhausted"),
            ("cpu-saturation", "cpu-saturated"),
            ("heathly", "healthy"),
        ] {
            assert!(unknown(typed).hint.unwrap().contains(meant), "{typed}");
        }
        assert!(!unknown("zzzzzzzzzzzz").hint.unwrap().contains("did you mean"));
    }

    #[test]
    fn the_list_names_every_rule() {
        assert!(rules::ALL.iter().all(|rule| list().contains(rule.id)));
    }
}
