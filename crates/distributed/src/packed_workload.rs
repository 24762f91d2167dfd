//! A workload as it travels. Written to the event log a workload has lengths in place of bodies and rows; a worker needs both.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use webdyno_model::transport::{Io, TlsOptions};
use webdyno_model::workload::Workload;
use webdyno_model::workload::body::Body;
use webdyno_model::{Result, UserError};

/// A workload with all that is sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PackedWorkload {
    workload: Workload,
    /// Of each request, base64; none for one without.
    bodies: Vec<Option<String>>,
    /// Of each table.
    rows: Vec<Vec<Vec<String>>>,
}

impl PackedWorkload {
    /// Packs it. An error for one that only this machine can send.
    pub fn pack(workload: &Workload) -> Result<Self> {
        check(workload)?;
        let body = |body: &Body| (!body.is_empty()).then(|| STANDARD.encode(body.bytes()));
        let tables = workload.visits.as_ref().map_or(&[][..], |visits| &visits.tables);
        Ok(Self {
            bodies: workload.requests.iter().map(|request| body(&request.body)).collect(),
            rows: tables.iter().map(|table| table.rows.to_vec()).collect(),
            // How many threads a worker has is its own affair.
            workload: Workload { threads: None, ..workload.clone() },
        })
    }

    /// What is in it. An error when it is not whole.
    pub fn unpack(&self) -> Result<Workload> {
        let wrong = || UserError::usage("the workload of the plan is not whole");
        let mut workload = self.workload.clone();
        if workload.requests.len() != self.bodies.len() {
            return Err(wrong());
        }
        for (request, body) in workload.requests.iter_mut().zip(&self.bodies) {
            let bytes = body.as_ref().map(|text| STANDARD.decode(text)).transpose().map_err(|_| wrong())?;
            request.body = Body::from(bytes.unwrap_or_default());
        }
        let tables = workload.visits.as_mut().map_or(&mut [][..], |visits| &mut visits.tables);
        if tables.len() != self.rows.len() {
            return Err(wrong());
        }
        for (table, rows) in tables.iter_mut().zip(&self.rows) {
            table.rows = Arc::new(rows.clone());
        }
        Ok(workload)
    }
}

/// Refuses what names something of this machine, and what does not travel yet.
fn check(workload: &Workload) -> Result<()> {
    let transport = &workload.transport;
    let tls = TlsOptions { insecure: false, no_resumption: false, ..transport.tls.clone() };
    let what = if workload.list.is_some() {
        "a list of requests (--urls, workload from-log)"
    } else if transport.unix_socket.is_some() {
        "a unix socket (--unix-socket)"
    } else if transport.proxy.is_some() {
        "a proxy (--proxy)"
    } else if !transport.source_ips.is_empty() {
        "addresses of this machine (--source-ip)"
    } else if tls != TlsOptions::default() {
        "files of TLS (--cacert, --cert, --key)"
    } else if transport.io == Io::Uring {
        "io_uring (--io uring)"
    } else {
        return Ok(());
    };
    Err(UserError::usage(format!("the workload has {what}, which the workers of --on do not have"))
        .hint("load from this machine, without --on, or leave that out of the workload"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::workload::RequestSpec;
    use webdyno_model::workload::visit::{RequestList, Table, Visits};

    #[test]
    fn bodies_and_rows_travel() {
        let request =
            RequestSpec { url: "http://h/".into(), body: vec![0, 255].into(), ..RequestSpec::default() };
        let plain = RequestSpec { url: "http://h/".into(), ..RequestSpec::default() };
        let rows = Arc::new(vec![vec!["a".to_owned(), "b".to_owned()]]);
        let table = Table { rows, row_count: 1, ..Table::default() };
        let visits = Visits { tables: vec![table], ..Visits::default() };
        let workload = Workload {
            requests: vec![request, plain],
            visits: Some(Box::new(visits)),
            ..Workload::default()
        };
        let text = serde_json::to_string(&PackedWorkload::pack(&workload).unwrap()).unwrap();
        let read: PackedWorkload = serde_json::from_str(&text).unwrap();
        assert_eq!(read.unpack().unwrap(), workload);
    }

    #[test]
    fn what_only_this_machine_has_is_refused() {
        let mut of_this_machine = [(); 5].map(|()| Workload::default());
        of_this_machine[0].list = Some(RequestList::default());
        of_this_machine[1].transport.unix_socket = Some("/run/s".into());
        of_this_machine[2].transport.source_ips = vec![[127, 0, 0, 1].into()];
        of_this_machine[3].transport.tls.ca_file = Some("ca.pem".into());
        of_this_machine[4].transport.proxy = webdyno_model::transport::Proxy::parse("h:3128").ok();
        for workload in of_this_machine {
            let error = PackedWorkload::pack(&workload).unwrap_err();
            assert!(error.exit_code() == 2 && error.hint.is_some(), "{error}");
        }
    }
}
