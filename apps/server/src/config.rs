//! The settings of the control plane (contract section 12).

mod parts;
mod tls;
mod values;

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use billing::BillingConfig;
use dns::Hosting;
use dns::primary::PrimaryConfig;
use gateway::{MaxWaits, SignInMethods};
use kernel::{AbuseLimits, AllowList, ClientId, Limits, OrgId};
use mail::DkimSigner;
use oauth::OAuthConfig;
use objects::{StoreAddress, StoreConfig};
use projects::SiteUrl;
use providers::acme::AcmeConfig;
use providers::{CodeHostConfig, Mailbox, SmtpConfig};
use serde::Deserialize;
use settings::{Claim, Error, Flag, Networks, Secret, Setting, Settings};
use tracing_subscriber::EnvFilter;
use webhooks::SigningKey;
use webhooks::sns::{CertificateHosts, SnsTopic};

use self::parts::{
    LimitsFile, Zones, billing, bundle_store, code_host, database, dkim, domain_product, lending, limits, mail,
    mail_hook, mail_store, oauth, own_domains, registrar, site, zones,
};
use self::tls::{acme, tls};

pub use self::values::{Addresses, CoreLink, Directories, DomainName, GracePeriod, Sockets, SshHost, Url};

settings::table! {
    /// Postgres connection URL: `postgres://user:password@host/database?sslmode=verify-full`, or `postgres:///database?host=/folder&user=name` for a Unix socket. `sslmode` is `disable` (the default) or `verify-full`; `sslrootcert` names a PEM file of root certificates.
    pub DATABASE_URL: Secret = Setting::required("SVC_DATABASE_URL");
    /// Maximum number of pooled Postgres connections. The server opens two more for LISTEN.
    pub DATABASE_CONNECTIONS: NonZeroU16 = Setting::with_default("SVC_DATABASE_CONNECTIONS", "16");
    /// Address of the public listener.
    pub LISTEN: SocketAddr = Setting::with_default("SVC_LISTEN", "127.0.0.1:8080");
    /// Address at which the API is also served over TLS, so that it needs no proxy. Requires an https `SVC_PUBLIC_URL`. The certificate of its host is issued with `SVC_ACME_DIRECTORIES`, or is one of `SVC_TLS_CERTIFICATES`.
    pub TLS_LISTEN: Option<SocketAddr> = Setting::optional("SVC_TLS_LISTEN");
    /// Folder with the operator's own certificates for `SVC_TLS_LISTEN`: `<name>.crt` and `<name>.key`, or `<name>.pem` with both. They come before issued ones. The server reads changed files within seconds.
    pub TLS_CERTIFICATES: Option<PathBuf> = Setting::optional("SVC_TLS_CERTIFICATES");
    /// Address of the internal listener, for nodes and metrics. Never expose it to the internet.
    pub INTERNAL_LISTEN: SocketAddr = Setting::with_default("SVC_INTERNAL_LISTEN", "127.0.0.1:8081");
    /// Base URL of this API, as clients see it.
    pub PUBLIC_URL: Url = Setting::required("SVC_PUBLIC_URL");
    /// Base URL of the dashboard, the only origin that CORS allows.
    pub DASHBOARD_URL: Url = Setting::required("SVC_DASHBOARD_URL");
    /// Enables the development login. Rejected if `SVC_PUBLIC_URL` is an https URL.
    pub ENABLE_DEV_AUTH: Flag = Setting::with_default("SVC_ENABLE_DEV_AUTH", "off");
    /// Keys for sealed values: `id:base64,…`, 32 bytes each. The first key seals; every key opens.
    pub SEALING_KEYS: Secret = Setting::required("SVC_SEALING_KEYS");
    /// Parent domain of the default hostnames.
    pub PLATFORM_DOMAIN: DomainName = Setting::required("SVC_PLATFORM_DOMAIN");
    /// URL of a deployed project, with `{hostname}` as the placeholder. For development it may have a port or use `http`.
    pub SITE_URL: SiteUrl = Setting::with_default("SVC_SITE_URL", "https://{hostname}");
    /// Link to the nodes: `embedded` uses this Postgres. With `off`, requests that need a node fail with `no_core`.
    pub CORE: CoreLink = Setting::with_default("SVC_CORE", "embedded");
    /// CNAME target of custom hostnames.
    pub FALLBACK_ORIGIN: DomainName = Setting::required("SVC_FALLBACK_ORIGIN");
    /// Comma-separated IP addresses of the fallback origin, for hostnames at a zone apex, which cannot be a CNAME. If unset, the user must publish the A and AAAA records of an apex.
    pub FALLBACK_ADDRESSES: Option<Addresses> = Setting::optional("SVC_FALLBACK_ADDRESSES");
    /// Comma-separated names of the platform's nameservers. If unset, the platform hosts no zones.
    pub NAMESERVERS: Option<String> = Setting::optional("SVC_NAMESERVERS");
    /// Domain of the projects' mail addresses.
    pub MAIL_DOMAIN: Option<DomainName> = Setting::optional("SVC_MAIL_DOMAIN");
    /// `ip:port` of the DNS resolver for ownership verification and for the delegations of deleted zones (default: the system's).
    pub DNS_RESOLVER: Option<SocketAddr> = Setting::optional("SVC_DNS_RESOLVER");
    /// Address of the hidden primary, over UDP and TCP, from which the platform's nameservers transfer zones. Never expose it to others. If unset, no zones are transferred.
    pub DNS_LISTEN: Option<SocketAddr> = Setting::optional("SVC_DNS_LISTEN");
    /// TSIG key for zone transfers and NOTIFY: `name:algorithm:base64` with `hmac-sha256`, `hmac-sha384` or `hmac-sha512`.
    pub DNS_TSIG: Option<Secret> = Setting::optional("SVC_DNS_TSIG");
    /// Nameservers that transfer zones: `ip:port,…`, with the port that receives NOTIFY. The primary answers only queries from these addresses.
    pub DNS_SECONDARIES: Option<Sockets> = Setting::optional("SVC_DNS_SECONDARIES");
    /// Name of the catalog zone, which lists the hosted zones for the nameservers (RFC 9432).
    pub DNS_CATALOG: String = Setting::with_default("SVC_DNS_CATALOG", "catalog.invalid");
    /// `ip:port` of the nameserver that signs zones. The server reads keys and serials from it.
    pub DNS_SIGNER: Option<SocketAddr> = Setting::optional("SVC_DNS_SIGNER");
    /// Comma-separated URLs of the directories of certificate authorities (ACME), in the order of preference. If unset, no certificates are issued. With it, you agree to the terms of service of these authorities.
    pub ACME_DIRECTORIES: Option<Directories> = Setting::optional("SVC_ACME_DIRECTORIES");
    /// Mail address that the certificate authorities may notify.
    pub ACME_CONTACT: Option<kernel::Email> = Setting::optional("SVC_ACME_CONTACT");
    /// Comma-separated external account bindings, each `host:key-id:hmac-key`: the host of the directory, and the key ID and the HMAC key (base64url) from the authority.
    pub ACME_EAB: Option<Secret> = Setting::optional("SVC_ACME_EAB");
    /// PEM file with certificate authorities that are trusted for the directories, in addition to those of the system.
    pub ACME_CA: Option<PathBuf> = Setting::optional("SVC_ACME_CA");
    /// ID of the operator's organization. It may host the zones of the platform's own domains. With it and `SVC_ACME_DIRECTORIES`, one wildcard certificate covers all default hostnames, so the organization must host the zone of `SVC_PLATFORM_DOMAIN`, and `SVC_NAMESERVERS` is required.
    pub PLATFORM_ORG: Option<OrgId> = Setting::optional("SVC_PLATFORM_ORG");
    /// OAuth client ID at the code host. If unset, sign-in at a code host is disabled.
    pub CODEHOST_CLIENT_ID: Option<String> = Setting::optional("SVC_CODEHOST_CLIENT_ID");
    /// OAuth client secret at the code host.
    pub CODEHOST_CLIENT_SECRET: Option<Secret> = Setting::optional("SVC_CODEHOST_CLIENT_SECRET");
    /// Authorization endpoint of the code host. This and the other endpoints must use https, except on this machine.
    pub CODEHOST_AUTHORIZE_URL: url::Url = Setting::with_default("SVC_CODEHOST_AUTHORIZE_URL", "https://github.com/login/oauth/authorize");
    /// Token endpoint of the code host.
    pub CODEHOST_TOKEN_URL: url::Url = Setting::with_default("SVC_CODEHOST_TOKEN_URL", "https://github.com/login/oauth/access_token");
    /// User endpoint of the code host.
    pub CODEHOST_USER_URL: url::Url = Setting::with_default("SVC_CODEHOST_USER_URL", "https://api.github.com/user");
    /// Comma-separated base URLs to which the API may redirect a browser after sign-in (default: `SVC_PUBLIC_URL`). `http://127.0.0.1` without a port allows every port, as `svc login` requires.
    pub CODEHOST_REDIRECTS: Option<AllowList> = Setting::optional("SVC_CODEHOST_REDIRECTS");
    /// Issuer of the access tokens of connected apps (RFC 8414): the URL of this API without a path. If unset, sign-in with connected apps is disabled.
    pub OAUTH_ISSUER: Option<Url> = Setting::optional("SVC_OAUTH_ISSUER");
    /// Audience of the access tokens of connected apps (default: the issuer).
    pub OAUTH_AUDIENCE: Option<String> = Setting::optional("SVC_OAUTH_AUDIENCE");
    /// How long an app may repeat a refresh whose response was lost, such as `10s`. At most `60s`.
    pub OAUTH_REFRESH_GRACE: GracePeriod = Setting::with_default("SVC_OAUTH_REFRESH_GRACE", "0s");
    /// Enables the sign-in of devices without a browser (RFC 8628).
    pub OAUTH_DEVICE_FLOW: Flag = Setting::with_default("SVC_OAUTH_DEVICE_FLOW", "off");
    /// Client ID of `svc login --device`, which the metadata shows. Requires `SVC_OAUTH_DEVICE_FLOW`.
    pub OAUTH_CLI_CLIENT_ID: Option<ClientId> = Setting::optional("SVC_OAUTH_CLI_CLIENT_ID");
    /// Base URL of git repositories over HTTPS, as git clients see it. Without it, the API shows no such URLs.
    pub GIT_URL: Option<Url> = Setting::optional("SVC_GIT_URL");
    /// Host of git repositories over SSH, as git clients see it: `host` or `host:port`. Without it, the API shows no such URLs.
    pub GIT_SSH_HOST: Option<SshHost> = Setting::optional("SVC_GIT_SSH_HOST");
    /// Base URL of the payments provider's API, with its version.
    pub PAYMENTS_URL: Option<url::Url> = Setting::optional("SVC_PAYMENTS_URL");
    /// The access token of the payments provider.
    pub PAYMENTS_TOKEN: Option<Secret> = Setting::optional("SVC_PAYMENTS_TOKEN");
    /// The secrets of the payments webhook, separated by commas. Without one, the webhook is off.
    pub PAYMENTS_WEBHOOK_SECRET: Option<Secret> = Setting::optional("SVC_PAYMENTS_WEBHOOK_SECRET");
    /// The product of the pro plan at the payments provider. Without it, billing is off, and no payment method can be saved for automatic top-ups and domains.
    pub PAYMENTS_PRO_PRODUCT: Option<String> = Setting::optional("SVC_PAYMENTS_PRO_PRODUCT");
    /// The product of AI credit at the payments provider. Without it, AI credit is not sold.
    pub PAYMENTS_CREDIT_PRODUCT: Option<String> = Setting::optional("SVC_PAYMENTS_CREDIT_PRODUCT");
    /// The product that automatic top-ups are charged under (one-time, fixed price). Without it, `SVC_PAYMENTS_CREDIT_PRODUCT`.
    pub PAYMENTS_TOPUP_PRODUCT: Option<String> = Setting::optional("SVC_PAYMENTS_TOPUP_PRODUCT");
    /// The product of domains at the payments provider. Without it, domains are free of charge.
    pub PAYMENTS_DOMAIN_PRODUCT: Option<String> = Setting::optional("SVC_PAYMENTS_DOMAIN_PRODUCT");
    /// Whether the payments provider is a test environment without real charges.
    pub PAYMENTS_SANDBOX: Flag = Setting::with_default("SVC_PAYMENTS_SANDBOX", "off");
    /// Base URL of the registrar's API, such as `https://api.name.com`. Without it, domains cannot be bought.
    pub REGISTRAR_URL: Option<url::Url> = Setting::optional("SVC_REGISTRAR_URL");
    /// User of the account at the registrar.
    pub REGISTRAR_USER: Option<String> = Setting::optional("SVC_REGISTRAR_USER");
    /// API token of the account at the registrar.
    pub REGISTRAR_TOKEN: Option<Secret> = Setting::optional("SVC_REGISTRAR_TOKEN");
    /// The catalog of AI models: a JSON file. Without it, no model is offered.
    pub AI_MODELS: Option<PathBuf> = Setting::optional("SVC_AI_MODELS");
    /// Base URL of the model-lending service, which receives ended grants.
    pub LENDING_URL: Option<url::Url> = Setting::optional("SVC_LENDING_URL");
    /// Secret with which messages to the model-lending service are signed (Standard Webhooks): `whsec_` and base64, or raw bytes.
    pub LENDING_SECRET: Option<Secret> = Setting::optional("SVC_LENDING_SECRET");
    /// Outgoing mail server: `smtp://user:password@host:port` or `smtps://…`. With `smtp` and credentials STARTTLS is required, unless the host is local or `?tls=` is `opportunistic` or `none`. If unset, no mail is sent.
    pub SMTP_URL: Option<Secret> = Setting::optional("SVC_SMTP_URL");
    /// Sender of outgoing mail: `Name <address>` or an address.
    pub MAIL_FROM: Option<Mailbox> = Setting::optional("SVC_MAIL_FROM");
    /// Bundle store: `file:///folder`, `s3://bucket` or `s3://bucket/prefix`. The `AWS_…` settings apply to S3.
    pub BUNDLE_STORE: StoreAddress = Setting::required("SVC_BUNDLE_STORE");
    /// Store of the raw messages of projects' mail: `file:///folder`, `s3://bucket` or `s3://bucket/prefix` (default: `mail` next to the folder or prefix of `SVC_BUNDLE_STORE`). The `AWS_…` settings apply to S3.
    pub MAIL_STORE: Option<StoreAddress> = Setting::optional("SVC_MAIL_STORE");
    /// PEM file with the private key of the DKIM signatures of projects' mail: RSA or Ed25519. Without it, mail is not signed. Requires `SVC_MAIL_DOMAIN`. Signatures name the value of `SVC_MAIL_DOMAIN` at the time at which the project enabled email.
    pub DKIM_KEY: Option<PathBuf> = Setting::optional("SVC_DKIM_KEY");
    /// ARN of the topic (Amazon SNS) that reports the outcomes of sent mail to `/v1/hooks/mailer`. If unset, the hook is off.
    pub MAILHOOK_TOPIC_ARN: Option<String> = Setting::optional("SVC_MAILHOOK_TOPIC_ARN");
    /// Comma-separated hosts of the certificates that sign notifications: `host` or `host:port` (default: the host of Amazon SNS in the region of the topic).
    pub MAILHOOK_CERT_HOSTS: Option<CertificateHosts> = Setting::optional("SVC_MAILHOOK_CERT_HOSTS");
    /// PEM file with a certificate authority that is trusted for these hosts, in addition to those of the system.
    pub MAILHOOK_CA: Option<PathBuf> = Setting::optional("SVC_MAILHOOK_CA");
    /// Selector of the DKIM key: its public key is at `<selector>._domainkey.<SVC_MAIL_DOMAIN>`.
    pub DKIM_SELECTOR: String = Setting::with_default("SVC_DKIM_SELECTOR", "svc");
    /// Access key ID for the bucket. The server reads the `AWS_…` settings only from the environment.
    pub AWS_ACCESS_KEY_ID: Option<String> = Setting::optional("AWS_ACCESS_KEY_ID");
    /// Secret access key for the bucket.
    pub AWS_SECRET_ACCESS_KEY: Option<Secret> = Setting::optional("AWS_SECRET_ACCESS_KEY");
    /// Session token of temporary credentials. The server reads it only at startup, so the bundle store becomes unavailable when it expires.
    pub AWS_SESSION_TOKEN: Option<Secret> = Setting::optional("AWS_SESSION_TOKEN");
    /// Region of the bucket (default: `AWS_DEFAULT_REGION`).
    pub AWS_REGION: Option<String> = Setting::optional("AWS_REGION");
    /// Region of the bucket if `AWS_REGION` is unset (default: `us-east-1`).
    pub AWS_DEFAULT_REGION: Option<String> = Setting::optional("AWS_DEFAULT_REGION");
    /// Base URL of an S3-compatible server other than Amazon's (default: `AWS_ENDPOINT_URL`).
    pub AWS_ENDPOINT_URL_S3: Option<Url> = Setting::optional("AWS_ENDPOINT_URL_S3");
    /// Base URL of all AWS services; the server uses only S3. The bucket is the first path segment. With an `http:` URL, requests are signed but not encrypted.
    pub AWS_ENDPOINT_URL: Option<Url> = Setting::optional("AWS_ENDPOINT_URL");
    /// Name of this installation, as users see it.
    pub SITE_NAME: String = Setting::with_default("SVC_SITE_NAME", "svc");
    /// Comma-separated CIDRs of the proxies whose `X-Forwarded-For` is trusted.
    pub TRUSTED_PROXIES: Option<Networks> = Setting::optional("SVC_TRUSTED_PROXIES");
    /// TOML file that overrides plan limits (`[plans.free]`, `[plans.pro]`), rate limits (`[rates]`), limits against abuse (`[abuse]`) and those of the registrar (`[registrar]`).
    pub LIMITS: Option<PathBuf> = Setting::optional("SVC_LIMITS");
    /// Maximum number of concurrent requests on the public listener. Further requests fail with 503 and `Retry-After`.
    pub MAX_CONCURRENT_REQUESTS: NonZeroU16 = Setting::with_default("SVC_MAX_CONCURRENT_REQUESTS", "512");
    /// Base URL of an OTLP collector (http/protobuf) for traces. Only plain http is supported, so run the collector on the same host.
    pub OTLP_URL: Option<Url> = Setting::optional("SVC_OTLP_URL");
    /// Log filter, in the syntax of `RUST_LOG`.
    pub LOG: EnvFilter = Setting::with_default("SVC_LOG", "info,actix_server=warn,actix_http=off");
}

/// The control plane owns all `SVC_` names except those of the nodes, the command line and the sandbox.
pub const CLAIM: Claim = Claim {
    prefixes: &["SVC_"],
    except: &["SVC_NODE_", "SVC_EDGE_", "SVC_GIT_", "SVC_MX_", "SVC_CLI_", "SVC_SANDBOX_"],
};

/// The validated configuration of the control plane.
#[derive(Debug, Clone)]
pub struct Config {
    pub database: store::Config,
    pub listen: SocketAddr,
    /// The TLS listener of the API. `None` if a proxy terminates TLS.
    pub tls: Option<TlsConfig>,
    pub internal_listen: SocketAddr,
    pub bundle_store: StoreConfig,
    /// The store of the raw messages of projects' mail.
    pub mail_store: StoreConfig,
    /// The signer of projects' mail. `None` if mail is not signed.
    pub dkim: Option<DkimSigner>,
    pub limits: Limits,
    pub abuse_limits: AbuseLimits,
    pub core: CoreLink,
    pub site_url: SiteUrl,
    pub dns_resolver: Option<SocketAddr>,
    /// The hosting of zones. `None` if the platform hosts no zones.
    pub dns: Option<Hosting>,
    /// The hidden primary for zone transfers.
    pub primary: Option<PrimaryConfig>,
    /// The nameserver that signs zones.
    pub signer: Option<SocketAddr>,
    /// The platform's own domains, in lowercase. A project cannot claim a hostname below them.
    pub own_domains: Vec<String>,
    /// The certificate authorities, in the order of preference.
    pub acme: Vec<AcmeConfig>,
    /// The operator's organization.
    pub platform_org: Option<OrgId>,
    pub code_host: Option<CodeHostLogin>,
    pub mail: Option<MailConfig>,
    /// The hook for the outcomes of sent mail. `None` if it is off.
    pub mail_hook: Option<MailHookConfig>,
    /// The authorization server for connected apps.
    pub oauth: Option<OAuthConfig>,
    pub lending: Option<LendingConfig>,
    pub billing: BillingConfig,
    /// The payments provider. `None` if there is none.
    pub payments: Option<PaymentsConfig>,
    /// `None` without a registrar.
    pub registrar: Option<RegistrarConfig>,
    pub registrar_limits: RegistrarLimits,
    /// The product of domains at the payments provider; `None` if domains are free of charge.
    pub domain_product: Option<String>,
    pub gateway: gateway::Config,
    pub otlp_url: Option<String>,
}

/// The configuration of the TLS listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    pub listen: SocketAddr,
    /// The hostname of the API.
    pub hostname: String,
    /// The folder with the operator's certificates.
    pub files: Option<PathBuf>,
}

/// The configuration of the hook for the outcomes of sent mail.
#[derive(Debug, Clone)]
pub struct MailHookConfig {
    pub topic: SnsTopic,
    pub hosts: CertificateHosts,
    /// A certificate authority that is trusted in addition, as PEM.
    pub ca: Option<String>,
}

/// The configuration of sign-in at a code host.
#[derive(Debug, Clone)]
pub struct CodeHostLogin {
    pub host: CodeHostConfig,
    pub redirects: AllowList,
}

/// The configuration of the model-lending service.
#[derive(Debug, Clone)]
pub struct LendingConfig {
    pub url: url::Url,
    pub key: SigningKey,
}

/// The configuration of the payments provider.
#[derive(Debug, Clone)]
pub struct PaymentsConfig {
    pub url: url::Url,
    pub token: kernel::Secret,
}

/// The configuration of the registrar.
#[derive(Debug, Clone)]
pub struct RegistrarConfig {
    pub url: url::Url,
    pub user: String,
    pub token: kernel::Secret,
}

/// The requests that the registrar allows for the account, over all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrarLimits {
    /// Maximum number of requests in any second.
    pub requests_per_second: u32,
    /// Maximum number of requests in any hour.
    pub requests_per_hour: u32,
}

impl Default for RegistrarLimits {
    fn default() -> Self {
        Self { requests_per_second: 20, requests_per_hour: 3_000 }
    }
}

/// The configuration of outgoing mail.
#[derive(Debug, Clone)]
pub struct MailConfig {
    pub server: SmtpConfig,
    pub from: Mailbox,
}

impl Config {
    /// Builds the configuration from the settings.
    ///
    /// # Errors
    /// Returns an error for a value that is malformed, unusable or insecure.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let public_url = settings.get(&PUBLIC_URL)?.0;
        let Flag(dev_auth) = settings.get(&ENABLE_DEV_AUTH)?;
        if dev_auth && public_url.starts_with("https:") {
            return Err(ENABLE_DEV_AUTH.malformed(
                "the development login authenticates anyone and is not allowed with an https SVC_PUBLIC_URL",
            ));
        }
        let database = database(settings)?;
        let LimitsFile { plans, rates, abuse, registrar: registrar_limits } = limits(settings)?;
        let otlp_url = settings.opt(&OTLP_URL)?.map(|Url(url)| url);
        if otlp_url.as_ref().is_some_and(|url| url.starts_with("https:")) {
            return Err(OTLP_URL.malformed("https is not supported; run a collector with plain http on the same host"));
        }
        let code_host = code_host(settings, &public_url)?;
        let site_url = settings.get(&SITE_URL)?;
        if public_url.starts_with("https:") && !site_url.is_https() {
            return Err(SITE_URL.malformed("plain http is not allowed with an https SVC_PUBLIC_URL"));
        }
        let acme = acme(settings)?;
        let tls = tls(settings, &public_url, !acme.is_empty())?;
        let site = site(settings, public_url, &site_url)?;
        let (oauth, lending) = (oauth(settings, &site)?, lending(settings)?);
        let (billing, payments) = billing(settings, &site)?;
        let own_domains = own_domains(&site);
        let Zones { hosting: dns, primary, signer } = zones(settings, &site, &own_domains)?;
        let platform_org = settings.opt(&PLATFORM_ORG)?;
        // The wildcard replaces the certificates of default hostnames, and it needs a hosted zone.
        if platform_org.is_some() && !acme.is_empty() && dns.is_none() {
            return Err(NAMESERVERS.malformed("required with SVC_PLATFORM_ORG and SVC_ACME_DIRECTORIES"));
        }
        Ok(Self {
            database,
            listen: settings.get(&LISTEN)?,
            tls,
            internal_listen: settings.get(&INTERNAL_LISTEN)?,
            bundle_store: bundle_store(settings)?,
            mail_store: mail_store(settings)?,
            dkim: dkim(settings, &site)?,
            limits: plans,
            abuse_limits: abuse,
            gateway: gateway::Config {
                sign_ins: SignInMethods { dev: dev_auth, code_host: code_host.is_some() },
                site,
                trusted_proxies: settings.opt(&TRUSTED_PROXIES)?.unwrap_or_default(),
                rate_limits: rates,
                max_concurrent_requests: settings.get(&MAX_CONCURRENT_REQUESTS)?.get().into(),
                max_waits: MaxWaits::default(),
            },
            core: settings.get(&CORE)?,
            site_url,
            dns_resolver: settings.opt(&DNS_RESOLVER)?,
            dns,
            primary,
            signer,
            own_domains,
            acme,
            platform_org,
            code_host,
            mail: mail(settings)?,
            mail_hook: mail_hook(settings)?,
            oauth,
            lending,
            billing,
            domain_product: domain_product(settings, payments.is_some())?,
            payments,
            registrar: registrar(settings)?,
            registrar_limits,
            otlp_url,
        })
    }
}
