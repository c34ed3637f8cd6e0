//! SSH keys.

use serde_json::{Value, json};
use testkit::four_at_a_time;

use crate::support::App;

/// Type, public key line and fingerprint, generated with `ssh-keygen`.
const GOOD: [(&str, &str, &str); 5] = [
    (
        "ed25519",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILrC93FEIzsjyWuBW+GrPjINWRUtyXJMWak3pXjBZRct",
        "SHA256:rXMfIkxeLbbJnLYpqgz3EI8YW+ilFJ0Pz36ZlxEp2Mo",
    ),
    (
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBOrpkbPI/LcxD+60sksfZy2m\
         wkrBJSHwuSyWCxvoltJ/AHpWg8vnar5TgcHr1LUtJo0ZsT7g1GWzoD0dhRW8TMQ=",
        "SHA256:M+Mm9WzUpn8NamAWJdlol5xy9gASejOVvyDBC8yAn08",
    ),
    (
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBILdQtndjSKPXO2tiLmJ2cMA\
         kWA1cH1SFtcyOTuujP9qUatPgbc9MeuBUkIqgISnDJXdW2jR0CjdcD5EbBzzC3yA4M5Ucsjd7nYn0KB+hfDZZeWtg2e/xFOO\
         y2nO9VykDA==",
        "SHA256:U/o2biL51N91sB5S1smoSqskVotOvkukG6wiQUAgBZU",
    ),
    (
        "ecdsa-sha2-nistp521",
        "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBABSOn0XuZw92yxtZnX4kXDL\
         4qOH2BH+/Qfhzh3+9XP5S6pGTjODXS9ne5yVL1dym1lM06AbD3CF28evReEfqh/6vAAQqtMKcDAMFnzMQ+WRHOjOYcPxiYtP\
         vC1RAHtI4+JGjZOlnV9SN9OpwbtBIO9jLbhMd1CpZgzPeUD4xNP9Hu4bXw==",
        "SHA256:/FI/0cDniRLs2EsxKxp3A/iDpn3RPKtHG44EVn1yU/o",
    ),
    (
        "rsa",
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQClwvMOJt6wZkqNj8SwlpczGU+U+CrWtTf58o9qrOx3zhorBLTiVJc9f9i5\
         qXkcWi6h/njz9BBzy+AXuCrU4tuD0PF9EVr/e0e4v1Oau4iL70UYw6eOPfzd0LQhmcNemcSM9UzS5GuyNNiPhV/qefFgwPaf\
         xniwDPw6ZFofJmuC6h1WlVRHocDPzOUhUSO7BmG1YzNgZ3aV7/lgdNmHKcI6owik9I6ronaZr1rhijnpB/XpTzt3wvxtxlsJ\
         uK5jsChUdZvqsAgVmKqr+bDEC+BQuRoLu/IpWL/mKvQOwlmh+4I/s7dD8SnM4ZqWPCMTRlQHA2dE25ETTJ9J5ueNmHTj",
        "SHA256:bEHE0X7A7Syk/CNprn5mhZQb0yqXL3gYivRb8JlzwaE",
    ),
];

const DSA: &str = "ssh-dss AAAAB3NzaC1kc3MAAACBAJKGKbhC1+Q2Q7BGkhZJT4/jJ7G6h1l3NaMEJtvdCBuadFlHClCL0lPmLMbd48DKyQWJ\
         gmQsSn2e8MYhlL7DjbIJ0IEBWd8ijsicnn3zY2Sa01hxpU7/567XalGSTo8XzqHohhv+GzioiEG90FGslaFb3o4UIipGTp0Z\
         v/Y1Fb+DAAAAFQCL3ca4OIUdkb09yW+TujE3bdzcDQAAAIEAgyr3FMr3jlX9FqmepfAcZBKZN4vuTn4DwQaX9Pk2wdLYFQ5G\
         o4aIi8SuoMPwKZRj/3soZmoGuEBXKESakaF7vYZani7vc7R31nfG0tCovbO+gEpHAeeeZcT7QAGygh3BLWwFdnJkEEXS1nmg\
         tCeF+tf9dZe293HwLUf7ije4Sk4AAACADoBdmU8E/qBw3SHryOLiopsp+vJ2vT+Z/M4NKGoXpgT0qqkJ8x+AoW1RQse3iCsP\
         xgCxFKRwUJf93v9mVDO6maGi45baldrKSJ1LqtKeeItBXlmE9wYUp6n53fWdcifqMwvaoHNsjTqbVpsafGE3I42KN4eyl8nG\
         euz5kgoTEmc=";

const RSA_1024: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDKWD+Dtw9IEwsHMS664CLHHxnGNl8IUC2iZQMVyHTo6EUZvs7DTmw+tOOd\
         3HNNqO681W4pJdD+9PjXVzflPXXeN3niyaRYg7ts6gx4KTZcfyzQk+720E14bTHJg01RQ+c52+XfIVTOZxr+qzstSMzoAfGt\
         7aWBihv8JoT4zmG1mw==";

const KEYS: &str = "/v1/me/ssh-keys";

fn new(title: &str, key: &str) -> Value {
    json!({ "title": title, "key": key })
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_all_types_are_added_listed_and_deleted() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let mut shown = Vec::new();
    for (kind, line, fingerprint) in GOOD {
        let key = ada.post(KEYS, new(kind, &format!("{line} ada@laptop\n"))).await.expect(201).clone();
        assert_eq!(
            (&key["type"], &key["title"], &key["fingerprint"]),
            (&json!(kind), &json!(kind), &json!(fingerprint))
        );
        assert!(key["id"].as_str().unwrap().starts_with("key_"));
        assert_eq!(key["lastUsedAt"], json!(null));
        shown.insert(0, key);
    }
    assert_eq!(ada.get(KEYS).await.expect(200), &json!({ "items": shown, "nextCursor": null }));
    let page = ada.get(&format!("{KEYS}?limit=2")).await.expect(200).clone();
    assert_eq!(page["items"], json!(shown[..2]));
    let rest = ada.get(&format!("{KEYS}?limit=200&cursor={}", page["nextCursor"].as_str().unwrap())).await;
    assert_eq!(rest.expect(200)["items"], json!(shown[2..]));
    // The comment, which may contain personal data, is not stored.
    let rows = app.db_rows("SELECT public_key FROM identity.ssh_keys").await;
    assert!(rows.iter().all(|row| !row["public_key"].as_str().unwrap().contains("laptop")));

    let at = format!("{KEYS}/{}", shown[0]["id"].as_str().unwrap());
    app.sign_in("bob").await.delete(&at).await.expect_error(404, "not_found");
    ada.delete(&at).await.expect(204);
    ada.delete(&at).await.expect_error(404, "not_found");
    assert_eq!(ada.get(KEYS).await.expect(200)["items"], json!(shown[1..]));
    let audit = app.db_rows("SELECT event FROM store.audit WHERE event LIKE 'ssh_key.%' ORDER BY id").await;
    let events: Vec<&str> = audit.iter().map(|row| row["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["ssh_key.add", "ssh_key.add", "ssh_key.add", "ssh_key.add", "ssh_key.add", "ssh_key.delete"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_user_are_limited() {
    let app = App::with(|config| config.abuse_limits.ssh_keys_per_user = 2).await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    let [first, second, third, ..] = GOOD.map(|(_, line, _)| new("laptop", line));
    let key = ada.post(KEYS, first).await.expect(201).clone();
    ada.post(KEYS, second).await.expect(201);
    let refused = ada.post(KEYS, third.clone()).await;
    assert_eq!(refused.expect_error(409, "ssh_key_limit")["details"], json!({ "limit": 2, "count": 2 }));
    bob.post(KEYS, new("desk", GOOD[3].1)).await.expect(201);
    ada.delete(&format!("{KEYS}/{}", key["id"].as_str().unwrap())).await.expect(204);
    ada.post(KEYS, third).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_belongs_to_one_user_until_deleted() {
    let app = App::start().await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    let (_, line, _) = GOOD[0];
    let key = ada.post(KEYS, new("laptop", line)).await.expect(201).clone();
    ada.post(KEYS, new("again", line)).await.expect_error(409, "ssh_key_exists");
    let refused = bob.post(KEYS, new("mine", &format!("{line} bob@desk"))).await;
    let message = refused.expect_error(409, "ssh_key_exists")["message"].as_str().unwrap().to_owned();
    assert!(!message.contains("ada") && !message.contains(ada.user_id.as_str()), "{message}");
    assert_eq!(bob.get(KEYS).await.expect(200)["items"], json!([]));
    ada.delete(&format!("{KEYS}/{}", key["id"].as_str().unwrap())).await.expect(204);
    bob.post(KEYS, new("mine", line)).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_registrations_of_a_key_succeed_once() {
    let app = App::with(|config| config.database.connections = 32).await;
    let callers = futures_util::future::join_all((0..20).map(|n| {
        let (app, subject) = (&app, format!("user-{n}"));
        async move { app.sign_in(&subject).await }
    }))
    .await;
    let responses = four_at_a_time(callers.iter().map(|caller| caller.post(KEYS, new("k", GOOD[0].1)))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 201).count(), 1);
    for refused in responses.iter().filter(|response| response.status != 201) {
        refused.expect_error(409, "ssh_key_exists");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_keys_are_rejected_with_a_reason() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let (_, line, _) = GOOD[0];
    let private = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----";
    for (key, reason) in [
        (DSA, "ssh-dss"),
        (RSA_1024, "1024 bits"),
        (private, "private key"),
        ("", ""),
        ("ssh-ed25519", "one line"),
        ("ssh-ed25519 AAAA", "one line"),
        (&line.replace("ssh-ed25519", "ssh-rsa"), "one line"),
        (&format!("{line}\n{}", GOOD[1].1), "one line"),
        (&format!("command=\"sh\" {line}"), "one line"),
        ("sk-ssh-ed25519@openssh.com AAAA", "sk-ssh-ed25519"),
        ("ssh-ed25519-cert-v01@openssh.com AAAA", "cert"),
    ] {
        let response = ada.post(KEYS, new("k", key)).await;
        let field = &response.expect_error(400, "bad_request")["details"]["fields"][0];
        assert_eq!(field["path"], "key", "{key}");
        assert!(field["message"].as_str().unwrap().contains(reason), "{key}: {field}");
    }
    let both = ada.post(KEYS, new("", "ssh-ed25519 AAAA")).await;
    let fields = both.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap();
    assert_eq!(fields.iter().map(|field| &field["path"]).collect::<Vec<_>>(), ["key", "title"]);
    ada.post(KEYS, json!({ "key": line })).await.expect_error(400, "bad_request");
    for title in ["", " ", "a\u{202e}b"] {
        ada.post(KEYS, new(title, line)).await.expect_error(400, "bad_request");
    }
    assert_eq!(ada.get(KEYS).await.expect(200)["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn token_can_list_keys_but_not_change_them() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let key = ada.post(KEYS, new("laptop", GOOD[0].1)).await.expect(201).clone();
    let with = async |scope: &str| {
        let created = ada.post("/v1/me/tokens", json!({ "name": "ci", "scopes": [scope] })).await.expect(201).clone();
        app.with_token(created["token"].as_str().unwrap())
    };
    let reader = with("account:read").await;
    assert_eq!(reader.get(KEYS).await.expect(200)["items"], json!([key]));
    reader.post(KEYS, new("mine", GOOD[1].1)).await.expect_error(401, "session_required");
    let at = format!("{KEYS}/{}", key["id"].as_str().unwrap());
    reader.delete(&at).await.expect_error(401, "session_required");
    assert_eq!(
        with("org:write").await.get(KEYS).await.expect_error(403, "insufficient_scope")["details"]["required"],
        "account:read"
    );
    app.anonymous().get(KEYS).await.expect_error(401, "unauthenticated");
}
