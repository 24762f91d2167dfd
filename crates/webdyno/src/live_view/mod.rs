//! The live view: on the terminal of stderr, while a session measures. It is drawn when events come, at most four times a
//! second, on the thread that has them: the engine does not know of it.
//!
//! The terminal is read key by key without echo (termios(3)), but Ctrl-C stays a signal: it ends the session also while no
//! event comes. Ctrl-Z and Ctrl-\ are off, as they would leave the terminal as it is. The alternate screen is left before
//! anything else is printed, when the view is dropped, and on a panic. What agents say on stderr meanwhile is held, and read then.

mod draw;
mod state;

pub use draw::Palette;
pub use state::Headline;

use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::termios::{tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};
use state::State;
use std::io::{BufWriter, Stderr, Write, stderr};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use webdyno_model::event::{Event, EventBody};

/// Between two drawings.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// A smaller terminal has no room for it.
const COLUMNS_MIN: u16 = 40;
const ROWS_MIN: u16 = 12;
/// Lines that are kept for the end; of more the first go.
const KEPT_LINES_MAX: usize = 200;
/// xterm's control sequences: the alternate screen, cleared, without cursor; and back, without attributes.
const ENTER: &str = "\x1b[?1049h\x1b[2J\x1b[?25l";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";
/// POSIX: no key has this function.
const NO_KEY: u8 = 0;

/// A terminal on which the view is shown.
struct Screen {
    /// Its modes before.
    modes: Termios,
    /// What is to be read when the view is gone.
    lines: Vec<String>,
}

/// The one of this process; `None` while the view is not shown.
static SCREEN: Mutex<Option<Screen>> = Mutex::new(None);

fn screen() -> MutexGuard<'static, Option<Screen>> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the terminal of stderr can show the view: it is large enough, knows control sequences, and we are in its
/// foreground, where its modes may be changed.
pub fn is_possible() -> bool {
    let is_plain = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let is_in_foreground = tcgetpgrp(stderr()).is_ok_and(|group| group == rustix::process::getpgrp());
    !is_plain && is_in_foreground && area().is_some()
}

/// The whole terminal, where it is large enough.
fn area() -> Option<Rect> {
    let size = tcgetwinsize(stderr()).ok()?;
    (size.ws_col >= COLUMNS_MIN && size.ws_row >= ROWS_MIN).then(|| Rect::new(0, 0, size.ws_col, size.ws_row))
}

/// Gives the terminal back, if the view has it: what is printed from now on stays. The view comes back with the next load.
pub fn leave() {
    // Held until the terminal is back: who adds a line meanwhile waits.
    let mut screen = screen();
    let Some(left) = screen.take() else { return };
    let mut stderr = stderr().lock();
    // A terminal that is gone needs nothing back.
    let _ = stderr.write_all(LEAVE.as_bytes()).and_then(|()| stderr.flush());
    let _ = tcsetattr(&stderr, OptionalActions::Now, &left.modes);
    left.lines.iter().for_each(|line| drop(writeln!(stderr, "{line}")));
}

/// Takes the terminal. An error where it does not let us.
fn enter() -> std::io::Result<()> {
    static ON_PANIC: Once = Once::new();
    ON_PANIC.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
    });
    let modes = tcgetattr(stderr())?;
    let mut own = modes.clone();
    own.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
    // A terminal that is held (Ctrl-S) would hold the session.
    own.input_modes -= InputModes::IXON;
    own.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
    own.special_codes[SpecialCodeIndex::VQUIT] = NO_KEY;
    own.special_codes[SpecialCodeIndex::VMIN] = 1;
    own.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(stderr(), OptionalActions::Now, &own)?;
    let mut screen = screen();
    *screen = Some(Screen { modes, lines: vec![] });
    stderr().write_all(ENTER.as_bytes())
}

/// A line that is read when the view is gone; at once where it is not shown. Also for what others would write into it.
pub fn hold_line(line: &str) {
    let line = webdyno_report::sanitize(line);
    let mut screen = screen();
    let Some(screen) = screen.as_mut() else {
        let _ = writeln!(stderr(), "{line}");
        return;
    };
    if screen.lines.len() == KEPT_LINES_MAX {
        screen.lines.remove(0);
    }
    screen.lines.push(line);
}

/// Draws what it is shown.
pub struct LiveView {
    state: State,
    palette: Palette,
    terminal: Option<Terminal<CrosstermBackend<BufWriter<Stderr>>>>,
    drawn_at: Option<Instant>,
}

impl LiveView {
    /// One that is not on the terminal yet: that begins with the first load or server.
    pub fn new(palette: Palette) -> Self {
        Self { state: State::default(), palette, terminal: None, drawn_at: None }
    }

    /// Takes in the next event, and draws when it is time. `q` and Ctrl-C end the session as SIGINT does.
    pub fn show(&mut self, event: &Event, headline: &Headline<'_>) {
        self.state.update(event, headline);
        if matches!(event.body, EventBody::Server { .. } | EventBody::LoadStart { .. }) && screen().is_none()
        {
            // Without a terminal the lines are shown.
            self.terminal = enter().ok().and_then(|()| self.begin());
        }
        if let Some(line) = headline.line {
            hold_line(line);
        }
        if screen().is_none() {
            return;
        }
        let begins = matches!(event.body, EventBody::LoadStart { .. } | EventBody::Planned { .. });
        let is_due = begins || self.drawn_at.is_none_or(|drawn_at| drawn_at.elapsed() >= DRAW_EVERY);
        if is_due && self.has_room_and_reads_keys() {
            self.drawn_at = Some(Instant::now());
            self.draw();
        }
    }

    fn begin(&mut self) -> Option<Terminal<CrosstermBackend<BufWriter<Stderr>>>> {
        self.drawn_at = None;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(1 << 16, stderr()));
        let options = TerminalOptions { viewport: Viewport::Fixed(area()?) };
        let terminal = Terminal::with_options(backend, options).ok();
        if terminal.is_none() {
            leave();
        }
        terminal
    }

    /// Reads the keys that were pressed. Gives whether the terminal takes anything: drawing must not wait for one that is slow.
    fn has_room_and_reads_keys(&mut self) -> bool {
        let stderr = stderr();
        let mut events = [PollFd::new(&stderr, PollFlags::IN | PollFlags::OUT)];
        if poll(&mut events, Some(&Timespec::default())).is_err() {
            return false;
        }
        let events = events[0].revents();
        let mut keys = [0; 64];
        if events.contains(PollFlags::IN)
            && let Ok(count) = rustix::io::read(&stderr, &mut keys)
            && keys[..count].iter().any(|key| matches!(key, b'q' | b'Q' | 0x03))
        {
            self.state.doing = "ending".into();
            // The handler sets the flag of process.rs.
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGINT);
        }
        events.contains(PollFlags::OUT)
    }

    fn draw(&mut self) {
        let (Some(terminal), Some(area)) = (&mut self.terminal, area()) else { return };
        let (state, palette) = (&self.state, self.palette);
        let resized = if terminal.get_frame().area() == area { Ok(()) } else { terminal.resize(area) };
        // What one drawing could not write the next one will.
        let _ = resized.and_then(|()| terminal.draw(|frame| draw::draw(frame, state, palette)).map(drop));
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        // The cursor first: it shows it again.
        self.terminal = None;
        leave();
    }
}
