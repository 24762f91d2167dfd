//! Which logs are read and how, from configurations as people write them.

use super::super::config::{Input, evaluate};
use super::*;

/// The logs of a configuration, for port 80.
fn logs(text: &str) -> AccessLogs {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("httpd.conf"), text).unwrap();
    let evaluation = evaluate(Input {
        main_file: root.path().join("httpd.conf"),
        server_root: "/srv".into(),
        ..Input::default()
    });
    assert_eq!(evaluation.warnings, Vec::<String>::new());
    access_logs(&evaluation, 80)
}

/// The files in their order, with the letters of what they tell: status, client, agent, request.
fn check(text: &str, files: &[(&str, &str)], unread: &[&str]) {
    let logs = logs(text);
    let tells = |format: &LineFormat| {
        let fields =
            [(Field::Status, 's'), (Field::Client, 'c'), (Field::UserAgent, 'a'), (Field::Request, 'r')];
        fields
            .into_iter()
            .filter(|(field, _)| format.has(*field))
            .map(|(_, letter)| letter)
            .collect::<String>()
    };
    let found: Vec<_> =
        logs.files.iter().map(|log| (log.path.display().to_string(), tells(&log.format))).collect();
    let expected: Vec<_> =
        files.iter().map(|(path, tells)| ((*path).to_owned(), (*tells).to_owned())).collect();
    assert_eq!(
        (found, logs.unread),
        (expected, unread.iter().map(|why| (*why).to_owned()).collect()),
        "{text}"
    );
}

/// The formats that Debian's apache2.conf defines.
const DEBIAN: &str = r#"
LogFormat "%v:%p %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"" vhost_combined
LogFormat "%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"" combined
LogFormat "%h %l %u %t \"%r\" %>s %O" common
"#;

#[test]
fn the_logs_of_debian_and_of_fedora_are_found() {
    let debian = format!(
        "{DEBIAN}CustomLog /var/log/apache2/other_vhosts_access.log vhost_combined\n\
         <VirtualHost *:80>\nCustomLog /var/log/apache2/access.log combined\n</VirtualHost>\n\
         <VirtualHost *:443>\nCustomLog /var/log/apache2/ssl.log common\n</VirtualHost>\n"
    );
    let files = [
        ("/var/log/apache2/access.log", "scar"),
        ("/var/log/apache2/other_vhosts_access.log", "scar"),
        ("/var/log/apache2/ssl.log", "scr"),
    ];
    check(&debian, &files, &[]);
    check("TransferLog logs/access_log\n", &[("/srv/logs/access_log", "scr")], &[]);
    check("LogFormat \"%>s %{user-agent}i\"\nTransferLog a\n", &[("/srv/a", "sa")], &[]);
    check(
        "LogFormat \"%>s\" short\nLogFormat short\nTransferLog a\nCustomLog b CLF\n",
        &[("/srv/b", "scr")],
        &[],
    );
}

#[test]
fn a_host_without_logs_writes_those_of_the_server() {
    let of_server = "CustomLog a \"%s\"\n<VirtualHost *:80>\n</VirtualHost>\n";
    check(of_server, &[("/srv/a", "s")], &[]);
    let global = "GlobalLog g \"%>s %h %{User-Agent}i\"\nCustomLog a \"%s\"\n<VirtualHost *:80>\nCustomLog v \"%s\"\n</VirtualHost>\n";
    check(global, &[("/srv/g", "sca")], &[]);
    let own_format = "LogFormat \"%>s\" x\n<VirtualHost 1.2.3.4:80>\nLogFormat \"%>s %h\" x\nCustomLog v x\n</VirtualHost>\n";
    check(own_format, &[("/srv/v", "sc")], &[]);
}

#[test]
fn of_several_the_one_that_tells_most_is_read() {
    let several =
        format!("{DEBIAN}CustomLog a common\nCustomLog b combined env=!local\nCustomLog c combined\n");
    check(&several, &[("/srv/c", "scar")], &[]);
    let conditional = format!("{DEBIAN}CustomLog b combined \"expr=%{{REQUEST_STATUS}} -ge 400\"\n");
    check(&conditional, &[("/srv/b", "scar")], &[]);
    let also_piped = format!("{DEBIAN}CustomLog \"|/bin/x -l\" combined\nCustomLog a combined\n");
    check(&also_piped, &[("/srv/a", "scar")], &[]);
}

#[test]
fn what_cannot_be_read_is_told() {
    check("", &[], &["Apache's configuration names no access log (CustomLog, TransferLog)"]);
    check("CustomLog \"||/bin/rotatelogs x\" CLF\n", &[], &["|/bin/rotatelogs: it is written to a program"]);
    check("CustomLog syslog:user CLF\n", &[], &["syslog:user: it is not written to a file"]);
    check("CustomLog a \"%h %r\"\n", &[], &["/srv/a: it does not tell the status"]);
    check(
        "BufferedLogs On\nCustomLog a CLF\n",
        &[("/srv/a", "scr")],
        &["BufferedLogs is on: what happens is written late"],
    );
}

#[test]
fn formats_are_read_as_apache_reads_them() {
    for (format, line, status, agent) in [
        ("%a|%<s|%>s|%{User-Agent}i", "::1|200|503|x", Some(503), "x"),
        ("%s %h", "404 ::1", Some(404), ""),
        ("%%%>s%%\\t%D", "%500%\t12", Some(500), ""),
        ("%!200,304{User-Agent}i %>s", "- 500", Some(500), ""),
        ("%{%d/%b %T}t %>s", "10/Oct 13:55:36 500", Some(500), ""),
        ("%{c}a %^ti %>s \"%{User-agent}i\"", "::1 x y 500 \"a b\"", Some(500), "a b"),
        ("{\"s\":%>s,\"a\":\"%{User-Agent}i\"}", r#"{"s":502,"a":"q\"}"}"#, Some(502), r#"q\"}"#),
    ] {
        let read = line_format(format).unwrap();
        let line = read.read(line.as_bytes());
        let line = line.unwrap_or_else(|| panic!("{format}: not read"));
        assert_eq!(
            (line.status, line.user_agent.unwrap_or_default()),
            (status, agent.as_bytes()),
            "{format}"
        );
    }
    for not in ["", "%h", "%{User-Agent", "%", "%!200"] {
        assert_eq!(line_format(not), None, "{not}");
    }
}

proptest::proptest! {
    /// Any text is a format or none, never a panic; nor is reading by it.
    #[test]
    fn any_format_is_survived(format in "[%a-zA-Z{}<>!,0-9^ \\\\\"é-]{0,30}", line in ".{0,40}") {
        if let Some(read) = line_format(&format) {
            read.read(line.as_bytes());
        }
    }
}
