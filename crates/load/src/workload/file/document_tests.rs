//! docs/workload.md: its examples mean what it says, and it has every key.

use super::{bodies, captures, draft, reader, requests, scope, sessions, settings, tables};
use std::io;
use std::path::Path;
use webdyno_model::workload::stage::Shape;
use webdyno_model::workload::visit::{Auth, CaptureFrom, Resources, RowOrder, Think};
use webdyno_model::workload::{Arrival, Workload};

const DOCUMENT: &str = include_str!("../../../../../docs/workload.md");

/// The files that the examples name.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    match path.to_str() {
        Some("customers.csv") => Ok(b"login,password\nann,x\nbob,\"y,z\"\n".to_vec()),
        Some("urls.txt") => Ok(b"http://127.0.0.1/a\nhttp://127.0.0.1/b POST x=1\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn workload(text: &str) -> Workload {
    match draft(text, Path::new("example.toml"), &mut read).and_then(|draft| draft.workload_as_written()) {
        Ok(workload) => workload,
        Err(error) => panic!("{}\n{text}", error.message),
    }
}

fn examples() -> Vec<&'static str> {
    let fenced = DOCUMENT.split("```toml\n").skip(1);
    fenced.map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_smallest_example_is_a_page() {
    let workload = workload(examples()[0]);
    let visits = workload.visits.unwrap();
    assert_eq!((visits.users, workload.connections, workload.stop.duration_us), (50, 300, Some(10_000_000)));
    assert_eq!(visits.sessions[0].steps[0].page.as_ref().unwrap().resources, Resources::Found);
    assert_eq!((workload.requests[0].url.as_str(), workload.redirects_max), ("http://127.0.0.1:8080/", 10));
}

#[test]
fn the_page_example_is_that_of_4250_users() {
    let workload = workload(examples()[1]);
    let visits = workload.visits.unwrap();
    assert_eq!((visits.users, workload.requests.len()), (4250, 20));
    assert_eq!(visits.think, Think::Exponential { mean_us: 60_000_000 });
    assert_eq!(workload.connections, 4250 * 6);
    let Resources::Listed(parts) = &visits.sessions[0].steps[0].page.as_ref().unwrap().resources else {
        panic!("not listed");
    };
    assert_eq!(parts.iter().map(|part| part.request).collect::<Vec<_>>(), (1..20).collect::<Vec<_>>());
    assert!(parts[..18].iter().all(|part| part.required) && !parts[18].required);
    assert_eq!(
        (workload.requests[0].name.as_str(), workload.requests[19].name.as_str()),
        ("shop", "/img/8.png")
    );
    assert_eq!(workload.stages.len(), 2);
    assert_eq!(workload.stages[0].shape, Shape::Ramp { from: 0.0, to: 4250.0 });
    assert_eq!(workload.stop.duration_us, Some(360_000_000));
}

#[test]
fn the_session_example_captures_and_uses() {
    let workload = workload(examples()[2]);
    let visits = workload.visits.clone().unwrap();
    let [look, buy] = &visits.sessions[..] else { panic!("{visits:?}") };
    assert_eq!((look.weight, look.steps.len(), buy.weight, buy.steps.len()), (4.0, 2, 1.0, 5));
    let request = |step: usize| &workload.requests[buy.steps[step].request];
    let login = request(1);
    assert!(login.has_variables && login.method == "POST" && login.name == "log in");
    let body = std::str::from_utf8(login.body.bytes()).unwrap();
    assert_eq!(body, "user=${login|form}&password=${password|form}&csrf=${csrf|form}");
    assert_eq!(login.headers, [("Content-Type".into(), "application/x-www-form-urlencoded".into())]);
    assert_eq!(buy.steps[1].think, Some(Think::Uniform { min_us: 1_000_000, max_us: 3_000_000 }));
    assert_eq!(request(2).body.bytes(), b"{\"product\":17,\"count\":1}");
    let from: Vec<&CaptureFrom> = buy.steps[2].captures.iter().map(|capture| &capture.from).collect();
    assert_eq!(
        from,
        [&CaptureFrom::JsonPointer("/order/id".into()), &CaptureFrom::Header("Location".into())]
    );
    assert_eq!(request(3).url, "${receipt}");
    assert_eq!(request(4).url, "http://127.0.0.1:8080/api/orders/${order}");
    assert!(visits.cache && visits.cookies && visits.returning_fraction == 0.3);
    let table = &visits.tables[0];
    assert_eq!((table.order, table.row_count), (RowOrder::Random, 2));
    assert_eq!(table.rows[1], ["bob", "y,z"]);
}

#[test]
fn the_mix_example_is_of_requests_alone() {
    let workload = workload(examples()[3]);
    assert!(workload.visits.is_none() && workload.arrival == Arrival::Closed);
    let weights: Vec<f64> = workload.requests.iter().map(|request| request.weight).collect();
    assert_eq!((weights, workload.connections, workload.redirects_max), (vec![80.0, 15.0, 5.0], 60, 0));
    assert_eq!(workload.requests[2].body.bytes(), b"text=some+words");
    let minutes: Vec<_> =
        workload.stages.iter().map(|stage| (stage.duration_us / 60_000_000, stage.measured)).collect();
    assert_eq!(minutes, [(4, false), (5, true), (1, false)]);
}

#[test]
fn the_other_examples_are_right() {
    let rest = &examples()[4..];
    assert_eq!(rest.len(), 3);
    let staged = workload(rest[0]);
    assert_eq!(staged.arrival, Arrival::Open { rate_per_s: 1000.0, poisson: false });
    let measured: Vec<bool> = staged.stages.iter().map(|stage| stage.measured).collect();
    assert_eq!((measured, staged.connections), (vec![false, true, true, true], 10_000));
    let list = workload(rest[1]).list.unwrap();
    assert!(list.random && list.count == 2);
    let numbered = workload(rest[2]).list.unwrap();
    assert!(numbered.random && numbered.count == 2400);
}

#[test]
fn the_document_has_every_key() {
    let all = [
        settings::TOP_KEYS,
        settings::STAGE_KEYS,
        settings::SHAPE_KEYS,
        requests::REQUEST_KEYS,
        requests::PAGE_KEYS,
        requests::RESOURCE_KEYS,
        scope::AUTH_KEYS,
        bodies::FILE_KEYS,
        sessions::SESSION_KEYS,
        sessions::STEP_KEYS,
        captures::CAPTURE_KEYS,
        tables::TABLE_KEYS,
        reader::LIST_KEYS,
    ];
    for key in all.concat() {
        let named = [format!("`{key}`"), format!("[{key}]"), format!("{key} = ")];
        assert!(named.iter().any(|name| DOCUMENT.contains(name.as_str())), "docs/workload.md has no {key}");
    }
}

#[test]
fn what_is_said_once_holds_everywhere_below() {
    let text = "base = \"http://h/\"\nheaders = { Accept = \"a\", X = [\"1\", \"2\"] }\n\
                auth = { user = \"ann\", password = \"$${x\" }\n\
                [[request]]\nurl = \"/a$${b}?c=$${\"\nheaders = { accept = \"b\" }\n\
                [[request]]\nurl = \"/b\"\nauth = { bearer = \"t\" }\nbody = \"$${x}\"\n";
    let workload = workload(text);
    let [first, second] = &workload.requests[..] else { panic!("{workload:?}") };
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(first.headers, [header("X", "1"), header("X", "2"), header("accept", "b")]);
    assert_eq!(first.url, "http://h/a$%7Bb%7D?c=${");
    assert_eq!(first.auth, Some(Auth::Basic { name: "ann".into(), password: "${x".into() }));
    assert!(!first.has_variables && workload.visits.is_none());
    assert_eq!((second.body.bytes(), second.method.as_str()), (&b"${x}"[..], "POST"));
    assert_eq!(second.auth, Some(Auth::Bearer { token: "t".into() }));
}

#[test]
fn included_files_belong_to_the_one_that_includes_them() {
    let mut read = |path: &Path| {
        let text = match path.to_str().unwrap() {
            "d/a.toml" => {
                "include = [\"../c.toml\"]\nbase = \"http://a/\"\nrate = 5\nseed = 7\n[[request]]\nurl = \"a\""
            }
            "d/../c.toml" | "c.toml" => "think = \"1s\"\n[[page]]\nname = \"c\"\nurl = \"/c\"",
            other => panic!("{other}"),
        };
        Ok(text.as_bytes().to_vec())
    };
    let text = "include = [\"d/a.toml\", \"c.toml\"]\nbase = \"http://m/\"\nusers = 3\n\
                [[session]]\nname = \"s\"\nstep = [{ page = \"c\" }, { request = \"/m\" }]\n";
    let workload = draft(text, Path::new("main.toml"), &mut read).unwrap().workload_as_written().unwrap();
    let urls: Vec<&str> = workload.requests.iter().map(|request| request.url.as_str()).collect();
    assert_eq!(urls, ["http://a/c", "http://a/a", "http://m/m"]);
    let visits = workload.visits.unwrap();
    // Users in the including file take the place of the rate in the included one.
    assert_eq!((visits.users, workload.arrival, workload.seed), (3, Arrival::Closed, 7));
    assert_eq!(visits.think, Think::Fixed { time_us: 1_000_000 });
    let names: Vec<&str> = visits.sessions.iter().map(|session| session.name.as_str()).collect();
    assert_eq!(names, ["/a", "s"]);
}

/// A picture may hold what looks like a variable; a field beside it may be one.
#[test]
fn files_are_sent_as_they_are_beside_fields_with_variables() {
    let mut read = |_: &Path| Ok(b"\xff${x}".to_vec());
    let text = |field: &str| {
        format!(
            "variables = {{ csrf = \"1\" }}\n[[request]]\nurl = \"http://h/\"\n\
             multipart = {{ a = \"{field}\", f = {{ file = \"d/p.png\" }} }}\n[[request]]\nurl = \"http://h/{field}\"\nbody_file = \"p\"\n"
        )
    };
    for (field, file) in [("${csrf}", &b"\xff$${x}"[..]), ("plain", b"\xff${x}")] {
        let workload =
            draft(&text(field), Path::new("w.toml"), &mut read).unwrap().workload_as_written().unwrap();
        let body = workload.requests[0].body.bytes();
        let has = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
        assert!(has(format!("name=\"a\"\r\n\r\n{field}\r\n").as_bytes()));
        assert!(has(&[
            b"filename=\"p.png\"\r\nContent-Type: application/octet-stream\r\n\r\n",
            file,
            b"\r\n--"
        ]
        .concat()));
        assert_eq!(workload.requests[1].body.bytes(), file);
    }
}

#[test]
fn objectives_are_known_with_their_places() {
    let text = "slo = [\"p99<1s\",\n  \"page /shp: p95<2s\"]\n[[page]]\nurl = \"http://h/\"\n";
    let draft = draft(text, Path::new("w.toml"), &mut read).unwrap();
    assert_eq!(draft.objective_places, ["w.toml:1:8", "w.toml:2:3"]);
    assert_eq!(draft.objectives[1].text(), "page /shp: p95<2s");
}
