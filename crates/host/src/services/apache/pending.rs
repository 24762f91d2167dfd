//! What Apache reads when it reloads: whatever of it is newer than what runs waits for the next reload.
//!
//! Apache writes its pid file at every start and at every reload, before it starts the first worker of a generation
//! (`ap_log_pid` is the first call of `prefork_run`, `worker_run` and `event_run`; seen with 2.4.71): see
//! [`super::super::common::pending`].
//!
//! Not seen: a file that a plain `IncludeOptional` (without wildcard) read and that is gone, and what only a
//! restart by systemd reads (unit files, envvars).

use super::config::{Evaluation, Placed};
use crate::services::common::pending::Sources;
use std::collections::BTreeSet;

/// Directives of mod_ssl whose argument is a file that is read when Apache starts or reloads.
const TLS_FILES: [&str; 11] = [
    "SSLCertificateFile",
    "SSLCertificateKeyFile",
    "SSLCertificateChainFile",
    "SSLCACertificateFile",
    "SSLCADNRequestFile",
    "SSLCARevocationFile",
    "SSLSessionTicketKeyFile",
    "SSLProxyMachineCertificateFile",
    "SSLProxyMachineCertificateChainFile",
    "SSLProxyCACertificateFile",
    "SSLProxyCARevocationFile",
];

/// The same, of directories.
const TLS_DIRECTORIES: [&str; 6] = [
    "SSLCACertificatePath",
    "SSLCADNRequestPath",
    "SSLCARevocationPath",
    "SSLProxyMachineCertificatePath",
    "SSLProxyCACertificatePath",
    "SSLProxyCARevocationPath",
];

/// What it reads.
pub fn sources(evaluation: &Evaluation) -> Sources {
    let mut sources =
        Sources { files: evaluation.files.iter().cloned().collect(), directories: BTreeSet::new() };
    sources.directories.extend(evaluation.directories.iter().cloned());
    sources.files.extend(evaluation.modules.iter().filter_map(|module| module.file.clone()));
    let path = |word: &String| evaluation.path(word);
    let words = |names| evaluation.all(names).flat_map(Placed::words).collect::<Vec<_>>();
    sources.files.extend(words(&["LoadFile"]).iter().map(path));
    if evaluation.has_module("ssl_module") {
        // What is no path, such as a key in a token (`pkcs11:...`), names no file that exists.
        sources.files.extend(words(&TLS_FILES).iter().map(path));
        sources.files.extend(commands(evaluation).iter().map(path));
        sources.directories.extend(words(&TLS_DIRECTORIES).iter().map(path));
    }
    if evaluation.has_module("md_module") {
        sources.files.extend(words(&["MDCertificateFile", "MDCertificateKeyFile"]).iter().map(path));
    }
    sources
}

/// The files that OpenSSL's own commands name.
fn commands(evaluation: &Evaluation) -> Vec<String> {
    let names =
        ["DHParameters", "Certificate", "PrivateKey", "ChainCAFile", "VerifyCAFile", "ServerInfoFile"];
    let file = |placed: &Placed| match placed.words().as_slice() {
        [name, file] if names.iter().any(|known| known.eq_ignore_ascii_case(name)) => Some(file.clone()),
        _ => None,
    };
    evaluation.all(&["SSLOpenSSLConfCmd"]).filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::super::config::{Input, evaluate};
    use super::*;
    use crate::services::PendingChange;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    /// A tree in a directory of its own, and what is newer in it than a time, in words.
    struct Tree {
        root: tempfile::TempDir,
    }

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self { root: tempfile::tempdir().unwrap() };
            for (name, text) in files {
                tree.write(name, text);
            }
            tree
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().canonicalize().unwrap().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), text).unwrap();
        }

        /// Makes all that is there older than what comes.
        fn settle(&self) -> SystemTime {
            // A file system stamps in ticks of up to 10 ms: what is written in one tick has one time.
            let stamp = || {
                self.write("stamp", "");
                let stamp = fs::metadata(self.path("stamp")).unwrap();
                SystemTime::UNIX_EPOCH + Duration::new(stamp.ctime() as u64, stamp.ctime_nsec() as u32)
            };
            let before = stamp();
            loop {
                std::thread::sleep(Duration::from_millis(2));
                if stamp() > before {
                    return before;
                }
            }
        }

        fn newer(&self, read_at: SystemTime, own: &[&str]) -> Vec<(String, String)> {
            let main_file = self.path("httpd.conf");
            let evaluation = evaluate(Input { main_file, server_root: self.path(""), ..Input::default() });
            let own: Vec<_> = own.iter().map(|name| self.path(name)).collect();
            let later = SystemTime::now() + Duration::from_millis(20);
            let message = |change: PendingChange| {
                let name = change.path.strip_prefix(self.path("")).unwrap().display().to_string();
                (name, change.why.split(" less than").next().unwrap().to_owned())
            };
            sources(&evaluation).newer("Apache", read_at, later, &own).into_iter().map(message).collect()
        }

        fn check(&self, read_at: SystemTime, own: &[&str], expected: &[(&str, &str)]) {
            let expected: Vec<_> =
                expected.iter().map(|(name, why)| ((*name).to_owned(), (*why).to_owned())).collect();
            assert_eq!(self.newer(read_at, own), expected);
        }
    }

    const MAIN: &str = "LoadModule ssl_module m/mod_ssl.so\nLoadFile m/libx.so\nIncludeOptional sites/*.conf\n\
                        Include extra\n<VirtualHost *:443>\nSSLCertificateFile tls/cert.pem\n\
                        SSLCertificateKeyFile \"pkcs11:object=key\"\nSSLCACertificatePath tls/ca\n\
                        SSLOpenSSLConfCmd DHParameters tls/dh.pem\n</VirtualHost>\n";

    fn tree() -> (Tree, SystemTime) {
        let tree = Tree::new(&[
            ("httpd.conf", MAIN),
            ("m/mod_ssl.so", ""),
            ("m/libx.so", ""),
            ("available/a.conf", "A 1\n"),
            ("sites/b.conf", "B 1\n"),
            ("sites/c.conf", "C 1\n"),
            ("extra/d.conf", "D 1\n"),
            ("releases/1/e.conf", "E 1\n"),
            ("releases/2/e.conf", "E 2\n"),
            ("tls/cert.pem", ""),
            ("tls/dh.pem", ""),
            ("tls/ca/ca.pem", ""),
        ]);
        symlink("../available/a.conf", tree.path("sites/a.conf")).unwrap();
        symlink("releases/1", tree.path("current")).unwrap();
        symlink(tree.path("current/e.conf"), tree.path("sites/e.conf")).unwrap();
        let read_at = tree.settle();
        (tree, read_at)
    }

    const LINKED: &str = "was linked to another file";
    const ENTRIES: &str = "got or lost files";
    const REPLACED: &str = "was replaced, or its owner or mode was changed,";

    #[test]
    fn nothing_waits_in_a_tree_that_was_read() {
        let (tree, read_at) = tree();
        tree.check(read_at, &[], &[]);
        // What is not read does not count.
        tree.write("available/new.conf", "");
        tree.write("releases/2/e.conf", "E 3\n");
        tree.check(read_at, &[], &[]);
    }

    #[test]
    fn contents_are_told_wherever_they_come_from() {
        for name in ["httpd.conf", "m/mod_ssl.so", "m/libx.so", "extra/d.conf", "tls/cert.pem", "tls/dh.pem"]
        {
            let (tree, read_at) = tree();
            fs::write(tree.path(name), MAIN).unwrap();
            tree.check(read_at, &[], &[(name, "was changed")]);
            tree.check(read_at, &[name], &[]);
        }
        let (tree, read_at) = tree();
        tree.write("available/a.conf", "A 2\n");
        tree.check(read_at, &[], &[("sites/a.conf", "was changed")]);
        tree.check(read_at, &["available/a.conf"], &[]);
    }

    #[test]
    fn an_old_time_does_not_hide_a_replaced_file() {
        let (tree, read_at) = tree();
        let old = fs::metadata(tree.path("m/mod_ssl.so")).unwrap().modified().unwrap();
        tree.write("new", "other");
        fs::File::options().append(true).open(tree.path("new")).unwrap().set_modified(old).unwrap();
        fs::rename(tree.path("new"), tree.path("m/mod_ssl.so")).unwrap();
        tree.check(read_at, &[], &[("m/mod_ssl.so", REPLACED)]);
    }

    #[test]
    fn links_and_directories_count_by_themselves() {
        let (tree, read_at) = tree();
        fs::remove_file(tree.path("sites/b.conf")).unwrap();
        tree.write("tls/ca/new.pem", "");
        tree.check(read_at, &[], &[("sites", ENTRIES), ("tls/ca", ENTRIES)]);
        tree.check(read_at, &["sites", "tls/ca"], &[]);

        let (tree, read_at) = super::tests::tree();
        fs::remove_file(tree.path("sites/a.conf")).unwrap();
        symlink("../sites/b.conf", tree.path("sites/a.conf")).unwrap();
        tree.check(read_at, &[], &[("sites/a.conf", LINKED)]);

        // A link in the middle of a path: the files behind it are old.
        let (tree, read_at) = super::tests::tree();
        fs::remove_file(tree.path("current")).unwrap();
        symlink("releases/2", tree.path("current")).unwrap();
        tree.check(read_at, &[], &[("sites/e.conf", LINKED)]);
    }

    #[test]
    fn a_time_in_the_future_is_no_change() {
        let (tree, _) = tree();
        let future = SystemTime::now() + Duration::from_secs(86_400 * 365);
        fs::File::options()
            .append(true)
            .open(tree.path("sites/b.conf"))
            .unwrap()
            .set_modified(future)
            .unwrap();
        let read_at = tree.settle();
        tree.check(read_at, &[], &[]);
    }

    #[test]
    fn certificates_count_only_where_they_are_read() {
        let (tree, read_at) = tree();
        let without = MAIN.replace("LoadModule ssl_module m/mod_ssl.so\n", "");
        tree.write("httpd.conf", &without);
        tree.write("tls/cert.pem", "new");
        tree.check(read_at, &["httpd.conf"], &[]);
    }
}
