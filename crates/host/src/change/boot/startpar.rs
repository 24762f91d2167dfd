//! The table of a parallel SysV boot: `/etc/init.d/.depend.start`, written by insserv(8) and read by startpar(8).
//!
//! Where it is there, `rc` starts the scripts that it names, and no others, whatever links there are. It has the form of
//! a makefile: `TARGETS = a b c`, and for a script that waits for others `c: a b`.

/// The table with one more script, which the given ones wait for. `None` when it is no such table.
pub fn with_script(table: &str, name: &str, before: &[&str]) -> Option<String> {
    let targets = table.lines().find_map(|line| line.strip_prefix("TARGETS ="))?;
    let is_target = |name: &str| targets.split_whitespace().any(|target| target == name);
    let waiting = || before.iter().copied().filter(|name| is_target(name));
    let mut text = String::with_capacity(table.len() + 200);
    for line in table.lines() {
        let head =
            waiting().find(|waiting| line.strip_prefix(waiting).is_some_and(|rest| rest.starts_with(':')));
        match (line.strip_prefix("TARGETS ="), head) {
            (Some(rest), _) => text += &format!("TARGETS = {name}{rest}"),
            (None, Some(head)) => text += &line.replacen(&format!("{head}:"), &format!("{head}: {name}"), 1),
            (None, None) => text += line,
        }
        text.push('\n');
    }
    let has_line = |name: &str| table.lines().any(|line| line.starts_with(&format!("{name}:")));
    for waiting in waiting().filter(|waiting| !has_line(waiting)) {
        text += &format!("{waiting}: {name}\n");
    }
    Some(text)
}

/// The table without a script; what others changed in it meanwhile stays.
pub fn without_script(table: &str, name: &str) -> String {
    let mut text = String::with_capacity(table.len());
    for line in table.lines().filter(|line| !line.starts_with(&format!("{name}:"))) {
        let words: Vec<&str> = line.split(' ').filter(|word| *word != name).collect();
        let line = words.join(" ");
        // A script that waited for ours alone.
        if !line.ends_with(':') {
            text += &line;
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// insserv 1.24.
    const TABLE: &str = "TARGETS = rsyslog apache2 apache2-htcacheclean cron rc.local\nINTERACTIVE =\n\
        apache2: rsyslog\nrc.local: rsyslog apache2 cron\n";

    #[test]
    fn a_script_is_started_before_those_that_wait_for_it() {
        let expected = "TARGETS = ours rsyslog apache2 apache2-htcacheclean cron rc.local\nINTERACTIVE =\n\
            apache2: ours rsyslog\nrc.local: rsyslog apache2 cron\ncron: ours\n";
        let with = with_script(TABLE, "ours", &["apache2", "httpd", "cron"]).unwrap();
        assert_eq!(with, expected);
        assert_eq!(without_script(&with, "ours"), TABLE);
        // insserv has written it anew meanwhile, and knows our script by its header.
        let anew = "TARGETS = dbus ours apache2\nINTERACTIVE =\nours: dbus\napache2: dbus ours\n";
        assert_eq!(without_script(anew, "ours"), "TARGETS = dbus apache2\nINTERACTIVE =\napache2: dbus\n");
        assert_eq!(with_script("", "ours", &["apache2"]), None);
    }
}
