//! Configurations that are made up: nested includes and conditions, defines, macros and virtual hosts of all kinds of
//! addresses. What Apache would refuse is not made.

use super::{Tree, load};

/// How many are tried; a run of Apache takes some 20 ms.
pub const COUNT: u64 = 40;

/// A generator of numbers that is the same everywhere (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const ADDRESSES: [&str; 12] = [
    "*:80",
    "*:80",
    "*:8080",
    "*:*",
    "*",
    "_default_:80",
    "_default_:*",
    "127.0.0.1:80",
    "127.0.0.1",
    "127.0.0.2:*",
    "[::1]:80",
    "0.0.0.0:80 [::]:80",
];

const CONDITIONS: [&str; 16] = [
    "IfDefine GIVEN",
    "IfDefine !GIVEN",
    "IfDefine Set",
    "IfDefine SET",
    "IfDefine !Set",
    "IfModule dir_module",
    "IfModule mod_dir.c",
    "IfModule !mod_none.c",
    "IfModule \"mod_alias.c\"",
    "IfVersion >= 2.4",
    "IfVersion = /^2\\./",
    "IfVersion !~ ^2.4",
    "IfFile httpd.conf",
    "IfFile !\"httpd.conf\"",
    "IfDirective DirectoryIndex",
    "IfSection Location",
];

/// Lines as they are made, with how many hosts and files there are.
struct Maker<'a> {
    random: &'a mut Random,
    hosts: usize,
    files: usize,
    written: Vec<(String, String)>,
}

/// Writes a whole configuration.
pub fn write(tree: &Tree, random: &mut Random) {
    let mut maker = Maker { random, hosts: 0, files: 0, written: vec![] };
    let mut main = load(&["authz_core", "dir", "alias", "macro", "mpm_event"]);
    main += "ServerName main.example\nErrorLog /dev/null\nDefine Unset x\nUnDefine Unset\n";
    main += "<Macro Host $addr %name @alias>\n<VirtualHost $addr>\n# one\nServerName %name\nServerAlias @alias \\\n  w.%name\n</VirtualHost>\n</Macro>\n";
    main += "<Macro Begin $n>\n<VirtualHost *:$n>\nServerName begin$n\n</Macro>\n";
    maker.block(&mut main, 0);
    // Something is always listened on.
    main += "Listen 80\n";
    for (name, text) in &maker.written {
        tree.write(name, text);
    }
    tree.write("httpd.conf", &main);
}

impl Maker<'_> {
    /// Lines at server scope.
    fn block(&mut self, out: &mut String, depth: usize) {
        for _ in 0..2 + self.random.below(6) {
            match self.random.below(if depth > 3 { 4 } else { 8 }) {
                0 | 1 => self.host(out),
                2 => self.used(out, depth),
                3 => self.small(out),
                4 | 5 => self.condition(out, depth),
                6 => self.include(out, depth),
                _ => self.small(out),
            }
        }
    }

    fn small(&mut self, out: &mut String) {
        let line = self.random.pick(&[
            "Define Set\n",
            "UnDefine Set\n",
            "Define Port 81\n",
            "ServerName main.example:82\n",
            "ServerName main.example\n",
            "  # a comment \\\n  that goes on <VirtualHost *>\n",
            "\n\t\n",
            "KeepAlive \\\n On\r\n",
            "Timeout 7 \n",
            "IncludeOptional none/*.conf\n",
            "IncludeOptional none.conf\n",
            "<Directory \"/tmp\">\n<Files x>\nOptions None\n</Files>\n</Directory>\n",
        ]);
        *out += line;
    }

    fn name(&mut self) -> String {
        self.hosts += 1;
        format!("h{}.example", self.hosts)
    }

    fn host(&mut self, out: &mut String) {
        let address = self.random.pick(&ADDRESSES);
        let second = if self.random.one_in(4) { self.random.pick(&ADDRESSES) } else { "" };
        let (open, close) = *[("<VirtualHost", "</VirtualHost>"), ("<virtualhost", "</VIRTUALHOST>")]
            .get(self.random.below(2))
            .unwrap();
        *out += &format!("{open} {address} {second}>\n");
        let name = self.name();
        let is_wild = address.starts_with(['*', '_']);
        if !(is_wild && self.random.one_in(5)) {
            let scheme = self.random.pick(&["", "", "https://"]);
            let port = self.random.pick(&["", "", ":99"]);
            *out += &format!("  ServerName {scheme}{name}{port}\n");
        }
        for _ in 0..self.random.below(3) {
            *out += &format!("ServerAlias a.{name} \"b.{name}\" *.{name}\n");
        }
        if self.random.one_in(3) {
            let condition = self.random.pick(&CONDITIONS);
            let end = condition.split(' ').next().unwrap();
            *out += &format!("<{condition}>\nServerAlias c.{name}\n</{end}>\n");
        }
        if self.random.one_in(3) {
            self.files += 1;
            let file = format!("inc/{}.inc", self.files);
            self.written.push((file.clone(), format!("ServerAlias d.{name}\n<Location /x>\n</Location>\n")));
            *out += &format!("Include {file}\n");
        }
        *out += &format!("{close}\n");
    }

    fn used(&mut self, out: &mut String, depth: usize) {
        let name = self.name();
        // Where it is skipped, the end of its section would have no beginning.
        *out += &match self.random.below(if depth == 0 { 3 } else { 2 }) + usize::from(depth > 0) {
            0 => format!("Use Begin 80\nServerAlias {name}\n</VirtualHost>\n"),
            1 => format!("USE host *:80 {name} \"x.{name}\"\n"),
            _ => format!("Use Host 127.0.0.1:80 {name} x.{name}\n"),
        };
    }

    fn condition(&mut self, out: &mut String, depth: usize) {
        let condition = self.random.pick(&CONDITIONS);
        let end = condition.split(' ').next().unwrap();
        *out += &format!("<{condition}>\n");
        self.block(out, depth + 1);
        *out += &format!("</{end}>\n");
    }

    fn include(&mut self, out: &mut String, depth: usize) {
        self.files += 1;
        let folder = format!("d{}", self.files);
        for name in ["b.conf", "a.conf", ".hidden.conf", "Z.conf", "x.txt", "sub/c.conf"] {
            if self.random.one_in(2) {
                let mut text = String::new();
                self.block(&mut text, depth + 2);
                self.written.push((format!("{folder}/{name}"), text));
            }
        }
        self.written.push((format!("{folder}/last.conf"), "Timeout 8".into()));
        let pattern =
            self.random.pick(&["", "/*.conf", "/[a-b]*.conf", "/?.conf", "/*", "/last.conf", "/../@/*.conf"]);
        let pattern = pattern.replace('@', &folder);
        *out += &format!("IncludeOptional {folder}{pattern}\n");
    }
}
