//! nginx with the same certificates and the same static file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use testkit::reserved_address;
use xtask::probe;
use xtask::services::Services;

use super::authority::Leaf;
use super::requests::PATH;
use super::target::Target;
use crate::bench::edge::page;
use crate::bench::nginx;

/// How nginx finds the certificate of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A block `server` for each name. All certificates are in memory, and a change needs a reload.
    Blocks,
    /// One block whose certificate is a file named after the server name. nginx reads it at each handshake.
    Variable,
}

/// The program, and the folders that its processes share.
pub struct Nginx {
    program: PathBuf,
    home: PathBuf,
}

impl Form {
    /// The name of the service.
    pub const fn service(self) -> &'static str {
        match self {
            Self::Blocks => "nginx-blocks",
            Self::Variable => "nginx-variable",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Blocks => "nginx, a block for each name",
            Self::Variable => "nginx, a variable",
        }
    }
}

impl Nginx {
    pub fn new(program: PathBuf, folder: &Path) -> Result<Self> {
        let nginx = Self { program, home: folder.join("nginx") };
        for folder in ["www", "certificates"] {
            fs::create_dir_all(nginx.home.join(folder))?;
        }
        fs::write(nginx.home.join("www").join(PATH.trim_start_matches('/')), page())?;
        Ok(nginx)
    }

    /// Writes the certificate of a name.
    pub fn write(&self, name: &str, leaf: &Leaf) -> Result<()> {
        Ok(fs::write(self.home.join("certificates").join(format!("{name}.pem")), leaf.pem())?)
    }

    /// Starts nginx with the certificates of these names.
    pub async fn start<'a>(
        &self,
        services: &mut Services,
        form: Form,
        names: impl Iterator<Item = &'a String>,
    ) -> Result<Target> {
        let [address, plain] = [(); 2].map(|()| reserved_address());
        let certificates = self.home.join("certificates");
        let certificate = |name: &str| {
            let file = certificates.join(format!("{name}.pem")).display().to_string();
            format!("ssl_certificate {file}; ssl_certificate_key {file};")
        };
        let servers: String = match form {
            Form::Blocks => {
                let block = |name: &String| {
                    format!("server {{ listen {address} ssl http2; server_name {name}; {} }}\n", certificate(name))
                };
                names.map(block).collect()
            }
            Form::Variable => {
                let certificate = certificate("$ssl_server_name");
                format!("server {{ listen {address} ssl http2; {certificate} }}\n")
            }
        };
        let content = format!(
            "{} root {}; server_names_hash_max_size 1048576; server_names_hash_bucket_size 128;
            ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:tls:64m; ssl_session_timeout 1d;
            server {{ listen {plain}; }}
            {servers}",
            nginx::STATIC_FILES,
            self.home.join("www").display()
        );
        let home = self.home.join(form.service());
        let process = nginx::start(services, form.service(), &self.program, &home, &content)?;
        services.supervise(probe::wait_until_ok(plain, PATH)).await?;
        Ok(Target { name: form.name(), address, process })
    }
}
