//! How help is arranged: what the short one (`-h`) of each command shows, its examples, and the groups of the long one.

use super::Cli;
use clap::{Arg, ArgAction, Command, CommandFactory};

/// The groups of `--help`, and the ids of their options.
const GROUPS: &[(&str, &str)] = &[
    (
        "Load",
        "connections duration requests warmup threads timeout no_keepalive repeat seed clock no_early_stop objectives",
    ),
    ("Arrival", "rate poisson stage ramp ramp_down"),
    ("Requests", "url_list random method headers body body_file form ok expect redirects auth bearer"),
    (
        "Pages and users",
        "workload page users think cache returning connections_per_host compare_documents_only",
    ),
    (
        "TLS and network",
        "http2 http3 streams cacert insecure cert key no_tls_resumption proxy unix_socket source_ip connect_to resolve ipv4 ipv6 io",
    ),
    ("Server", "servers sudo db_option_file port url interrupted settings_only"),
    ("Prediction", "set"),
    ("Sizing", "page_bytes growth years headroom spare mix catalogue working_set validate"),
    ("Diagnosis", "from at watch_for observe_for once ring disambiguate fail_on_fault"),
    ("Search", "start max"),
    ("Sweep", "knobs study resume allow_live_traffic"),
    ("Tuning", "goal apply allow_restart accept_pending export budget yes"),
    (
        "Files",
        "total mean_size size_distribution sigma shape files_per_directory content popularity hidden output host site length speed sessions depth",
    ),
    ("Lab", "scenarios rounds keep all attempt write show_truth sees_processes directory place"),
    ("Comparison", "max_regression"),
    ("Logs", "format follow interval show_clients keep_query scan_threads"),
    (
        "Workers",
        "on workers on_worker_loss trusted targets max_rate seconds_max worker_name worker_threads nats_creds nats_ca new_key parent",
    ),
    ("Browser", "listen allow_remote control saved_workloads web"),
    (
        "Output",
        "json csv parquet hdr junit table cache_config cache_for html prometheus otlp out quiet verbose color no_tui help version",
    ),
];

/// What is particular to the help of a command.
struct CommandHelp {
    path: &'static str,
    /// Ids of what the short help shows.
    short: &'static str,
    /// Ids of flags that the command refuses: read, so that the error can say why, and not offered.
    refused: &'static str,
    examples: [&'static str; 3],
}

const COMMANDS: &[CommandHelp] = &[
    CommandHelp {
        path: "webdyno",
        short: "",
        refused: "",
        examples: [
            "webdyno quickstart",
            "webdyno run -c 50 -d 30s http://127.0.0.1:8080/",
            "webdyno diagnose http://127.0.0.1:8080/",
        ],
    },
    CommandHelp {
        path: "webdyno quickstart",
        short: "goal json out quiet",
        refused: "",
        examples: [
            "webdyno quickstart",
            "webdyno quickstart --goal '500 req/s'",
            "webdyno quickstart --json -",
        ],
    },
    CommandHelp {
        path: "webdyno run",
        short: "connections rate duration requests page users url_list workload headers body objectives json",
        refused: "",
        examples: [
            "webdyno run -c 50 -d 30s http://127.0.0.1:8080/",
            "webdyno run -r 500 --slo 'p99<200ms' http://127.0.0.1:8080/",
            "webdyno run --page --users 20 --think 1s..3s http://127.0.0.1:8080/",
        ],
    },
    CommandHelp {
        path: "webdyno check",
        short: "servers sudo db_option_file port url fail_on_fault json out",
        refused: "csv parquet hdr junit prometheus otlp web",
        examples: ["webdyno check", "webdyno check --port 8080", "webdyno check --server ssh://web1 --sudo"],
    },
    CommandHelp {
        path: "webdyno diagnose",
        short: "connections rate duration page servers sudo from at watch_for port disambiguate json",
        refused: "unix_socket proxy",
        examples: [
            "webdyno diagnose http://127.0.0.1:8080/",
            "webdyno diagnose --server ssh://web1 --sudo http://web1/",
            "webdyno diagnose --for 60s --port 80",
        ],
    },
    CommandHelp {
        path: "webdyno capacity",
        short: "connections page users objectives servers sudo start max budget json",
        refused: "rate duration requests warmup",
        examples: [
            "webdyno capacity --slo 'p99<200ms' http://127.0.0.1:8080/",
            "webdyno capacity --server ssh://web1 --sudo http://web1/",
            "webdyno capacity --page --users 10 --think 1s..3s http://127.0.0.1:8080/",
        ],
    },
    CommandHelp {
        path: "webdyno sweep",
        short: "connections duration servers knobs study allow_restart budget json",
        refused: "requests objectives unix_socket proxy",
        examples: [
            "webdyno sweep --knob MaxRequestWorkers=16..256 http://127.0.0.1:8080/",
            "webdyno sweep --knob connections=1..512 http://127.0.0.1:8080/",
            "webdyno sweep --study study.toml --server ssh://web1",
        ],
    },
    CommandHelp {
        path: "webdyno observe",
        short: "servers sudo port url observe_for once ring json out",
        refused: "csv parquet hdr junit",
        examples: [
            "webdyno observe --once",
            "webdyno observe --port 80 --for 10m",
            "webdyno observe --ring 1h --out incidents",
        ],
    },
    CommandHelp {
        path: "webdyno tune",
        short: "connections rate duration page servers sudo goal apply allow_restart export budget json",
        refused: "requests unix_socket proxy",
        examples: [
            "webdyno tune http://127.0.0.1:8080/",
            "webdyno tune --apply --goal '500 req/s' http://127.0.0.1:8080/",
            "webdyno tune --server ssh://web1 --sudo --export plan http://web1/",
        ],
    },
    CommandHelp {
        path: "webdyno report",
        short: "directory verbose json csv hdr junit html",
        refused: "quiet",
        examples: [
            "webdyno report webdyno-runs/20261121T204510Z-run",
            "webdyno report webdyno-runs/20261121T204510Z-run --html report.html",
            "webdyno report webdyno-runs/20261121T204510Z-run --csv - | head",
        ],
    },
    CommandHelp {
        path: "webdyno export",
        short: "directory json csv parquet hdr table cache_config",
        refused: "",
        examples: [
            "webdyno export webdyno-runs/20261121T204510Z-run --parquet seconds.parquet",
            "webdyno export DIR --table samples --csv samples.csv",
            "webdyno export DIR --cache-config - --cache-for nginx",
        ],
    },
    CommandHelp {
        path: "webdyno compare",
        short: "a b max_regression json",
        refused: "",
        examples: [
            "webdyno compare before after",
            "webdyno compare before after --max-regression 5% --json -",
            "webdyno compare webdyno-runs/20261121T204510Z-tune",
        ],
    },
    CommandHelp {
        path: "webdyno fit",
        short: "source json",
        refused: "",
        examples: [
            "webdyno fit points.csv",
            "webdyno fit webdyno-runs/20261121T204510Z-sweep --json -",
            "webdyno fit points.csv --json - | jq .choice",
        ],
    },
    CommandHelp {
        path: "webdyno predict",
        short: "directory set users rate json",
        refused: "",
        examples: [
            "webdyno predict RUN_DIR --set MaxRequestWorkers=200",
            "webdyno predict RUN_DIR --set pm.max_children=40 --set cores=4",
            "webdyno predict RUN_DIR --users 500 --json -",
        ],
    },
    CommandHelp {
        path: "webdyno logs",
        short: "files format servers follow show_clients keep_query json html",
        refused: "",
        examples: [
            "webdyno logs /var/log/nginx/access.log*",
            "webdyno logs --format '%h %t \"%r\" %>s %b %D' access.log --json -",
            "webdyno logs --follow /var/log/apache2/access.log",
        ],
    },
    CommandHelp {
        path: "webdyno size",
        short: "directory goal think growth years headroom spare catalogue validate json",
        refused: "",
        examples: [
            "webdyno size RUN_DIR --goal 500/s",
            "webdyno size LOW HIGH --goal '2000 users' --think 3s --spare 1",
            "webdyno size --validate SWEEP_DIR",
        ],
    },
    CommandHelp {
        path: "webdyno history",
        short: "directory json",
        refused: "",
        examples: ["webdyno history", "webdyno history runs --json -", "webdyno history | head"],
    },
    CommandHelp {
        path: "webdyno serve",
        short: "directory listen allow_remote control saved_workloads",
        refused: "",
        examples: [
            "webdyno serve",
            "webdyno serve runs --listen 127.0.0.1:8090",
            "webdyno serve --control --workload shop.toml",
        ],
    },
    CommandHelp {
        path: "webdyno resume",
        short: "directory on nats_creds nats_ca json",
        refused: "",
        examples: [
            "webdyno resume webdyno-runs/20261121T204510Z-run --nats-creds load.seed",
            "webdyno resume DIR --nats-creds load.seed --json -",
            "webdyno resume DIR --on nats://n2 --nats-creds load.seed",
        ],
    },
    CommandHelp {
        path: "webdyno worker",
        short: "on trusted targets max_rate nats_creds new_key",
        refused: "",
        examples: [
            "webdyno worker --new-key load.seed",
            "webdyno worker --on nats://n1 --nats-creds load.seed --trust UABC",
            "webdyno run --on nats://n1 --nats-creds load.seed -r 5000 http://shop.example/",
        ],
    },
    CommandHelp {
        path: "webdyno rollback",
        short: "servers sudo interrupted",
        refused: "db_option_file",
        examples: [
            "webdyno rollback",
            "webdyno rollback --server ssh://web1 --sudo",
            "webdyno rollback --interrupted",
        ],
    },
    CommandHelp {
        path: "webdyno explain",
        short: "words",
        refused: "",
        examples: [
            "webdyno explain",
            "webdyno explain apache-workers-exhausted",
            "webdyno explain slow database",
        ],
    },
    CommandHelp {
        path: "webdyno schema",
        short: "name",
        refused: "",
        examples: ["webdyno schema", "webdyno schema run", "webdyno schema webdyno/diagnosis/v1"],
    },
];

/// Commands that the short help leaves to the long one.
const RARE: [&str; 12] = [
    "schema", "export", "history", "compare", "fit", "predict", "logs", "size", "serve", "workload", "lab",
    "worker",
];

/// The whole command line, with the help of each command arranged: in groups for `--help`, without for `-h`.
pub fn command(is_long: bool) -> Command {
    // A command line with `help` in it is read by the long one.
    arranged(Cli::command().disable_help_subcommand(!is_long), "webdyno", is_long)
}

/// Examples of a command; none where there are none.
pub fn examples(path: &str) -> &'static [&'static str] {
    COMMANDS.iter().find(|one| one.path == path).map_or(&[], |one| &one.examples)
}

fn arranged(command: Command, path: &str, is_long: bool) -> Command {
    let own = COMMANDS.iter().find(|one| one.path == path);
    let has = |ids: &str, arg: &Arg| ids.split(' ').any(|id| arg.get_id() == id);
    let group = |arg: &Arg| GROUPS.iter().find(|(_, ids)| has(ids, arg)).map(|(title, _)| *title);
    let flag = |id: &'static str, letter, action, help| {
        Arg::new(id).long(id).short(letter).action(action).help(help)
    };
    let command = command
        .disable_help_flag(true)
        .disable_version_flag(true)
        .arg(flag("help", 'h', ArgAction::Help, "Print help, in short with -h"))
        .arg(flag("version", 'V', ArgAction::Version, "Print the version"))
        .mut_args(|arg| {
            let is_refused = own.is_some_and(|own| has(own.refused, &arg));
            let is_in_short = own.is_none_or(|own| has(own.short, &arg));
            let group = group(&arg).filter(|_| is_long && !arg.is_positional());
            let is_hidden = arg.is_hide_set() || is_refused;
            arg.hide(is_hidden).hide_short_help(!is_in_short).help_heading(group)
        })
        .mut_subcommands(|inner| {
            let is_hidden = !is_long && RARE.contains(&inner.get_name());
            let inner = if is_hidden { inner.hide(true) } else { inner };
            let path = format!("{path} {}", inner.get_name());
            arranged(inner, &path, is_long)
        });
    let Some(own) = own else { return command };
    let examples: String = own.examples.iter().map(|one| format!("\n  {one}")).collect();
    let exit_codes = "Exit codes: 0 done, 1 could not run, 2 wrong usage, 3 a goal or objective was not met, 130 interrupted";
    // They are read by parsers of their own.
    let tools = match path {
        "webdyno" => {
            "Other tools' flags and reports: webdyno ab, webdyno wrk, webdyno siege (docs/compatibility.md)\n\n"
        }
        _ => "",
    };
    command
        .after_help(format!("Examples:{examples}\n\nall options: {path} --help"))
        .after_long_help(format!("{tools}Examples:{examples}\n\n{exit_codes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `-h` or `--help` of a command on a terminal of 80 columns.
    fn help(path: &str, flag: &str) -> String {
        fn narrow(command: Command) -> Command {
            command.term_width(80).mut_subcommands(narrow)
        }
        let words = path.split(' ').chain([flag]);
        narrow(command(flag == "--help")).try_get_matches_from(words).unwrap_err().to_string()
    }

    #[test]
    fn the_short_help_fits_a_screen_and_has_examples() {
        for CommandHelp { path, short, examples, .. } in COMMANDS {
            let text = help(path, "-h");
            let lines: Vec<&str> = text.trim_end().lines().collect();
            assert!(lines.len() <= 24, "{path}: {} lines\n{text}", lines.len());
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
            assert_eq!(lines.last().copied(), Some(format!("all options: {path} --help").as_str()));
            assert!(examples.iter().all(|one| lines.contains(&format!("  {one}").as_str())), "{text}");
            let shown = lines.iter().filter(|line| line.starts_with("  -") || line.starts_with("      --"));
            let positional = short
                .split(' ')
                .filter(|id| ["words", "directory", "source", "a", "b", "name", "files"].contains(id))
                .count();
            let ids = short.split(' ').filter(|id| !id.is_empty()).count();
            assert_eq!(
                shown.count() + positional,
                ids,
                "{path}: an option of its short help is missing\n{text}"
            );
        }
    }

    #[test]
    fn the_long_help_names_the_tools_that_are_spoken() {
        let text = help("webdyno", "--help");
        assert!(
            ["ab", "wrk", "siege"].iter().all(|tool| text.contains(&format!("webdyno {tool}"))),
            "{text}"
        );
    }

    #[test]
    fn examples_are_command_lines() {
        for example in COMMANDS.iter().flat_map(|one| one.examples) {
            let line = example.split(" | ").next().unwrap();
            let words = webdyno_lab::scenario::split_flags(line).unwrap();
            if let Err(error) = command(false).try_get_matches_from(words) {
                panic!("{example}: {error}");
            }
        }
    }

    /// The command lines in the blocks of code of README.md and the guide; of those that run another one, that one, too.
    #[test]
    fn the_readme_and_the_guide_show_command_lines() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let guide = walkdir::WalkDir::new(root.join("docs/guide"))
            .into_iter()
            .map(|entry| entry.unwrap().into_path());
        let pages = guide.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
        let mut count = 0;
        for page in pages.chain([root.join("README.md")]) {
            let text = std::fs::read_to_string(&page).unwrap().replace("\\\n", " ");
            let blocks = text.split("\n```").skip(1).step_by(2);
            let lines = blocks.flat_map(str::lines).map(|line| line.strip_prefix("sudo ").unwrap_or(line));
            for line in lines.filter(|line| line.starts_with("webdyno ")) {
                let words = webdyno_lab::scenario::split_flags(line).unwrap();
                for (at, _) in words.iter().enumerate().filter(|(_, word)| *word == "webdyno") {
                    count += 1;
                    if let Err(error) = command(false).try_get_matches_from(&words[at..]) {
                        panic!("{}: {line}: {error}", page.display());
                    }
                }
            }
        }
        assert!(count > 40, "only {count} command lines were found");
    }

    #[test]
    fn every_option_of_the_long_help_is_in_a_group() {
        fn check(command: &Command) {
            for arg in command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set()) {
                assert!(arg.get_help_heading().is_some(), "{}: {}", command.get_name(), arg.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&command(true));
        let known: Vec<&str> = GROUPS.iter().flat_map(|(_, ids)| ids.split(' ')).collect();
        let distinct: std::collections::BTreeSet<&str> = known.iter().copied().collect();
        assert_eq!(known.len(), distinct.len(), "an option in two groups");
    }

    #[test]
    fn what_a_command_refuses_is_not_offered() {
        for CommandHelp { path, refused, .. } in COMMANDS.iter().filter(|one| !one.refused.is_empty()) {
            let text = help(path, "--help");
            for flag in refused.split(' ').map(|id| format!("--{} ", id.replace('_', "-"))) {
                assert!(!text.contains(&flag), "{path}: {flag}");
            }
        }
    }
}
