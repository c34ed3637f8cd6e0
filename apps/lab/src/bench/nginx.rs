//! nginx as a child process with its own folder.

use std::fs;
use std::path::Path;

use anyhow::Result;
use xtask::services::Services;

/// The usual performance options for static files.
pub const STATIC_FILES: &str = "sendfile on; tcp_nopush on; etag on; open_file_cache max=1000 inactive=1h; \
                                open_file_cache_valid 1h; types { text/html html; }";

/// Starts nginx with this content of its block `http`, and returns its process id. It has as many workers as a node.
/// Workers that root starts must remain root, because their default account cannot read the folder.
pub fn start(services: &mut Services, name: &'static str, program: &Path, home: &Path, content: &str) -> Result<u32> {
    fs::create_dir_all(home)?;
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let shown = home.display();
    let configuration = format!(
        "{user} worker_processes {workers}; daemon off; pid {shown}/pid; error_log stderr;
        events {{ worker_connections 4096; }}
        http {{
            access_log off; tcp_nodelay on; keepalive_requests 1000000000;
            client_body_temp_path {shown}/a; proxy_temp_path {shown}/b; fastcgi_temp_path {shown}/c;
            uwsgi_temp_path {shown}/d; scgi_temp_path {shown}/e;
            {content}
        }}"
    );
    let file = home.join("nginx.conf");
    fs::write(&file, configuration)?;
    services.start(name, program, home, |it| {
        it.arg("-p").arg(home).arg("-c").arg(&file).args(["-e", "stderr"]);
    })
}
