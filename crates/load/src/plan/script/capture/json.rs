//! JSON pointers (RFC 6901). The body is read once, and only what the pointer leads to is kept: a string as its text,
//! anything else as it is written. `null` and what is no JSON hold no value.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use webdyno_model::UserError;

/// A pointer: names of members, or places in lists.
#[derive(Debug)]
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    /// Parses a pointer; a usage error when it is invalid.
    pub(super) fn parse(pointer: &str) -> webdyno_model::Result<Self> {
        if pointer.is_empty() {
            return Ok(Self(vec![]));
        }
        let steps = pointer.strip_prefix('/').ok_or_else(|| {
            UserError::usage(format!("JSON pointer `{pointer}` does not begin with `/`"))
                .hint("as in `/user/token` or `/items/0/id`")
        })?;
        let step = |step: &str| step.replace("~1", "/").replace("~0", "~");
        for (at, _) in pointer.match_indices('~') {
            if !pointer[at + 1..].starts_with(['0', '1']) {
                return Err(UserError::usage(format!("JSON pointer `{pointer}` has `~` without 0 or 1"))
                    .hint("`~0` stands for `~`, `~1` for `/`"));
            }
        }
        Ok(Self(steps.split('/').map(step).collect()))
    }

    /// The value that it leads to.
    pub(super) fn find<'a>(&self, body: &'a [u8]) -> Option<Cow<'a, str>> {
        let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
        let mut json = serde_json::Deserializer::from_slice(body);
        let raw = Step(&self.0).deserialize(&mut json).ok()??.get();
        match raw.as_bytes().first() {
            // A lone surrogate is no text.
            Some(b'"') => match serde_json::from_str::<&str>(raw) {
                Ok(plain) => Some(Cow::Borrowed(plain)),
                Err(_) => serde_json::from_str::<String>(raw).ok().map(Cow::Owned),
            },
            Some(b'n') | None => None,
            Some(_) => Some(Cow::Borrowed(raw)),
        }
    }
}

/// The rest of the way. Of members with one name the last one counts, as in every other reader.
struct Step<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Step<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        match self.0 {
            [] => serde::Deserialize::deserialize(json).map(Some),
            _ => json.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Step<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            match self.0.split_first() {
                Some((wanted, rest)) if **wanted == *name => found = map.next_value_seed(Step(rest))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Some((wanted, rest)) = self.0.split_first() else { return Ok(None) };
        // RFC 6901, 4: no leading zeros.
        let leading = wanted.len() > 1 && wanted.starts_with('0');
        let wanted = wanted.parse::<usize>().ok().filter(|_| !leading && !wanted.starts_with('+'));
        let mut found = None;
        for place in 0.. {
            let more = if Some(place) == wanted {
                list.next_element_seed(Step(rest))?.map(|value| found = value)
            } else {
                list.next_element::<IgnoredAny>()?.map(drop)
            };
            if more.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
}
