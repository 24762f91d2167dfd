//! Settings of the kernel below /proc/sys, where the calling thread is. Facts: proc_sys(5).

use std::path::PathBuf;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Where a setting is: `net.core.somaxconn`. A usage error for what leads elsewhere.
pub fn setting_path(name: &str) -> Result<PathBuf> {
    let is_part = |part: &str| {
        let plain = part.chars().all(|c| c.is_ascii_alphanumeric() || "_-:@/".contains(c));
        !part.is_empty() && plain && !part.starts_with('/')
    };
    match name.split('.').all(is_part) && name.contains('.') {
        true => Ok(PathBuf::from("/proc/sys").join(name.replace('.', "/"))),
        false => {
            Err(UserError::usage(format!("`{name}` is no kernel setting"))
                .hint("write it as net.core.somaxconn"))
        }
    }
}

/// A setting's value, blanks as one.
pub fn read_setting(name: &str) -> Result<String> {
    let path = setting_path(name)?;
    let text = std::fs::read_to_string(&path).map_err(|error| io_error("read", path.display(), &error))?;
    Ok(plain(&text))
}

/// Sets it where the calling thread is.
pub fn write_setting(name: &str, value: &str) -> Result<()> {
    let path = setting_path(name)?;
    std::fs::write(&path, format!("{value}\n"))
        .map_err(|error| io_error("write", format!("{value} into {}", path.display()), &error))
}

/// One blank between words, as settings of several numbers have tabs.
pub fn plain(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_below_their_folder() {
        assert_eq!(
            setting_path("net.core.somaxconn").unwrap().to_str(),
            Some("/proc/sys/net/core/somaxconn")
        );
        for wrong in ["", "x", "net..x", "../x.y", "net./etc/passwd", ".x", "a b.c"] {
            assert!(setting_path(wrong).is_err(), "{wrong}");
        }
        assert_eq!(plain("4096\t16384  4194304\n"), "4096 16384 4194304");
    }
}
