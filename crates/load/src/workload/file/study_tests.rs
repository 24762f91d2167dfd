//! Study files: what the documented ones mean, and what is said of wrong ones.

use super::*;
use std::io;

const EXAMPLE: &str = include_str!("../../../../../examples/study/files-and-programs.toml");
const GUIDE: &str = include_str!("../../../../../docs/guide/src/sweeps.md");

fn read(path: &Path) -> io::Result<Vec<u8>> {
    match path.to_str().unwrap_or_default() {
        "d/mix.toml" => Ok(b"users = 7\n[[page]]\nurl = \"http://h/\"\n".to_vec()),
        "d/bad.toml" => Ok(b"[[page]]\nurll = \"http://h/\"\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn parse(text: &str) -> Result<Study> {
    parse_study(text, Path::new("d/s.toml"), &mut read)
}

fn axes_of(study: &Study) -> Vec<String> {
    study.axes.iter().map(|axis| format!("{}: {}", axis.name, axis.levels.join(", "))).collect()
}

#[test]
fn the_example_is_the_study_of_the_scenario() {
    let study = parse(EXAMPLE).unwrap();
    assert_eq!(
        axes_of(&study),
        [
            "content: static, simple CGI, moderate CGI",
            "store: 32M, 256M",
            "memory: 160M, 480M",
            "cpus: 1, 2",
            "page_cache: warm"
        ]
    );
    assert_eq!((study.repeats, study.warmup_us), (Some(3), Some(1_000_000)));
    let [files, simple, moderate] = &study.contents[..] else { panic!("{study:?}") };
    let count = |draft: &Draft| draft.list.as_ref().unwrap().count;
    assert_eq!((count(&files.draft), files.mean_size_bytes), (4096, Some(65536)));
    for (level, expected) in [("32M", 512), ("256M", 4096), ("25%", 1024)] {
        let draft = files.of_store(StoreLevel::parse(level).unwrap()).unwrap();
        let entries = draft.list.clone().unwrap().entries.unwrap();
        assert_eq!((count(&draft), entries.entries.len()), (expected, expected as usize), "{level}");
    }
    assert!(files.draft.list.as_ref().unwrap().random);
    assert_eq!(simple.draft.requests[0].url, "http://127.0.0.1:8099/cgi-bin/simple");
    assert_eq!(
        (simple.draft.settings.connections, simple.draft.settings.duration_us),
        (Some(40), Some(3_000_000))
    );
    assert_eq!(moderate.draft.requests[1].method, "POST");
}

#[test]
fn the_examples_of_the_guide_are_understood() {
    let studies: Vec<&str> =
        GUIDE.split("```toml\n").skip(1).filter_map(|text| text.split("```").next()).collect();
    assert!(!studies.is_empty());
    studies.into_iter().for_each(|text| drop(parse(text).unwrap()));
    // Every key is documented.
    for key in STUDY_KEYS.iter().chain(&OWN_KEYS) {
        assert!(GUIDE.contains(&format!("`{key}`")) || GUIDE.contains(&format!("`[[{key}]]`")), "{key}");
    }
}

#[test]
fn a_content_may_be_a_workload_file() {
    let text = "users = 3\nduration = \"2s\"\n[axes]\ncontent = [\"b\", \"a\"]\n[[content]]\nname = \"a\"\nworkload = \"mix.toml\"\n\
                [[content]]\nname = \"b\"\nworkload = \"mix.toml\"\nusers = 9\n[[content]]\nname = \"unused\"\nurls = { pattern = \"http://h/[1-2]\" }";
    let study = parse(text).unwrap();
    let settings: Vec<_> =
        study.contents.iter().map(|one| (one.name.as_str(), one.draft.settings.clone())).collect();
    assert_eq!(settings.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!((settings[0].1.users, settings[1].1.users), (Some(9), Some(7)));
    assert_eq!(settings[0].1.duration_us, Some(2_000_000));
}

/// What is said of a wrong study: the place, the message, the hint.
#[test]
fn wrong_studies_are_reported_with_place_and_remedy() {
    const CONTENT: &str = "[[content]]\nname = \"a\"\nurls = { pattern = \"http://h/[1-9]\" }\n";
    for (text, message, hint) in [
        ("repeat = 3\n", "d/s.toml:1:1: `repeat` is not a key of a study", "did you mean `repeats`?"),
        ("repeats = 0\n", "d/s.toml:1:11: `repeats` is the number 0", "repeats = 1"),
        ("[axes]\ncpus = [1, 1]\n", "d/s.toml:2:12: `cpus` has the level 1 twice", "leave one of them out"),
        ("[axes]\ncpus = [1]\n", "d/s.toml:1:1: every axis has one level", "two levels or more"),
        ("[axes]\ncpus = 2\n", "d/s.toml:2:8: `cpus` is the number 2", "cpus = [1, 2]"),
        ("[axes]\ncpus = [\"1..4\"]\n", "d/s.toml:2:9: ", "cpus = [1, 2]"),
        ("[axes]\nstore = [\"1M\"]\n", "d/s.toml:2:9: no content follows the axis `store`", "mean_size"),
        ("[axes]\npage_cache = [\"cool\"]\n", "d/s.toml:2:15: `cool` is no state", "did you mean `cold`?"),
        ("page_cache = \"hot\"\n", "d/s.toml:1:14: `hot` is no state", "cold, warm, as-is"),
        ("[axes]\ncontent = [\"b\"]\n", "d/s.toml:2:12: there is no content `b`", "there is a"),
    ] {
        let error = parse(&format!("{text}{CONTENT}")).unwrap_err();
        let hinted = error.hint.clone().unwrap_or_default();
        assert!(error.message.starts_with(message), "{text}: {}", error.message);
        assert!(hinted.contains(hint) && error.exit_code() == 2, "{text}: {hinted}");
    }
    let store = "[axes]\nstore = [\"64k\", \"1M\"]\n[[content]]\nname = \"a\"\nmean_size = \"64k\"\nurls = { pattern = \"http://h/[1-9]\" }\n";
    for (text, message) in [
        (store, "d/s.toml:2:17: the store cannot be 1M: `a` has 9 URLs, and 16 would be asked for"),
        ("[[content]]\nname = \"a\"\n", "d/s.toml:1:1: the content `a` has nothing to load"),
        ("[[content]]\nname = \"a\"\nworkload = \"bad.toml\"\n", "d/bad.toml:2:1: `urll` is not a key"),
        ("[[content]]\nname = \"a\"\nworkload = \"none.toml\"\n", "d/s.toml:3:12: cannot read d/none.toml"),
        (
            "[[content]]\nname = \"a\"\nurls = { pattern = \"http://h/9-1\" }\n",
            "d/s.toml:3:20: `http://h/9-1` has no range",
        ),
        (
            "[[content]]\nname = \"a\"\nurls = { pattern = \"http://h/[9-1]\" }\n",
            "d/s.toml:3:20: `http://h/[9-1]` stands for no URL",
        ),
        ("cpus = [1, 2]\n", "d/s.toml:1:1: `cpus` is not a key of a study"),
        ("users = 1\n", "d/s.toml:1:1: a study needs `content`"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.message.starts_with(message), "{text}: {}", error.message);
    }
}
