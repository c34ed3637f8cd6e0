//! Arguments that several commands share.

use std::path::PathBuf;

use client::Paging;

/// A page of a listing
#[derive(clap::Args)]
pub struct PageArgs {
    /// Maximum number of items
    #[arg(long, value_name = "N")]
    limit: Option<i64>,
    /// Cursor from the previous page
    #[arg(long)]
    cursor: Option<String>,
}

impl PageArgs {
    pub fn paging(&self) -> Paging {
        Paging { limit: self.limit, cursor: self.cursor.clone() }
    }
}

/// The project folder
#[derive(clap::Args)]
pub struct FolderArgs {
    /// Folder that contains svc.json
    #[arg(default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
}
