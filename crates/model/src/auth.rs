//! Who sends a request, to a server or a proxy, and what stands in place of a secret.

use base64::Engine as _;
use serde::{Deserialize, Serialize};

/// What stands in the log instead of a secret.
pub const REDACTED: &str = "[redacted]";

/// Who sends a request. `${name}` in it is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// RFC 7617.
    Basic {
        /// The user.
        name: String,
        /// The password.
        password: String,
    },
    /// RFC 6750.
    Bearer {
        /// The token.
        token: String,
    },
}

impl Auth {
    /// The value of `Authorization` that says it.
    pub fn header_value(&self) -> String {
        match self {
            Self::Basic { name, password } => {
                let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
                format!("Basic {encoded}")
            }
            Self::Bearer { token } => format!("Bearer {token}"),
        }
    }

    /// As it may be written down.
    #[must_use]
    pub fn redacted(&self) -> Self {
        match self {
            Self::Basic { name, .. } => Self::Basic { name: name.clone(), password: REDACTED.into() },
            Self::Bearer { .. } => Self::Bearer { token: REDACTED.into() },
        }
    }
}

/// `user%5Bpwd%5D` is `user[pwd]` to the server (RFC 3986, section 2.1). What is not valid stays as it is.
pub(crate) fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        let digits = text.get(index + 1..index + 3).filter(|_| byte == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                decoded.push(value);
                index += 3;
            }
            None => {
                decoded.push(byte);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7617, section 2, and that of RFC 6750, section 2.1.
    #[test]
    fn authentication_is_written_as_the_rfcs_do() {
        let basic = Auth::Basic { name: "Aladdin".into(), password: "open sesame".into() };
        assert_eq!(basic.header_value(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        let bearer = Auth::Bearer { token: "mF_9.B5f-4.1JqM".into() };
        assert_eq!(bearer.header_value(), "Bearer mF_9.B5f-4.1JqM");
    }
}
