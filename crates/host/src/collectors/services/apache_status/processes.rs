//! The processes of the event MPM, from the page for people: the automatic format has only their sums.
//!
//! Facts: `status_handler` in modules/generators/mod_status.c of 2.4.6 to 2.5: a table with a row for each process, under
//! headers that name its columns (Slot since 2.4.17, `graceful` threads and `wait-io` later). The columns are told by the
//! rows of headers: total and accepting connections, busy and idle threads.
//!
//! A process that accepts nothing, is not stopping, and has idle threads is at its limit of connections: ThreadsPerChild
//! + AsyncRequestWorkerFactor x idle threads. One without idle threads has no worker to spare.

/// What the table says of all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Processes {
    /// That accept no connection, without those that stop.
    pub not_accepting_count: u64,
    /// Of these, those with idle threads: they have all connections that they may have.
    pub capped_count: u64,
    /// Of a generation before the last reload.
    pub old_count: u64,
    /// The most connections of one process.
    pub connections_max_count: u64,
}

/// Most processes: ServerLimit is at most 20000.
const ROWS_COUNT_MAX: usize = 20_000;

/// Reads the table; `None` when there is none.
pub fn parse(page: &str) -> Option<Processes> {
    let table = page.split("<table").find(|table| table.contains("accepting</th>"))?;
    let table = table.split("</table>").next()?;
    let head = table.split("<td").next()?;
    // Slot, PID and Stopping, where they are; then those of the second row.
    let first =
        ["Slot", "PID", "Stopping"].into_iter().filter(|name| head.contains(&format!(">{name}</th>")));
    let second = head.rsplit("<tr>").find(|row| row.contains("accepting</th>"))?;
    let names: Vec<&str> =
        first.chain(second.split("</th>").filter_map(|cell| cell.rsplit('>').next())).collect();
    let at = |name: &str| names.iter().position(|known| known.trim() == name);
    let (stopping, total, accepting, idle) = (at("Stopping")?, at("total")?, at("accepting")?, at("idle")?);
    let mut found = Processes::default();
    for row in table.split("<tr>").filter(|row| row.contains("<td")).take(ROWS_COUNT_MAX) {
        let cells: Vec<&str> = row.split("</td>").filter_map(|cell| cell.rsplit('>').next()).collect();
        // The last row holds the sums.
        let Some((stops, accepts)) = cells.get(stopping).zip(cells.get(accepting)) else { continue };
        if !["yes", "no"].contains(accepts) || cells.len() < names.len() {
            continue;
        }
        let number = |at: usize| cells.get(at).and_then(|cell| cell.trim().parse::<u64>().ok());
        let connections = number(total)?;
        found.connections_max_count = found.connections_max_count.max(connections);
        found.old_count += u64::from(stops.contains("old gen"));
        let is_full = *accepts == "no" && stops.starts_with("no");
        found.not_accepting_count += u64::from(is_full);
        found.capped_count += u64::from(is_full && number(idle)? > 0);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Captured of 2.4.66 but for the last three rows, which are made by hand.
    const PAGE: &str = r#"<table rules="all" cellpadding="1%">
<tr><th rowspan="2">Slot</th><th rowspan="2">PID</th><th rowspan="2">Stopping</th><th colspan="2">Connections</th>
<th colspan="2">Threads</th><th colspan="3">Async connections</th></tr>
<tr><th>total</th><th>accepting</th><th>busy</th><th>idle</th><th>writing</th><th>keep-alive</th><th>closing</th></tr>
<tr><td>0</td><td>1290</td><td>no</td><td>0</td><td>yes</td><td>1</td><td>24</td><td>0</td><td>0</td><td>0</td></tr>
<tr><td>1</td><td>1291</td><td>no</td><td>75</td><td>no</td><td>3</td><td>22</td><td>0</td><td>0</td><td>0</td></tr>
<tr><td>2</td><td>1292</td><td>no</td><td>25</td><td>no</td><td>25</td><td>0</td><td>0</td><td>0</td><td>0</td></tr>
<tr><td>3</td><td>1293</td><td>yes (old gen)</td><td>2</td><td>no</td><td>0</td><td>0</td><td>0</td><td>0</td><td>0</td></tr>
<tr><td>Sum</td><td>4</td><td>1</td><td>102</td><td>&nbsp;</td><td>29</td><td>46</td><td>0</td><td>0</td><td>0</td></tr>
</table>
<pre>W___"#;

    #[test]
    fn processes_at_their_limit_are_counted() {
        let expected =
            Processes { not_accepting_count: 2, capped_count: 1, old_count: 1, connections_max_count: 75 };
        assert_eq!(parse(PAGE), Some(expected));
        // 2.4.6 has no slots.
        let old = PAGE.replace("<th rowspan=\"2\">Slot</th>", "");
        let old = (0..4).fold(old, |page, slot| page.replace(&format!("<tr><td>{slot}</td>"), "<tr>"));
        assert_eq!(parse(&old), Some(expected));
        for other in ["", "<table><tr><td>no</td></tr></table>", "W___"] {
            assert_eq!(parse(other), None);
        }
    }

    proptest! {
        // A torn or strange page: never a panic.
        #[test]
        fn any_page_is_survived(cut in 0..PAGE.len(), noise in "(<t[rdh]>|</t[dh]>|yes|no|[0-9]{0,22}|accepting</th>|<table){0,12}") {
            let cut = (0..=cut).rev().find(|at| PAGE.is_char_boundary(*at)).unwrap();
            parse(&format!("{}{noise}{}", &PAGE[..cut], &PAGE[cut..]));
            parse(&PAGE[..cut]);
            parse(&noise);
        }
    }
}
