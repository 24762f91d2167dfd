//! Files of nginx: one for all, one of the site.

use super::{PROTECTED_FOR, Rendered, inner_socket, key};
use crate::draw::server::{Extra, LogTarget, Pages, Server, Status};
use std::fmt::Write;

pub fn render(server: &Server, rendered: &mut Rendered) {
    rendered.file("/etc/nginx/nginx.conf", main(server));
    rendered.file(format!("/etc/nginx/conf.d/{}.conf", server.names.site), site(server));
}

fn main(server: &Server) -> String {
    let settings = &server.settings;
    let workers = settings.nginx_workers.map_or("auto".to_owned(), |workers| workers.to_string());
    let format = match server.names.log_format {
        "timed" => "'$remote_addr [$time_local] \"$request\" $status $body_bytes_sent $request_time'",
        "common" => "'$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent'",
        _ => {
            "'$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \"$http_user_agent\"'"
        }
    };
    let target = match settings.log {
        LogTarget::SlowDisk => format!("/var/log/{}/access.log", server.names.site),
        _ => "/var/log/nginx/access.log".into(),
    };
    let compression = settings.compression.map_or("gzip off;".to_owned(), |level| {
        format!("gzip on;\n    gzip_comp_level {level};\n    gzip_types text/css text/plain application/javascript;\n    gzip_proxied any;")
    });
    let files =
        settings.nginx_files.map_or(String::new(), |files| format!("worker_rlimit_nofile {files};\n"));
    let zone = settings.limit_req.map_or(String::new(), |rate| {
        format!(
            "    limit_req_zone $server_name zone=all:1m rate={rate}r/s;\n    limit_req zone=all burst=400;\n"
        )
    });
    format!(
        "user www-data;\nworker_processes {workers};\n{files}pid /run/nginx.pid;\nerror_log /var/log/nginx/error.log;\n\
         include /etc/nginx/modules-enabled/*.conf;\n\nevents {{\n    worker_connections {};\n}}\n\nhttp {{\n    \
         sendfile on;\n    include /etc/nginx/mime.types;\n    default_type application/octet-stream;\n    \
         log_format site {format};\n    access_log {target} site;\n    keepalive_timeout {};\n    {compression}\n{zone}    \
         include /etc/nginx/conf.d/*.conf;\n}}\n",
        settings.front_connections, settings.keepalive_s
    )
}

fn site(server: &Server) -> String {
    let names = &server.names;
    let port = names.port;
    let mut text = String::new();
    if server.pages == Pages::Proxy {
        let places =
            server.settings.proxy_places.map_or(String::new(), |places| format!(" max_conns={places}"));
        let zone = if places.is_empty() { "" } else { "    zone behind 64k;\n" };
        let _ = write!(
            text,
            "upstream behind {{\n{zone}    server 127.0.0.1:{}{places} max_fails=0;\n}}\n\n",
            names.inner_port
        );
    }
    let tls = if server.tls { " ssl" } else { "" };
    let backlog = server.settings.backlog.map_or(String::new(), |backlog| format!(" backlog={backlog}"));
    let _ = write!(
        text,
        "server {{\n    listen {port}{tls} default_server{backlog};\n    server_name server {}.example;\n    root {};\n",
        names.site, names.root
    );
    text.push_str(&tls_lines(server));
    if let Some(limit) = server.settings.limit_kib_s {
        let _ = writeln!(text, "    limit_rate {limit}k;");
    }
    text.push_str(&status_lines(server));
    text.push_str(&passes(server));
    text.push_str("}\n");
    for other in &names.others {
        let _ = write!(
            text,
            "\nserver {{\n    listen {port}{tls};\n    server_name {other}.example;\n    return 301 http://{}.example/;\n{}}}\n",
            names.site,
            tls_lines(server)
        );
    }
    text
}

/// What makes the pages.
fn passes(server: &Server) -> String {
    let names = &server.names;
    let mut text = String::new();
    match server.pages {
        Pages::FpmUnix | Pages::FpmTcp => {
            let address = match server.pages {
                Pages::FpmTcp => format!("127.0.0.1:{}", names.inner_port),
                _ => format!("unix:{}", inner_socket(server)),
            };
            let _ = write!(
                text,
                "\n    location ~ \\.php$ {{\n        include fastcgi_params;\n        fastcgi_param SCRIPT_FILENAME \
                 $document_root$fastcgi_script_name;\n        fastcgi_pass {address};\n    }}\n"
            );
        }
        Pages::Proxy => {
            let _ = write!(
                text,
                "\n    location /{} {{\n        proxy_pass http://behind;\n    }}\n",
                names.page
            );
            if server.extras.contains(&Extra::Search) {
                let to = names.search(server.settings.misses_search);
                let _ = writeln!(
                    text,
                    "    location /{}/search {{\n        proxy_pass {to};\n    }}",
                    names.page
                );
            }
        }
        _ => {}
    }
    text
}

fn status_lines(server: &Server) -> String {
    let reader = match server.status {
        Status::There => "127.0.0.1",
        Status::Protected => PROTECTED_FOR,
        Status::Absent => return String::new(),
    };
    format!(
        "\n    location = /nginx_status {{\n        stub_status;\n        allow {reader};\n        deny all;\n    }}\n"
    )
}

fn tls_lines(server: &Server) -> String {
    if !server.tls {
        return String::new();
    }
    let key = key(server);
    let sessions = match server.settings.resumes {
        true => "    ssl_session_cache shared:SSL:5m;\n",
        false => "    ssl_session_cache off;\n    ssl_session_tickets off;\n",
    };
    format!("    ssl_certificate {key}.pem;\n    ssl_certificate_key {key}.key;\n{sessions}")
}
