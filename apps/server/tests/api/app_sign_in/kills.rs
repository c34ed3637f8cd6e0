//! `kill -9` of the node during sign-ins.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use super::{Platform, Visitor};

const ROUNDS: u64 = 6;
/// The accounts that sign in. Ada has the same verified address at both OpenID providers, and so has Grace.
const ACCOUNTS: [(&str, &str); 6] = [
    ("webaccount", "ada"),
    ("messenger", "ada"),
    ("webaccount", "grace"),
    ("messenger", "grace"),
    ("codehost", "ada"),
    ("codehost", "nameless"),
];
const USERS: &str = "SELECT (SELECT count(*) FROM svc_auth.users), (SELECT count(*) FROM svc_auth.identities)";
const SESSIONS: &str = "SELECT count(*) FROM svc_auth.sessions s LEFT JOIN svc_auth.identities i \
                        ON i.user_id = s.user_id AND i.provider = s.provider WHERE i.user_id IS NULL";

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_leaves_neither_duplicate_users_nor_sessions_without_a_user() {
    let Some(mut platform) = Platform::with_club().await else { return };
    let mut interrupted = 0;
    for round in 0..ROUNDS {
        // Each round begins with first sign-ins. The first one also creates the schema.
        if round > 0 {
            platform.sql("club", "DELETE FROM svc_auth.users").await;
        }
        let browsers: Vec<(Visitor, &str, &str)> = (0..3)
            .flat_map(|_| ACCOUNTS)
            .map(|(provider, person)| (platform.visitor("club"), provider, person))
            .collect();
        let begun = browsers.iter().map(async |(browser, provider, person)| browser.approve(provider, person).await);
        let callbacks = join_all(begun).await;
        let sign_in = browsers.iter().zip(&callbacks).map(async |((browser, ..), path)| browser.try_get(path).await);
        let (statuses, ()) = tokio::join!(join_all(sign_in), async {
            tokio::time::sleep(Duration::from_millis(10 * round)).await;
            platform.node.kill();
        });
        platform.node.restart();
        platform.wait_until_ready("club").await;
        for ((browser, provider, person), status) in browsers.iter().zip(statuses) {
            // A session that the browser knows of exists. The others start again.
            match status.map(|response| response.status().as_u16()) {
                Some(303) => {}
                Some(status) => panic!("{status}"),
                None => {
                    interrupted += 1;
                    browser.sign_in(provider, person).await;
                }
            }
            assert_ne!(browser.user().await, Value::Null, "{provider} {person}");
        }
        // Ada and Grace, and the two accounts at the code host.
        assert_eq!(platform.sql("club", USERS).await, "4|6");
        assert_eq!(platform.sql("club", SESSIONS).await, "0");
    }
    assert!(interrupted > 0, "no sign-in was interrupted");
}
