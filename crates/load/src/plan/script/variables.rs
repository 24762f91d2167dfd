//! The variables of a workload, and the values that one visitor has for them.

use std::collections::HashMap;
use webdyno_model::{Result, UserError};

/// Most variables of a workload.
const VARIABLES_MAX: usize = u16::MAX as usize;

/// A variable, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VariableId(u16);

impl VariableId {
    /// Number of the visitor.
    pub(crate) const USER: Self = Self(0);
    /// Number of the session.
    pub(crate) const SESSION: Self = Self(1);
}

/// The names that texts may use.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    names: Vec<String>,
    numbers: HashMap<String, VariableId>,
}

impl Default for Names {
    /// Only the built-in ones.
    fn default() -> Self {
        let names = vec!["user".to_owned(), "session".to_owned()];
        let numbers = [(names[0].clone(), VariableId::USER), (names[1].clone(), VariableId::SESSION)].into();
        Self { names, numbers }
    }
}

impl Names {
    /// The variable of this name, a new one when it was not known. Several captures, and a capture and a column, may
    /// have one name: the later value counts. A usage error for a name that `${name}` could not hold.
    pub(crate) fn declare(&mut self, name: &str) -> Result<VariableId> {
        if let Some(&known) = self.numbers.get(name) {
            return Ok(known);
        }
        if !is_name(name) {
            return Err(UserError::usage(format!("`{name}` cannot be the name of a variable"))
                .hint("a name begins with a letter, and holds letters, digits and `_`, `-`, `.`"));
        }
        if self.names.len() >= VARIABLES_MAX {
            return Err(UserError::usage(format!("there are more than {VARIABLES_MAX} variables")));
        }
        // It fits, as was just checked.
        let id = VariableId(u16::try_from(self.names.len()).unwrap_or(u16::MAX));
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), id);
        Ok(id)
    }

    /// The variable of this name, if there is one.
    pub(crate) fn find(&self, name: &str) -> Option<VariableId> {
        self.numbers.get(name).copied()
    }

    /// The name that is nearest to a wrong one: the same without its case and signs, or with the same beginning.
    pub(crate) fn nearest(&self, wrong: &str) -> Option<&str> {
        let plain = |name: &str| {
            name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>()
        };
        let wrong = plain(wrong);
        let shared = |name: &str| plain(name).chars().zip(wrong.chars()).take_while(|(a, b)| a == b).count();
        let best = self.names.iter().max_by_key(|name| shared(name))?;
        (shared(best) >= 2.min(wrong.chars().count()).max(1)).then_some(best.as_str())
    }
}

/// Whether `${name}` can hold it.
pub(crate) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// The values that one visitor has. They are bytes: what a server sends need not be UTF-8.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables {
    /// A value, and whether it is there; its memory is kept for the next one.
    values: Vec<(bool, Vec<u8>)>,
}

impl Variables {
    /// Sets one, and returns the place to write it to, which is empty.
    pub(crate) fn begin(&mut self, id: VariableId) -> &mut Vec<u8> {
        let place = usize::from(id.0);
        if self.values.len() <= place {
            self.values.reserve_exact(place + 1 - self.values.len());
            self.values.resize_with(place + 1, Default::default);
        }
        let (set, value) = &mut self.values[place];
        *set = true;
        value.clear();
        value
    }

    pub(crate) fn set(&mut self, id: VariableId, value: &[u8]) {
        self.begin(id).extend_from_slice(value);
    }

    /// Removes one.
    pub(crate) fn unset(&mut self, id: VariableId) {
        if let Some((set, _)) = self.values.get_mut(usize::from(id.0)) {
            *set = false;
        }
    }

    /// Its value, if it has one.
    pub(crate) fn get(&self, id: VariableId) -> Option<&[u8]> {
        self.values.get(usize::from(id.0)).filter(|(set, _)| *set).map(|(_, value)| value.as_slice())
    }

    /// Removes all.
    pub(crate) fn clear(&mut self) {
        for (set, _) in &mut self.values {
            *set = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_by_name_until_they_are_cleared() {
        let mut names = Names::default();
        let token = names.declare("token").unwrap();
        assert_eq!(names.declare("token").unwrap(), token);
        assert_eq!((names.find("session"), names.find("nobody")), (Some(VariableId::SESSION), None));
        let mut variables = Variables::default();
        assert_eq!(variables.get(token), None);
        variables.set(token, b"abc");
        variables.set(token, b"");
        assert_eq!(variables.get(token), Some(&b""[..]));
        assert_eq!(variables.get(VariableId::USER), None);
        variables.unset(token);
        assert_eq!(variables.get(token), None);
        variables.set(token, b"x");
        variables.clear();
        assert_eq!(variables.get(token), None);
    }

    #[test]
    fn a_name_is_what_a_text_can_hold() {
        for name in ["", "1a", "a b", "a}", "ä", "a|b", "-a"] {
            let error = Names::default().declare(name).unwrap_err();
            assert!(error.message.contains(&format!("`{name}`")), "{}", error.message);
        }
        for name in ["_", "a1", "a.b-c_d", "CSRF"] {
            assert!(Names::default().declare(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_wrong_name_finds_the_one_that_was_meant() {
        let mut names = Names::default();
        for name in ["csrf_token", "page"] {
            names.declare(name).unwrap();
        }
        for (wrong, meant) in [
            ("csrfToken", Some("csrf_token")),
            ("csrf", Some("csrf_token")),
            ("User", Some("user")),
            ("x", None),
        ] {
            assert_eq!(names.nearest(wrong), meant, "{wrong}");
        }
    }
}
