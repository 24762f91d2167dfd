//! Whether tests can mount something: mount(8) and unshare(1).

use std::process::{Command, Stdio};

/// Whether something can be mounted here, in a mount namespace of its own: it takes root, and in a container more than
/// that.
pub fn can_mount() -> bool {
    let mount =
        ["--mount", "--propagation", "private", "mount", "-t", "tmpfs", "-o", "size=4k", "none", "/tmp"];
    let tried = Command::new("unshare").args(mount).stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}
