//! Connections to a backend that are kept: `keepalive` in its upstream, and what lets them be kept where requests are passed to
//! it.
//!
//! Facts: <https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive>: it comes behind the method of balancing, and
//! HTTP needs `proxy_http_version 1.1` and an empty `Connection`, FastCGI `fastcgi_keep_conn`.
//! <https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_set_header>: a block that has such a directive inherits none,
//! so that a further one is written where the others stand, or the backend would not get those any more.

use super::config::{Config, Occurrence, Opening, authority};
use super::edit::{NO_CLOSE, TextEdit};
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::change::Obstacle;
use webdyno_model::service::SettingValue;

/// What is passed on over connections that can be kept.
const PASSES: [&str; 2] = ["proxy_pass", "fastcgi_pass"];

/// Keeps so many idle connections of each worker to an upstream: of this name, or the only one. With how many are kept now.
pub fn keepalive(
    config: &Config,
    name: Option<&str>,
    value: &str,
) -> Result<(Option<SettingValue>, Vec<TextEdit>), Obstacle> {
    let passes: Vec<Occurrence> = PASSES.iter().flat_map(|pass| config.occurrences(pass)).collect();
    let (upstream, passes) = upstream(config, passes, name)?;
    let kept = config.occurrences("keepalive");
    let kept = kept.into_iter().find(|kept| kept.blocks.last() == Some(&upstream));
    let mut edits = vec![];
    match &kept {
        Some(kept) if kept.value == value => {}
        Some(kept) => edits.push(TextEdit::instead(kept, format!("keepalive {value};"))),
        None => {
            let why = || format!("the end of upstream {} is not known", upstream.words.join(" "));
            let line = TextEdit::last_in(&upstream, format!("keepalive {value};"));
            edits.push(
                line.ok_or_else(|| (why(), Some(format!("write `keepalive {value};` there by hand"))))?,
            );
        }
    }
    let locations = Locations {
        versions: config.occurrences("proxy_http_version"),
        headers: config.occurrences("proxy_set_header"),
        kept: config.occurrences("fastcgi_keep_conn"),
    };
    for pass in &passes {
        edits.extend(locations.keeping(pass)?);
    }
    Ok((kept.map(|kept| SettingValue::parse(&kept.value)), edits))
}

/// Checks that each request is still passed on with the headers of before, but for how the connection is kept: a first
/// `proxy_set_header` in a location of a file that several servers include ends what one of them hands down.
pub fn keeps_headers(before: &Config, after: &Config) -> Result<(), Obstacle> {
    for ((pass, was), (_, is)) in handed_on(before).into_iter().zip(handed_on(after)) {
        if was == is {
            continue;
        }
        let lost: BTreeSet<&str> =
            was.iter().filter(|one| !is.contains(one)).map(|one| one[0].as_str()).collect();
        let lost: Vec<_> = lost.into_iter().take(4).collect();
        let why =
            format!("{} would no longer hand on {}, which its server sets", pass.place(), lost.join(", "));
        let hint =
            format!("write `{NO_CLOSE};` by hand beside the headers of each server that has this location");
        return Err((why, Some(hint)));
    }
    Ok(())
}

/// Where requests are passed on, with the words of the headers that hold there; a connection that is closed, or kept, is none.
fn handed_on(config: &Config) -> Vec<(Occurrence, Vec<Vec<String>>)> {
    let place = |blocks: &[Opening]| -> Vec<(String, usize)> {
        blocks.iter().map(|block| (block.file.clone(), block.span.start)).collect()
    };
    let mut headers: BTreeMap<Vec<(String, usize)>, Vec<Vec<String>>> = BTreeMap::new();
    for header in config.occurrences("proxy_set_header") {
        headers.entry(place(&header.blocks)).or_default().push(header.words);
    }
    let is_told = |words: &&Vec<String>| match &words[..] {
        [name, value] if name.eq_ignore_ascii_case("connection") => {
            !value.is_empty() && !value.eq_ignore_ascii_case("close")
        }
        words => !words.is_empty(),
    };
    let passes = config.occurrences("proxy_pass").into_iter();
    let with_headers = |pass: Occurrence| {
        let around = place(&pass.blocks);
        let innermost = (0..=around.len()).rev().find_map(|depth| headers.get(&around[..depth]));
        let told = innermost.into_iter().flatten().filter(is_told).cloned().collect();
        (pass, told)
    };
    passes.map(with_headers).collect()
}

/// The upstream that is meant, and where requests are passed to it.
fn upstream(
    config: &Config,
    passes: Vec<Occurrence>,
    name: Option<&str>,
) -> Result<(Opening, Vec<Occurrence>), Obstacle> {
    let to = |pass: &Occurrence| pass.words.first().map_or("", |word| authority(word)).to_owned();
    let is_used = |upstream: &Opening| passes.iter().any(|pass| upstream.words.first() == Some(&to(pass)));
    let mut used: Vec<Opening> =
        config.openings("upstream").into_iter().map(|(opening, _)| opening).collect();
    used.retain(|upstream| is_used(upstream) && name.is_none_or(|name| upstream.words == [name]));
    match &used[..] {
        [one] => {
            let mut passes = passes;
            passes.retain(|pass| one.words.first() == Some(&to(pass)));
            Ok((one.clone(), passes))
        }
        [] => {
            let why = match (name, passes.first()) {
                (Some(name), _) => format!("nginx passes no requests to an upstream {name}"),
                (None, Some(pass)) => {
                    format!("{}: requests are passed to an address, and to no upstream", pass.place())
                }
                (None, None) => "nginx passes no requests on".into(),
            };
            let hint = "connections are kept by an upstream: upstream NAME { server ADDRESS; keepalive 32; }, passed to by its name";
            Err((why, Some(hint.into())))
        }
        several => {
            let names: Vec<_> = several.iter().take(4).map(|one| one.words.join(" ")).collect();
            let why = format!("nginx passes requests to {} upstreams: {}", several.len(), names.join(", "));
            Err((why, Some("write `keepalive` by hand into the one that is meant".into())))
        }
    }
}

/// What may stand where requests are passed on.
struct Locations {
    versions: Vec<Occurrence>,
    headers: Vec<Occurrence>,
    kept: Vec<Occurrence>,
}

impl Locations {
    /// What lets the connections of these requests be kept.
    fn keeping(&self, pass: &Occurrence) -> Result<Vec<TextEdit>, Obstacle> {
        let at = pass.blocks.iter().rposition(|block| block.name == "location");
        let Some(at) = at else {
            return Err((format!("{}: {} stands in no location", pass.place(), pass.name), None));
        };
        let blocks = &pass.blocks[..=at];
        if pass.name == "fastcgi_pass" {
            return Ok(inherited(&self.kept, blocks, "fastcgi_keep_conn", "on").into_iter().collect());
        }
        let version = inherited(&self.versions, blocks, "proxy_http_version", "1.1");
        Ok(version.into_iter().chain(self.no_close(pass, blocks)?).collect())
    }

    /// No `Connection: close` to the backend.
    fn no_close(&self, pass: &Occurrence, blocks: &[Opening]) -> Result<Option<TextEdit>, Obstacle> {
        let headers = innermost(&self.headers, blocks);
        let is_it = |header: &&Occurrence| {
            header.words.first().is_some_and(|name| name.eq_ignore_ascii_case("connection"))
        };
        let line = format!("{NO_CLOSE};");
        match headers.iter().copied().find(is_it) {
            Some(header) if header.words.get(1).is_some_and(String::is_empty) => Ok(None),
            Some(header) if header.words.get(1).is_some_and(|value| value.eq_ignore_ascii_case("close")) => {
                Ok(Some(TextEdit::instead(header, line)))
            }
            Some(header) => {
                let why = format!(
                    "{} hands on another Connection than an empty one to {}",
                    header.place(),
                    pass.value
                );
                Err((why, Some("requests that upgrade a connection need a location of their own".into())))
            }
            None => {
                let level = headers.first().map_or(blocks.len(), |header| header.blocks.len());
                Ok(blocks.get(level - 1).map(|block| TextEdit::first_in(block, line)))
            }
        }
    }
}

/// Lets a directive that blocks inherit have a value in the innermost one.
fn inherited(found: &[Occurrence], blocks: &[Opening], name: &str, value: &str) -> Option<TextEdit> {
    let own = innermost(found, blocks).first().copied();
    let line = format!("{name} {value};");
    match own {
        Some(own) if own.value == value => None,
        Some(own) if own.blocks.len() == blocks.len() => Some(TextEdit::instead(own, line)),
        Some(_) | None => blocks.last().map(|block| TextEdit::first_in(block, line)),
    }
}

/// The directives that hold in the last of these blocks: those of the innermost one that has any.
fn innermost<'a>(found: &'a [Occurrence], blocks: &[Opening]) -> Vec<&'a Occurrence> {
    let around = (1..=blocks.len()).rev().map(|depth| &blocks[..depth]);
    let of = |level: &[Opening]| found.iter().filter(|one| one.blocks == level).collect::<Vec<_>>();
    around.map(of).find(|found| !found.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::config::{Config, read};
    use super::*;
    use crate::config_management::Managers;
    use crate::services::common::edit;
    use crate::visibility::process_view::Root;

    /// A configuration in a folder as Debian has it, with one site that is a link.
    fn config(folder: &std::path::Path, upstream: &str, site: &str) -> Config {
        for name in ["conf.d", "sites-enabled", "sites-available"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        let main = "http {\n\tinclude conf.d/*.conf;\n\tinclude sites-enabled/*;\n}\n";
        let params = "proxy_set_header Host $http_host;\nproxy_set_header X-Real-IP $remote_addr;\n";
        for (name, text) in [
            ("nginx.conf", main),
            ("conf.d/app.conf", upstream),
            ("sites-available/shop", site),
            ("proxy_params", params),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("../sites-available/shop", folder.join("sites-enabled/shop")).unwrap();
        read(&Root::ours(), &folder.join("nginx.conf").to_string_lossy())
    }

    /// The upstreams and the site afterwards.
    fn kept(upstream: &str, site: &str) -> Result<(String, String), Obstacle> {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), upstream, site);
        let (_, edits) = keepalive(&config, None, "16")?;
        let files = edit::apply(&edits, &Managers::here()).unwrap().files;
        assert!(files.iter().all(|file| !file.path.ends_with("proxy_params")), "others include it, too");
        let text = |name: &str, before: &str| {
            files
                .iter()
                .find(|file| file.path.ends_with(name))
                .map_or(before.into(), |file| file.after.clone())
        };
        Ok((text("app.conf", upstream), text("sites-available/shop", site)))
    }

    #[test]
    fn connections_are_kept_by_the_upstream_and_wherever_requests_are_passed_to_it() {
        let app = "upstream app {\n\tserver 10.0.0.2:80; # one\n\tleast_conn;\n}\n";
        let with = "upstream app {\n\tserver 10.0.0.2:80; # one\n\tleast_conn;\n\tkeepalive 16;\n}\n";
        for (before, after) in [
            // No header is written anywhere: one in the location is all.
            (
                "server {\n  location / {\n    proxy_pass http://app/x;\n  }\n}\n",
                "server {\n  location / {\n      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n    proxy_pass http://app/x;\n  }\n}\n",
            ),
            // It stands with the others, in their block: with a file of them, beside that.
            (
                "server {\n  proxy_set_header Host $host;\n  location /a { include proxy_params; proxy_pass http://app; }\n  location /b { proxy_pass http://app; }\n  location /c { proxy_pass http://10.0.0.9; }\n}\n",
                "server {\n    proxy_set_header Connection \"\";\n  proxy_set_header Host $host;\n  location /a {\n      proxy_http_version 1.1;\n      proxy_set_header Connection \"\"; include proxy_params; proxy_pass http://app; }\n  location /b {\n      proxy_http_version 1.1; proxy_pass http://app; }\n  location /c { proxy_pass http://10.0.0.9; }\n}\n",
            ),
            // What is right is left, and what is not is replaced.
            (
                "proxy_http_version 1.1;\nserver { location / { proxy_set_header connection 'close'; proxy_pass http://app; } }",
                "proxy_http_version 1.1;\nserver { location / { proxy_set_header Connection \"\"; proxy_pass http://app; } }",
            ),
            (
                "server { proxy_set_header Connection ''; location / { proxy_http_version 1.0; if ($x) { proxy_pass http://app; } } }",
                "server { proxy_set_header Connection ''; location / { proxy_http_version 1.1; if ($x) { proxy_pass http://app; } } }",
            ),
            (
                "server { location ~ \\.php$ { fastcgi_pass app; } }",
                "server { location ~ \\.php$ {\n    fastcgi_keep_conn on; fastcgi_pass app; } }",
            ),
        ] {
            let (upstream, site) = kept(app, before).unwrap();
            assert_eq!((upstream.as_str(), site.as_str()), (with, after));
            // That is all that there is to do.
            assert_eq!(kept(&upstream, &site).unwrap(), (upstream, site));
        }
        let few = "upstream app { server a; keepalive 2; }";
        let site = "fastcgi_keep_conn on; server { location / { fastcgi_pass app; } }";
        assert_eq!(
            kept(few, site).unwrap(),
            ("upstream app { server a; keepalive 16; }".into(), site.into())
        );
    }

    #[test]
    fn what_is_not_clear_is_for_a_person() {
        let (one, two) = ("upstream a { server x; }", "upstream a { server x; } upstream b { server y; }");
        let both = "server { location / { proxy_pass http://a; } location /b { fastcgi_pass b; } }";
        for (upstream, site, part) in [
            (
                "",
                "server { location / { proxy_pass http://127.0.0.1:3000; } }",
                "to an address, and to no upstream",
            ),
            ("", "server { location / { return 204; } }", "passes no requests on"),
            (two, both, "passes requests to 2 upstreams: a, b"),
            (
                one,
                "server { location / { proxy_set_header Connection $upgrade; proxy_pass http://a; } }",
                "hands on another Connection than an empty one to http://a",
            ),
        ] {
            let (why, _) = kept(upstream, site).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), two, both);
        assert_eq!(keepalive(&config, Some("b"), "16").unwrap().1.len(), 2);
        assert!(keepalive(&config, Some("c"), "16").unwrap_err().0.contains("no requests to an upstream c"));
    }
}
