//! The writes of `/v1`, and of the PowerDNS-compatible API.

use serde_json::{Value, json};

use super::fixture::Fixture;
use crate::domains::purchase;
use crate::support::site;

/// An SSH key.
pub const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILrC93FEIzsjyWuBW+GrPjINWRUtyXJMWak3pXjBZRct ada@laptop";

/// The event that a request waits for. The caller loses the permission before this event.
#[derive(Clone, Copy, PartialEq)]
pub enum Wait {
    /// The rest of the request's body.
    Body,
    /// A lock, taken by this statement in another transaction.
    Lock(&'static str),
}

/// The lock for which the last statement of a transaction waits.
pub const AUDIT_LOCK: &str = "LOCK TABLE store.audit IN ACCESS EXCLUSIVE MODE";
const AUDIT: Wait = Wait::Lock(AUDIT_LOCK);
const USERS: Wait = Wait::Lock("SELECT FROM identity.users FOR UPDATE");
/// Purchases and renewals check the permission only when they begin, because a background job may execute their steps.
const DOMAINS: Wait = Wait::Lock("LOCK TABLE domains.domains IN ACCESS EXCLUSIVE MODE");
const HOSTNAMES: Wait = Wait::Lock("SELECT FROM projects.hostnames FOR UPDATE");
const BUNDLES: Wait = Wait::Lock("LOCK TABLE projects.bundles IN ACCESS EXCLUSIVE MODE");
const ORGS: Wait = Wait::Lock("SELECT FROM orgs.orgs FOR UPDATE");

/// A write that succeeds for an authorized caller.
pub struct Write {
    /// The method and the path template.
    pub route: &'static str,
    pub path: String,
    pub body: Vec<u8>,
    pub wait: Wait,
}

impl Write {
    /// Returns whether the write belongs to the PowerDNS-compatible API, which the OpenAPI document omits.
    pub fn is_powerdns(&self) -> bool {
        self.path.starts_with("/api")
    }
}

impl Fixture {
    /// Returns every write.
    pub async fn writes(&self) -> Vec<Write> {
        let json = |value: Value| value.to_string().into_bytes();
        let invite = json!({ "email": "dan@example.org", "role": "member" });
        let invite = self.ada.post("/v1/orgs/acme/invites", invite).await.expect(201)["id"].clone();
        let ds = json!([{ "keyTag": 1, "algorithm": 13, "digestType": 2, "digest": "AB".repeat(32) }]);
        let token = format!("site {}", self.token_user);
        let operation = format!("aborted {}", self.operation);
        let device = self.client.post("/oauth/device", &[]).await.expect(200)["user_code"].clone();
        let table = [
            ("post /v1/orgs", "", json(json!({ "slug": "new" })), Wait::Body),
            ("post /v1/me/tokens", "", json(json!({ "name": "laptop", "scopes": ["deploy"] })), Wait::Body),
            ("post /v1/me/ssh-keys", "", json(json!({ "title": "laptop", "key": KEY })), Wait::Body),
            ("delete /v1/me/ssh-keys/{keyId}", "{own key}", vec![], AUDIT),
            ("delete /v1/me/tokens/{tokenId}", "{own token}", vec![], USERS),
            ("delete /v1/me/sessions/{sessionId}", "{own session}", vec![], USERS),
            ("post /v1/auth/logout", "", vec![], USERS),
            ("post /v1/oauth/authorize", "", json(self.client.authorization_request(&json!({}))), Wait::Body),
            ("delete /v1/oauth/grants/{sid}", "{own grant}", vec![], AUDIT),
            ("post /v1/oauth/device/approve", "", json(json!({ "userCode": device })), Wait::Body),
            ("post /v1/invites/{token}/accept", "{invitation}", vec![], AUDIT),
            ("patch /v1/orgs/{orgSlug}", "", json(json!({ "name": "New" })), Wait::Body),
            (
                "post /v1/orgs/{orgSlug}/invites",
                "",
                json(json!({ "email": "x@example.org", "role": "admin" })),
                Wait::Body,
            ),
            ("delete /v1/orgs/{orgSlug}/invites/{inviteId}", invite.as_str().unwrap(), vec![], AUDIT),
            (
                "post /v1/orgs/{orgSlug}/members",
                "",
                json(json!({ "provider": "dev", "subject": "cy", "role": "admin" })),
                Wait::Body,
            ),
            ("put /v1/orgs/{orgSlug}/members/{userId}", &self.bob.user_id, json(json!({ "role": "member" })), ORGS),
            ("delete /v1/orgs/{orgSlug}/members/{userId}", "{own user}", vec![], ORGS),
            (
                "post /v1/orgs/{orgSlug}/billing/checkout",
                "",
                json(json!({ "returnTo": "http://localhost:3000/" })),
                Wait::Body,
            ),
            ("post /v1/orgs/{orgSlug}/billing/portal", "", json(json!({})), Wait::Body),
            ("post /v1/orgs/{orgSlug}/billing/session", "", vec![], AUDIT),
            ("post /v1/orgs/{orgSlug}/billing/cancel", "", json(json!({ "cancel": true })), Wait::Body),
            (
                "post /v1/orgs/{orgSlug}/ai/credit/checkout",
                "",
                json(json!({ "microCents": 500_000_000, "returnTo": "http://localhost:3000/" })),
                Wait::Body,
            ),
            (
                "put /v1/orgs/{orgSlug}/ai/autotopup",
                "",
                json(json!({ "enabled": true, "amountMicroCents": 500_000_000, "thresholdMicroCents": 1 })),
                Wait::Body,
            ),
            ("post /v1/orgs/{orgSlug}/projects", "", json(json!({ "name": "new" })), Wait::Body),
            ("post /v1/orgs/{orgSlug}/projects/{projectName}/ai", "renamed", vec![], AUDIT),
            ("delete /v1/orgs/{orgSlug}/projects/{projectName}/ai", "site", vec![], AUDIT),
            ("post /v1/orgs/{orgSlug}/projects/{projectName}/email", "renamed", vec![], AUDIT),
            ("delete /v1/orgs/{orgSlug}/projects/{projectName}/email", "site", vec![], AUDIT),
            (
                "delete /v1/orgs/{orgSlug}/projects/{projectName}/email/suppressions/{address}",
                "site bounced@example.org",
                vec![],
                AUDIT,
            ),
            ("post /v1/orgs/{orgSlug}/projects/{projectName}/storage", "renamed", vec![], AUDIT),
            ("delete /v1/orgs/{orgSlug}/projects/{projectName}/storage", "site", vec![], AUDIT),
            ("post /v1/orgs/{orgSlug}/projects/{projectName}/auth", "restored", vec![], AUDIT),
            (
                "patch /v1/orgs/{orgSlug}/projects/{projectName}/auth",
                "site",
                json(json!({ "sessionDays": 7 })),
                Wait::Body,
            ),
            (
                "put /v1/orgs/{orgSlug}/projects/{projectName}/auth/providers/{provider}",
                "site messenger",
                json(json!({ "clientId": "id", "clientSecret": "secret" })),
                Wait::Body,
            ),
            (
                "delete /v1/orgs/{orgSlug}/projects/{projectName}/auth/providers/{provider}",
                "site codehost",
                vec![],
                AUDIT,
            ),
            ("delete /v1/orgs/{orgSlug}/projects/{projectName}/auth", "site", vec![], AUDIT),
            (
                "put /v1/orgs/{orgSlug}/projects/{projectName}/secrets",
                "site",
                json(json!({ "secrets": { "NEW_KEY": "value" } })),
                Wait::Body,
            ),
            (
                "put /v1/orgs/{orgSlug}/projects/{projectName}/secrets/{secretName}",
                "site NEW_KEY",
                json(json!({ "value": "value" })),
                Wait::Body,
            ),
            ("delete /v1/orgs/{orgSlug}/projects/{projectName}/secrets/{secretName}", "site OLD_KEY", vec![], AUDIT),
            (
                "post /v1/orgs/{orgSlug}/projects/{projectName}/repos",
                "site",
                json(json!({ "name": "new" })),
                Wait::Body,
            ),
            (
                "patch /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}",
                "site app",
                json(json!({ "deployBranch": "main" })),
                Wait::Body,
            ),
            ("delete /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}", "site old", vec![], AUDIT),
            ("post /v1/orgs/{orgSlug}/projects/{projectName}/database", "renamed", vec![], AUDIT),
            (
                "post /v1/orgs/{orgSlug}/projects/{projectName}/database/tokens",
                "site",
                json(json!({ "name": "reports" })),
                Wait::Body,
            ),
            ("delete /v1/orgs/{orgSlug}/projects/{projectName}/database/tokens/{tokenUser}", &token, vec![], AUDIT),
            ("post /v1/orgs/{orgSlug}/projects/{projectName}/database/export", "site", vec![], AUDIT),
            (
                "post /v1/orgs/{orgSlug}/projects/{projectName}/database/restore",
                "restored",
                json(json!({ "epoch": 1, "seq": 1 })),
                Wait::Body,
            ),
            (
                "post /v1/orgs/{orgSlug}/projects/{projectName}/database/delete",
                "deleted",
                json(json!({ "confirm": "deleted" })),
                Wait::Body,
            ),
            (
                "post /v1/orgs/{orgSlug}/projects/{projectName}/database/operations/{opId}/abort",
                &operation,
                vec![],
                AUDIT,
            ),
            (
                "patch /v1/orgs/{orgSlug}/projects/{projectName}",
                "renamed",
                json(json!({ "name": "moved" })),
                Wait::Body,
            ),
            (
                "delete /v1/orgs/{orgSlug}/projects/{projectName}",
                "doomed",
                json(json!({ "confirm": "doomed" })),
                Wait::Body,
            ),
            (
                "put /v1/orgs/{orgSlug}/projects/{projectName}/access",
                "site",
                json(json!({ "mode": "org" })),
                Wait::Body,
            ),
            ("post /v1/orgs/{orgSlug}/projects/{projectName}/access/bypass", "site", vec![], AUDIT),
            ("delete /v1/orgs/{orgSlug}/projects/{projectName}/access/bypass", "site", vec![], AUDIT),
            ("post /v1/orgs/{orgSlug}/projects/{projectName}/deployments", "site", site("two"), Wait::Body),
            // This bundle is new, so it is counted before it is stored.
            ("post /v1/orgs/{orgSlug}/projects/{projectName}/deployments", "site", site("three"), BUNDLES),
            (
                "post /v1/orgs/{orgSlug}/projects/{projectName}/rollback",
                "site",
                json(json!({ "version": 1 })),
                Wait::Body,
            ),
            (
                "post /v1/orgs/{orgSlug}/projects/{projectName}/hostnames",
                "site",
                json(json!({ "name": "new.example.net" })),
                Wait::Body,
            ),
            (
                "put /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/hsts",
                "site check.example.net",
                json(json!({ "maxAge": 300 })),
                Wait::Body,
            ),
            (
                "delete /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/hsts",
                "site old.example.net",
                vec![],
                AUDIT,
            ),
            (
                "post /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/verify",
                "site check.example.net",
                vec![],
                AUDIT,
            ),
            // This check fails, so it changes nothing except the stored result.
            (
                "post /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/verify",
                "site unproved.example.net",
                vec![],
                HOSTNAMES,
            ),
            (
                "delete /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}",
                "site old.example.net",
                vec![],
                AUDIT,
            ),
            ("post /v1/orgs/{orgSlug}/domains", "", json(purchase("new.com")), DOMAINS),
            ("post /v1/orgs/{orgSlug}/domains/import", "", json(json!({ "name": "imported.com" })), Wait::Body),
            ("post /v1/orgs/{orgSlug}/domains/{domainName}/renew", "owned.com", json(json!({ "years": 1 })), DOMAINS),
            (
                "post /v1/orgs/{orgSlug}/domains/{domainName}/auto-renew",
                "owned.com",
                json(json!({ "enabled": false })),
                Wait::Body,
            ),
            (
                "post /v1/orgs/{orgSlug}/domains/{domainName}/lock",
                "owned.com",
                json(json!({ "locked": false })),
                Wait::Body,
            ),
            ("post /v1/orgs/{orgSlug}/domains/{domainName}/auth-code", "owned.com", vec![], AUDIT),
            ("post /v1/orgs/{orgSlug}/domains/{domainName}/sync", "owned.com", vec![], DOMAINS),
            ("post /v1/orgs/{orgSlug}/dns/zones", "", json(json!({ "name": "new.example" })), Wait::Body),
            ("delete /v1/orgs/{orgSlug}/dns/zones/{zone}", "doomed.example", vec![], AUDIT),
            ("put /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec/ds", "example.org", json(json!({ "ds": ds })), Wait::Body),
            (
                "post /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec",
                "example.org",
                json(json!({ "enabled": false })),
                Wait::Body,
            ),
            (
                "patch /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets",
                "example.org",
                json(json!({ "rrsets": [{ "name": "new", "type": "A", "records": ["192.0.2.1"] }] })),
                Wait::Body,
            ),
            (
                "put /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets/{name}/{type}",
                "example.org put A",
                json(json!({ "records": ["192.0.2.1"] })),
                Wait::Body,
            ),
            ("delete /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets/{name}/{type}", "example.org old A", vec![], AUDIT),
            (
                "put /v1/orgs/{orgSlug}/dns/zones/{zone}/zonefile",
                "example.org",
                b"file 300 IN A 192.0.2.1\n".to_vec(),
                Wait::Body,
            ),
            (
                "post /api/v1/servers/localhost/zones",
                "",
                json(json!({ "name": "powerdns.example.", "kind": "Native", "nameservers": [] })),
                Wait::Body,
            ),
            (
                "patch /api/v1/servers/localhost/zones/{zone}",
                "example.org.",
                json(
                    json!({ "rrsets": [{ "name": "pdns.example.org.", "type": "A", "ttl": 300, "changetype": "REPLACE",
                    "records": [{ "content": "192.0.2.1", "disabled": false }] }] }),
                ),
                Wait::Body,
            ),
            ("delete /api/v1/servers/localhost/zones/{zone}", "unwanted.example.", vec![], AUDIT),
        ];
        let writes = table.into_iter().map(|(route, values, body, wait)| {
            let mut values =
                if values.starts_with('{') { vec![values] } else { values.split(' ').collect() }.into_iter();
            let segments = route.split_once(' ').unwrap().1.split('/').map(|segment| match segment {
                "{orgSlug}" => "acme",
                segment if segment.starts_with('{') => values.next().unwrap(),
                segment => segment,
            });
            Write { route, path: segments.collect::<Vec<_>>().join("/"), body, wait }
        });
        writes.collect()
    }
}
