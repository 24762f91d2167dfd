//! For Varnish: VCL 4.1, <https://varnish-cache.org/docs/7.4/reference/vcl.html>. Requests for an answer that is being fetched wait for
//! it, and get the last one while it is renewed (grace).

use super::Kept;
use std::fmt::Write as _;
use webdyno_model::{Result, UserError};

/// The file. An error where the site speaks TLS, which Varnish does not.
pub(super) fn config(kept: &Kept<'_>) -> Result<String> {
    if kept.origin.scheme() == "https" {
        return Err(UserError::cannot_run(
            "Varnish speaks no TLS to what is behind it, and the URLs of this session are https",
        )
        .hint("give it a plain listener of the site, or take --cache-for nginx"));
    }
    let mut out = String::from("vcl 4.1;\n\n");
    out.push_str(&kept.head("#", "varnishd -a :8088 -f FILE; clients go to its port."));
    let (host, port) =
        (kept.origin.host_str().unwrap_or("127.0.0.1"), kept.origin.port_or_known_default().unwrap_or(80));
    let _ = writeln!(
        out,
        "backend default {{\n    .host = \"{}\";\n    .port = \"{port}\";\n}}\n\nsub vcl_recv {{",
        host.trim_matches(['[', ']'])
    );
    out.push_str(
        "    if (req.method != \"GET\" && req.method != \"HEAD\") {\n        return (pass);\n    }\n",
    );
    out.push_str("    if (req.http.Cookie || req.http.Authorization) {\n        return (pass);\n    }\n");
    let others: Vec<String> = kept.targets.iter().map(|target| format!("req.url != \"{target}\"")).collect();
    let _ = writeln!(
        out,
        "    if ({}) {{\n        return (pass);\n    }}\n    return (hash);\n}}\n",
        others.join("\n        && ")
    );
    out.push_str(
        "sub vcl_backend_response {\n    if (bereq.uncacheable) {\n        return (deliver);\n    }\n    \
         if (beresp.status != 200 || beresp.http.Set-Cookie || beresp.http.Vary ~ \"(?i)(\\*|cookie)\"\n        \
         || beresp.http.Cache-Control ~ \"(?i)(private|no-store|no-cache)\") {\n        \
         set beresp.ttl = 120s;\n        set beresp.uncacheable = true;\n        return (deliver);\n    }\n    \
         set beresp.ttl = 1s;\n    set beresp.grace = 1s;\n    return (deliver);\n}\n",
    );
    Ok(out)
}
