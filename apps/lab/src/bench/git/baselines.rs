//! `git http-backend` behind nginx, and OpenSSH, each with its own folder and port.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use testkit::reserved_address;
use tokio::process::Command;
use xtask::probe;
use xtask::services::Services;

use crate::bench::machine::find_installed;
use crate::bench::nginx;
use crate::bench::report::version;
use crate::git_host::{GitHost, stdout};

/// The password of the user `git` at nginx. As with the node, the client first sends a request without the password,
/// and repeats it with the password.
const PASSWORD: &str = "password";

/// A server that is compared with the node.
pub struct Baseline {
    pub name: &'static str,
    pub version: String,
    pub over_ssh: bool,
    /// The URL before the name of a repository.
    base: String,
    pub repositories: PathBuf,
}

impl Baseline {
    /// Returns the URL of a repository.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}.git", self.base)
    }
}

/// Starts the baselines. Each is an error if it is not installed.
pub async fn start(services: &mut Services, folder: &Path, host: &GitHost) -> Result<[Result<Baseline>; 2]> {
    let repositories = folder.join("baseline");
    fs::create_dir(&repositories)?;
    let nginx = start_nginx(services, folder, &repositories).await;
    Ok([nginx, start_sshd(services, folder, &repositories, host).await])
}

async fn start_nginx(services: &mut Services, folder: &Path, repositories: &Path) -> Result<Baseline> {
    let program = find_installed("nginx", "nginx-light")?;
    let fcgiwrap = find_installed("fcgiwrap", "fcgiwrap")?;
    let programs = stdout(Command::new("git").arg("--exec-path")).await?;
    let backend = Path::new(&programs).join("git-http-backend");
    ensure!(backend.is_file(), "git-http-backend is not installed");
    let (address, home) = (reserved_address(), folder.join("nginx"));
    fs::create_dir_all(&home)?;
    let socket = home.join("fcgiwrap.sock");
    services.start("fcgiwrap", &fcgiwrap, folder, |it| {
        it.args(["-c", "16", "-s"]).arg(format!("unix:{}", socket.display()));
    })?;
    fs::write(home.join("passwords"), format!("git:{{PLAIN}}{PASSWORD}\n"))?;
    let content = format!(
        "client_max_body_size 0;
            server {{
                listen {address};
                location = /ready {{ return 200; }}
                location / {{
                    auth_basic git; auth_basic_user_file {home}/passwords;
                    fastcgi_pass unix:{socket};
                    fastcgi_buffering off; fastcgi_request_buffering off;
                    fastcgi_param SCRIPT_FILENAME {backend};
                    fastcgi_param GIT_PROJECT_ROOT {root}; fastcgi_param GIT_HTTP_EXPORT_ALL 1;
                    fastcgi_param PATH_INFO $uri; fastcgi_param QUERY_STRING $query_string;
                    fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REMOTE_USER $remote_user;
                    fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;
                    fastcgi_param GIT_PROTOCOL $http_git_protocol;
                }}
            }}",
        home = home.display(),
        socket = socket.display(),
        backend = backend.display(),
        root = repositories.display(),
    );
    nginx::start(services, "nginx", &program, &home, &content)?;
    services.supervise(probe::wait_until_ok(address, "/ready")).await?;
    let base = format!("http://git:{PASSWORD}@{address}");
    let (name, version) = ("git http-backend, nginx", version(&program, &["-v"])?);
    Ok(Baseline { name, version, over_ssh: false, base, repositories: repositories.to_owned() })
}

async fn start_sshd(services: &mut Services, folder: &Path, repositories: &Path, host: &GitHost) -> Result<Baseline> {
    let sshd = find_installed("sshd", "openssh-server")?;
    let (address, home) = (reserved_address(), folder.join("sshd"));
    fs::create_dir_all(&home)?;
    let key = home.join("host_key");
    stdout(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key)).await?;
    fs::copy(host.client.key().with_extension("pub"), home.join("authorized_keys"))?;
    let shown = home.display();
    let config = format!(
        "ListenAddress {address}\nHostKey {shown}/host_key\nAuthorizedKeysFile {shown}/authorized_keys\nPidFile none\n\
         UsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n\
         AcceptEnv GIT_PROTOCOL\nMaxStartups 1000\nPrintMotd no\nLogLevel ERROR\n"
    );
    let file = home.join("sshd_config");
    fs::write(&file, config)?;
    if rustix::process::geteuid().is_root() {
        // If root starts sshd, sshd requires this folder.
        fs::create_dir_all("/run/sshd").context("/run/sshd")?;
    }
    services.start("sshd", &sshd, folder, |it| {
        it.args(["-D", "-e", "-f"]).arg(&file);
    })?;
    let user = stdout(Command::new("id").arg("-un")).await?;
    let base = format!("ssh://{user}@{address}{}", repositories.display());
    let version = version("ssh", &["-V"])?;
    Ok(Baseline { name: "git, OpenSSH", version, over_ssh: true, base, repositories: repositories.to_owned() })
}
