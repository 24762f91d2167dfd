//! What packaging/ has for workers: the unit, the manifests for Kubernetes and the Helm chart, checked against the published API
//! (packaging/kubernetes/schema.json, Kubernetes 1.34) and against the flags that the program has.
//!
//! There is no YAML parser in the tree, and these files need little of YAML: blocks of maps and lists, values as JSON or plain words.

use crate::support::{Place, run, skip};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(packaging(name)).unwrap()
}

/// The documents of a file.
fn documents(text: &str) -> Vec<Value> {
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let mut documents = vec![];
    for part in text.split("\n---\n") {
        let lines: Vec<(usize, &str)> = part
            .lines()
            .filter(is_content)
            .map(|line| (line.len() - line.trim_start().len(), line.trim()))
            .collect();
        if !lines.is_empty() {
            let (value, rest) = block(&lines);
            assert!(rest.is_empty(), "{rest:?}");
            documents.push(value);
        }
    }
    documents
}

type Lines<'a> = &'a [(usize, &'a str)];

/// The block that begins here, and what follows it.
fn block<'a>(lines: Lines<'a>) -> (Value, Lines<'a>) {
    let indent = lines[0].0;
    if lines[0].1.starts_with("- ") {
        let mut items = vec![];
        let mut rest = lines;
        while let Some((_, line)) = rest.first().filter(|(at, line)| *at == indent && line.starts_with("- "))
        {
            let own: Vec<(usize, &str)> = std::iter::once((indent + 2, &line[2..]))
                .chain(rest[1..].iter().take_while(|(at, _)| *at > indent).copied())
                .collect();
            rest = &rest[own.len()..];
            let is_map = own.len() > 1 || key(own[0].1).is_some();
            items.push(if is_map { block(&own).0 } else { scalar(own[0].1) });
        }
        return (Value::Array(items), rest);
    }
    let mut map = Map::new();
    let mut rest = lines;
    while let Some((_, line)) = rest.first().filter(|(at, _)| *at == indent) {
        let (name, value) = key(line).unwrap_or_else(|| panic!("no key: {line}"));
        rest = &rest[1..];
        let is_nested =
            rest.first().is_some_and(|(at, next)| *at > indent || *at == indent && next.starts_with("- "));
        let value = match value {
            "" if is_nested => {
                let (value, behind) = block(rest);
                rest = behind;
                value
            }
            value => scalar(value),
        };
        assert!(map.insert(name.to_owned(), value).is_none(), "{name} twice");
    }
    (Value::Object(map), rest)
}

fn key(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")))?;
    name.chars()
        .all(|letter| letter.is_alphanumeric() || "./-_".contains(letter))
        .then_some((name, value.trim()))
}

fn scalar(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// What Helm makes of a template that has nothing but values as JSON, one `if` and `range` over lists.
fn rendered(template: &str, values: &Value) -> String {
    let mut out = String::new();
    let mut lines = template.lines();
    while let Some(line) = lines.next() {
        let Some(action) = line.trim().strip_prefix("{{- ").and_then(|rest| rest.strip_suffix(" }}")) else {
            out.push_str(&filled(line, values, None));
            continue;
        };
        let body: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "{{- end }}").collect();
        let (what, path) = action.split_once(' ').unwrap();
        let value = lookup(path, values);
        let items = match (what, &value) {
            ("range", Value::Array(items)) => items.clone(),
            ("if", Value::String(text)) if text.is_empty() => vec![],
            ("if", _) => vec![Value::Null],
            other => panic!("{other:?}"),
        };
        for item in &items {
            body.iter().for_each(|line| out.push_str(&filled(line, values, Some(item))));
        }
    }
    out
}

fn lookup(path: &str, values: &Value) -> Value {
    match path.strip_prefix(".Values.") {
        Some(name) => values.get(name).unwrap_or_else(|| panic!("values.yaml has no {name}")).clone(),
        None if path == ".Release.Name" => json!("release"),
        None => panic!("{path}"),
    }
}

fn filled(line: &str, values: &Value, item: Option<&Value>) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("{{ ") {
        let (action, behind) = behind.split_once(" }}").unwrap();
        let path = action.strip_suffix(" | toJson").unwrap_or(action);
        let value = if path == "." { item.unwrap().clone() } else { lookup(path, values) };
        out.push_str(before);
        out.push_str(&value.to_string());
        rest = behind;
    }
    out + rest + "\n"
}

/// Whether the API takes it, and what it says otherwise.
fn refused(document: &Value) -> Vec<String> {
    let mut schema: Value = serde_json::from_str(&text("kubernetes/schema.json")).unwrap();
    let kinds: HashMap<&str, &str> =
        [("v1 Secret", "io.k8s.api.core.v1.Secret"), ("batch/v1 Job", "io.k8s.api.batch.v1.Job")].into();
    let kind = format!("{} {}", document["apiVersion"].as_str().unwrap(), document["kind"].as_str().unwrap());
    schema["$ref"] = json!(format!("#/definitions/{}", kinds[kind.as_str()]));
    let validator = jsonschema::validator_for(&schema).unwrap();
    validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Each flag is one that the program has, and no secret is on the command line.
fn check_flags(words: &[&str]) {
    let place = Place::new();
    let help = run(place.webdyno().args(["worker", "--help"])).with_code(0).stdout;
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        assert!(help.contains(&format!("{flag} ")), "webdyno worker has no {flag}");
    }
    assert!(
        words.windows(2).any(|pair| pair[0] == "--nats-creds" && pair[1].ends_with("/load.seed")),
        "{words:?}"
    );
}

fn check_job(job: &Value, workers: u64) {
    assert_eq!(refused(job), Vec::<String>::new());
    let spec = &job["spec"];
    assert_eq!((&spec["completionMode"], &spec["parallelism"]), (&json!("Indexed"), &json!(workers)));
    assert_eq!(spec["completions"], spec["parallelism"]);
    let pod = &spec["template"]["spec"];
    let container = &pod["containers"][0];
    let words: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(words[0], "worker");
    check_flags(&words);
    // The key is a file of the Secret that the other document makes.
    let mount = &container["volumeMounts"][0];
    assert_eq!((&mount["name"], &mount["mountPath"]), (&pod["volumes"][0]["name"], &json!("/etc/webdyno")));
    // What kubelet puts into arguments is declared.
    assert!(words.contains(&"worker-$(WORKER_INDEX)") && container["env"][0]["name"] == "WORKER_INDEX");
    assert_eq!(container["resources"]["limits"], container["resources"]["requests"]);
}

#[test]
fn the_manifests_are_what_the_api_of_kubernetes_takes() {
    let documents = documents(&text("kubernetes/workers.yaml"));
    let [secret, job] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!(refused(secret), Vec::<String>::new());
    assert_eq!(
        job["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"],
        secret["metadata"]["name"]
    );
    check_job(job, 8);
    // The check itself refuses what the API would.
    let mut wrong = job.clone();
    wrong["spec"]["paralelism"] = json!(8);
    wrong["spec"]["completions"] = json!("eight");
    assert_eq!(refused(&wrong).len(), 2);
}

#[test]
fn the_chart_renders_to_the_same_with_values() {
    let [mut values]: [Value; 1] = documents(&text("helm/webdyno-workers/values.yaml")).try_into().unwrap();
    let [chart]: [Value; 1] = documents(&text("helm/webdyno-workers/Chart.yaml")).try_into().unwrap();
    assert_eq!(
        (&chart["apiVersion"], &chart["appVersion"]),
        (&json!("v2"), &json!(env!("CARGO_PKG_VERSION")))
    );
    let template = text("helm/webdyno-workers/templates/workers.yaml");
    let without_seed = documents(&rendered(&template, &values));
    assert_eq!(without_seed.len(), 1);
    check_job(&without_seed[0], 8);
    values["seed"] = json!("SU\"quoted");
    values["workers"] = json!(3);
    values["arguments"] = json!(["--max-rate", "500"]);
    values["tolerations"] = json!([{"key": "load", "operator": "Exists"}]);
    let [secret, job]: [Value; 2] = documents(&rendered(&template, &values)).try_into().unwrap();
    assert_eq!((refused(&secret), &secret["stringData"]["load.seed"]), (vec![], &json!("SU\"quoted")));
    check_job(&job, 3);
    assert_eq!(job["spec"]["template"]["spec"]["tolerations"][0]["key"], "load");
}

#[test]
fn systemd_takes_the_unit_of_a_worker_and_finds_little_exposed() {
    let unit = text("webdyno-worker.service");
    let start =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/webdyno worker ")).unwrap();
    check_flags(&start.split(' ').collect::<Vec<_>>());
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        return skip("there is no systemd-analyze");
    };
    assert!(version.status.success());
    let place = Place::new();
    let path = place.path("webdyno-worker.service");
    let program = assert_cmd::cargo::cargo_bin("webdyno");
    std::fs::write(&path, unit.replace("/usr/bin/webdyno", program.to_str().unwrap())).unwrap();
    let analyze = |arguments: &[&str]| {
        let output = Command::new("systemd-analyze").args(arguments).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), said.into_owned())
    };
    let (is_good, said) = analyze(&["verify", "--man=no"]);
    let own: Vec<&str> = said.lines().filter(|line| line.contains("webdyno-worker.service")).collect();
    assert!(is_good || own.is_empty(), "{said}");
    // 10 is everything, 0 nothing; a service without any of it has 9.6.
    let (is_good, said) = analyze(&["security", "--offline=yes", "--threshold=25", "--no-pager"]);
    assert!(is_good, "{said}");
}
