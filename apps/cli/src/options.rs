//! Options that several commands have.

use std::path::PathBuf;

use client::Paging;

/// Which part of a list
#[derive(clap::Args)]
pub struct Part {
    /// The most items to list
    #[arg(long, value_name = "N")]
    limit: Option<i64>,
    /// The cursor at which the previous part ended
    #[arg(long)]
    cursor: Option<String>,
}

impl Part {
    pub fn paging(&self) -> Paging {
        Paging { limit: self.limit, cursor: self.cursor.clone() }
    }
}

/// A folder to work on
#[derive(clap::Args)]
pub struct Folder {
    /// The folder that holds svc.json
    #[arg(default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
}
