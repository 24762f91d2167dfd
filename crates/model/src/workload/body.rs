//! Bodies of requests, which are never written down, and what stands in place of a secret.

use crate::error::{Result, UserError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use crate::auth::REDACTED;

/// The body of a request. Written down it is its length alone: it may carry secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Body {
    bytes: Arc<[u8]>,
    length_bytes: u64,
}

impl Body {
    /// What is sent; empty when it was read from a recording.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its length, also when it was read from a recording.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Whether the request has none.
    pub fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self { length_bytes: bytes.len() as u64, bytes: bytes.into() }
    }
}

impl From<&str> for Body {
    fn from(text: &str) -> Self {
        text.as_bytes().to_vec().into()
    }
}

impl From<Body> for String {
    fn from(body: Body) -> Self {
        format!("[{} bytes]", body.length_bytes)
    }
}

impl TryFrom<String> for Body {
    type Error = UserError;

    /// Reads `[12 bytes]`. An error for anything else.
    fn try_from(text: String) -> Result<Self> {
        let digits = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(" bytes]"));
        let length_bytes = digits.and_then(|digits| digits.parse().ok());
        length_bytes
            .map(|length_bytes| Self { bytes: Arc::default(), length_bytes })
            .ok_or_else(|| UserError::usage(format!("`{text}` is not the length of a body, as [12 bytes]")))
    }
}
