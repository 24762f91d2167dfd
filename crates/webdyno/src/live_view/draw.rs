//! Draws the live view: a pure function of its state and the size. Texts are shortened by whole parts, so that no figure
//! loses a digit or its unit.

use super::state::{HostSeries, LastMinute, SECONDS, State};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::number::human;

/// Between the parts of a line.
const GAP: &str = "   ";
/// Stands for words that were left out.
const CUT: &str = "...";
/// Heights of a column, from nothing to the whole cell; the second for terminals that show ASCII alone.
const COLUMN: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const COLUMN_ASCII: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '#'];
/// Lengths of the end of a bar, from nothing to nearly the whole cell.
const BAR_END: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// Upper bounds of buckets within a decade; the finest that fit are taken.
const LADDERS: [&[f64]; 3] = [&[1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0], &[1.0, 2.0, 5.0], &[1.0]];
/// The decades, in microseconds: up to the hour that is the longest time there is.
const DECADES: std::ops::RangeInclusive<i32> = 0..=9;
/// A bucket with less of the load is not worth a line.
const SHARE_MIN: f64 = 0.005;
/// Levels that are shown first.
const FIRST: [(&str, &str); 4] =
    [("CPU", "busy"), ("memory", "available"), ("accept queue", "waiting"), ("workers", "busy")];
/// Columns of the names and figures of levels, and of the figures beside a bar or the rate.
const NAME_COLUMNS: usize = 25;
const FIGURE_COLUMNS: usize = 9;
const RATE_COLUMNS: usize = 16;
/// From this width on histogram and host are side by side.
const SIDE_BY_SIDE_MIN: u16 = 76;

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
pub struct Palette {
    /// No letters but ASCII.
    pub ascii: bool,
    /// Colours.
    pub colour: bool,
}

impl Palette {
    fn coloured(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn text(self, text: &str) -> String {
        if self.ascii { webdyno_report::ascii(text) } else { text.to_owned() }
    }

    fn line(self, text: &str, style: Style) -> Line<'static> {
        Line::styled(self.text(text), style)
    }
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &State, palette: Palette) {
    let area = frame.area().inner(Margin { horizontal: 1, vertical: 0 });
    let width = usize::from(area.width);
    let head = head(state, palette, width);
    let rate_rows = (area.height.saturating_sub(12) / 4).clamp(1, 6);
    let figures = figures(state, palette, width);
    let lines = last_lines(state, palette, (width, usize::from(area.height / 8).max(1)));
    let parts = [head.len() as u16, rate_rows, figures.len() as u16].map(Constraint::Length);
    let ends = [Constraint::Fill(1), Constraint::Length(lines.len() as u16), Constraint::Length(1)];
    let [top, rate, middle, bodies, last, foot] = Layout::vertical([parts, ends].concat()).areas(area);
    frame.render_widget(Paragraph::new(head), top);
    let rows = rate_section(&state.rates, palette, (width, usize::from(rate.height)));
    frame.render_widget(Paragraph::new(rows), rate);
    frame.render_widget(Paragraph::new(figures), middle);
    draw_bodies(frame, state, palette, bodies);
    frame.render_widget(Paragraph::new(lines), last);
    frame.render_widget(Paragraph::new(cut("q or Ctrl-C: end with the results so far", width)), foot);
}

/// The histogram, and the hosts where some are observed.
fn draw_bodies(frame: &mut Frame<'_>, state: &State, palette: Palette, area: Rect) {
    if state.series.is_empty() {
        let rows = histogram(state, palette, size(area));
        return frame.render_widget(Paragraph::new(rows), area);
    }
    let halves = [Constraint::Fill(4), Constraint::Fill(5)];
    let [left, right] = match area.width >= SIDE_BY_SIDE_MIN {
        true => Layout::horizontal(halves).spacing(2).areas(area),
        false => Layout::vertical(halves).areas(area),
    };
    frame.render_widget(Paragraph::new(histogram(state, palette, size(left))), left);
    frame.render_widget(Paragraph::new(hosts(&state.series, palette, size(right))), right);
}

fn size(area: Rect) -> (usize, usize) {
    (usize::from(area.width), usize::from(area.height))
}

/// What is done, for how long, and in a tuning the round.
fn head(state: &State, palette: Palette, width: usize) -> Vec<Line<'static>> {
    let bold = Style::new().bold();
    let elapsed = human::time_s(state.elapsed_s.floor());
    let title = fit(&[state.command.clone(), elapsed], width);
    let room = width.saturating_sub(title.chars().count() + GAP.len());
    let target = cut(&state.target, room);
    let left = state.left_s.map(|left_s| format!("about {} left", human::time_s(left_s.round())));
    let doing: Vec<String> = [state.doing.clone()].into_iter().chain(left).collect();
    let mut lines =
        vec![palette.line(&(title + GAP + &target), bold), palette.line(&fit(&doing, width), bold)];
    if let Some(round) = &state.round {
        let outcome = match round.kept {
            Some(true) => " (kept)",
            Some(false) => " (reverted)",
            None => "",
        };
        let counts = [(state.rounds_kept, "kept"), (state.rounds_reverted, "reverted")];
        let counts = counts.map(|(count, what)| format!("{count} {what}"));
        let counts = fit(&counts, width);
        let room = width.saturating_sub(counts.chars().count() + GAP.len());
        let finding = cut(&format!("round {}{outcome}: {}", round.n, round.finding), room);
        lines.push(palette.line(&(finding + GAP + &counts), Style::new()));
        lines.push(palette.line(&cut(&format!("  {}", round.changes), width), Style::new()));
    }
    lines.push(Line::default());
    lines
}

/// The rate and its last minute.
fn rate_section(rates: &LastMinute, palette: Palette, (width, rows): (usize, usize)) -> Vec<Line<'static>> {
    let figure = rates.latest().map_or("- req/s".to_owned(), |rate| human::number(rate) + " req/s");
    let top = known_max(rates);
    let room = width.saturating_sub(RATE_COLUMNS);
    let labels = [figure, format!("last {} s", SECONDS.min(room))];
    let columns = columns(rates, (room, rows), top, palette);
    let row = |(row, picture): (usize, String)| {
        let label = labels.get(row).map_or("", |label| label);
        let style = if row == 0 { Style::new().bold() } else { Style::new() };
        let label = Span::styled(format!("{label:<RATE_COLUMNS$}"), style);
        Line::from(vec![label, Span::styled(picture, palette.coloured(Color::Cyan))])
    };
    columns.into_iter().enumerate().map(row).collect()
}

/// Latency, errors, and what is under way.
fn figures(state: &State, palette: Palette, width: usize) -> Vec<Line<'static>> {
    let latency = |name: &str, times: &TimeHistogram| {
        let [p50, p99] = [0.5, 0.99].map(|quantile| human::time(times.quantile_us(quantile)));
        let parts = [format!("{name:<11}"), format!("p50 {p50:<8}"), format!("p99 {p99:<8}")];
        palette.line(&fit(&parts, width), Style::new())
    };
    let mut counts = vec![human::plural(state.failed, "error")];
    let named = state.errors.named().into_iter().filter(|(_, count)| *count > 0);
    counts.extend(named.map(|(name, count)| format!("{} {}", name.replace('_', " "), human::count(count))));
    let style = if state.failed > 0 { palette.coloured(Color::Red).bold() } else { Style::new() };
    let under_way = [
        state.in_flight.map_or("in flight unknown".into(), |count| human::count(count) + " in flight"),
        human::count(state.completed) + " successful requests",
    ];
    vec![
        latency("last second", &state.second),
        latency("so far", &state.load),
        palette.line(&fit(&under_way, width), Style::new()),
        palette.line(&fit(&counts, width), style),
        Line::default(),
    ]
}

/// The response times of the last second, a bar for each bucket. The buckets are those of the whole load, so that they stay.
fn histogram(state: &State, palette: Palette, (width, rows): (usize, usize)) -> Vec<Line<'static>> {
    let buckets = buckets(&state.load, &state.second, rows.saturating_sub(1));
    let most = buckets.iter().map(|(_, share)| *share).fold(f64::MIN_POSITIVE, f64::max);
    let room = width.saturating_sub(3 + 2 * FIGURE_COLUMNS);
    let row = |&(upper_us, share): &(f64, f64)| {
        let name = palette.text(&human::time_us(upper_us));
        let bar = bar(share / most, room, palette.ascii);
        let figure = if share > 0.0 { human::percent_coarse(share) } else { String::new() };
        let bar = Span::styled(bar, palette.coloured(Color::Cyan));
        Line::from(vec![
            Span::raw(format!("to {name:>FIGURE_COLUMNS$} ")),
            bar,
            Span::raw(format!(" {figure}")),
        ])
    };
    let title = palette.line(&cut("Latency, last second", width), Style::new().bold());
    [title].into_iter().chain(buckets.iter().map(row)).collect()
}

/// Upper bounds of at most so many buckets for all times of the load, and the shares of the last second in them. A bucket that has
/// next to nothing of the load goes into the next one, and where they do not suffice the first has all that is shorter.
fn buckets(load: &TimeHistogram, second: &TimeHistogram, rows: usize) -> Vec<(f64, f64)> {
    let Some(max_us) = load.quantile_us(1.0) else { return vec![] };
    let bounds = |ladder: &[f64]| -> Vec<f64> {
        let all = DECADES.flat_map(|decade| ladder.iter().map(move |step| step * 10f64.powi(decade)));
        let mut all: Vec<f64> = all.collect();
        all.truncate(all.iter().position(|bound| *bound >= max_us as f64).unwrap_or(all.len()) + 1);
        let shares = shares(load, &all).into_iter().enumerate();
        let kept = shares.filter(|(at, share)| *share >= SHARE_MIN || at + 1 == all.len());
        kept.map(|(at, _)| all[at]).collect()
    };
    let candidates = LADDERS.map(bounds);
    let finest = candidates.iter().find(|bounds| bounds.len() <= rows).or(candidates.last());
    let bounds = finest.map_or(&[][..], Vec::as_slice);
    let bounds = &bounds[bounds.len().saturating_sub(rows)..];
    bounds.iter().copied().zip(shares(second, bounds)).collect()
}

/// The share of the times above the bound before, up to each bound.
fn shares(times: &TimeHistogram, bounds_us: &[f64]) -> Vec<f64> {
    let cumulative = times.cumulative();
    let up_to = |bound: &f64| {
        let count = cumulative.partition_point(|(us, _)| *us as f64 <= *bound);
        count.checked_sub(1).map_or(0.0, |last| cumulative[last].1)
    };
    let mut before = 0.0;
    let share = |up_to: f64| up_to - std::mem::replace(&mut before, up_to);
    bounds_us.iter().map(up_to).map(share).collect()
}

/// The levels of the observed hosts: name, figure, and the last minute.
fn hosts(series: &[HostSeries], palette: Palette, (width, rows): (usize, usize)) -> Vec<Line<'static>> {
    let rank = |series: &&HostSeries| {
        let name = (series.level.group, series.level.name);
        // That one of these is unknown says something; of the others it only takes the place of one that is known.
        let is_unknown = series.values.latest().is_none();
        FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len() + usize::from(is_unknown))
    };
    let mut sorted: Vec<&HostSeries> = series.iter().collect();
    sorted.sort_by_key(rank);
    let row = |series: &HostSeries| {
        let host = series
            .host
            .as_ref()
            .map_or(String::new(), |host| format!("{}: ", webdyno_report::sanitize(host)));
        let name = cut(&format!("{host}{} {}", series.level.group, series.level.name), NAME_COLUMNS - 1);
        let value = series.values.latest();
        let figure = value.map_or("unknown".into(), |value| webdyno_report::level(value, series.level.unit));
        let figure = palette.text(&format!("{name:<NAME_COLUMNS$}{figure:>FIGURE_COLUMNS$} "));
        let top = if series.level.unit == "fraction" { 1.0 } else { known_max(&series.values) };
        let room = width.saturating_sub(figure.chars().count());
        let picture = columns(&series.values, (room, 1), top, palette).concat();
        Line::from(vec![Span::raw(figure), Span::styled(picture, palette.coloured(Color::Cyan))])
    };
    let title = palette.line("Server", Style::new().bold());
    [title].into_iter().chain(sorted.into_iter().map(row)).take(rows).collect()
}

/// The last lines of progress.
fn last_lines(state: &State, palette: Palette, (width, rows): (usize, usize)) -> Vec<Line<'static>> {
    let skipped = state.lines.len().saturating_sub(rows);
    let lines = state.lines.iter().skip(skipped).map(|line| palette.line(&cut(line, width), Style::new()));
    lines.collect()
}

fn known_max(values: &LastMinute) -> f64 {
    values.values().filter(|value| !value.is_nan()).fold(f64::MIN_POSITIVE, f64::max)
}

/// A column for each second, the latest at the right; rows from the top. Nothing is drawn where nothing is known.
fn columns(values: &LastMinute, (width, rows): (usize, usize), top: f64, palette: Palette) -> Vec<String> {
    let glyphs = if palette.ascii { COLUMN_ASCII } else { COLUMN };
    let each = (width / SECONDS).max(1);
    let skipped = values.values().len().saturating_sub(width / each);
    let eighths = |value: f64| ((value / top * rows as f64 * 8.0).round() as usize).clamp(1, rows * 8);
    let row = |row: usize| {
        let below = (rows - 1 - row) * 8;
        let cell = |value: f64| if value.is_nan() { 0 } else { eighths(value).saturating_sub(below).min(8) };
        let text: String =
            values.values().skip(skipped).map(|value| glyphs[cell(value)].to_string().repeat(each)).collect();
        format!("{text:>width$}")
    };
    (0..rows).map(row).collect()
}

/// A bar of this share of the width.
fn bar(share: f64, width: usize, ascii: bool) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    match ascii {
        true => "#".repeat(eighths.div_ceil(8)),
        false => "█".repeat(eighths / 8) + BAR_END[eighths % 8],
    }
}

/// The first parts that fit into the width.
fn fit(parts: &[String], width: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let gap = if text.is_empty() { "" } else { GAP };
        if text.chars().count() + gap.len() + part.chars().count() > width {
            break;
        }
        text = text + gap + part;
    }
    text
}

/// The first words that fit into the width. A number before the cut goes too, as it would lose its unit.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(CUT.len() + 1);
    let mut words: Vec<&str> = vec![];
    let mut length = 0;
    for word in text.split(' ') {
        length += word.chars().count() + 1;
        if length > room + 1 {
            break;
        }
        words.push(word);
    }
    while words.last().is_some_and(|word| word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit())) {
        words.pop();
    }
    match words.is_empty() {
        // One long word: a URL.
        true => text.chars().take(width.saturating_sub(CUT.len())).collect::<String>() + CUT,
        false => words.join(" ") + " " + CUT,
    }
    .chars()
    .take(width)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::tuning;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const PLAIN: Palette = Palette { ascii: false, colour: false };

    fn drawn(state: &State, (width, height): (u16, u16), palette: Palette) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, palette)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect()
    }

    #[test]
    fn the_figures_are_there_at_every_size() {
        let state = tuning(70);
        for size in [(80, 24), (60, 20), (200, 50)] {
            let rows = drawn(&state, size, PLAIN);
            let text = rows.join("\n");
            for figure in [
                " 70 s ",
                "about 7 s left",
                "round 2 (kept): ",
                "1 kept   0 reverted",
                "MaxRequestWorkers 10 -> 30 (restart)",
                "815 req/s",
                "last second   p50 5.07 ms",
                "p99 9.06 ms",
                "so far        p50",
                "50 in flight",
                "57,050 successful requests",
                "140 errors   connect refused 140",
                "Latency, last second",
                "accept queue waiting           511 ",
                "0 s  loading: 50 connections",
                "q or Ctrl-C: end with the results so far",
            ] {
                assert!(text.contains(figure), "no `{figure}` at {size:?}:\n{text}");
            }
            // Nothing reaches the edge: what was cut there would be cut in the middle of something.
            assert!(rows.iter().all(|row| row.ends_with(' ')), "{text}");
            assert!(!text.contains(char::is_control) || text.matches(char::is_control).all(|c| c == "\n"));
        }
    }

    #[test]
    fn ascii_terminals_get_ascii_and_no_colour_is_no_colour() {
        let text = drawn(&tuning(70), (80, 24), Palette { ascii: true, colour: true }).join("\n");
        assert!(text.is_ascii() && text.contains('#'), "{text}");
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &tuning(70), PLAIN)).unwrap();
        let cells = &terminal.backend().buffer().content;
        assert!(cells.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
    }

    #[test]
    fn nothing_and_tiny_terminals_are_drawn_too() {
        for size in [(80, 24), (20, 5), (3, 2), (1, 1)] {
            drawn(&State::default(), size, PLAIN);
            drawn(&tuning(2), size, PLAIN);
        }
        assert!(drawn(&State::default(), (80, 24), PLAIN).join("").contains("p50 unknown"));
    }

    #[test]
    fn texts_are_cut_before_a_figure() {
        for (text, width, expected) in [
            ("note: all", 9, "note: all"),
            ("memory 1.2 GB of 4 GB used", 16, "memory ..."),
            ("http://127.0.0.1:8080/a", 10, "http://..."),
            ("a b", 2, ".."),
        ] {
            assert_eq!(cut(text, width), expected);
        }
        assert_eq!(fit(&["p50 1 ms".into(), "p99 2 ms".into(), "x".into()], 21), "p50 1 ms   p99 2 ms");
    }

    #[test]
    fn buckets_hold_every_response_once() {
        let mut times = TimeHistogram::new();
        [90, 150, 150, 3_000, 2_000_000].into_iter().for_each(|us| times.record(us));
        for rows in [1, 3, 8, 30, 100] {
            let buckets = buckets(&times, &times, rows);
            assert!(buckets.len() <= rows, "{rows}");
            let sum: f64 = buckets.iter().map(|(_, share)| share).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{rows}: {buckets:?}");
        }
        assert_eq!(buckets(&TimeHistogram::new(), &times, 5), []);
        assert_eq!(bar(0.5, 5, false), "██▌");
    }
}
