//! Parts of the configuration that combine several settings.

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use billing::{BillingConfig, Catalog, Products};
use dns::primary::PrimaryConfig;
use dns::wire::InvalidTsigKey;
use dns::{Hosting, ZoneName};
use gateway::{RateLimits, Site};
use kernel::domain::Characters;
use kernel::seal::Keys;
use kernel::{AbuseLimits, Limits, Secret};
use mail::DkimSigner;
use oauth::OAuthConfig;
use objects::{BucketOptions, CredentialSettings, StoreAddress, StoreConfig, Timeouts};
use projects::SiteUrl;
use providers::CodeHostConfig;
use serde::Deserialize;
use settings::{Error, Flag, Setting, Settings, is_loopback_host};
use webhooks::sns::{CertificateHosts, SnsTopic};
use webhooks::{SigningKey, VerifyingKeys};

use super::values::{Addresses, DomainName, GracePeriod, Sockets, SshHost, Url};
use super::{
    AI_MODELS, AWS_ACCESS_KEY_ID, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3, AWS_REGION,
    AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, BUNDLE_STORE, CODEHOST_AUTHORIZE_URL, CODEHOST_CLIENT_ID,
    CODEHOST_CLIENT_SECRET, CODEHOST_REDIRECTS, CODEHOST_TOKEN_URL, CODEHOST_USER_URL, CodeHostLogin, DASHBOARD_URL,
    DATABASE_CONNECTIONS, DATABASE_URL, DKIM_KEY, DKIM_SELECTOR, DNS_CATALOG, DNS_LISTEN, DNS_SECONDARIES, DNS_SIGNER,
    DNS_TSIG, FALLBACK_ADDRESSES, FALLBACK_ORIGIN, GIT_SSH_HOST, GIT_URL, LENDING_SECRET, LENDING_URL, LIMITS,
    LendingConfig, MAIL_DOMAIN, MAIL_FROM, MAIL_STORE, MAILHOOK_CA, MAILHOOK_CERT_HOSTS, MAILHOOK_TOPIC_ARN,
    MailConfig, MailHookConfig, NAMESERVERS, OAUTH_AUDIENCE, OAUTH_CLI_CLIENT_ID, OAUTH_DEVICE_FLOW, OAUTH_ISSUER,
    OAUTH_REFRESH_GRACE, PAYMENTS_CREDIT_PRODUCT, PAYMENTS_DOMAIN_PRODUCT, PAYMENTS_PRO_PRODUCT, PAYMENTS_SANDBOX,
    PAYMENTS_TOKEN, PAYMENTS_TOPUP_PRODUCT, PAYMENTS_URL, PAYMENTS_WEBHOOK_SECRET, PLATFORM_DOMAIN, PLATFORM_ORG,
    PUBLIC_URL, PaymentsConfig, REGISTRAR_TOKEN, REGISTRAR_URL, REGISTRAR_USER, RegistrarConfig, RegistrarLimits,
    SEALING_KEYS, SITE_NAME, SMTP_URL,
};

/// The content of the file that `SVC_LIMITS` names.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsFile {
    pub(super) plans: Limits,
    pub(super) rates: RateLimits,
    pub(super) abuse: AbuseLimits,
    pub(super) registrar: RegistrarLimits,
}

/// Reads the file that a setting names. Returns `None` if the setting has no value.
pub(super) fn file(settings: &Settings, setting: &Setting<Option<PathBuf>>) -> Result<Option<String>, Error> {
    let Some(path) = settings.opt(setting)? else { return Ok(None) };
    let text = fs::read_to_string(&path);
    text.map(Some).map_err(|error| setting.malformed(format!("{}: {error}", path.display())))
}

fn secret(setting: &settings::Secret) -> Secret {
    Secret::new(setting.reveal().to_owned())
}

/// Returns the configuration of the store.
pub(super) fn database(settings: &Settings) -> Result<store::Config, Error> {
    let keys = settings.get(&SEALING_KEYS)?;
    Ok(store::Config {
        connections: settings.get(&DATABASE_CONNECTIONS)?.get().into(),
        threads: thread::available_parallelism().map_or(1, NonZeroUsize::get),
        keys: Keys::parse(keys.reveal()).map_err(|error| SEALING_KEYS.malformed(error))?,
        ..store::Config::new(secret(&settings.get(&DATABASE_URL)?), "svc-server")
    })
}

/// Returns the public description of this installation.
pub(super) fn site(settings: &Settings, public_url: String, site_url: &SiteUrl) -> Result<Site, Error> {
    let split = |list: Option<String>| {
        list.map_or_else(Vec::new, |list| list.split(',').map(|item| item.trim().to_owned()).collect())
    };
    Ok(Site {
        name: settings.get(&SITE_NAME)?,
        public_url,
        dashboard_url: settings.get(&DASHBOARD_URL)?.0,
        platform_domain: settings.get(&PLATFORM_DOMAIN)?.0,
        mail_domain: settings.opt(&MAIL_DOMAIN)?.map(|DomainName(name)| name),
        nameservers: split(settings.opt(&NAMESERVERS)?),
        site_url: site_url.to_string(),
        fallback_origin: settings.get(&FALLBACK_ORIGIN)?.0,
        git_url: settings.opt(&GIT_URL)?.map(|Url(url)| url),
        ssh_host: settings.opt(&GIT_SSH_HOST)?.map(|SshHost(host)| host),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Returns the configuration of the authorization server for connected apps. Returns `None` without an issuer.
pub(super) fn oauth(settings: &Settings, site: &Site) -> Result<Option<OAuthConfig>, Error> {
    let (audience, cli_client) = (settings.opt(&OAUTH_AUDIENCE)?, settings.opt(&OAUTH_CLI_CLIENT_ID)?);
    let GracePeriod(refresh_grace_seconds) = settings.get(&OAUTH_REFRESH_GRACE)?;
    let Flag(device_flow) = settings.get(&OAUTH_DEVICE_FLOW)?;
    if cli_client.is_some() && !device_flow {
        return Err(OAUTH_CLI_CLIENT_ID.malformed("requires SVC_OAUTH_DEVICE_FLOW"));
    }
    let Some(Url(issuer)) = settings.opt(&OAUTH_ISSUER)? else {
        return match audience {
            Some(_) => Err(OAUTH_ISSUER.malformed("required with SVC_OAUTH_AUDIENCE")),
            None if device_flow => Err(OAUTH_ISSUER.malformed("required with SVC_OAUTH_DEVICE_FLOW")),
            None => Ok(None),
        };
    };
    let url = url::Url::parse(&issuer).map_err(|error| OAUTH_ISSUER.malformed(error))?;
    if url.path() != "/" {
        return Err(OAUTH_ISSUER.malformed("must not have a path"));
    }
    if !may_receive_secrets(&url) {
        return Err(OAUTH_ISSUER.malformed("must use https, except on a loopback address"));
    }
    let audience = audience.unwrap_or_else(|| issuer.clone());
    let has_space = audience.chars().any(|c| c.is_whitespace() || c.is_control());
    if has_space || !url::Url::parse(&audience).is_ok_and(|url| url.fragment().is_none()) {
        return Err(OAUTH_AUDIENCE.malformed("must be an absolute URI without white space and fragment"));
    }
    let device_verification_uri = device_flow.then(|| format!("{}/oauth/device", site.dashboard_url));
    Ok(Some(OAuthConfig { issuer, audience, refresh_grace_seconds, device_verification_uri, cli_client }))
}

/// Returns whether tokens and codes may be sent to a URL: with TLS, or to this machine (RFC 8414 section 2).
fn may_receive_secrets(url: &url::Url) -> bool {
    url.scheme() == "https" || url.host_str().is_some_and(is_loopback_host)
}

/// Returns the configuration of the model-lending service. Returns `None` if it is not configured.
pub(super) fn lending(settings: &Settings) -> Result<Option<LendingConfig>, Error> {
    match (settings.opt(&LENDING_URL)?, settings.opt(&LENDING_SECRET)?) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(LENDING_SECRET.malformed("required with SVC_LENDING_URL")),
        (None, Some(_)) => Err(LENDING_URL.malformed("required with SVC_LENDING_SECRET")),
        (Some(url), Some(secret)) => {
            let key = SigningKey::parse(secret.reveal()).map_err(|error| LENDING_SECRET.malformed(error))?;
            Ok(Some(LendingConfig { url, key }))
        }
    }
}

/// Returns the configuration of billing and of the payments provider, or `None` in place of the provider if it is not
/// configured.
pub(super) fn billing(settings: &Settings, site: &Site) -> Result<(BillingConfig, Option<PaymentsConfig>), Error> {
    let payments = match (settings.opt(&PAYMENTS_URL)?, settings.opt(&PAYMENTS_TOKEN)?) {
        (None, None) => None,
        (Some(_), None) => return Err(PAYMENTS_TOKEN.malformed("required with SVC_PAYMENTS_URL")),
        (None, Some(_)) => return Err(PAYMENTS_URL.malformed("required with SVC_PAYMENTS_TOKEN")),
        (Some(url), Some(token)) => Some(PaymentsConfig { url, token: secret(&token) }),
    };
    let products = Products {
        pro: settings.opt(&PAYMENTS_PRO_PRODUCT)?,
        credit: settings.opt(&PAYMENTS_CREDIT_PRODUCT)?,
        topup: settings.opt(&PAYMENTS_TOPUP_PRODUCT)?,
    };
    if payments.is_none() && products != Products::default() {
        return Err(PAYMENTS_URL.malformed("required with a product of the payments provider"));
    }
    let webhook_keys = settings.opt(&PAYMENTS_WEBHOOK_SECRET)?;
    let webhook_keys = webhook_keys.map(|secrets| VerifyingKeys::parse(secrets.reveal())).transpose();
    let webhook_keys = webhook_keys.map_err(|error| PAYMENTS_WEBHOOK_SECRET.malformed(error))?;
    let return_addresses = format!("{},{}", site.public_url, site.dashboard_url);
    let return_addresses = return_addresses.parse().map_err(|error| DASHBOARD_URL.malformed(error))?;
    let Flag(sandbox) = settings.get(&PAYMENTS_SANDBOX)?;
    Ok((BillingConfig { products, sandbox, webhook_keys, return_addresses, catalog: catalog(settings)? }, payments))
}

/// Returns the product that domains are charged under, which requires the payments provider.
pub(super) fn domain_product(settings: &Settings, has_payments: bool) -> Result<Option<String>, Error> {
    let product = settings.opt(&PAYMENTS_DOMAIN_PRODUCT)?;
    if product.is_some() && !has_payments {
        return Err(PAYMENTS_URL.malformed("required with SVC_PAYMENTS_DOMAIN_PRODUCT"));
    }
    Ok(product)
}

/// Returns the registrar; `None` if it is not configured.
pub(super) fn registrar(settings: &Settings) -> Result<Option<RegistrarConfig>, Error> {
    let (user, token) = (settings.opt(&REGISTRAR_USER)?, settings.opt(&REGISTRAR_TOKEN)?);
    match (settings.opt(&REGISTRAR_URL)?, user, token) {
        (None, None, None) => Ok(None),
        (Some(url), Some(user), Some(token)) => {
            if user.is_empty() || user.contains(|c: char| c == ':' || c.is_control()) {
                return Err(REGISTRAR_USER.malformed("must not be empty or contain a colon (RFC 7617)"));
            }
            Ok(Some(RegistrarConfig { url, user, token: secret(&token) }))
        }
        (None, ..) => Err(REGISTRAR_URL.malformed("required with SVC_REGISTRAR_USER and SVC_REGISTRAR_TOKEN")),
        (_, None, _) => Err(REGISTRAR_USER.malformed("required with SVC_REGISTRAR_URL")),
        (.., None) => Err(REGISTRAR_TOKEN.malformed("required with SVC_REGISTRAR_URL")),
    }
}

/// Reads the catalog of AI models.
fn catalog(settings: &Settings) -> Result<Catalog, Error> {
    let Some(text) = file(settings, &AI_MODELS)? else { return Ok(Catalog::default()) };
    Catalog::parse(&text).map_err(|error| AI_MODELS.malformed(error))
}

/// The configuration of hosted zones, the hidden primary and the signer.
pub(super) struct Zones {
    pub(super) hosting: Option<Hosting>,
    pub(super) primary: Option<PrimaryConfig>,
    pub(super) signer: Option<SocketAddr>,
}

pub(super) fn zones(settings: &Settings, site: &Site, own_domains: &[String]) -> Result<Zones, Error> {
    let mut hosting = hosting(settings, site, own_domains)?;
    let (primary, signer) = (primary(settings)?, settings.opt(&DNS_SIGNER)?);
    match &mut hosting {
        Some(hosting) => {
            hosting.has_primary = primary.is_some();
            // A hosted zone with the catalog's name would hide the catalog.
            hosting.reserved_domains.extend(primary.iter().map(|primary| primary.catalog.as_str().to_owned()));
        }
        None if primary.is_some() => return Err(NAMESERVERS.malformed("required with SVC_DNS_LISTEN")),
        None => {}
    }
    Ok(Zones { hosting, primary, signer })
}

/// Returns the platform's own domains: its hosts, and the parent domains of names that it assigns.
pub(super) fn own_domains(site: &Site) -> Vec<String> {
    let host = |url: &String| url::Url::parse(url).ok()?.host_str().map(str::to_owned);
    let mut domains = vec![site.platform_domain.clone(), site.fallback_origin.clone()];
    domains.extend(site.mail_domain.clone());
    domains.extend(site.nameservers.iter().cloned());
    domains.extend([&site.public_url, &site.dashboard_url].into_iter().filter_map(host));
    domains.iter().map(|name| domain(name)).collect()
}

/// Normalizes a domain for comparison: lowercase, without the final dot.
fn domain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn hosting(settings: &Settings, site: &Site, own_domains: &[String]) -> Result<Option<Hosting>, Error> {
    let fallback_addresses = settings.opt(&FALLBACK_ADDRESSES)?.map(|Addresses(addresses)| addresses);
    if site.nameservers.is_empty() {
        return Ok(None);
    }
    let hosting = Hosting::new(&site.nameservers, &site.fallback_origin);
    let mut hosting = hosting.map_err(|error| NAMESERVERS.malformed(error))?;
    hosting.fallback_addresses = fallback_addresses.unwrap_or_default();
    hosting.platform_domains = own_domains.to_vec();
    hosting.platform_org = settings.opt(&PLATFORM_ORG)?;
    Ok(Some(hosting))
}

/// Returns the configuration of the hidden primary, which requires a TSIG key and secondaries.
fn primary(settings: &Settings) -> Result<Option<PrimaryConfig>, Error> {
    // Parse every setting even if the listener is off, so that a malformed value is always reported.
    let key = settings.opt(&DNS_TSIG)?.map(|key| key.reveal().parse()).transpose();
    let key = key.map_err(|error: InvalidTsigKey| DNS_TSIG.malformed(error))?;
    let secondaries = settings.opt(&DNS_SECONDARIES)?;
    let catalog = ZoneName::parse(&settings.get(&DNS_CATALOG)?).map_err(|error| DNS_CATALOG.malformed(error))?;
    let Some(listen) = settings.opt(&DNS_LISTEN)? else { return Ok(None) };
    let required = "required with SVC_DNS_LISTEN";
    let key = key.ok_or_else(|| DNS_TSIG.malformed(required))?;
    let Sockets(secondaries) = secondaries.ok_or_else(|| DNS_SECONDARIES.malformed(required))?;
    Ok(Some(PrimaryConfig { listen, key, secondaries, catalog }))
}

pub(super) fn code_host(settings: &Settings, public_url: &str) -> Result<Option<CodeHostLogin>, Error> {
    // Parse every setting even if the sign-in is off, so that a malformed value is always reported.
    let redirects = match settings.opt(&CODEHOST_REDIRECTS)? {
        Some(redirects) => redirects,
        None => public_url.parse().map_err(|error| PUBLIC_URL.malformed(error))?,
    };
    let authorize_url = code_host_endpoint(settings, &CODEHOST_AUTHORIZE_URL)?;
    let token_url = code_host_endpoint(settings, &CODEHOST_TOKEN_URL)?;
    let user_url = code_host_endpoint(settings, &CODEHOST_USER_URL)?;
    let (client_id, client_secret) = match (settings.opt(&CODEHOST_CLIENT_ID)?, settings.opt(&CODEHOST_CLIENT_SECRET)?)
    {
        (None, None) => return Ok(None),
        (Some(id), Some(client_secret)) => (id, secret(&client_secret)),
        (None, Some(_)) => return Err(CODEHOST_CLIENT_ID.malformed("required with SVC_CODEHOST_CLIENT_SECRET")),
        (Some(_), None) => return Err(CODEHOST_CLIENT_SECRET.malformed("required with SVC_CODEHOST_CLIENT_ID")),
    };
    let host = CodeHostConfig { client_id, client_secret, authorize_url, token_url, user_url };
    Ok(Some(CodeHostLogin { host, redirects }))
}

fn code_host_endpoint(settings: &Settings, setting: &Setting<url::Url>) -> Result<url::Url, Error> {
    let url = settings.get(setting)?;
    if !may_receive_secrets(&url) {
        return Err(setting.malformed("must use https, except on a loopback address"));
    }
    Ok(url)
}

/// The timeouts of an object store. A read may wait for a large bundle.
const STORE_TIMEOUTS: Timeouts = Timeouts { read: Duration::from_secs(60), retry: Duration::from_secs(30) };

pub(super) fn bundle_store(settings: &Settings) -> Result<StoreConfig, Error> {
    object_store(settings, BUNDLE_STORE.row().name, settings.get(&BUNDLE_STORE)?)
}

/// Returns the store of raw messages. By default it is next to the bundle store.
pub(super) fn mail_store(settings: &Settings) -> Result<StoreConfig, Error> {
    let address = match settings.opt(&MAIL_STORE)? {
        Some(address) => address,
        None => settings.get(&BUNDLE_STORE)?.sibling("mail"),
    };
    object_store(settings, MAIL_STORE.row().name, address)
}

fn object_store(settings: &Settings, store: &'static str, address: StoreAddress) -> Result<StoreConfig, Error> {
    let credentials =
        CredentialSettings { store, access_key_id: &AWS_ACCESS_KEY_ID, secret_access_key: &AWS_SECRET_ACCESS_KEY };
    credentials.store(settings, address, || {
        let region = settings.opt(&AWS_REGION)?.or(settings.opt(&AWS_DEFAULT_REGION)?);
        let endpoint = settings.opt(&AWS_ENDPOINT_URL_S3)?.or(settings.opt(&AWS_ENDPOINT_URL)?);
        Ok(BucketOptions {
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            endpoint: endpoint.map(|Url(url)| url),
            session_token: settings.opt(&AWS_SESSION_TOKEN)?,
            timeouts: STORE_TIMEOUTS,
        })
    })
}

pub(super) fn mail(settings: &Settings) -> Result<Option<MailConfig>, Error> {
    let from = settings.opt(&MAIL_FROM)?;
    let Some(url) = settings.opt(&SMTP_URL)? else { return Ok(None) };
    let server = url.reveal().parse().map_err(|error: providers::InvalidSmtp| SMTP_URL.malformed(error))?;
    let from = from.ok_or_else(|| MAIL_FROM.malformed("required with SVC_SMTP_URL"))?;
    Ok(Some(MailConfig { server, from }))
}

/// Returns the configuration of the mail hook. Returns `None` without a topic.
pub(super) fn mail_hook(settings: &Settings) -> Result<Option<MailHookConfig>, Error> {
    // Parse every setting even if the hook is off, so that a malformed value is always reported.
    let hosts = settings.opt(&MAILHOOK_CERT_HOSTS)?;
    let ca = file(settings, &MAILHOOK_CA)?;
    let Some(arn) = settings.opt(&MAILHOOK_TOPIC_ARN)? else { return Ok(None) };
    let is_topic =
        matches!(arn.split(':').collect::<Vec<_>>().as_slice(), ["arn", _, "sns", _, _, name] if !name.is_empty());
    if !is_topic {
        return Err(MAILHOOK_TOPIC_ARN.malformed("must be arn:<partition>:sns:<region>:<account>:<name>"));
    }
    let hosts = hosts.or_else(|| CertificateHosts::of_topic(&arn)).ok_or_else(|| {
        MAILHOOK_TOPIC_ARN.malformed("without a region of Amazon, it requires SVC_MAILHOOK_CERT_HOSTS")
    })?;
    Ok(Some(MailHookConfig { topic: SnsTopic::new(arn, hosts.clone()), hosts, ca }))
}

/// Returns the signer of projects' mail. Returns `None` without a key.
pub(super) fn dkim(settings: &Settings, site: &Site) -> Result<Option<DkimSigner>, Error> {
    let selector = settings.get(&DKIM_SELECTOR)?;
    let selector = kernel::domain::normalize(&selector, Characters::Underscore)
        .ok_or_else(|| DKIM_SELECTOR.malformed("must be DNS labels such as svc or 2026.svc"))?;
    let Some(pem) = file(settings, &DKIM_KEY)? else { return Ok(None) };
    if site.mail_domain.is_none() {
        return Err(MAIL_DOMAIN.malformed("required with SVC_DKIM_KEY"));
    }
    DkimSigner::new(&pem, &selector).map(Some).map_err(|error| DKIM_KEY.malformed(error))
}

pub(super) fn limits(settings: &Settings) -> Result<LimitsFile, Error> {
    let Some(text) = file(settings, &LIMITS)? else { return Ok(LimitsFile::default()) };
    toml::from_str(&text).map_err(|error| LIMITS.malformed(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_of_the_limits_file_has_the_default_values() {
        let example = include_str!("../../../../deploy/limits.example.toml");
        let LimitsFile { plans, rates, abuse, registrar } = toml::from_str(example).expect("a limits file");
        assert_eq!((plans, abuse), (Limits::default(), AbuseLimits::default()));
        assert_eq!(registrar, RegistrarLimits::default());
        // Without a line, a default applies: the example has a line for each field.
        let stated: toml::Table = example.parse().expect("a TOML file");
        for table in ["rates", "abuse", "registrar"] {
            let error = toml::from_str::<LimitsFile>(&format!("[{table}]\nunknown = 1")).expect_err(table).to_string();
            let (_, fields) = error.split_once("expected").expect("the fields of the table");
            let fields: Vec<&str> = fields.split('`').skip(1).step_by(2).collect();
            assert!(!fields.is_empty(), "{error}");
            for field in fields {
                assert!(stated[table].get(field).is_some(), "{table}.{field}");
            }
        }
        let default = RateLimits::default();
        assert_eq!(rates, RateLimits { user: Some(default.user()), ..default });
        // The limit of a user is twice that of a credential, unless the file sets it.
        assert_eq!(default.user().get(), 1200);
        let limits: LimitsFile = toml::from_str("[rates]\ncredential = 7").expect("a limits file");
        assert_eq!(limits.rates.user().get(), 14);
    }

    #[test]
    fn limit_that_the_file_omits_is_the_default_of_its_plan() {
        let file = "[plans.pro]\nprojects = 7\n[plans.pro.bundle]\nentries = 8\n[plans.free]\nzones = 9";
        let LimitsFile { plans, .. } = toml::from_str(file).expect("a limits file");
        let mut expected = Limits::default();
        (expected.pro.projects, expected.pro.bundle.entries, expected.free.zones) = (7, 8, 9);
        assert_eq!(plans, expected);
        for unknown in ["[plans.pro]\nproject = 7", "[plans.team]", "[plans.pro.bundle]\nsize = 1"] {
            let error = toml::from_str::<LimitsFile>(unknown).expect_err(unknown).to_string();
            assert!(error.contains("unknown field") && error.contains("line"), "{error}");
        }
    }
}
