//! `svc auth`: the sign-in of a project's end users. Client secrets come from the terminal or stdin, never from
//! arguments, which other users can read.

use clap::ValueEnum;
use client::types::{AuthProvider, AuthProviderPut, AuthStatus};
use client::{Method, Response};
use serde_json::{Map, Value};

use crate::error::CliError;
use crate::output::{fields, or_dash, yes_or_no};
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Auth {
    /// Show whether sign-in is enabled, its settings, and its providers with their callback addresses
    Status,
    /// Enable sign-in, whose users worker code knows as env.auth.users
    Enable,
    /// Disable sign-in and end all sessions: users, settings and providers are kept
    Disable {
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Change settings
    Set(SettingsArgs),
    /// Manage the identity providers
    #[command(subcommand)]
    Provider(Provider),
}

#[derive(clap::Subcommand)]
pub enum Provider {
    /// Register an identity provider, or replace its client. The client secret is read from stdin
    Set {
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(AuthProvider::KNOWN))]
        provider: String,
        /// The ID of your app at the provider
        #[arg(long, value_name = "ID")]
        client_id: String,
    },
    /// Delete an identity provider, and end its sessions
    Delete {
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(AuthProvider::KNOWN))]
        provider: String,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
pub struct SettingsArgs {
    /// End a session after this many days without a request, 1 to 365
    #[arg(long, value_name = "DAYS")]
    session_days: Option<i32>,
    /// The name on the sign-in page
    #[arg(long, value_name = "NAME")]
    brand_name: Option<String>,
    /// The color of the sign-in page, such as #0a7cff
    #[arg(long, value_name = "COLOR")]
    brand_color: Option<String>,
    /// The https address of the logo on the sign-in page
    #[arg(long, value_name = "URL")]
    brand_logo_url: Option<String>,
    /// Reset a setting; repeat the flag for several
    #[arg(long, value_name = "SETTING")]
    reset: Vec<BrandSetting>,
}

#[derive(Clone, Copy, ValueEnum)]
enum BrandSetting {
    #[value(name = "brand-name")]
    Name,
    #[value(name = "brand-color")]
    Color,
    #[value(name = "brand-logo-url")]
    LogoUrl,
}

impl BrandSetting {
    const fn field(self) -> &'static str {
        match self {
            Self::Name => "brandName",
            Self::Color => "brandColor",
            Self::LogoUrl => "brandLogoUrl",
        }
    }
}

impl SettingsArgs {
    /// Returns the change. An absent field keeps its value, and null resets it.
    fn patch(self) -> Map<String, Value> {
        let Self { session_days, brand_name, brand_color, brand_logo_url, reset } = self;
        let set = [
            ("sessionDays", session_days.map(Value::from)),
            ("brandName", brand_name.map(Value::from)),
            ("brandColor", brand_color.map(Value::from)),
            ("brandLogoUrl", brand_logo_url.map(Value::from)),
        ];
        let set = set.into_iter().filter_map(|(field, value)| Some((field, value?)));
        let reset = reset.into_iter().map(|setting| (setting.field(), Value::Null));
        set.chain(reset).map(|(field, value)| (field.to_owned(), value)).collect()
    }
}

impl Auth {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let site_url = client.service_config().send().await?.value.site_url;
        let show = |status: &Response<AuthStatus>| svc.out.response(status, |status| text(status, &site_url));
        match self {
            Self::Status => show(&client.app_auth_get(&org, &project).send().await?),
            Self::Enable => {
                let status = client.app_auth_grant(&org, &project).send().await?;
                show(&status)?;
                svc.out.success("enabled sign-in: worker code knows the users as env.auth.users");
                if status.providers.is_empty() {
                    svc.out
                        .info("Register an identity provider with `svc auth provider set`, so that users can sign in.");
                }
                Ok(())
            }
            Self::Disable { yes } => {
                let question = format!("Disable the sign-in of {org}/{project}, and end the sessions of its users?");
                prompt::require_yes(yes, &question, "disabled")?;
                let revoked = client.app_auth_revoke(&org, &project).send().await?;
                svc.out.empty_response(&revoked, "disabled sign-in: users, settings and providers are kept")
            }
            Self::Set(settings) => {
                // The type of the generated client omits null.
                let path = ["v1", "orgs", &org, "projects", &project, "auth"];
                let change = client.call::<AuthStatus>(Method::PATCH, &path).json(&settings.patch());
                show(&change.send().await?)
            }
            Self::Provider(Provider::Set { provider, client_id }) => {
                let put = AuthProviderPut { client_id, client_secret: prompt::secret("client secret")? };
                let status = client.app_auth_set_provider(&org, &project, &provider, &put).send().await?;
                show(&status)?;
                svc.out.success(format!("registered {provider}"));
                Ok(())
            }
            Self::Provider(Provider::Delete { provider }) => {
                let deleted = client.app_auth_delete_provider(&org, &project, &provider).send().await?;
                svc.out.empty_response(&deleted, format!("deleted {provider}: its sessions ended, the users are kept"))
            }
        }
    }
}

/// Returns the state, with the callback addresses to register at the providers. `site_url` is the address of a site, with
/// a placeholder for the hostname.
fn text(status: &AuthStatus, site_url: &str) -> String {
    let AuthStatus { granted, settings, providers, hosts } = status;
    let mut rows = vec![
        ["enabled", yes_or_no(*granted)].map(str::to_owned),
        ["sessions".to_owned(), format!("{} days", settings.session_days)],
        ["name".to_owned(), or_dash(settings.brand_name.as_deref())],
        ["color".to_owned(), or_dash(settings.brand_color.as_deref())],
        ["logo".to_owned(), or_dash(settings.brand_logo_url.as_deref())],
    ];
    rows.extend(providers.iter().map(|it| ["provider".to_owned(), format!("{} ({})", it.provider, it.client_id)]));
    rows.extend(hosts.iter().map(|host| {
        let site = site_url.replace("{hostname}", host);
        ["callback".to_owned(), format!("{}/__svc/auth/callback/<provider>", site.trim_end_matches('/'))]
    }));
    fields(&rows)
}
