//! The site's own files: a program makes them, as large as they are drawn.

use super::{Program, Rendered};
use crate::draw::server::{Extra, Pages, Server};
use std::fmt::Write;

/// Something large to download, beside the pages.
pub const ARCHIVE: &str = "archive.zip";
/// The programs' common part.
const FILL: &str = include_str!("fill.pl");
/// Folders of a deep tree.
const DEEP: &str = "archive/2019/spring/north/letters/long";
/// Folders that are named by the digits of a checksum.
const DIGITS: &str = "7/f/3/a/";
const DIGITS_COUNT: usize = 32;
/// Files beside a front page.
const CROWD: u32 = 9000;
/// Rules in the main file of a deep tree.
const RULES: u32 = 700;
/// Endings of files, in turn.
const ENDINGS: [&str; 4] = ["html", "css", "js", "txt"];
/// There once all files are.
pub const READY: &str = "/run/files-are-made";

/// The files that are asked for, relative to the root.
pub fn file_paths(server: &Server) -> Vec<String> {
    let mut folder = if server.extras.contains(&Extra::Rules) { format!("{DEEP}/") } else { String::new() };
    if server.extras.contains(&Extra::Deep) {
        folder.push_str(&DIGITS.repeat(DIGITS_COUNT));
    }
    let name = |index: usize| format!("{folder}part{index}.{}", ENDINGS[index % ENDINGS.len()]);
    (0..server.files_bytes.len()).map(name).collect()
}

/// What a page names, as elements of HTML, without quotes: programs in several languages have them in a string.
pub fn elements(server: &Server) -> String {
    let resources = if server.loads_resources { server.resources() as usize } else { 0 };
    let paths = file_paths(server);
    let element = |path: &String| match path.rsplit('.').next() {
        Some("css") => format!("<link rel=stylesheet href=/{path}>"),
        Some("js") => format!("<script src=/{path}></script>"),
        _ => format!("<img src=/{path}>"),
    };
    paths[paths.len() - resources..].iter().map(element).collect()
}

pub fn render(server: &Server, rendered: &mut Rendered) {
    let root = &server.names.root;
    let mut text = FILL.to_owned();
    let _ = writeln!(text, "make_path('{root}');");
    for (index, (path, bytes)) in file_paths(server).iter().zip(&server.files_bytes).enumerate() {
        let head = match server.pages {
            Pages::Static if index == 0 => elements(server),
            _ => String::new(),
        };
        let _ = writeln!(text, "file('{root}/{path}', '{head}' . text({bytes}));");
    }
    if server.extras.contains(&Extra::Htaccess) {
        let _ = writeln!(
            text,
            "file('{root}/.htaccess', 'Options -Indexes\nRewriteEngine On\nRewriteRule ^old/(.*)$ /$1 [R=301,L]\n');"
        );
    }
    if server.extras.contains(&Extra::Rules) {
        let _ = writeln!(
            text,
            "my $folder = '{root}';\nfor my $name (split m{{/}}, '{DEEP}') {{\n    $folder .= \"/$name\";\n    \
             file(\"$folder/.htaccess\", \"Options -Indexes\\nAddDefaultCharset UTF-8\\n\");\n}}\n\
             file('{root}/.htaccess', join('', \"Options -Indexes\\n\", map {{ \"SetEnvIfNoCase User-Agent \\\"^robot-$_/\\\" unwanted\\n\" }} 1 .. {RULES}));"
        );
    }
    if server.extras.contains(&Extra::Crowd) {
        let _ = writeln!(
            text,
            "file(\"{root}/index.html.$_\", text(900)) for qw(en de fr);\nfile(\"{root}/picture-$_.jpg\", 'x') for 1 .. {CROWD};"
        );
    }
    if server.classes > 0 {
        let _ = writeln!(text, "{}", classes(server));
    }
    if server.extras.contains(&Extra::SlowLine) {
        let _ = writeln!(
            text,
            "file('{root}/{ARCHIVE}', '');\ntruncate('{root}/{ARCHIVE}', 200 << 20) or die \"{ARCHIVE}: $!\\n\";"
        );
    }
    let _ = writeln!(text, "file('{READY}', '');");
    let path = format!("/srv/{}-tools/fill.pl", server.names.site);
    let command = format!("perl {path} && exec sleep infinity");
    rendered.file(path, text);
    rendered.programs.push(Program { name: "files".into(), command, ready: READY.into() });
    if server.extras.contains(&Extra::Receiver) {
        rendered.file(format!("/srv/{}-tools/lines.pl", server.names.site), include_str!("lines.pl"));
    }
}

/// Classes of PHP, some kilobytes each.
fn classes(server: &Server) -> String {
    let root = &server.names.root;
    let count = server.classes;
    format!(
        "for my $number (1 .. {count}) {{\n    my $text = \"<?php\\nclass Part$number\\n{{\\n\";\n    for my $step (1 .. 40) {{\n        \
         $text .= \"    public function step$step(array \\$order): array\\n    {{\\n        \\$total = count(\\$order) * $step;\\n        \
         if (\\$total > $number) {{ \\$order['part$step'] = 'the sum of part $number and step $step is ' . \\$total; }}\\n        \
         foreach (\\$order as \\$key => \\$value) {{ \\$order[\\$key] = is_string(\\$value) ? trim(\\$value) : \\$value; }}\\n        return \\$order;\\n    }}\\n\";\n    }}\n    \
         file(\"{root}/lib/Part$number.php\", \"$text}}\\n\");\n}}"
    )
}
