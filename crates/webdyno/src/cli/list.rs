//! The flags of a list of URLs.

use super::body::BodyArgs;
use clap::Args;
use std::path::PathBuf;
use webdyno_load::workload::file::Draft;
use webdyno_load::workload::urls;
use webdyno_model::workload::visit::Auth;
use webdyno_model::{Result, UserError};

/// Which list is loaded, and in which order.
#[derive(Debug, Clone, Default, Args)]
pub struct ListArgs {
    /// Load the URLs in FILE, in turn (- for stdin)
    ///
    /// One per line, as for siege: `URL POST BODY`, `URL POST <FILE`, variables, comments; `#weight=N` behind a URL makes
    /// it N times as frequent
    #[arg(id = "url_list", long = "urls", value_name = "FILE", conflicts_with = "urls")]
    pub file: Option<PathBuf>,
    /// Load the URLs of --urls in random order
    #[arg(long, requires = "url_list")]
    pub random: bool,
}

impl ListArgs {
    /// The list as what is to be loaded, with these headers on each request. A usage error for one that is wrong, or that is
    /// to be sent with a body that its lines do not have.
    pub fn draft(
        &self,
        method: Option<&str>,
        headers: &[(String, String)],
        body: &BodyArgs,
        auth: Option<Auth>,
    ) -> Result<Draft> {
        let Some(file) = &self.file else { return Ok(Draft::default()) };
        if body.is_given() {
            return Err(UserError::usage("the lines of --urls say themselves what they send")
                .hint("write the body behind a URL, as in http://localhost/login POST name=me"));
        }
        let list = urls::read(file, method.unwrap_or("GET"))?;
        if self.random && !list.entries.weights.is_empty() {
            return Err(UserError::usage(format!(
                "{} says by weights how its URLs are drawn",
                file.display()
            ))
            .hint("leave --random out, or the weights"));
        }
        let mut draft = Draft::from_list(list, &file.display().to_string(), headers, self.random);
        draft.requests.iter_mut().for_each(|request| request.auth.clone_from(&auth));
        Ok(draft)
    }
}
