//! A session whose last event is written. Its results are shown after that, as a recording is whole then whatever becomes of them; where
//! they cannot be written, the program ends with another exit code than that event has, and the log gets one more.

use crate::log::writer::EventLog;
use crate::recording::Recording;
use webdyno_model::Result;
use webdyno_model::event::EventBody;

/// A session that has ended.
pub struct EndedSession {
    /// What was recorded.
    pub recording: Recording,
    /// Nobody watches it any more.
    pub(super) log: EventLog,
    pub(super) ended_us: u64,
    /// What its last event says.
    pub(super) error: Option<String>,
}

impl EndedSession {
    /// Writes that the program ends with this exit code after all, and why. An error that it ended with, such as an interruption, remains.
    pub fn amend(mut self, exit_code: u8, why: String) -> Result<()> {
        self.log.append(self.ended_us, EventBody::Note { text: why })?;
        self.log.append(self.ended_us, EventBody::SessionEnd { exit_code, error: self.error })?;
        self.log.flush()
    }
}
