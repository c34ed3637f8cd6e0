//! Personal access tokens: stored data, restrictions and revocation.

use std::collections::BTreeSet;

use identity::{AccessToken, AccessTokenCreated, IdentityError, NewAccessToken, Restrict, Restriction};
use kernel::audit::Credential;
use kernel::{ApiError as _, Code, Digest, Page, Paging, Scope, Time, Token, TokenId, TokenKind, UserId, hex};
use serde_json::{Value, json};
use testkit::four_at_a_time;

use crate::kit::{Kit, anonymous_actor};

/// Signs in a user and discards the audit row.
async fn user(kit: &Kit, subject: &str) -> UserId {
    let user = kit.login(subject).await.unwrap().user_id;
    kit.audited().await;
    user
}

fn new_token(name: &str) -> NewAccessToken {
    NewAccessToken { name: name.parse().unwrap(), scopes: vec![Scope::OrgRead], expires_at: None, restrict: None }
}

fn restricted_token(org: &str, projects: Option<&[&str]>, zones: Option<&[&str]>) -> NewAccessToken {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let restrict = Restrict { org: org.to_owned(), projects: projects.map(texts), zones: zones.map(texts) };
    NewAccessToken { restrict: Some(restrict), ..new_token("restricted") }
}

async fn create(kit: &Kit, user: UserId, new: NewAccessToken) -> Result<AccessTokenCreated, IdentityError> {
    kit.identity.token_create(&anonymous_actor(), user, new).await
}

async fn tokens(kit: &Kit, user: UserId) -> Vec<AccessToken> {
    kit.identity.tokens(user, &Paging::default()).await.unwrap().items
}

/// Inserts a project into the organization with this slug.
async fn db_project(kit: &Kit, org: &str, name: &str) {
    let insert = format!(
        "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
         SELECT gen_random_uuid(), id, '{name}', 'public', 0, now() FROM orgs.orgs WHERE slug = '{org}'"
    );
    kit.database.run(&insert).await;
}

/// Checks that the token is rejected without a write, and returns the path of the invalid field.
async fn refused(kit: &Kit, user: UserId, new: NewAccessToken) -> String {
    let error = create(kit, user, new).await.unwrap_err();
    assert_eq!(error.code(), &Code::BAD_REQUEST);
    assert_eq!(kit.audited().await, []);
    let field = error.details().unwrap()["fields"][0].clone();
    assert!(field["message"].as_str().is_some_and(|message| !message.is_empty()), "{field}");
    field["path"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_hash_and_prefix_of_a_token_are_stored() {
    let kit = Kit::start().await;
    let (ada, now) = (user(&kit, "ada").await, kit.now());
    let expires_at = Some(now.plus_seconds(3600));
    let created = create(&kit, ada, NewAccessToken { expires_at, ..new_token("laptop") }).await.unwrap();
    let token = created.token.reveal();
    assert_eq!(Token::parse(TokenKind::Access, token), Some(created.token.clone()));
    let expected = AccessToken {
        id: created.metadata.id,
        name: "laptop".to_owned(),
        scopes: vec![Scope::OrgRead],
        restrict: None,
        prefix: token[..12].to_owned(),
        created_at: now,
        expires_at,
        last_used_at: None,
        revoked_at: None,
    };
    assert_eq!(created.metadata, expected);
    assert_eq!(tokens(&kit, ada).await, std::slice::from_ref(&expected));
    assert_eq!(kit.identity.token(ada, expected.id).await.unwrap(), expected);
    let shown = serde_json::to_value(&created).unwrap();
    assert_eq!((&shown["token"], &shown["prefix"]), (&json!(token), &json!(expected.prefix)));

    let hash = "SELECT encode(token_hash, 'hex') AS hash FROM identity.access_tokens";
    assert_eq!(kit.db_rows(hash).await, [json!({ "hash": Digest::of(token.as_bytes()).hex() })]);
    for table in ["identity.access_tokens", "store.audit"] {
        let rows = Value::from(kit.db_rows(&format!("SELECT t::text FROM {table} t")).await).to_string();
        // The rows contain neither the token nor its part after the stored prefix.
        assert!(rows.contains("org:read") && !rows.contains(&token[12..]), "{rows}");
        // A name may be a mail address, so the audit log omits it.
        assert_eq!(rows.contains("laptop"), table != "store.audit", "{rows}");
        assert!(!rows.contains(&hex(token.as_bytes())[24..]), "{rows}");
    }
    let events = kit.audited().await;
    let [row] = events.as_slice() else { panic!("one row is expected: {events:?}") };
    assert_eq!((row.event.as_str(), &row.target), ("token.create", &expected.id.to_string()));
    let data = json!({ "scopes": ["org:read"], "org": null, "projects": null, "zones": null, "expiresAt": expires_at });
    assert_eq!(row.data, data);
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_are_sorted_and_deduplicated() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    let scopes = vec![Scope::Deploy, Scope::AiUse, Scope::AccountRead, Scope::Deploy, Scope::AccountRead];
    let created = create(&kit, ada, NewAccessToken { scopes, ..new_token("ci") }).await.unwrap();
    assert_eq!(created.metadata.scopes, [Scope::AccountRead, Scope::Deploy, Scope::AiUse]);
    assert_eq!(kit.audited().await[0].data["scopes"], json!(["account:read", "deploy", "ai:use"]));
    assert_eq!(tokens(&kit, ada).await, [created.metadata]);
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_must_be_in_the_future() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    for past in [-365 * 24 * 3600, -1, 0] {
        let expires_at = Some(kit.now().plus_seconds(past));
        let new = NewAccessToken { expires_at, ..new_token("late") };
        assert_eq!(refused(&kit, ada, new).await, "expiresAt", "{past}");
    }
    let expires_at = Some(kit.now().plus_millis(1));
    let created = create(&kit, ada, NewAccessToken { expires_at, ..new_token("soon") }).await.unwrap();
    // Expired tokens stay in the listing.
    kit.advance(60);
    assert_eq!(tokens(&kit, ada).await, [created.metadata]);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_restricted_to_targets_that_its_user_can_access() {
    let kit = Kit::start().await;
    let (ada, _) = (user(&kit, "ada").await, user(&kit, "eve").await);
    for (org, project) in [("ada", "shop"), ("ada", "blog"), ("eve", "diary")] {
        db_project(&kit, org, project).await;
    }
    let shown = |projects: Option<&[&str]>| {
        let projects = projects.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Some(Restriction { org: "ada".to_owned(), projects, zones: None })
    };
    for (requested, stored) in [
        (None, None),
        (Some(&["shop"][..]), Some(&["shop"][..])),
        (Some(&["shop", "blog", "shop"]), Some(&["blog", "shop"])),
    ] {
        let created = create(&kit, ada, restricted_token("ada", requested, None)).await.unwrap();
        assert_eq!(created.metadata.restrict, shown(stored));
        assert_eq!(kit.identity.token(ada, created.metadata.id).await.unwrap(), created.metadata);
        // The audit log has the ids of the targets, because names change.
        let events = kit.audited().await[0].data.clone();
        assert!(events["org"].as_str().is_some_and(|org| org.starts_with("org_")), "{events}");
        assert_eq!(events["projects"].as_array().map(Vec::len), stored.map(<[_]>::len), "{events}");
    }
    let count = "SELECT count(*) FROM identity.access_tokens";
    assert_eq!(kit.database.number(count).await, 3);
    for (new, path) in [
        (restricted_token("nowhere", None, None), "restrict.org"),
        (restricted_token("", None, None), "restrict.org"),
        (restricted_token("eve", None, None), "restrict.org"),
        (restricted_token("eve", Some(&["diary"]), None), "restrict.org"),
        (restricted_token("ada", Some(&["nothing"]), None), "restrict.projects[0]"),
        // A project of another organization.
        (restricted_token("ada", Some(&["shop", "blog", "diary"]), None), "restrict.projects[2]"),
        (restricted_token("ada", None, Some(&["example.org"])), "restrict.zones[0]"),
        (restricted_token("ada", Some(&["shop"]), Some(&["example.org"])), "restrict.zones[0]"),
    ] {
        let debug = format!("{new:?}");
        assert_eq!(refused(&kit, ada, new).await, path, "{debug}");
    }
    assert_eq!(kit.database.number(count).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn restriction_shows_the_current_names() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    db_project(&kit, "ada", "shop").await;
    let id = create(&kit, ada, restricted_token("ada", Some(&["shop"]), None)).await.unwrap().metadata.id;
    let shown = async || {
        let one = kit.identity.token(ada, id).await.unwrap().restrict.unwrap();
        assert_eq!(tokens(&kit, ada).await[0].restrict, Some(one.clone()));
        (one.org, one.projects.unwrap())
    };
    assert_eq!(shown().await, ("ada".to_owned(), vec!["shop".to_owned()]));
    kit.database.run("UPDATE projects.projects SET name = 'store'").await;
    // A new project with the old name is not a target.
    db_project(&kit, "ada", "shop").await;
    assert_eq!(shown().await, ("ada".to_owned(), vec!["store".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_including_revoked_ones_are_listed_newest_first() {
    let kit = Kit::start().await;
    let (ada, eve) = (user(&kit, "ada").await, user(&kit, "eve").await);
    let mut mine: Vec<TokenId> = Vec::new();
    for n in 0..25 {
        mine.push(create(&kit, ada, new_token(&format!("token {n}"))).await.unwrap().metadata.id);
        create(&kit, eve, new_token("hers")).await.unwrap();
        kit.advance(1);
    }
    let revoked: BTreeSet<TokenId> = mine.iter().copied().step_by(3).collect();
    for id in &revoked {
        kit.identity.token_revoke(&anonymous_actor(), ada, *id).await.unwrap();
    }
    mine.reverse();
    for limit in [1, 6, 24, 25, 26] {
        let (mut paging, mut seen) = (Paging { limit, after: None }, Vec::new());
        loop {
            let Page { items, next_cursor } = kit.identity.tokens(ada, &paging).await.unwrap();
            assert!(items.iter().all(|token| token.revoked_at.is_some() == revoked.contains(&token.id)));
            seen.extend(items.into_iter().map(|token| token.id));
            let Some(cursor) = next_cursor else { break };
            paging = Paging::after(limit, &cursor).unwrap();
        }
        assert_eq!(seen, mine, "with {limit} on a page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn second_revocation_of_a_token_is_a_no_op() {
    let kit = Kit::start().await;
    let (ada, eve) = (user(&kit, "ada").await, user(&kit, "eve").await);
    let token = create(&kit, ada, new_token("laptop")).await.unwrap().metadata;
    let other = create(&kit, ada, new_token("desktop")).await.unwrap().metadata;
    kit.audited().await;
    let first = kit.now();
    let stamped = async || kit.identity.token(ada, token.id).await.unwrap().revoked_at;

    // None of these tokens is found: that of another user, an unknown token, and that of an unknown user.
    for (user, id) in [(eve, token.id), (ada, kit.store.clock_rng().id()), (kit.store.clock_rng().id(), token.id)] {
        let refused = kit.identity.token_revoke(&anonymous_actor(), user, id).await;
        assert!(matches!(refused, Err(IdentityError::TokenNotFound)), "{refused:?}");
        let unseen = kit.identity.token(user, id).await;
        assert!(matches!(unseen, Err(IdentityError::TokenNotFound)), "{unseen:?}");
    }
    assert_eq!(stamped().await, None);
    kit.identity.token_revoke(&anonymous_actor(), ada, token.id).await.unwrap();
    let events = kit.audited().await;
    let [row] = events.as_slice() else { panic!("one row is expected: {events:?}") };
    assert_eq!((row.event.as_str(), &row.target, &row.data), ("token.revoke", &token.id.to_string(), &json!({})));
    assert_eq!(stamped().await, Some(first));

    kit.identity.token_revoke(&anonymous_actor(), ada, token.id).await.unwrap();
    assert_eq!((stamped().await, kit.audited().await), (Some(first), vec![]));
    assert_eq!(kit.identity.token(ada, other.id).await.unwrap(), other);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_revocations_write_one_audit_event() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    let id = create(&kit, ada, new_token("laptop")).await.unwrap().metadata.id;
    kit.audited().await;
    let actor = anonymous_actor();
    let revokes = (0..20).map(|_| kit.identity.token_revoke(&actor, ada, id));
    let outcomes = futures_util::future::join_all(revokes).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(kit.audited().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_use_of_a_token_is_stored_at_most_every_ten_minutes() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    let token = create(&kit, ada, new_token("laptop")).await.unwrap().metadata.id;
    let other = create(&kit, ada, new_token("desktop")).await.unwrap().metadata.id;
    kit.audited().await;
    let last_used_at = async |id| kit.identity.token(ada, id).await.unwrap().last_used_at;
    let touch = async || -> Time {
        kit.identity.touch(Credential::Token(token)).await.unwrap();
        kit.now()
    };
    let first = touch().await;
    assert_eq!(last_used_at(token).await, Some(first));
    kit.advance(590);
    touch().await;
    assert_eq!(last_used_at(token).await, Some(first));
    kit.advance(20);
    let second = touch().await;
    assert_eq!(last_used_at(token).await, Some(second));
    assert_eq!((last_used_at(other).await, kit.audited().await), (None, vec![]));
}

/// Creates `count` tokens without audit rows.
async fn create_many(kit: &Kit, user: UserId, count: usize) -> Vec<TokenId> {
    let mut ids = Vec::with_capacity(count);
    for n in 0..count {
        ids.push(create(kit, user, new_token(&format!("token {n}"))).await.unwrap().metadata.id);
    }
    kit.audited().await;
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn live_tokens_of_a_user_are_limited() {
    let kit = Kit::start().await;
    let (ada, eve) = (user(&kit, "ada").await, user(&kit, "eve").await);
    let mut live = create_many(&kit, ada, 98).await;
    // Expired and revoked tokens do not count.
    let soon = Some(kit.now().plus_seconds(60));
    for _ in 0..2 {
        create(&kit, ada, NewAccessToken { expires_at: soon, ..new_token("soon") }).await.unwrap();
    }
    kit.audited().await;
    let refuses = async || {
        let error = create(&kit, ada, new_token("one more")).await.unwrap_err();
        assert_eq!((error.code(), error.code().name), (&IdentityError::TOKEN_LIMIT, "token_limit"));
        assert_eq!(error.details(), Some(json!({ "limit": 100, "count": 100 })));
        assert_eq!(kit.audited().await, []);
    };
    refuses().await;
    create(&kit, eve, new_token("hers")).await.unwrap();
    kit.audited().await;
    kit.advance(60);
    live.extend(create_many(&kit, ada, 2).await);
    refuses().await;
    kit.identity.token_revoke(&anonymous_actor(), ada, live[0]).await.unwrap();
    create_many(&kit, ada, 1).await;
    refuses().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_respect_the_token_limit() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    create_many(&kit, ada, 95).await;
    let outcomes = four_at_a_time((0..20).map(|_| create(&kit, ada, new_token("racing")))).await;
    let (made, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), kit.audited().await.len()), (5, 5));
    assert!(refused.iter().all(|it| matches!(it, Err(IdentityError::TokenLimit { limit: 100, .. }))), "{refused:?}");
}
