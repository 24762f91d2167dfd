//! The seam to the services: what changing and undoing need to know of them. Tests bring a simulated service.

use crate::change::action::Served;
use crate::os::process::ProcessName;
use crate::services::Tunable;
use webdyno_model::service::Control;

/// Which services there are, and what runs.
pub trait Programs: Send + Sync {
    /// A service by its name; `None` when this version does not know how to change it.
    fn tunable(&self, name: &str) -> Option<&dyn Tunable>;

    /// How the service of that name is controlled that has the place of an earlier one now; `None` when there is none.
    fn on_port(&self, name: &str, port: u16, before: &Control) -> Option<Control>;

    /// The program that answers on a port now and is not the service of that name; `None` when there is none.
    fn other_on_port(&self, name: &str, port: u16) -> Option<String> {
        let _ = (name, port);
        None
    }

    /// The names that only one tuner of this service may hold at a time.
    fn claim_names(&self, served: &Served) -> Vec<String> {
        let _ = served;
        vec![]
    }

    /// Whether the main process still runs.
    fn is_alive(&self, control: &Control) -> bool {
        ProcessName::from(control).is_alive()
    }
}
