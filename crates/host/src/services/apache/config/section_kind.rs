//! What the sections of a configuration are by their names.

/// What a section is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `<VirtualHost>`.
    Host,
    /// `<Directory>` and `<DirectoryMatch>`.
    Directory,
    /// `<Files>` and `<FilesMatch>`.
    Files,
    /// `<Location>` and `<LocationMatch>`.
    Location,
    /// `<Proxy>` and `<ProxyMatch>`.
    Proxy,
    /// `<If>`, `<ElseIf>` and `<Else>`.
    If,
    /// Belongs to what it stands in.
    Access,
    /// Belongs to a module: nothing in it counts for requests.
    Other,
}

/// The sections with values of their own and those for conditions of access.
const KINDS: [(&str, Kind); 18] = [
    ("VirtualHost", Kind::Host),
    ("Directory", Kind::Directory),
    ("DirectoryMatch", Kind::Directory),
    ("Files", Kind::Files),
    ("FilesMatch", Kind::Files),
    ("Location", Kind::Location),
    ("LocationMatch", Kind::Location),
    ("Proxy", Kind::Proxy),
    ("ProxyMatch", Kind::Proxy),
    ("If", Kind::If),
    ("ElseIf", Kind::If),
    ("Else", Kind::If),
    ("Limit", Kind::Access),
    ("LimitExcept", Kind::Access),
    ("RequireAll", Kind::Access),
    ("RequireAny", Kind::Access),
    ("RequireNone", Kind::Access),
    ("AuthzProviderAlias", Kind::Access),
];

/// What a section is for, by its name in any case.
pub fn kind(name: &str) -> Kind {
    KINDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or(Kind::Other, |(_, kind)| *kind)
}
