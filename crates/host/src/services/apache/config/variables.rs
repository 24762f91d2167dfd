//! Defines and variables of an Apache configuration.
//!
//! `ap_resolve_env` and `set_define` in httpd's server/core.c: `${NAME}` is looked up among the defined variables
//! (names in any case), then in the environment, once per line before its words are cut; what is not defined stays
//! as it is written.

use std::collections::{BTreeMap, BTreeSet};

/// What `Define` and `-D` set, on top of the environment of the server.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    /// Names that `<IfDefine>` finds.
    names: BTreeSet<String>,
    /// Values by lower-case name.
    values: BTreeMap<String, String>,
    /// The environment of the server.
    environment: BTreeMap<String, String>,
    /// Every name that was asked for as `${NAME}`.
    referenced: BTreeSet<String>,
}

impl Variables {
    /// Starts with the names given as `-D NAME` and the environment of the process.
    pub fn new(names: impl IntoIterator<Item = String>, environment: BTreeMap<String, String>) -> Self {
        Self { names: names.into_iter().collect(), environment, ..Self::default() }
    }

    /// `Define name [value]`.
    pub fn define(&mut self, name: &str, value: Option<&str>) {
        self.names.insert(name.to_owned());
        if let Some(value) = value {
            self.values.insert(name.to_ascii_lowercase(), value.to_owned());
        }
    }

    /// `UnDefine name`.
    pub fn undefine(&mut self, name: &str) {
        self.names.remove(name);
        self.values.remove(&name.to_ascii_lowercase());
    }

    /// What `<IfDefine name>` asks.
    pub fn is_defined(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// All names that were looked up, whether they have a value or not.
    pub fn into_referenced(self) -> BTreeSet<String> {
        self.referenced
    }

    /// Notes a name that the configuration takes from the environment by other means (`PassEnv`).
    pub fn reference(&mut self, name: &str) {
        self.referenced.insert(name.to_owned());
    }

    /// A line with its variables replaced, and the names that have no value.
    pub fn resolve(&mut self, line: &str) -> (String, Vec<String>) {
        let mut resolved = String::with_capacity(line.len());
        let mut unknown = Vec::new();
        let mut rest = line;
        while let Some(at) = rest.find("${") {
            let Some(length) = rest[at + 2..].find('}') else {
                break;
            };
            let name = &rest[at + 2..at + 2 + length];
            let after = at + 2 + length + 1;
            resolved.push_str(&rest[..at]);
            self.referenced.insert(name.to_owned());
            match self.value(name) {
                Some(value) => resolved.push_str(value),
                None => {
                    resolved.push_str(&rest[at..after]);
                    unknown.push(name.to_owned());
                }
            }
            rest = &rest[after..];
        }
        resolved.push_str(rest);
        (resolved, unknown)
    }

    fn value(&self, name: &str) -> Option<&str> {
        let defined = self.values.get(&name.to_ascii_lowercase());
        defined.or_else(|| self.environment.get(name)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_resolve_once_from_defines_then_environment() {
        let environment = [("LOG".to_owned(), "/env".to_owned()), ("A".to_owned(), "${LOG}".to_owned())];
        let mut variables = Variables::new(["CLI".to_owned()], environment.into());
        variables.define("Port", Some("80"));
        variables.define("Flag", None);
        for (line, expected) in [
            ("Listen ${PORT}", "Listen 80"),
            ("X ${LOG}/e ${port}", "X /env/e 80"),
            ("X ${A}", "X ${LOG}"),
            ("X ${none} ${", "X ${none} ${"),
            ("X $5 ${Flag}", "X $5 ${Flag}"),
        ] {
            assert_eq!(variables.resolve(line).0, expected, "{line}");
        }
        assert_eq!(variables.resolve("${nil}").1, ["nil"]);
        assert!(variables.is_defined("CLI") && variables.is_defined("Flag") && !variables.is_defined("flag"));
        variables.define("LOG", Some("/defined"));
        assert_eq!(variables.resolve("${LOG}").0, "/defined");
        variables.undefine("LOG");
        assert_eq!(variables.resolve("${LOG}").0, "/env");
        assert!(!variables.is_defined("LOG"));
        assert!(variables.into_referenced().contains("LOG"));
    }
}
