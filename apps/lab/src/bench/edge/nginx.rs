//! nginx, tuned for static files and started as a child process with its own folder and port.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use xtask::probe;
use xtask::services::Services;

use super::requests;
use testkit::reserved_address;

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
    let config = home.join("nginx.conf");
    fs::write(&config, configuration(&home, address))?;
    services.start("nginx", program, folder, |it| {
        it.arg("-p").arg(&home).arg("-c").arg(&config).args(["-e", "stderr"]);
    })?;
    services.supervise(probe::wait_until_ok(address, "/page.html")).await?;
    Ok(address)
}

/// Returns a configuration with as many workers as the node has, and the usual performance options. Workers that root
/// starts must remain root, because their default account cannot read the folder.
fn configuration(home: &Path, address: SocketAddr) -> String {
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let home = home.display();
    format!(
        "{user} worker_processes {workers}; daemon off; pid {home}/pid; error_log stderr;
        events {{ worker_connections 4096; }}
        http {{
            access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; etag on; gzip_static on; gzip_vary on;
            keepalive_requests 1000000000; open_file_cache max=1000 inactive=1h; open_file_cache_valid 1h;
            client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;
            uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;
            types {{ text/html html; }}
            server {{ listen {address}; root {home}/www; }}
        }}",
        workers = std::thread::available_parallelism().map_or(1, usize::from),
    )
}
