//! The addresses of the sandbox, and the server settings that refer to them.

use std::net::SocketAddr;

use anyhow::Result;

use super::{base_url, listen_address, reachable_address};
use crate::setting::read_setting;
use xtask::workspace;

/// An identity provider: the name in addresses, the setting of the address for browsers, and the settings of the other
/// addresses with their paths. The empty path is the issuer.
type IdentityProvider = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The identity providers of end users.
const IDENTITY_PROVIDERS: [IdentityProvider; 3] = [
    (
        "codehost",
        "SVC_NODE_AUTH_CODEHOST_AUTHORIZE_URL",
        &[("SVC_NODE_AUTH_CODEHOST_TOKEN_URL", "/token"), ("SVC_NODE_AUTH_CODEHOST_USER_URL", "/user")],
    ),
    (
        "webaccount",
        "SVC_NODE_AUTH_WEBACCOUNT_AUTHORIZE_URL",
        &[
            ("SVC_NODE_AUTH_WEBACCOUNT_TOKEN_URL", "/token"),
            ("SVC_NODE_AUTH_WEBACCOUNT_USER_URL", "/user"),
            ("SVC_NODE_AUTH_WEBACCOUNT_JWKS_URL", "/jwks"),
            ("SVC_NODE_AUTH_WEBACCOUNT_ISSUER", ""),
        ],
    ),
    (
        "messenger",
        "SVC_NODE_AUTH_MESSENGER_AUTHORIZE_URL",
        &[
            ("SVC_NODE_AUTH_MESSENGER_TOKEN_URL", "/token"),
            ("SVC_NODE_AUTH_MESSENGER_USER_URL", "/user"),
            ("SVC_NODE_AUTH_MESSENGER_JWKS_URL", "/jwks"),
            ("SVC_NODE_AUTH_MESSENGER_ISSUER", ""),
        ],
    ),
];

/// The addresses of the sandbox.
pub struct Sandbox {
    /// The address of the web pages and the code host.
    pub http: SocketAddr,
    /// The base URL of the web pages, if configured.
    url: Option<String>,
    smtp: SocketAddr,
    sns: SocketAddr,
    /// The address of the name server.
    pub dns: SocketAddr,
    s3: SocketAddr,
}

impl Sandbox {
    pub fn read() -> Result<Self> {
        Ok(Self {
            http: listen_address("SVC_SANDBOX_LISTEN", 8090)?,
            url: read_setting("SVC_SANDBOX_URL")?,
            smtp: listen_address("SVC_SANDBOX_SMTP_LISTEN", 8025)?,
            sns: listen_address("SVC_SANDBOX_SNS_LISTEN", 8091)?,
            dns: listen_address("SVC_SANDBOX_DNS_LISTEN", 8053)?,
            s3: listen_address("SVC_SANDBOX_S3_LISTEN", 8092)?,
        })
    }

    /// Returns the addresses with the names of their settings.
    pub fn listeners(&self) -> [(&'static str, SocketAddr); 5] {
        [
            ("SVC_SANDBOX_LISTEN", self.http),
            ("SVC_SANDBOX_SMTP_LISTEN", self.smtp),
            ("SVC_SANDBOX_SNS_LISTEN", self.sns),
            ("SVC_SANDBOX_DNS_LISTEN", self.dns),
            ("SVC_SANDBOX_S3_LISTEN", self.s3),
        ]
    }

    /// Returns the base URL of the web pages, and of the pages that take the place of a dashboard.
    pub fn url(&self) -> String {
        self.url.as_deref().map_or_else(|| base_url(self.http), |url| url.trim_end_matches('/').to_owned())
    }

    /// Returns the default settings of the sandbox, and those with which the other programs use it. They contain the only
    /// credentials and objects that the sandbox knows.
    pub fn settings(&self, api: &str, dashboard: &str) -> Result<Vec<(&'static str, String)>> {
        let root = workspace::root()?;
        let file = |path: &str| root.join(path).display().to_string();
        let url = |path: &str| format!("{}{path}", base_url(self.http));
        let (dns, smtp) = (reachable_address(self.dns).to_string(), reachable_address(self.smtp));
        let mut settings = vec![
            ("SVC_SANDBOX_URL", self.url()),
            ("SVC_SANDBOX_API_URL", api.to_owned()),
            ("SVC_DNS_RESOLVER", dns.clone()),
            ("SVC_MX_RESOLVER", dns),
            ("SVC_SMTP_URL", format!("smtp://{smtp}?tls=none")),
            ("SVC_MAIL_FROM", "svc <no-reply@svc.example>".into()),
            ("SVC_MAILHOOK_TOPIC_ARN", "arn:aws:sns:us-east-1:123456789012:mail".into()),
            ("SVC_MAILHOOK_CERT_HOSTS", format!("localhost:{}", self.sns.port())),
            ("SVC_MAILHOOK_CA", file("apps/sandbox/keys/authority.pem")),
            ("SVC_CODEHOST_CLIENT_ID", "svc-client".into()),
            ("SVC_CODEHOST_CLIENT_SECRET", "svc-client-hush".into()),
            ("SVC_CODEHOST_AUTHORIZE_URL", format!("{}/login/oauth/authorize", self.url())),
            ("SVC_CODEHOST_TOKEN_URL", url("/login/oauth/access_token")),
            ("SVC_CODEHOST_USER_URL", url("/user")),
            // `svc login` listens for the redirect on an arbitrary loopback port.
            ("SVC_CODEHOST_REDIRECTS", format!("{api},{dashboard},http://127.0.0.1")),
            ("SVC_LENDING_URL", url("/lending")),
            ("SVC_LENDING_SECRET", "whsec_c2FuZGJveCBsZW5kaW5nIHNlY3JldA==".into()),
            ("SVC_PAYMENTS_URL", url("/polar/v1")),
            ("SVC_PAYMENTS_TOKEN", "polar_oat_sandbox".into()),
            ("SVC_PAYMENTS_WEBHOOK_SECRET", "polar_whs_sandbox".into()),
            ("SVC_PAYMENTS_PRO_PRODUCT", "c2d3a1b0-0000-4000-8000-000000000001".into()),
            ("SVC_PAYMENTS_CREDIT_PRODUCT", "c2d3a1b0-0000-4000-8000-000000000002".into()),
            ("SVC_PAYMENTS_TOPUP_PRODUCT", "c2d3a1b0-0000-4000-8000-000000000004".into()),
            ("SVC_PAYMENTS_DOMAIN_PRODUCT", "c2d3a1b0-0000-4000-8000-000000000003".into()),
            ("SVC_PAYMENTS_SANDBOX", "on".into()),
            ("SVC_REGISTRAR_URL", url("/registrar")),
            ("SVC_REGISTRAR_USER", "svc-sandbox".into()),
            ("SVC_REGISTRAR_TOKEN", "registrar-sandbox-hush".into()),
            ("SVC_AI_MODELS", file("deploy/ai-models.example.json")),
            ("SVC_NODE_AI_URL", url("/openai/v1")),
            ("SVC_NODE_AI_KEY", "sk-sandbox".into()),
        ];
        settings.extend(self.listeners().map(|(name, listen)| (name, listen.to_string())));
        // Browsers open the authorize URL and the issuer is the same address; the node calls the others.
        for (provider, authorize, endpoints) in IDENTITY_PROVIDERS {
            let [browser, node] = [self.url(), base_url(self.http)].map(|base| format!("{base}/identity/{provider}"));
            settings.push((authorize, format!("{browser}/authorize")));
            settings.extend(endpoints.iter().map(|(setting, path)| {
                let base = if path.is_empty() { &browser } else { &node };
                (*setting, format!("{base}{path}"))
            }));
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other programs call the sandbox at its listeners.
    #[test]
    fn only_addresses_for_browsers_have_the_configured_url() {
        let listen = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let sandbox = Sandbox {
            http: listen(1),
            url: Some("https://box.example/".to_owned()),
            smtp: listen(2),
            sns: listen(3),
            dns: listen(4),
            s3: listen(5),
        };
        let settings = sandbox.settings("http://api.example", "http://dashboard.example").unwrap();
        let for_browsers = settings.iter().filter(|(_, value)| value.starts_with("https://box.example"));
        let mut names: Vec<_> = for_browsers.map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "SVC_CODEHOST_AUTHORIZE_URL",
                "SVC_NODE_AUTH_CODEHOST_AUTHORIZE_URL",
                "SVC_NODE_AUTH_MESSENGER_AUTHORIZE_URL",
                "SVC_NODE_AUTH_MESSENGER_ISSUER",
                "SVC_NODE_AUTH_WEBACCOUNT_AUTHORIZE_URL",
                "SVC_NODE_AUTH_WEBACCOUNT_ISSUER",
                "SVC_SANDBOX_URL",
            ]
        );
    }
}
