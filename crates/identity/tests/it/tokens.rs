//! Personal access tokens: what is kept of one, what it may be limited to, and its end.

use std::collections::BTreeSet;

use identity::{AccessToken, AccessTokenCreated, IdentityError, NewAccessToken, Restrict, Restriction};
use kernel::audit::Credential;
use kernel::{Code, Digest, Failure as _, Page, Paging, Scope, Time, Token, TokenId, TokenKind, UserId};
use serde_json::{Value, json};

use crate::kit::{Kit, anyone};

/// Somebody who signed in; the audit row of that has been looked at.
async fn user(kit: &Kit, subject: &str) -> UserId {
    let user = kit.login(subject).await.unwrap().user_id;
    kit.audited().await;
    user
}

fn new_token(name: &str) -> NewAccessToken {
    NewAccessToken { name: name.parse().unwrap(), scopes: vec![Scope::OrgRead], expires_at: None, restrict: None }
}

fn limited(org: &str, projects: Option<&[&str]>, zones: Option<&[&str]>) -> NewAccessToken {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let restrict = Restrict { org: org.to_owned(), projects: projects.map(texts), zones: zones.map(texts) };
    NewAccessToken { restrict: Some(restrict), ..new_token("limited") }
}

async fn create(kit: &Kit, user: UserId, new: NewAccessToken) -> Result<AccessTokenCreated, IdentityError> {
    kit.identity.token_create(&anyone(), user, new).await
}

async fn tokens(kit: &Kit, user: UserId) -> Vec<AccessToken> {
    kit.identity.tokens(user, &Paging::default()).await.unwrap().items
}

/// A project of the organization of this slug.
async fn db_project(kit: &Kit, org: &str, name: &str) {
    let insert = format!(
        "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
         SELECT gen_random_uuid(), id, '{name}', 'public', 0, now() FROM orgs.orgs WHERE slug = '{org}'"
    );
    kit.database.run(&insert).await;
}

/// The path that a refusal names; nothing was written.
async fn refused(kit: &Kit, user: UserId, new: NewAccessToken) -> String {
    let error = create(kit, user, new).await.unwrap_err();
    assert_eq!(error.code(), &Code::BAD_REQUEST);
    assert_eq!(kit.audited().await, []);
    let field = error.details().unwrap()["fields"][0].clone();
    assert!(field["message"].as_str().is_some_and(|message| !message.is_empty()), "{field}");
    field["path"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_once_and_only_its_hash_and_its_beginning_are_kept() {
    let kit = Kit::start().await;
    let (ada, now) = (user(&kit, "ada").await, kit.now());
    let expires_at = Some(now.plus_seconds(3600));
    let created = create(&kit, ada, NewAccessToken { expires_at, ..new_token("laptop") }).await.unwrap();
    let token = created.token.reveal();
    assert_eq!(Token::parse(TokenKind::Access, token), Some(created.token.clone()));
    let expected = AccessToken {
        id: created.about.id,
        name: "laptop".to_owned(),
        scopes: vec![Scope::OrgRead],
        restrict: None,
        prefix: token[..12].to_owned(),
        created_at: now,
        expires_at,
        last_used_at: None,
        revoked_at: None,
    };
    assert_eq!(created.about, expected);
    assert_eq!(tokens(&kit, ada).await, std::slice::from_ref(&expected));
    assert_eq!(kit.identity.token(ada, expected.id).await.unwrap(), expected);
    let shown = serde_json::to_value(&created).unwrap();
    assert_eq!((&shown["token"], &shown["prefix"]), (&json!(token), &json!(expected.prefix)));

    let hash = "SELECT encode(token_hash, 'hex') AS hash FROM identity.access_tokens";
    assert_eq!(kit.db_rows(hash).await, [json!({ "hash": Digest::of(token.as_bytes()).hex() })]);
    for table in ["identity.access_tokens", "store.audit"] {
        let rows = Value::from(kit.db_rows(&format!("SELECT t::text FROM {table} t")).await).to_string();
        // Neither all of it nor what comes after its beginning.
        assert!(rows.contains("org:read") && !rows.contains(&token[12..]), "{rows}");
        // A name may be a contact, which the log never holds.
        assert_eq!(rows.contains("laptop"), table != "store.audit", "{rows}");
        let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!rows.contains(&hex[24..]), "{rows}");
    }
    let told = kit.audited().await;
    let [row] = told.as_slice() else { panic!("one row is expected: {told:?}") };
    assert_eq!((row.event.as_str(), &row.target), ("token.create", &expected.id.to_string()));
    let data = json!({ "scopes": ["org:read"], "org": null, "projects": null, "zones": null, "expiresAt": expires_at });
    assert_eq!(row.data, data);
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_are_kept_once_each_and_in_order() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    let scopes = vec![Scope::Deploy, Scope::AiUse, Scope::AccountRead, Scope::Deploy, Scope::AccountRead];
    let created = create(&kit, ada, NewAccessToken { scopes, ..new_token("ci") }).await.unwrap();
    assert_eq!(created.about.scopes, [Scope::AccountRead, Scope::Deploy, Scope::AiUse]);
    assert_eq!(kit.audited().await[0].data["scopes"], json!(["account:read", "deploy", "ai:use"]));
    assert_eq!(tokens(&kit, ada).await, [created.about]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_lies_in_the_future() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    for past in [-365 * 24 * 3600, -1, 0] {
        let expires_at = Some(kit.now().plus_seconds(past));
        let new = NewAccessToken { expires_at, ..new_token("late") };
        assert_eq!(refused(&kit, ada, new).await, "expiresAt", "{past}");
    }
    let expires_at = Some(kit.now().plus_millis(1));
    let created = create(&kit, ada, NewAccessToken { expires_at, ..new_token("soon") }).await.unwrap();
    // What has expired stays listed.
    kit.advance(60);
    assert_eq!(tokens(&kit, ada).await, [created.about]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_limited_to_places_that_its_user_can_name() {
    let kit = Kit::start().await;
    let (ada, _) = (user(&kit, "ada").await, user(&kit, "eve").await);
    for (org, project) in [("ada", "shop"), ("ada", "blog"), ("eve", "diary")] {
        db_project(&kit, org, project).await;
    }
    let shown = |projects: Option<&[&str]>| {
        let projects = projects.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Some(Restriction { org: "ada".to_owned(), projects, zones: None })
    };
    for (asked, kept) in [
        (None, None),
        (Some(&["shop"][..]), Some(&["shop"][..])),
        (Some(&["shop", "blog", "shop"]), Some(&["blog", "shop"])),
    ] {
        let created = create(&kit, ada, limited("ada", asked, None)).await.unwrap();
        assert_eq!(created.about.restrict, shown(kept));
        assert_eq!(kit.identity.token(ada, created.about.id).await.unwrap(), created.about);
        // The log names the places by what stays: their ids.
        let told = kit.audited().await[0].data.clone();
        assert!(told["org"].as_str().is_some_and(|org| org.starts_with("org_")), "{told}");
        assert_eq!(told["projects"].as_array().map(Vec::len), kept.map(<[_]>::len), "{told}");
    }
    let kept = "SELECT count(*) FROM identity.access_tokens";
    assert_eq!(kit.database.number(kept).await, 3);
    for (new, path) in [
        (limited("nowhere", None, None), "restrict.org"),
        (limited("", None, None), "restrict.org"),
        (limited("eve", None, None), "restrict.org"),
        (limited("eve", Some(&["diary"]), None), "restrict.org"),
        (limited("ada", Some(&["nothing"]), None), "restrict.projects[0]"),
        // Of an organization that she is not in.
        (limited("ada", Some(&["shop", "blog", "diary"]), None), "restrict.projects[2]"),
        (limited("ada", None, Some(&["example.org"])), "restrict.zones[0]"),
        (limited("ada", Some(&["shop"]), Some(&["example.org"])), "restrict.zones[0]"),
    ] {
        let asked = format!("{new:?}");
        assert_eq!(refused(&kit, ada, new).await, path, "{asked}");
    }
    assert_eq!(kit.database.number(kept).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restriction_is_shown_by_the_names_that_the_places_have_now() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    db_project(&kit, "ada", "shop").await;
    let id = create(&kit, ada, limited("ada", Some(&["shop"]), None)).await.unwrap().about.id;
    let shown = async || {
        let one = kit.identity.token(ada, id).await.unwrap().restrict.unwrap();
        assert_eq!(tokens(&kit, ada).await[0].restrict, Some(one.clone()));
        (one.org, one.projects.unwrap())
    };
    assert_eq!(shown().await, ("ada".to_owned(), vec!["shop".to_owned()]));
    kit.database.run("UPDATE projects.projects SET name = 'store'").await;
    // Another one that takes the name is not the one that was meant.
    db_project(&kit, "ada", "shop").await;
    assert_eq!(shown().await, ("ada".to_owned(), vec!["store".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_listed_once_each_newest_first_and_revoked_ones_stay() {
    let kit = Kit::start().await;
    let (ada, eve) = (user(&kit, "ada").await, user(&kit, "eve").await);
    let mut mine: Vec<TokenId> = Vec::new();
    for n in 0..25 {
        mine.push(create(&kit, ada, new_token(&format!("token {n}"))).await.unwrap().about.id);
        create(&kit, eve, new_token("hers")).await.unwrap();
        kit.advance(1);
    }
    let revoked: BTreeSet<TokenId> = mine.iter().copied().step_by(3).collect();
    for id in &revoked {
        kit.identity.token_revoke(&anyone(), ada, *id).await.unwrap();
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
async fn a_token_is_revoked_once() {
    let kit = Kit::start().await;
    let (ada, eve) = (user(&kit, "ada").await, user(&kit, "eve").await);
    let token = create(&kit, ada, new_token("laptop")).await.unwrap().about;
    let other = create(&kit, ada, new_token("desktop")).await.unwrap().about;
    kit.audited().await;
    let first = kit.now();
    let stamped = async || kit.identity.token(ada, token.id).await.unwrap().revoked_at;

    // Nobody else's, and none that there is not.
    for (user, id) in [(eve, token.id), (ada, kit.store.world().id()), (kit.store.world().id(), token.id)] {
        let refused = kit.identity.token_revoke(&anyone(), user, id).await;
        assert!(matches!(refused, Err(IdentityError::TokenNotFound)), "{refused:?}");
        let unseen = kit.identity.token(user, id).await;
        assert!(matches!(unseen, Err(IdentityError::TokenNotFound)), "{unseen:?}");
    }
    assert_eq!(stamped().await, None);
    kit.identity.token_revoke(&anyone(), ada, token.id).await.unwrap();
    let told = kit.audited().await;
    let [row] = told.as_slice() else { panic!("one row is expected: {told:?}") };
    assert_eq!((row.event.as_str(), &row.target, &row.data), ("token.revoke", &token.id.to_string(), &json!({})));
    assert_eq!(stamped().await, Some(first));

    kit.identity.token_revoke(&anyone(), ada, token.id).await.unwrap();
    assert_eq!((stamped().await, kit.audited().await), (Some(first), vec![]));
    assert_eq!(kit.identity.token(ada, other.id).await.unwrap(), other);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_who_revoke_one_token_leave_one_row() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    let id = create(&kit, ada, new_token("laptop")).await.unwrap().about.id;
    kit.audited().await;
    let actor = anyone();
    let revokes = (0..20).map(|_| kit.identity.token_revoke(&actor, ada, id));
    let outcomes = futures_util::future::join_all(revokes).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(kit.audited().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_use_of_a_token_is_noted_now_and_then() {
    let kit = Kit::start().await;
    let ada = user(&kit, "ada").await;
    let token = create(&kit, ada, new_token("laptop")).await.unwrap().about.id;
    let other = create(&kit, ada, new_token("desktop")).await.unwrap().about.id;
    kit.audited().await;
    let noted = async |id| kit.identity.token(ada, id).await.unwrap().last_used_at;
    let touch = async || -> Time {
        kit.identity.touch(Credential::Token(token)).await.unwrap();
        kit.now()
    };
    let first = touch().await;
    assert_eq!(noted(token).await, Some(first));
    kit.advance(590);
    touch().await;
    assert_eq!(noted(token).await, Some(first));
    kit.advance(20);
    let second = touch().await;
    assert_eq!(noted(token).await, Some(second));
    assert_eq!((noted(other).await, kit.audited().await), (None, vec![]));
}
