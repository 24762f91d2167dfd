//! Recordings of released versions stay readable, and give the same report for ever.
//!
//! `v0.1.0-tune` is a real session: a private Apache with 20 workers under 60 users, tuned by a reload. To renew what is
//! expected after a deliberate change: `WEBDYNO_UPDATE_GOLDEN=1 cargo test -p webdyno --test it recordings`.

use crate::support::{Place, run};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/recordings").join(name)
}

#[test]
fn every_released_recording_gives_its_report() {
    let place = Place::new();
    let directory = golden("v0.1.0-tune");
    for (arguments, file) in [(&["report"][..], "report.json"), (&["diagnose", "--from"], "diagnosis.json")] {
        let ended = run(place.webdyno().args(arguments).arg(&directory).args(["--json", "-"])).with_code(0);
        let expected = directory.join(file);
        if std::env::var_os("WEBDYNO_UPDATE_GOLDEN").is_some() {
            std::fs::write(&expected, &ended.stdout).unwrap();
        }
        ended.json();
        assert_eq!(ended.stdout, std::fs::read_to_string(&expected).unwrap(), "{}", expected.display());
    }
}
