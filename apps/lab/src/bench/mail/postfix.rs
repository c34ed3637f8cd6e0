//! Debian's Postfix, with its own configuration and queue, and a server that accepts its mail.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use testkit::reserved_address;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::sleep;
use xtask::services::Services;

use crate::bench::machine::find_installed;
use crate::bench::report;
use crate::usage;

/// A recipient whose mail stays in the queue.
pub const HELD: &str = "held@example.org";
/// A recipient whose mail is relayed.
pub const RELAYED: &str = "box@example.org";
/// The longest wait for Postfix and its server.
const START_TIMEOUT: Duration = Duration::from_secs(60);

const MASTER: &str = "\
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
smtp unix - - n - - smtp
relay unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
proxymap unix - - n - - proxymap
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
";

/// Returns the version of the installed Postfix.
pub fn version() -> Result<String> {
    let number = report::version(find_installed("postconf", "postfix")?, &["-d", "-h", "mail_version"])?;
    Ok(format!("Postfix {number}"))
}

/// A running Postfix.
pub struct Postfix {
    pub address: SocketAddr,
    /// The server that accepts its mail.
    pub sink: SocketAddr,
    queue: PathBuf,
    master: u32,
}

impl Postfix {
    /// Starts both. Postfix must be started by root. It has no limits for a client, and does not write a log.
    pub async fn start(services: &mut Services, folder: &Path) -> Result<Self> {
        let (postfix, sink) = (find_installed("postfix", "postfix")?, find_installed("smtp-sink", "postfix")?);
        ensure!(rustix::process::geteuid().is_root(), "Postfix must be started by root");
        let home = folder.join("postfix");
        let [configuration, queue, data] = ["etc", "queue", "data"].map(|name| home.join(name));
        for folder in [&configuration, &queue, &data] {
            fs::create_dir_all(folder)?;
        }
        let changed = Command::new("chown").arg("postfix").arg(&data).status().await?;
        ensure!(changed.success(), "there is no user postfix");
        let (address, sink_address) = (reserved_address(), reserved_address());
        let settings = format!(
            "compatibility_level = 3.6\nqueue_directory = {}\ndata_directory = {}\ncommand_directory = /usr/sbin\n\
             daemon_directory = /usr/lib/postfix/sbin\nmail_owner = postfix\nsetgid_group = postdrop\n\
             myhostname = mx.localhost\nmydestination =\nmynetworks = 127.0.0.0/8\ninet_interfaces = 127.0.0.1\n\
             inet_protocols = ipv4\nalias_maps =\ndefault_process_limit = 1000\nsmtpd_client_connection_count_limit = 0\n\
             smtpd_peername_lookup = no\nin_flow_delay = 0\nrelayhost = [127.0.0.1]:{}\nsmtp_dns_support_level = disabled\n\
             smtpd_recipient_restrictions = check_recipient_access inline:{{{HELD}=HOLD}}, permit\n",
            queue.display(),
            data.display(),
            sink_address.port(),
        );
        fs::write(configuration.join("main.cf"), settings)?;
        fs::write(configuration.join("master.cf"), format!("{address} inet n - n - - smtpd\n{MASTER}"))?;
        services.start("smtp-sink", &sink, folder, |it| {
            it.args(["-u", "nobody", &sink_address.to_string(), "1000"]);
        })?;
        services.start("postfix", &postfix, folder, |it| {
            it.arg("-c").arg(&configuration).arg("start-fg");
        })?;
        let start = Instant::now();
        for address in [address, sink_address] {
            while TcpStream::connect(address).await.is_err() {
                ensure!(start.elapsed() < START_TIMEOUT, "nothing listens on {address}");
                sleep(Duration::from_millis(100)).await;
            }
        }
        let master = fs::read_to_string(queue.join("pid/master.pid")).context("Postfix did not start")?;
        Ok(Self { address, sink: sink_address, queue, master: master.trim().parse()? })
    }

    /// Returns the number of mails that are held.
    pub fn held(&self) -> Result<usize> {
        count(&self.queue.join("hold"))
    }

    /// Returns the number of mails that were not relayed.
    pub fn queued(&self) -> Result<usize> {
        ["incoming", "active", "deferred"].iter().map(|name| count(&self.queue.join(name))).sum()
    }

    /// Returns the memory of all processes, in MB.
    pub fn memory(&self) -> Result<f64> {
        let children = usage::children(self.master)?;
        children.into_iter().chain([self.master]).map(usage::proportional_memory).sum()
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        // The script that the services stop does not stop the daemon.
        let _ = crate::bench::machine::kill(self.master);
    }
}

/// Counts the files in a folder and its subfolders.
fn count(folder: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files += if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 };
    }
    Ok(files)
}
