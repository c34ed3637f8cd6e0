//! The sandbox's listeners, and the server's settings that point to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use settings::Secret;

use super::{address, base, reachable};
use crate::setting::given;

/// The listeners of the sandbox.
pub struct Sandbox {
    /// The web pages and the code host.
    pub http: SocketAddr,
    smtp: SocketAddr,
    dns: SocketAddr,
}

impl Sandbox {
    pub fn read() -> Result<Self> {
        Ok(Self {
            http: address("SVC_SANDBOX_LISTEN", 8090)?,
            smtp: address("SVC_SANDBOX_SMTP_LISTEN", 8025)?,
            dns: address("SVC_SANDBOX_DNS_LISTEN", 8053)?,
        })
    }

    /// The listeners, and the settings that move them.
    pub fn listeners(&self) -> [(&'static str, SocketAddr); 3] {
        [
            ("SVC_SANDBOX_LISTEN", self.http),
            ("SVC_SANDBOX_SMTP_LISTEN", self.smtp),
            ("SVC_SANDBOX_DNS_LISTEN", self.dns),
        ]
    }

    /// Points the server to the sandbox, except where its settings name another system.
    pub fn add_settings(&self, values: &mut BTreeMap<&'static str, String>) -> Result<()> {
        values.extend(self.listeners().map(|(name, listen)| (name, listen.to_string())));
        if given::<SocketAddr>("SVC_DNS_RESOLVER")?.is_none() {
            values.insert("SVC_DNS_RESOLVER", reachable(self.dns).to_string());
        }
        if given::<Secret>("SVC_SMTP_URL")?.is_none() {
            values.insert("SVC_SMTP_URL", format!("smtp://{}?tls=none", reachable(self.smtp)));
            let sender = given::<String>("SVC_MAIL_FROM")?;
            values.insert("SVC_MAIL_FROM", sender.unwrap_or_else(|| "svc <no-reply@svc.example>".to_owned()));
        }
        if given::<String>("SVC_CODEHOST_CLIENT_ID")?.is_none() {
            let url = |path: &str| format!("{}{path}", base(self.http));
            // The one client that the sandbox's code host knows.
            values.insert("SVC_CODEHOST_CLIENT_ID", "svc-client".to_owned());
            values.insert("SVC_CODEHOST_CLIENT_SECRET", "svc-client-hush".to_owned());
            values.insert("SVC_CODEHOST_AUTHORIZE_URL", url("/login/oauth/authorize"));
            values.insert("SVC_CODEHOST_TOKEN_URL", url("/login/oauth/access_token"));
            values.insert("SVC_CODEHOST_USER_URL", url("/user"));
        }
        let own = ["SVC_PUBLIC_URL", "SVC_DASHBOARD_URL"].map(|name| values.get(name).cloned().unwrap_or_default());
        // `svc login` waits for the browser on any port of this machine.
        let redirects = format!("{},http://127.0.0.1", own.join(","));
        if given::<String>("SVC_CODEHOST_REDIRECTS")?.is_none() {
            values.insert("SVC_CODEHOST_REDIRECTS", redirects);
        }
        Ok(())
    }
}
