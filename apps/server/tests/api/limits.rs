//! The rates, with two servers on one database: what one of them admits, the other counts. In most of these tests no time
//! passes by itself, so that nothing is given back meanwhile.

use futures_util::future::join_all;
use serde_json::json;

use crate::kit::{Answer, App, Caller};

/// Two servers with these limits.
async fn two(sign_in: u32, credential: u32) -> (App, App) {
    let app = App::with(|config| {
        config.gateway.rate_limits.sign_in = sign_in.try_into().unwrap();
        config.gateway.rate_limits.credential = credential.try_into().unwrap();
    })
    .await;
    app.clock.stop();
    let other = app.another().await;
    (app, other)
}

async fn login(app: &App) -> Answer {
    app.anyone().post("/v1/auth/dev/login", json!({ "subject": "ada" })).await
}

/// How many of this many requests to each server are admitted; the others are told to wait. Most come many at once, the
/// last ones after each other: by then nobody holds a permit that is on its way to somebody else.
async fn admitted(servers: &[&App], caller: &Caller, each: usize) -> usize {
    let callers: Vec<Caller> = servers.iter().map(|server| server.meets(caller)).collect();
    let ask = async |caller: &Caller| match caller.get("/v1/orgs").await {
        answer if answer.status == 200 => 1,
        answer => {
            answer.refused(429, "rate_limited");
            0
        }
    };
    let mut admitted = 0;
    for _ in 0..each / 20 {
        let burst = callers.iter().flat_map(|caller| std::iter::repeat_n(caller, 20));
        admitted += join_all(burst.map(&ask)).await.into_iter().sum::<usize>();
    }
    for _ in 0..20 {
        for caller in &callers {
            admitted += ask(caller).await;
        }
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_ins_at_all_servers_together_keep_to_one_limit() {
    let (app, other) = two(30, 600).await;
    for n in 0..30 {
        login(if n % 2 == 0 { &app } else { &other }).await.expect(200);
    }
    for server in [&app, &other] {
        let answer = login(server).await;
        answer.refused(429, "rate_limited");
        assert_eq!(answer.header("retry-after"), "2");
        assert_eq!(answer.header("ratelimit-policy"), "\"sign-in\";q=30;w=60");
        assert_eq!(answer.header("ratelimit"), "\"sign-in\";r=0;t=60");
    }
    // One comes back every two seconds.
    app.clock.advance(2);
    assert_eq!((login(&other).await.status, login(&app).await.status), (200, 429));
    app.clock.advance(60);
    for n in 0..30 {
        login(if n % 3 == 0 { &app } else { &other }).await.expect(200);
    }
    login(&app).await.refused(429, "rate_limited");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_has_one_rate_at_all_servers() {
    for limit in [60, 180] {
        let (app, other) = two(600, limit).await;
        let ada = app.sign_in("ada").await;
        let each = usize::try_from(limit).unwrap();
        assert_eq!(admitted(&[&app, &other], &ada, each).await, each);
        for server in [&app, &other] {
            let answer = server.meets(&ada).get("/v1/me").await;
            answer.refused(429, "rate_limited");
            assert_eq!(answer.header("retry-after"), "1");
            assert_eq!(answer.header("ratelimit-policy"), format!("\"general\";q={limit};w=60"));
            assert!(answer.header("ratelimit").starts_with("\"general\";r=0;t="), "{answer:?}");
        }
        // Another credential of the same person has its own.
        app.sign_in("ada").await.get("/v1/me").await.expect(200);
        // After half the time, half of it is there again.
        app.clock.advance(30);
        assert_eq!(admitted(&[&app, &other], &ada, each).await, each / 2);
        app.clock.advance(3600);
        assert_eq!(admitted(&[&app, &other], &ada, each).await, each);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_falls_from_one_answer_to_the_next() {
    let (app, other) = two(600, 600).await;
    let ada = app.sign_in("ada").await;
    let mut last = i64::MAX;
    for n in 0..40 {
        let answer = if n < 20 { &app } else { &other };
        let answer = answer.meets(&ada).get("/v1/me").await;
        answer.expect(200);
        let state = answer.header("ratelimit").to_owned();
        let left: i64 = state.split(";r=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
        // What one server holds for the caller, the other takes for used.
        assert!(left < last && (590 - n..600 - n).contains(&left), "{n}: {state}");
        last = left;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_holds_and_does_not_use_it_gives_up() {
    let (app, other) = two(600, 600).await;
    let ada = app.sign_in("ada").await;
    // Ten at a time: nine of them stay with this server, for ten seconds.
    ada.get("/v1/me").await.expect(200);
    assert_eq!(admitted(&[&other], &ada, 600).await, 590);
    assert_eq!(admitted(&[&app], &ada, 20).await, 9);
    app.clock.advance(60);
    ada.get("/v1/me").await.expect(200);
    app.clock.advance(20);
    assert_eq!(admitted(&[&app, &other], &ada, 600).await, 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_invitations_is_counted_by_itself() {
    let (app, other) = two(5, 600).await;
    let look = async |app: &App| app.anyone().get(&format!("/v1/invites/svc_inv_{}", "A".repeat(43))).await;
    for n in 0..5 {
        let answer = look(if n % 2 == 0 { &app } else { &other }).await;
        answer.refused(404, "not_found");
        assert_eq!(answer.header("ratelimit-policy"), "\"preview\";q=5;w=60");
    }
    for server in [&app, &other] {
        look(server).await.refused(429, "rate_limited");
    }
    // Whoever was refused a look may still sign in, and the other way around.
    for _ in 0..5 {
        login(&app).await.expect(200);
    }
    login(&other).await.refused(429, "rate_limited");
    let keys = app.db_rows("SELECT key FROM store.rates ORDER BY key").await;
    assert_eq!(keys, [json!({ "key": "preview 127.0.0.1" }), json!({ "key": "sign-in 127.0.0.1" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_credentials_share_one_rate_and_leave_no_rows() {
    let (app, other) = two(600, 60).await;
    let mut refused = 0;
    for n in 0..70 {
        let kind = if n % 3 == 0 { "svc_ses_" } else { "svc_pat_" };
        let token = format!("{kind}{:A>43}", format!("{n}x"));
        let server = if n % 2 == 0 { &app } else { &other };
        match server.with_token(&token).get("/v1/me").await {
            answer if answer.status == 429 => refused += 1,
            answer => drop(answer.refused(401, "unauthenticated").clone()),
        }
    }
    assert_eq!(refused, 10);
    let keys = app.db_rows("SELECT key FROM store.rates").await;
    assert_eq!(keys, [json!({ "key": "general 127.0.0.1" })]);
    // Whoever has a real one is not hindered.
    app.sign_in("ada").await.get("/v1/me").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_are_all_admitted_while_there_is_room() {
    let (app, _) = two(600, 600).await;
    let ada = app.sign_in("ada").await;
    // More of them than there are portions of ten in the bucket.
    let answers = join_all((0..150).map(|_| ada.get("/v1/orgs"))).await;
    for answer in answers {
        answer.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_ahead_for_a_while_shuts_nobody_out() {
    let (app, _) = two(5, 600).await;
    login(&app).await.expect(200);
    app.db_execute("UPDATE store.rates SET full_at = full_at + 3600 * 1000000::bigint").await.unwrap();
    login(&app).await.refused(429, "rate_limited");
    app.clock.advance(13);
    login(&app).await.expect(200);
}
