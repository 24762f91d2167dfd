//! What holds for every file: what is written reads back as the same, and nothing that a file holds makes the reader
//! panic.

use super::{draft, parse, to_toml};
use proptest::prelude::*;
use std::io;
use std::path::Path;
use webdyno_model::workload::Workload;

const DOCUMENT: &str = include_str!("../../../../../docs/workload.md");
const WRONG: &str = include_str!("wrong_files.txt");

fn nothing(_: &Path) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::NotFound.into())
}

fn read(text: &str) -> Workload {
    parse(text, Path::new("w.toml"), &mut nothing).unwrap_or_else(|error| panic!("{}\n{text}", error.message))
}

/// Texts that TOML, URLs and variables could stumble over.
fn word() -> BoxedStrategy<String> {
    prop_oneof!["[a-z]{1,8}", "[ -~]{1,12}", Just("$${x}".to_owned()), Just("\u{e9}\"\\\u{1}\n".to_owned())]
        .boxed()
}

fn quoted(text: &str) -> String {
    toml::Value::from(text.replace("${", "$${").replace("$$${", "$${")).to_string()
}

fn think() -> BoxedStrategy<String> {
    prop_oneof![
        Just("none".to_owned()),
        (1..90_000u64).prop_map(|ms| format!("{ms}ms")),
        (1..50u64, 50..99u64).prop_map(|(min, max)| format!("{min}s..{max}s")),
        (1..90_000u64).prop_map(|us| format!("exponential {us}us")),
        (1..90u64, 0.0..5.0).prop_map(|(s, sigma)| format!("log-normal {s}s sigma {sigma}")),
    ]
    .boxed()
}

/// The keys of a request in one table; `place` keeps its URL apart from others.
fn request(place: usize) -> BoxedStrategy<String> {
    let body = prop_oneof![
        Just(String::new()),
        word().prop_map(|text| format!(", body = {}", quoted(&text))),
        (word(), word()).prop_map(|(a, b)| format!(
            ", form = {{ a = {}, b = [{}, 1] }}",
            quoted(&a),
            quoted(&b)
        )),
        word().prop_map(|text| format!(", json = {{ n = 1.5, t = [{}, \"${{v}}\"] }}", quoted(&text))),
        word().prop_map(|text| format!(", multipart = {{ a = {} }}", quoted(&text))),
    ]
    .boxed();
    let header = prop_oneof![
        Just(String::new()),
        "[ -~]{1,8}"
            .prop_map(|text| format!(", headers = {{ X = {}, Y = [\"1\", \"2\"] }}", quoted(text.trim()))),
        Just(", auth = { bearer = \"a$${b\" }".to_owned()),
        Just(", auth = { user = \"${user}\", password = \"p\" }".to_owned()),
    ]
    .boxed();
    let query = prop_oneof![Just("${v}"), Just("a b&$${c}"), Just("${v|url}#f"), Just("")];
    (body, header, query, any::<bool>())
        .prop_map(move |(body, header, query, is_named)| {
            let name = if is_named { format!(", name = \"request {place}\"") } else { String::new() };
            format!("url = \"/{place}?q={query}\"{name}{header}{body}")
        })
        .boxed()
}

fn session(place: usize) -> BoxedStrategy<String> {
    let step = |number: usize| {
        let what = prop_oneof![
            request(10 * place + number).prop_map(|request| format!("request = {{ {request} }}")),
            request(10 * place + number).prop_map(|page| format!("page = {{ {page}, resources = \"none\" }}")),
            (request(10 * place + number), request(100 + 10 * place + number)).prop_map(|(page, part)| format!(
                "page = {{ {page}, resources = [\"/x.png\", {{ url = \"y.png\", required = false }}, {{ {} }}] }}",
                part.split(", ").next().unwrap_or_default()
            )),
        ]
        .boxed();
        let capture = prop_oneof![
            Just(""),
            Just(
                ", capture = [{ name = \"v\", regex = 'a(.)' }, { name = \"w\", html = \"a[b]\", attribute = \"b\" }]"
            ),
        ]
        .boxed();
        (what, capture, proptest::option::of(think()), prop_oneof![Just(""), Just(", at = \"3s\"")])
            .prop_map(|(what, capture, think, at)| {
                let think = think.map(|think| format!(", think = \"{think}\"")).unwrap_or_default();
                format!("{{ {what}{capture}{think}{at} }}")
            })
            .boxed()
    };
    ((step(0), step(1)), 0.001..1e6)
        .prop_map(|((first, second), weight)| {
            format!("[[session]]\nweight = {weight:?}\nstep = [{first}, {second}]\n")
        })
        .boxed()
}

fn file() -> BoxedStrategy<String> {
    let arrival = prop_oneof![
        (1..10_000u32).prop_map(|users| format!("users = {users}\nduration = \"90s\"\nramp = \"5s\"\n")),
        (0.5..1e6).prop_map(|rate| format!("rate = {rate:?}\npoisson = true\n")),
        Just("stage = [\"5s@0..70/s\", \"5s@70..90..70/s\", \"9s@1..5/s,period=3s\"]\n".to_owned()),
    ]
    .boxed();
    let settings = (think(), any::<u64>(), any::<bool>(), 0.0..1.0).prop_map(|(think, seed, flag, share)| {
        let order = if flag { "in turn" } else { "random" };
        format!(
            "session_order = \"{order}\"\nthink = \"{think}\"\nseed = {seed}\ncookies = {flag}\ncache = {flag}\nreturning = {share:?}\n\
             expect = [\"status=200\", 'regex=\"a\\d']\nok = \"200,300-302\"\nvariables = {{ v = \"1\" }}\n"
        )
    });
    (arrival, settings, session(1), session(2))
        .prop_map(|(arrival, settings, first, second)| {
            format!("base = \"http://h:81/\"\n{arrival}{settings}{first}{second}")
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Writing and reading is the identity.
    #[test]
    fn what_is_written_reads_back_as_the_same(text in file()) {
        let workload = read(&text);
        let written = to_toml(&workload).unwrap();
        prop_assert_eq!(read(&written), workload, "{}", written);
    }

    /// The same of requests alone.
    #[test]
    fn requests_alone_read_back_as_the_same(weights in proptest::collection::vec(0.001..1e6, 1..5)) {
        let request = |(place, weight): (usize, &f64)| format!("[[request]]\nurl = \"/{place}\"\nweight = {weight:?}\n");
        let requests: String = weights.iter().enumerate().map(request).collect();
        let workload = read(&format!("base = \"http://h/\"\nconnections = 3\nramp = \"2s\"\n{requests}"));
        prop_assert!(workload.visits.is_none());
        prop_assert_eq!(read(&to_toml(&workload).unwrap()), workload);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is cut out of good and wrong files or put into them, the reader gives a workload or an error with a
    /// hint.
    #[test]
    fn no_file_makes_the_reader_panic(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..6usize, "[\\PC\n]{0,3}|\\$\\{|\\[\\[|\"|= "), 1..4),
    ) {
        let good = DOCUMENT.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
        let invalid = WRONG.split("=== file\n").skip(1).map(|rest| rest.split("--- told").next().unwrap_or_default());
        let all: Vec<&str> = good.chain(invalid).collect();
        let mut text: Vec<char> = which.get(&all).chars().collect();
        for (at, cut, put) in changes {
            let begin = at.index(text.len() + 1);
            let end = (begin + cut).min(text.len());
            text.splice(begin..end, put.chars());
        }
        let text: String = text.into_iter().collect();
        let mut read = |path: &Path| if path.extension().is_some_and(|kind| kind == "csv") {
            Ok(text.clone().into_bytes())
        } else {
            nothing(path)
        };
        if let Err(error) = draft(&text, Path::new("w.toml"), &mut read).and_then(|draft| draft.workload_as_written()) {
            prop_assert!(error.hint.is_some() && error.exit_code() == 2, "{}", error.message);
        }
    }
}
