//! What Apache's workers answer, from the page for people: of PHP in the workers it says which script takes the time.
//!
//! Facts: `status_handler` in modules/generators/mod_status.c of 2.4: with `ExtendedStatus On` (the default where mod_status is loaded)
//! a row for each worker, `<b>W</b>` where it answers a request, whose first line is the last cell, up to 64 letters of it.

/// The paths of the requests that are answered now and may be scripts, without their queries, one for each worker.
pub fn paths(page: &str) -> impl Iterator<Item = &str> {
    let rows = page.split("<tr>").filter(|row| row.contains("<b>W</b>"));
    rows.filter_map(|row| {
        let (cells, _) = row.rsplit_once("</td>")?;
        let line = cells.rsplit('>').next()?;
        let path = line.split_ascii_whitespace().nth(1)?.split('?').next()?;
        (path.starts_with('/') && may_be_script(path)).then_some(path)
    })
}

/// A path without an ending, or with one of PHP's.
fn may_be_script(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').is_none_or(|(_, ending)| ending.starts_with("ph")) || path.contains(".php/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = "<tr><th>Srv</th><th>PID</th></tr>\n\
        <tr><td><b>0-0</b></td><td>11</td><td>0/4/4</td><td><b>W</b>\n</td><td>0.05</td><td>::1</td><td>http/1.1</td><td nowrap>h:80</td><td nowrap>GET /a.php?user=7 HTTP/1.1</td></tr>\n\
        <tr><td><b>1-0</b></td><td>12</td><td>0/4/4</td><td>_\n</td><td>0.05</td><td>::1</td><td>http/1.1</td><td nowrap>h:80</td><td nowrap>GET /b.php HTTP/1.1</td></tr>\n\
        <tr><td><b>2-0</b></td><td>13</td><td>0/4/4</td><td><b>W</b>\n</td><td>0.05</td><td>::1</td><td>http/1.1</td><td nowrap>h:80</td><td nowrap>GET /logo.png HTTP/1.1</td></tr>\n\
        <tr><td><b>3-0</b></td><td>14</td><td>0/4/4</td><td><b>W</b>\n</td><td>0.05</td><td>::1</td><td>http/1.1</td><td nowrap>h:80</td><td nowrap></td></tr>\n</table>";

    #[test]
    fn of_workers_that_answer_the_script_is_told_without_its_query() {
        assert_eq!(paths(PAGE).collect::<Vec<_>>(), ["/a.php"]);
    }

    proptest! {
        // A torn or strange page: never a panic.
        #[test]
        fn any_page_is_survived(cut in 0..PAGE.len(), noise in "(<tr>|<b>W</b>|</td>|>|GET /|[a-z?. ]{0,9}){0,12}") {
            let cut = (0..=cut).rev().find(|at| PAGE.is_char_boundary(*at)).unwrap();
            paths(&format!("{}{noise}{}", &PAGE[..cut], &PAGE[cut..])).count();
        }
    }
}
