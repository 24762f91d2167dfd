//! What a request is for, by its path and method; and which clients declare themselves to be programs.
//!
//! A log has no Content-Type: the ending of the path is what there is. Paths without an ending are pages, which programs make.

use memchr::{memchr, memrchr};

/// What is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// No ending, `/`, or .html.
    Page,
    /// .php, .jsp, ...
    Program,
    /// JSON, XML, feeds.
    Data,
    /// .css
    Stylesheet,
    /// .js
    Script,
    /// .png, .jpg, ...
    Image,
    /// .woff2, ...
    Font,
    /// Sound and films.
    Media,
    /// Archives and documents.
    Download,
    /// Any other ending.
    Other,
    /// No request that the server understood either.
    None,
}

/// All of them with their names.
pub const CLASSES: [(Class, &str); 11] = [
    (Class::Page, "page"),
    (Class::Program, "program"),
    (Class::Data, "data"),
    (Class::Stylesheet, "stylesheet"),
    (Class::Script, "script"),
    (Class::Image, "image"),
    (Class::Font, "font"),
    (Class::Media, "media"),
    (Class::Download, "download"),
    (Class::Other, "other"),
    (Class::None, "no request"),
];

const ENDINGS: [(Class, &str); 9] = [
    (Class::Page, "html htm xhtml shtml"),
    (Class::Program, "php php5 php7 phtml cgi pl py rb asp aspx ashx jsp jspx do action cfm fcgi"),
    (Class::Data, "json xml rss atom csv txt map yaml yml graphql"),
    (Class::Stylesheet, "css"),
    (Class::Script, "js mjs wasm"),
    (Class::Image, "png jpg jpeg gif svg webp ico avif bmp tif tiff heic"),
    (Class::Font, "woff woff2 ttf otf eot"),
    (Class::Media, "mp4 webm mp3 m4a m4v ogg ogv oga wav flac mov avi mkv m3u8 ts mpd aac"),
    (
        Class::Download,
        "zip gz tgz bz2 xz zst tar 7z rar iso img exe msi dmg deb rpm apk jar pdf doc docx xls xlsx ppt pptx odt ods epub",
    ),
];

const KEY_SLOTS: usize = 512;

/// The endings in open addressing by [`place`], with empty places behind: each as a number.
const KEYS: [(u64, Class); KEY_SLOTS + 64] = {
    let mut keys = [(0, Class::Other); KEY_SLOTS + 64];
    let mut class = 0;
    while class < ENDINGS.len() {
        let (list, mut key, mut length, mut at) = (ENDINGS[class].1.as_bytes(), 0u64, 0, 0);
        while at <= list.len() {
            if at == list.len() || list[at] == b' ' {
                let mut slot = place(key);
                while keys[slot].0 != 0 {
                    slot += 1;
                }
                keys[slot] = (key, ENDINGS[class].0);
                (key, length) = (0, 0);
            } else {
                key |= (list[at] as u64) << (8 * length);
                length += 1;
            }
            at += 1;
        }
        class += 1;
    }
    keys
};

const fn place(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize
}

impl Class {
    /// The class of a path without query.
    pub fn of(path: &[u8]) -> Self {
        let name = memrchr(b'/', path).map_or(path, |slash| &path[slash + 1..]);
        // A session id or the like may follow: `index.jsp;jsessionid=1`.
        let name = memchr(b';', name).map_or(name, |end| &name[..end]);
        let Some(point) = memrchr(b'.', name).filter(|point| *point > 0 || name.len() <= 5) else {
            return Self::Page;
        };
        let ending = &name[point + 1..];
        let mut key = [0; 8];
        if ending.len() > key.len() {
            return if ending.eq_ignore_ascii_case(b"webmanifest") { Self::Data } else { Self::Other };
        }
        ending.iter().zip(&mut key).for_each(|(letter, slot)| *slot = letter.to_ascii_lowercase());
        let key = u64::from_le_bytes(key);
        KEYS.iter()
            .skip(place(key))
            .take_while(|(held, _)| *held != 0)
            .find(|(held, _)| *held == key)
            .map_or(Self::Other, |one| one.1)
    }

    /// Whether a file is sent, and no program makes it: by its name, for want of more.
    pub fn is_static(self) -> bool {
        !matches!(self, Self::Page | Self::Program | Self::Data | Self::None)
    }

    /// Whether people look at it: what counts as a page of a session.
    pub fn is_page(self) -> bool {
        matches!(self, Self::Page | Self::Program)
    }
}

/// What bots write into their agent: a name that ends so, or a place where they explain themselves.
const MARKS: [&[u8]; 13] = [
    b"bot",
    b"crawl",
    b"spider",
    b"slurp",
    b"+http",
    b"curl/",
    b"wget/",
    b"python-",
    b"scrapy",
    b"monitor",
    b"archiver",
    b"headless",
    b"facebookexternalhit",
];

/// Which bytes a mark begins with.
const FIRST: [bool; 256] = {
    let mut first = [false; 256];
    let mut at = 0;
    while at < MARKS.len() {
        first[MARKS[at][0] as usize] = true;
        first[MARKS[at][0].to_ascii_uppercase() as usize] = true;
        at += 1;
    }
    first
};

/// Whether an agent declares itself to be a program.
pub fn is_bot(agent: &[u8]) -> bool {
    let begins = |at: usize, mark: &[u8]| {
        agent.get(at..at + mark.len()).is_some_and(|part| part.eq_ignore_ascii_case(mark))
    };
    (0..agent.len()).any(|at| FIRST[agent[at] as usize] && MARKS.iter().any(|mark| begins(at, mark)))
}

/// The name of a bot: the word with a mark in it, without its version.
pub fn bot_name(agent: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| b" /;,()[]\"".contains(byte);
    let mut words = agent.split(is_end).filter(|word| !word.is_empty());
    let named = |word: &&[u8]| is_bot(word) && !word.contains(&b':') && !word.starts_with(b"+");
    words.clone().find(named).or_else(|| words.next()).unwrap_or(b"-")
}

/// Agents that were looked at, by their hash: a table of a fixed size, in which later ones take the place of others.
#[derive(Debug, Clone)]
pub struct Agents {
    known: Vec<u64>,
}

const AGENTS: usize = 1 << 14;
/// Agents that may be at the same place.
const WAYS: usize = 4;

impl Default for Agents {
    fn default() -> Self {
        Self { known: vec![0; AGENTS] }
    }
}

impl Agents {
    /// Fetches what [`Self::is_bot`] will need.
    pub fn fetch(&self, hashes: impl Iterator<Item = u64>) {
        std::hint::black_box(hashes.fold(0, |sum, hash| sum ^ self.known[first_way(hash)]));
    }

    /// Whether the agent with this hash is a bot. The lowest bit holds the answer, so that half of the hashes stand for others; never
    /// 0, which is an empty place.
    #[inline]
    pub fn is_bot(&mut self, agent: &[u8], hash: u64) -> bool {
        let first = first_way(hash);
        let (key, ways) = (hash | 3, &mut self.known[first..first + WAYS]);
        match ways.iter().find(|known| **known | 1 == key) {
            Some(known) => known & 1 == 1,
            None => add(ways, agent, key),
        }
    }
}

fn first_way(hash: u64) -> usize {
    ((hash >> 40) as usize % AGENTS) & !(WAYS - 1)
}

/// The oldest one goes.
#[cold]
fn add(ways: &mut [u64], agent: &[u8], key: u64) -> bool {
    let is_bot = is_bot(agent);
    ways.rotate_right(1);
    ways[0] = key & !1 | u64::from(is_bot);
    is_bot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_known_by_the_ending() {
        for (path, class) in [
            ("/", Class::Page),
            ("/a/b", Class::Page),
            ("/a.b/c", Class::Page),
            ("/index.HTML", Class::Page),
            ("/index.php", Class::Program),
            ("/cart.jsp;jsessionid=1.2", Class::Program),
            ("/a.min.js", Class::Script),
            ("/.well-known", Class::Page),
            ("/x.JPG", Class::Image),
            ("/x.xyz", Class::Other),
            ("/feed.xml", Class::Data),
            ("", Class::Page),
        ] {
            assert_eq!(Class::of(path.as_bytes()), class, "{path}");
        }
        assert!(Class::Image.is_static() && !Class::Page.is_static() && Class::Program.is_page());
    }

    #[test]
    fn bots_declare_themselves() {
        let mut agents = Agents::default();
        for (hash, agent, bot) in [
            (
                7 << 40,
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                Some("Googlebot"),
            ),
            (8 << 40, "curl/7.88.1", Some("curl")),
            (9 << 40, "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", None),
            (7 << 40 | 4, "Mozilla/5.0 (Macintosh) Safari/605.1", None),
        ] {
            for _ in 0..2 {
                assert_eq!(agents.is_bot(agent.as_bytes(), hash), bot.is_some(), "{agent}");
            }
            if let Some(name) = bot {
                assert_eq!(bot_name(agent.as_bytes()), name.as_bytes());
            }
        }
    }
}
