//! What apache2buddy and MySQLTuner said of the lab's scenarios, as it is kept for docs/diagnosis.md: it must be of the
//! scenarios as they are now.

use std::path::Path;
use webdyno_evaluation::rivals::{saved, section};
use webdyno_lab::scenario::{Catalogue, LabProgram};

#[test]
fn what_rivals_said_is_of_scenarios_as_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/rivals.jsonl");
    let all = saved::read(&path).unwrap();
    assert!(!all.is_empty(), "webdyno-evaluation rivals all --json {}", path.display());
    for heard in &all {
        let again =
            format!("ask anew: webdyno-evaluation rivals {} --json {}", heard.scenario, path.display());
        let scenario = Catalogue::BuiltIn.open(&heard.scenario).unwrap().scenario;
        assert_eq!(heard.answer, scenario.rounds[0].finding, "{again}");
        let has_database = scenario.services.iter().any(|service| service.program == LabProgram::Mariadb);
        assert_eq!(heard.mysqltuner.is_some(), has_database, "{again}");
    }
    let section = section::section(&all, &Catalogue::BuiltIn).unwrap();
    assert_eq!(section.matches("](scenarios/").count(), all.len());
}
