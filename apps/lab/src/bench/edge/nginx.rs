//! nginx, tuned for static files.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use testkit::reserved_address;
use xtask::probe;
use xtask::services::Services;

use super::requests;
use crate::bench::nginx;

/// Starts nginx with the page that the node serves, precompressed with gzip like the node's.
pub async fn start(services: &mut Services, folder: &Path, program: &Path) -> Result<SocketAddr> {
    let (address, home) = (reserved_address(), folder.join("nginx"));
    let www = home.join("www");
    fs::create_dir_all(&www)?;
    let page = requests::page();
    fs::write(www.join("page.html"), &page)?;
    let mut gzip = GzEncoder::new(fs::File::create(www.join("page.html.gz"))?, Compression::best());
    gzip.write_all(&page)?;
    gzip.finish()?;
    let root = www.display();
    let content = format!(
        "{} gzip_static on; gzip_vary on;
            server {{ listen {address}; root {root}; }}",
        nginx::STATIC_FILES
    );
    nginx::start(services, "nginx", program, &home, &content)?;
    services.supervise(probe::wait_until_ok(address, "/page.html")).await?;
    Ok(address)
}
