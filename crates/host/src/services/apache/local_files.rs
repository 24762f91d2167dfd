//! Whether documents lie on file systems of this machine: over a network EnableSendfile and EnableMMAP give broken answers, or end
//! a process, when a file changes elsewhere (<https://httpd.apache.org/docs/2.4/mod/core.html#enablesendfile>).
//!
//! The numbers are those of statfs(2).

use super::config::Evaluation;
use super::settings::Setting;
use std::path::PathBuf;
use webdyno_model::service::SettingValue;

/// ext2 to ext4, XFS, Btrfs, F2FS, ZFS, tmpfs, overlay, and squashfs.
const LOCAL: [u32; 8] =
    [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1, 0x0102_1994, 0x794C_7630, 0x7371_7368];

/// Why a setting must not get a value where the documents lie; `None` where it may.
pub fn refusal(evaluation: &Evaluation, setting: &Setting, to: &SettingValue) -> Option<String> {
    let needs_local = ["EnableSendfile", "EnableMMAP"].contains(&setting.name);
    if !needs_local || to.to_string().eq_ignore_ascii_case("off") {
        return None;
    }
    let roots = evaluation.all(&["DocumentRoot"]).filter_map(|placed| placed.words().into_iter().next());
    let mut roots: Vec<PathBuf> = roots.map(|root| evaluation.path(&root)).collect();
    roots.dedup();
    let is_local = |root: &PathBuf| {
        rustix::fs::statfs(root.as_path()).is_ok_and(|found| LOCAL.contains(&(found.f_type as u32)))
    };
    let other = roots.iter().find(|root| !is_local(root))?;
    Some(format!("{} is not known to lie on a file system of this machine", other.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::apache::config::{Input, evaluate};
    use crate::services::apache::settings::find;

    #[test]
    fn what_is_not_known_to_be_local_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let main_file = root.path().join("httpd.conf");
        let here = root.path().display().to_string();
        for (documents, name, to, refused) in [
            (here.as_str(), "EnableSendfile", "On", false),
            ("/proc", "EnableSendfile", "On", true),
            ("/proc", "EnableMMAP", "On", true),
            ("/proc", "EnableMMAP", "Off", false),
            ("/no/such/folder", "EnableSendfile", "On", true),
            ("/proc", "KeepAlive", "On", false),
        ] {
            std::fs::write(&main_file, format!("DocumentRoot {documents}\n")).unwrap();
            let evaluation = evaluate(Input {
                main_file: main_file.clone(),
                server_root: root.path().into(),
                ..Input::default()
            });
            let refusal = refusal(&evaluation, find(name).unwrap(), &SettingValue::parse(to));
            assert_eq!(refusal.is_some(), refused, "{documents} {name} {to}: {refusal:?}");
        }
    }
}
