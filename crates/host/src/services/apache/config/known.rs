//! The directives that a diagnosis may need, where they may stand, how they merge, and what of them may be shown.
//!
//! https://httpd.apache.org/docs/2.4/mod/quickreference.html and the manuals of mod_qos, mod_evasive, mod_bw,
//! mod_limitipconn, mod_fcgid, mod_fastcgi, mod_wsgi, mod_perl, PHP and Passenger. What is not in this list is never
//! shown: it may hold a password, a cookie or a token. [`Show`] says what is taken of the arguments of those that are.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Where a directive counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For the whole server only.
    Server,
    /// For the server and for a virtual host.
    Host,
    /// Between the requests of a connection.
    Connection,
    /// In directories and locations, too.
    Directory,
}

/// How values come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The last one wins.
    Last,
    /// Each adds to those before.
    List,
    /// With signs.
    Options,
    /// Per module.
    LogLevel,
    /// Those of one section add to each other.
    Index,
    /// In plain directories only.
    Override,
}

/// What of the arguments is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// All words.
    All,
    /// The first words.
    First(usize),
    /// Words with `=` by a list of known names, and addresses without users and queries.
    Backend,
    /// The kind of a condition, and host names.
    Require,
    /// A setting of PHP from a list.
    Php,
    /// An environment variable from a list, with a short value.
    Variable,
    /// A header that steers caches.
    Header,
    /// Where a rule passes requests to.
    Rewrite,
    /// Words with `=` from a list of sizes.
    Sizes,
    /// A handler, which may be a backend.
    Handler,
}

/// A directive.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// All its names, today's first.
    pub names: &'static [&'static str],
    /// The module that it is of.
    pub module: &'static str,
    /// Where it counts.
    pub level: Level,
    /// How values come together.
    pub merge: Merge,
    /// What may be shown.
    pub show: Show,
    /// The value without any directive, where there is one.
    pub default: Option<&'static str>,
}

use Level::{Connection, Directory, Host, Server};
use Merge::{Index, Last, List, LogLevel, Options, Override};

const fn of(
    module: &'static str,
    names: &'static [&'static str],
    level: Level,
    merge: Merge,
    show: Show,
    default: Option<&'static str>,
) -> Known {
    Known { names, module, level, merge, show, default }
}

/// One that may stand in directories, with all its words.
const fn dir(module: &'static str, names: &'static [&'static str], default: Option<&'static str>) -> Known {
    of(module, names, Directory, Last, Show::All, default)
}

/// One of a virtual host, with all its words.
const fn host(module: &'static str, names: &'static [&'static str], default: Option<&'static str>) -> Known {
    of(module, names, Host, Last, Show::All, default)
}

/// One of which all count.
const fn list(module: &'static str, names: &'static [&'static str], show: Show) -> Known {
    of(module, names, Directory, List, show, None)
}

/// Those with a shape, a default or a merge of their own.
const DIRECTIVES: &[Known] = &[
    host("core_module", &["DocumentRoot"], None),
    host("core_module", &["KeepAlive"], Some("On")),
    of("core_module", &["KeepAliveTimeout"], Connection, Last, Show::All, Some("5")),
    host("core_module", &["MaxKeepAliveRequests"], Some("100")),
    host("core_module", &["Timeout"], Some("60")),
    host("core_module", &["AccessFileName"], Some(".htaccess")),
    host("core_module", &["Protocols"], Some("http/1.1")),
    of("core_module", &["LogLevel"], Directory, LogLevel, Show::All, Some("warn")),
    of("core_module", &["Options"], Directory, Options, Show::All, Some("FollowSymLinks")),
    of("core_module", &["AllowOverride"], Directory, Override, Show::All, Some("None")),
    of("core_module", &["AllowOverrideList"], Directory, Override, Show::All, Some("None")),
    dir("core_module", &["HostnameLookups"], Some("Off")),
    dir("core_module", &["UseCanonicalName"], Some("Off")),
    dir("core_module", &["EnableSendfile"], Some("Off")),
    dir("core_module", &["EnableMMAP"], Some("On")),
    of("core_module", &["SetHandler"], Directory, Last, Show::Handler, None),
    list("core_module", &["ErrorDocument"], Show::First(1)),
    of("dir_module", &["DirectoryIndex"], Directory, Index, Show::All, Some("index.html")),
    list("mime_module", &["AddHandler"], Show::Handler),
    list("mime_module", &["AddOutputFilter", "AddInputFilter"], Show::All),
    list("filter_module", &["AddOutputFilterByType", "FilterChain"], Show::All),
    list("filter_module", &["FilterProvider"], Show::First(2)),
    list("expires_module", &["ExpiresByType"], Show::All),
    dir("expires_module", &["ExpiresActive"], Some("Off")),
    list("headers_module", &["Header"], Show::Header),
    list("env_module", &["SetEnv"], Show::Variable),
    list(
        "setenvif_module",
        &["SetEnvIf", "SetEnvIfNoCase", "BrowserMatch", "BrowserMatchNoCase"],
        Show::Variable,
    ),
    list("cache_module", &["CacheEnable", "CacheDisable"], Show::All),
    list("cache_socache_module", &["CacheSocache"], Show::First(1)),
    list("proxy_module", &["ProxyPass", "ProxyPassMatch", "BalancerMember", "ProxyRemote"], Show::Backend),
    list("proxy_module", &["ProxySet"], Show::Sizes),
    list("rewrite_module", &["RewriteRule"], Show::Rewrite),
    list("authz_core_module", &["Require"], Show::Require),
    list("access_compat_module", &["Allow", "Deny"], Show::Require),
    list("php_module", &["php_value", "php_admin_value", "php_flag", "php_admin_flag"], Show::Php),
    list("fastcgi_module", &["FastCgiExternalServer", "FastCgiServer"], Show::Backend),
    list("wsgi_module", &["WSGIDaemonProcess"], Show::Sizes),
    list("jk_module", &["JkMount"], Show::All),
    host("ssl_module", &["SSLEngine"], Some("off")),
    host("ssl_module", &["SSLSessionTickets"], Some("on")),
    of("ssl_module", &["SSLSessionCache"], Server, Last, Show::All, Some("none")),
    of("ssl_module", &["SSLSessionCacheTimeout"], Host, Last, Show::All, Some("300")),
    of("ssl_module", &["SSLCertificateFile"], Host, List, Show::All, None),
    of("status_module", &["ExtendedStatus"], Server, Last, Show::All, Some("On")),
];

/// Those that count for the whole server, with all their words, by module.
const SERVER: &[(&str, &[&str])] = &[
    (
        "core_module",
        &[
            "SendBufferSize",
            "ReceiveBufferSize",
            "ListenCoresBucketsRatio",
            "MaxMemFree",
            "ThreadStackSize",
            "GracefulShutdownTimeout",
            "AcceptFilter",
            "FlushMaxThreshold",
            "FlushMaxPipelined",
        ],
    ),
    ("log_config_module", &["BufferedLogs"]),
    ("http2_module", &["H2MinWorkers", "H2MaxWorkers", "H2MaxWorkerIdleSeconds"]),
    ("ssl_module", &["SSLStaplingCache", "SSLCryptoDevice"]),
    ("cgid_module", &["CGIDScriptTimeout"]),
    (
        "fcgid_module",
        &[
            "FcgidMaxProcesses",
            "FcgidMaxProcessesPerClass",
            "FcgidMinProcessesPerClass",
            "FcgidIdleTimeout",
            "FcgidProcessLifeTime",
            "FcgidSpawnScore",
            "FcgidSpawnScoreUpLimit",
        ],
    ),
    (
        "evasive20_module",
        &[
            "DOSEnabled",
            "DOSHashTableSize",
            "DOSPageCount",
            "DOSPageInterval",
            "DOSSiteCount",
            "DOSSiteInterval",
            "DOSBlockingPeriod",
        ],
    ),
    (
        "perl_module",
        &[
            "PerlInterpStart",
            "PerlInterpMax",
            "PerlInterpMinSpare",
            "PerlInterpMaxSpare",
            "PerlInterpMaxRequests",
        ],
    ),
    ("passenger_module", &["PassengerMaxPoolSize", "PassengerPoolIdleTime", "PassengerMaxInstancesPerApp"]),
];

/// Those of a virtual host, with all their words, by module.
const HOST: &[(&str, &[&str])] = &[
    (
        "core_module",
        &["ProtocolsHonorOrder", "LimitRequestLine", "LimitRequestFields", "LimitRequestFieldSize"],
    ),
    ("reqtimeout_module", &["RequestReadTimeout"]),
    ("http2_module", &["H2Direct", "H2Push", "H2MaxSessionStreams", "H2WindowSize", "H2StreamMaxMemSize"]),
    (
        "deflate_module",
        &["DeflateBufferSize", "DeflateMemLevel", "DeflateWindowSize", "DeflateCompressionLevel"],
    ),
    ("brotli_module", &["BrotliCompressionQuality", "BrotliCompressionWindow"]),
    (
        "ssl_module",
        &[
            "SSLProtocol",
            "SSLCipherSuite",
            "SSLHonorCipherOrder",
            "SSLCompression",
            "SSLUseStapling",
            "SSLOCSPEnable",
        ],
    ),
    ("cache_module", &["CacheQuickHandler", "CacheLock", "CacheLockMaxAge", "CacheIgnoreQueryString"]),
    ("cache_disk_module", &["CacheRoot", "CacheDirLevels", "CacheDirLength"]),
    (
        "proxy_module",
        &["ProxyRequests", "ProxyIOBufferSize", "ProxyReceiveBufferSize", "ProxyTimeout", "ProxyMaxForwards"],
    ),
    ("dbd_module", &["DBDMin", "DBDKeep", "DBDMax", "DBDExptime", "DBDPersist"]),
    (
        "fcgid_module",
        &[
            "FcgidBusyTimeout",
            "FcgidConnectTimeout",
            "FcgidIOTimeout",
            "FcgidMaxRequestsPerProcess",
            "FcgidMaxRequestLen",
            "FcgidOutputBufferSize",
        ],
    ),
    (
        "qos_module",
        &[
            "QS_SrvMaxConn",
            "QS_SrvMaxConnClose",
            "QS_SrvMaxConnPerIP",
            "QS_SrvMinDataRate",
            "QS_SrvRequestRate",
            "QS_LocRequestLimit",
            "QS_LocRequestLimitMatch",
            "QS_LocRequestLimitDefault",
            "QS_LocRequestPerSecLimit",
            "QS_LocRequestPerSecLimitMatch",
            "QS_LocKBytesPerSecLimit",
            "QS_LocKBytesPerSecLimitMatch",
            "QS_EventRequestLimit",
            "QS_EventPerSecLimit",
            "QS_EventKBytesPerSecLimit",
            "QS_ClientEntries",
            "QS_ClientEventPerSecLimit",
            "QS_ClientEventBlockCount",
            "QS_ClientEventLimitCount",
            "QS_ClientEventRequestLimit",
            "QS_LogOnly",
        ],
    ),
    ("bw_module", &["BandWidthModule", "ForceBandWidthModule"]),
];

/// Those of directories, with all their words, by module.
const DIRECTORY: &[(&str, &[&str])] = &[
    (
        "core_module",
        &[
            "SetOutputFilter",
            "SetInputFilter",
            "LimitRequestBody",
            "ReadBufferSize",
            "FileETag",
            "ContentDigest",
        ],
    ),
    ("dir_module", &["DirectorySlash", "FallbackResource", "DirectoryCheckHandler"]),
    ("ident_module", &["IdentityCheck"]),
    ("speling_module", &["CheckSpelling"]),
    ("expires_module", &["ExpiresDefault"]),
    (
        "cache_module",
        &[
            "CacheDefaultExpire",
            "CacheMaxExpire",
            "CacheMinExpire",
            "CacheStorePrivate",
            "CacheStoreNoStore",
            "CacheLastModifiedFactor",
        ],
    ),
    ("cache_disk_module", &["CacheMaxFileSize", "CacheMinFileSize", "CacheReadSize"]),
    ("proxy_module", &["ProxyErrorOverride", "ProxyPreserveHost"]),
    ("proxy_fcgi_module", &["ProxyFCGIBackendType"]),
    ("rewrite_module", &["RewriteEngine", "RewriteOptions"]),
    ("session_module", &["Session", "SessionMaxAge"]),
    (
        "security2_module",
        &["SecRuleEngine", "SecRequestBodyAccess", "SecResponseBodyAccess", "SecAuditEngine"],
    ),
    ("bw_module", &["BandWidth", "MinBandWidth", "LargeFileLimit", "MaxConnection", "BandWidthError"]),
    ("limitipconn_module", &["MaxConnPerIP"]),
    ("lua_module", &["LuaCodeCache"]),
    (
        "perl_module",
        &["PerlResponseHandler", "PerlHandler", "PerlOptions", "PerlSendHeader", "PerlInterpScope"],
    ),
    ("xsendfile_module", &["XSendFile"]),
    ("pagespeed_module", &["ModPagespeed"]),
    ("passenger_module", &["PassengerEnabled", "PassengerMinInstances", "PassengerMaxRequests"]),
];

/// Every directive of the lists, by each of its names in lower case.
static KNOWN: LazyLock<HashMap<String, Known>> = LazyLock::new(|| {
    let mut known: HashMap<String, Known> = HashMap::new();
    for directive in DIRECTIVES {
        known.extend(directive.names.iter().map(|name| (name.to_ascii_lowercase(), *directive)));
    }
    for (table, level) in [(SERVER, Server), (HOST, Host), (DIRECTORY, Directory)] {
        for (module, names) in table {
            for name in *names {
                let directive = of(module, std::slice::from_ref(name), level, Last, Show::All, None);
                known.insert(name.to_ascii_lowercase(), directive);
            }
        }
    }
    known
});

/// A directive by any of its names, in any case; `None` when nothing of it may be shown.
pub fn find(name: &str) -> Option<&'static Known> {
    const NAME_BYTES_MAX: usize = 64;
    (name.len() <= NAME_BYTES_MAX).then(|| KNOWN.get(&name.to_ascii_lowercase())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directive_is_listed_once() {
        let tables = [SERVER, HOST, DIRECTORY];
        let plain = tables.iter().flat_map(|table| table.iter()).flat_map(|(_, names)| names.iter());
        let shaped = DIRECTIVES.iter().flat_map(|directive| directive.names.iter());
        let mut names: Vec<String> = plain.chain(shaped).map(|name| name.to_ascii_lowercase()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| find(name).is_some()));
    }

    #[test]
    fn directives_that_hold_secrets_are_not_listed() {
        for name in [
            "RequestHeader",
            "DBDParams",
            "AuthLDAPBindPassword",
            "SSLPassPhraseDialog",
            "SessionCryptoPassphrase",
            "SSLProxyMachineCertificateFile",
            "PassEnv",
            "PerlSetVar",
            "PerlSetEnv",
            "FcgidInitialEnv",
            "DOSEmailNotify",
            "DOSSystemCommand",
            "OIDCClientSecret",
            "SecRule",
            "CustomLog",
            "Define",
        ] {
            assert!(find(name).is_none(), "{name}");
        }
    }
}
