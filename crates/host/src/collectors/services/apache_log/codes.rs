//! The codes of Apache's messages that say what limits it, with what each one means.
//!
//! Facts: server/mpm/*/*.c, server/mpm_unix.c, server/main.c, modules/proxy/*.c of Apache 2.4: the text behind each
//! `APLOGNO`. Any other code is counted, too, up to a number of different ones.

/// `(number, what it says)`.
pub const CODES: [(u32, &str); 51] = [
    (19, "cannot open the logs, exits"),
    (20, "the configuration failed, exits"),
    (51, "a child died of a signal and left a core"),
    (52, "a child died of a signal"),
    (56, "a connection to the own listener failed"),
    (94, "runs"),
    (159, "cannot fork"),
    (161, "prefork: MaxRequestWorkers reached"),
    (162, "prefork: seems busy, starts several children at once"),
    (163, "prefork: resumes normal operations"),
    (167, "prefork: a child came home that nobody knew"),
    (169, "prefork: was told to end"),
    (171, "prefork: reloads"),
    (179, "prefork: another ServerLimit is ignored until a restart"),
    (180, "prefork: MaxRequestWorkers above ServerLimit, at the start"),
    (181, "prefork: MaxRequestWorkers above ServerLimit"),
    (286, "worker: MaxRequestWorkers reached"),
    (287, "worker: MaxRequestWorkers nearly reached"),
    (288, "worker: the scoreboard is full"),
    (292, "worker: resumes normal operations"),
    (297, "worker: reloads"),
    (304, "worker: another ServerLimit is ignored until a restart"),
    (309, "worker: another ThreadLimit is ignored until a restart"),
    (316, "worker: MaxRequestWorkers is no multiple of ThreadsPerChild, at the start"),
    (317, "worker: MaxRequestWorkers is no multiple of ThreadsPerChild"),
    (318, "worker: MaxRequestWorkers above ServerLimit x ThreadsPerChild, at the start"),
    (319, "worker: MaxRequestWorkers above ServerLimit x ThreadsPerChild"),
    (484, "event: MaxRequestWorkers reached"),
    (485, "event: the scoreboard is full"),
    (486, "event: seems busy, starts several processes at once"),
    (489, "event: resumes normal operations"),
    (491, "event: was told to end"),
    (493, "event: reloads"),
    (501, "event: another ServerLimit is ignored until a restart"),
    (506, "event: another ThreadLimit is ignored until a restart"),
    (513, "event: MaxRequestWorkers is no multiple of ThreadsPerChild, at the start"),
    (514, "event: MaxRequestWorkers is no multiple of ThreadsPerChild"),
    (515, "event: MaxRequestWorkers above ServerLimit x ThreadsPerChild, at the start"),
    (516, "event: MaxRequestWorkers above ServerLimit x ThreadsPerChild"),
    (534, "several MPMs, or none"),
    (957, "proxy: cannot connect to a backend"),
    (1071, "FastCGI: a program complains"),
    (1075, "FastCGI: a request cannot be handed on"),
    (1079, "FastCGI: no connection to the backend"),
    (1102, "proxy: no status line from the backend"),
    (1114, "proxy: no connection to the backend"),
    (1215, "CGI: a program complains"),
    (2324, "a resource ran short: the server ends"),
    (2454, "proxy: no connection to the backend's socket in the file system"),
    (3490, "event: the scoreboard is full, not at MaxRequestWorkers"),
    (10159, "event: MaxRequestWorkers nearly reached"),
];

/// By which an Apache says that it serves: the process that says so is the main one.
pub const RESUMES: [u32; 3] = [163, 292, 489];

/// Whether a code is in the table.
pub fn is_known(code: u32) -> bool {
    CODES.binary_search_by_key(&code, |(known, _)| *known).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(is_known(161) && is_known(10159) && !is_known(558));
    }
}
