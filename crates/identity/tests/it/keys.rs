//! SSH keys as `ssh-keygen` makes them.
//!
//! The keys below were made by OpenSSH 9.2 and their fingerprints are what its `ssh-keygen -l -E sha256` printed, so
//! these tests need no OpenSSH. Where there is an `ssh-keygen`, the last test asks it again, also about keys that it
//! makes at that moment; elsewhere that test says so and passes.

use std::io::Write as _;
use std::process::{Command, Stdio};

use futures_util::future::join_all;
use identity::{IdentityError, InvalidKey, KeyType, NewSshKey, ParsedKey, SshKey};
use kernel::{Code, Failure as _, Page, Paging, UserId};
use serde_json::json;

use crate::kit::{Kit, anyone};

const ED25519: &str = "\
    ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5gjdYHO85A85LTltWVucW3jbAycfeqGRf7c/I4jtcQ";
const P256: &str = "\
    ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBK2y+mYr+vEi2tBpP28mHugqfdBZMYIRQ6q5\
    dJfBh9gWzRHNN9OtHHFX0YO0t+/5fwgCIh/Cml0+kFkl/qVZ+t8=";
const P384: &str = "\
    ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBCb0R2ntPw4vKSrGRzI1LPX4eddcqhvsIvP3\
    nwD5z2G32pzdYpI3OqoxTbQuwtLGJhBLYC8SXf3odZWWP+pHaHJsbnEDltBJ9cyicNFFUqeNHZ0J7QubQpYAFyKW3AwMoQ==";
const P521: &str = "\
    ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBAFZRbbW48sQsqxvdoopIpWxbBMRGjHUgW5s\
    BKFrtHvl4PA10wLBzbJb3lkvXSoly7GPEEsOMMq8D9fmbavAVm786QBOHSgvHzUExbfOE1dqfhbOisVQ52KRu69cZgPj5t+e8gn9YfcmXJEK\
    j79RoEuQq3e9rxwazRYltJLPsEh1V/Uzyw==";
const RSA_2048: &str = "\
    ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCulZO8a4PI+Ak111/OFLFA3dzF8jN0RIO9dBrSZZaIQ/0BGr6NIXfx5rGg8Yyq46e0p00Y\
    zdpICC1jpbKBzTOkaGfFi9h1PLVvm3tpl/wWUVcNFyROC7f3COibbWDr1BdSt5F/M8O9Fu/PTrOO8NixoUKhL6qkbsLoqALD8ksrC5uhxLYj\
    TNoiFBWq1VeVu9DTK8x3aeMyqgCelwimyu9miwaLU/3Dui5j0Uo52ur41K7lQo1WpWdpsPiEjwv2ioJZw7OcgJPO61HOyzsI0X7eE6hJHdky\
    ESolNYI/yvwIfLpH6Hn2IfVM2rBNEKbHqY7reGEYn/qtfAaLdommz0Eb";
const RSA_3072: &str = "\
    ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQCvZZc184dHd695OD7Q8mlTonrOPEt2tUeVXaEGwn55H27zKUEKxlRUj7N3POm4DTIszYlH\
    pSC1Bl7U1d+o39raiKUGZokr0oybd1TIfIuDEa5Tem3Y0GHanKCV0+vdu3ZdzUu1uFXJviNFViogDDIGaGC/1Psz0UorM/AQ0DvUJKRAW1CI\
    0aPU8KfvhN6XKgn3ncXhpnXLuE4uzPqd49CEqalZSohhc251As3shqQpd+EgKqPSKZgmJfM044XDyv2DyOxTypKbz2Wt5PRpGrKe/WEz/OLy\
    meOBt7XlEuQLJczbotOj69XCIUKLg1MCJBI5/+prGKeEOiPjybesdtHP6fODZjQf6O7WGQaA6KnI87/Zngy/MYE+LfvRBxyOc0nKH4WVwiS0\
    dXhKyWu40qsW8x4cWz3X03C8NR8EZbJDgjKTGCCyWKUEhYEWXBwJA28eN/WaeIvyY1EeJsS7IaodnawWT48xYKv3G4vBfGieQLdd8p/jMooe\
    yYn8XgPTcnM=";
const RSA_4096: &str = "\
    ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAACAQCUbbJAkGrFDaz57vRaK5Erx05pIrfcm9GoiyI+NzsDQpByFDU4pGa4Vka+u7YMvVUS3DX8\
    hzinArfKnxOKXuRYbkbWfLOQyW7F1DM/NC9EvXeudb4bp89F4Sy5UcN4gWmqVa/9Yw332F5qivMeYlfXKod6EZcfE9abcgQuKGuGBXXJA7cE\
    85JuoW0h0QQ6X4tOuLiLdH35Ipcc7j68EYceW6DXPgOZbnCeWFkzvevn9wJz17hj8b3kpz51uWam+oS6bt9ccWzy0M+8EfUk8tUlOBUOy0zR\
    srx+bpdHLYeYSs/roBYqePqzUXoUTv/RgDIpb+BvJGCOyaMe3jSt18SSBT/zdnsXstTzsVDc614aG12Rk/vLdlCKM9bVOfZsZ199NvACoQEM\
    IaXBatO+IqPwENUkwYu85m/FTjRQ5kWnaOff9bUpwVVGC6/nNxAl1oGoQB5h2vZcmDf6EMbK3vcOq9XVAimwtvQ+IXjG+2/LVyVM9FZmbHQ4\
    nre6KZgLXva4NvQM5T0mUNH59keBUgkS42q3/6/yVDY9PxrwiMQDIXJAnM69tDDCNkVyUwX3F6BT3nYiRgHnghKGVCAsoNr34qPPPgdPnfJ1\
    JCyOIp8L8mELrCgGpMYViWsj3P5YNZ3rQYZDtgg4JZn+E00Lc7sfMoymBgvbXTPO15ApJbwiuQ==";
const RSA_1024: &str = "\
    ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDk1zaPGWbuPGJbdUZhvkAl6tJnrM39yWAFrexhNK78fdzwXZMS5kI9op6qZIyIbhYkKA7g\
    7g5DOyGrLpjtT3ekC94GM/3S7K6xllDt6KIjJPykynvyWNlsB5XRfncS2hZD5n0/BitEVlzMeambS1WkZpTMRvLZnX1mCMiPasy09w==";
const RSA_2047: &str = "\
    ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAF5sLmfZhzpCLGYX1Jept7dFaGyNexaHlVTXrdDge1kvk3lf2vD77hs8wWjZw7cVlCyOkjYt\
    OSwaJe2rSvsuD9WoKNlQ0ILX55+p3w9XFzA0Wnp4hPBTPj8se5jdzRtGokYBNDN16p39ztgQkONPRTirtimErKAQSG3jNcvdTI4bCgkziUW+\
    xU0yrQX4/DRC+ho3puER3xbybu9uYs3n3nMzy9Xbp38h8gyZ0wAqLzN6XEMDlQlNgFRSXzjpGvCCG+LE3IAuNNl7cEyBICXMohqYulobH75M\
    TLwSXLWgzx7mYn94XfmQz0ABAIZFP40KAO0Qfalm1sPAWqyU2vuJdbU=";
const DSA: &str = "\
    ssh-dss AAAAB3NzaC1kc3MAAACBAMhPuE87CZMw6eL4yppsSWNszsG+VueHRso97a6bra/9zRPmxKZpa/Vj65LXq3kvP1G2KrLcTp7DEBuO\
    fj0gBKR+u0DDjC7/dsqK/Wp2qF63O8NUFle9+wnd4bpcF26kHvtsf+liVC7y6r03VNmo8yegcO6LVkyN8dRR2epQKzpVAAAAFQDy2ZT+r91a\
    sgn7hOekBmAWg4exHQAAAIAzG8xk0tngoLbYk8gfer+gGQQgKbu1M6Zykswa2EZx3fOKbUlt8QPYqMVU4CYCrklPfxbryAmpdNIjx3uMSsv5\
    MkzYEiIZwZPH10A31Tx9ROm/Xh9kCa16SBGJeuN8alXsBBFw3AgCMiKyiYtc5EN+0gNJtpsrQ897nTEY4ssSbwAAAIAl/I1rfhiNXV9uaYKW\
    f7bzMmyapQyecNLoJAgy81tXzcbNcGwUAzY7TL7VSjrzWi0IcqnMHqplortiE7mltS2scAoDUUyRZ+j2YeOJz3z30KMYAaF45d8FA92s4KoT\
    CFT4q2D6THr1tqOO7iL/Fw+ClmlaL6WlUWa4io6Nwg9QuA==";
const SK_ED25519: &str = "\
    sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIJ5gjdYHO85A85LTltWVucW3jbAycfeqGRf7c\
    /I4jtcQAAAABHNzaDo=";
const SK_P256: &str = "\
    sk-ecdsa-sha2-nistp256@openssh.com AAAAInNrLWVjZHNhLXNoYTItbmlzdHAyNTZAb3BlbnNzaC5jb20AAAAIbmlzdHAyNTYAAABBB\
    K2y+mYr+vEi2tBpP28mHugqfdBZMYIRQ6q5dJfBh9gWzRHNN9OtHHFX0YO0t+/5fwgCIh/Cml0+kFkl/qVZ+t8AAAAEc3NoOg==";
const CERTIFICATE: &str = "\
    ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29tAAAAIKMCYT4YrTiH1ctpyZCRSRU\
    p6eI7vLaDgIv5gxAHM3b0AAAAIJ5gjdYHO85A85LTltWVucW3jbAycfeqGRf7c/I4jtcQAAAAAAAAAAAAAAABAAAAAmlkAAAABwAAAANhZGE\
    AAAAAAAAAAP//////////AAAAAAAAAIIAAAAVcGVybWl0LVgxMS1mb3J3YXJkaW5nAAAAAAAAABdwZXJtaXQtYWdlbnQtZm9yd2FyZGluZwA\
    AAAAAAAAWcGVybWl0LXBvcnQtZm9yd2FyZGluZwAAAAAAAAAKcGVybWl0LXB0eQAAAAAAAAAOcGVybWl0LXVzZXItcmMAAAAAAAAAAAAAADM\
    AAAALc3NoLWVkMjU1MTkAAAAgORxUgpk0zQG5y2SD81RO9z3ryA4fedLPKnqlHwmIEgYAAABTAAAAC3NzaC1lZDI1NTE5AAAAQFaY0y3Bhfp\
    tNlMZFwR71bW5D9oQ4a7m/TtyltYuvx58FPa2X6r8JX2Mt/vjJ0GtgzUwRE6xm9EfVXvZSE0spgI=";

/// Keys that are taken: type, fingerprint and line.
const TAKEN: [(KeyType, &str, &str); 7] = [
    (KeyType::Ed25519, "SHA256:mHikDd3DxkMAVPQ6NqIzjUouVacElmCE6UfU9jZ/Yjw", ED25519),
    (KeyType::EcdsaP256, "SHA256:UuM/8FYBfV0oGiJ9YmMEqWypzfjS/JFpibXL+mW3iss", P256),
    (KeyType::EcdsaP384, "SHA256:wwRuD62nv81GJ59WwU1+NZF0Qmgy3na0nUGTef/UlJM", P384),
    (KeyType::EcdsaP521, "SHA256:yUNi6XupwPafxx+kyJqU1LdKzwxPpLAcEZAXI50SiXQ", P521),
    (KeyType::Rsa, "SHA256:ZmJ5FD/UUhBFdzf6OE5fcMUgB1gF1rKOgYep6jkJXtE", RSA_2048),
    (KeyType::Rsa, "SHA256:bejDXiMtVYBzR9xIkpBV7gxq8g4iqkXSDFbqCOBCcAM", RSA_3072),
    (KeyType::Rsa, "SHA256:UsJj0lSWdyqOpGDk/zBNWNlt+xd/6npMN1Wp0odQMoQ", RSA_4096),
];

/// What two lines of a private key look like; no key is in them.
const PRIVATE: &str =
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----\n";

fn new_key(key: &str) -> NewSshKey {
    NewSshKey { title: "laptop".parse().unwrap(), key: key.to_owned() }
}

async fn add(kit: &Kit, user: UserId, key: &str) -> Result<SshKey, IdentityError> {
    kit.identity.key_add(&anyone(), user, new_key(key)).await
}

async fn keys(kit: &Kit, user: UserId) -> Vec<SshKey> {
    kit.identity.keys(user, &Paging::default()).await.unwrap().items
}

/// Two people who signed in; the audit rows of that have been looked at.
async fn two_users(kit: &Kit) -> (UserId, UserId) {
    let (ada, eve) = (kit.login("ada").await.unwrap().user_id, kit.login("eve").await.unwrap().user_id);
    kit.audited().await;
    (ada, eve)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_type_that_is_taken_have_the_fingerprint_that_ssh_prints() {
    let kit = Kit::start().await;
    let (ada, eve) = two_users(&kit).await;
    let mut added = Vec::new();
    for (kind, fingerprint, line) in TAKEN {
        let now = kit.now();
        let key = add(&kit, ada, &format!("{line} ada@laptop\n")).await.unwrap();
        let (title, fingerprint) = ("laptop".to_owned(), fingerprint.to_owned());
        let expected = SshKey { id: key.id, title, kind, fingerprint, created_at: now, last_used_at: None };
        assert_eq!(key, expected);
        let told = kit.audited().await;
        let [row] = told.as_slice() else { panic!("one row is expected: {told:?}") };
        assert_eq!((row.event.as_str(), &row.target), ("ssh_key.add", &key.id.to_string()));
        assert_eq!(row.data, json!({ "type": kind, "fingerprint": key.fingerprint }));
        // Type and base64, as in an authorized_keys file; the comment is nobody's business.
        let stored = format!("SELECT public_key FROM identity.ssh_keys WHERE id = '{}'", key.id.as_uuid());
        assert_eq!(kit.db_rows(&stored).await, [json!({ "public_key": line })]);
        added.insert(0, key);
    }
    assert_eq!(serde_json::to_value(&added[0]).unwrap()["type"], json!("rsa"));
    assert_eq!((keys(&kit, ada).await, keys(&kit, eve).await), (added, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_once_each_and_newest_first() {
    let kit = Kit::start().await;
    let (ada, eve) = two_users(&kit).await;
    let mut mine = Vec::new();
    for (_, _, line) in TAKEN {
        mine.insert(0, add(&kit, ada, line).await.unwrap().id);
        kit.advance(1);
    }
    for limit in [1, 3, 6, 7, 8] {
        let (mut paging, mut seen) = (Paging { limit, after: None }, Vec::new());
        loop {
            let Page { items, next_cursor } = kit.identity.keys(ada, &paging).await.unwrap();
            seen.extend(items.into_iter().map(|key| key.id));
            let Some(cursor) = next_cursor else { break };
            paging = Paging::after(limit, &cursor).unwrap();
        }
        assert_eq!(seen, mine, "with {limit} on a page");
    }
    assert_eq!(keys(&kit, eve).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_key_that_is_taken_is_refused_in_words_that_help() {
    let kit = Kit::start().await;
    let (ada, _) = two_users(&kit).await;
    let (kind, base64) = ED25519.split_once(' ').unwrap();
    let other_blob = P256.split_once(' ').unwrap().1;
    for (text, told) in [
        (RSA_1024, "RSA key of 1024 bits; 2048"),
        (RSA_2047, "RSA key of 2047 bits; 2048"),
        (DSA, "type ssh-dss; taken are ed25519"),
        (SK_ED25519, "type sk-ssh-ed25519@openssh.com; taken are ed25519"),
        (SK_P256, "type sk-ecdsa-sha2-nistp256@openssh.com; taken are ed25519"),
        (CERTIFICATE, "type ssh-ed25519-cert-v01@openssh.com; taken are ed25519"),
        (PRIVATE, "private key; paste the content of the .pub file"),
        (&PRIVATE.replace("OPENSSH", "RSA"), "private key; paste the content of the .pub file"),
        (&format!("{ED25519}\n{P256}"), "not one line"),
        (&format!("{ED25519}\r\n{P256}\r\n"), "not one line"),
        (&format!("no-pty {ED25519}"), "not one line"),
        (&format!("command=\"/bin/true\",no-pty {ED25519}"), "not one line"),
        (&format!("from=\"*.example.org\" {ED25519}"), "not one line"),
        ("", "not one line"),
        (" \n", "not one line"),
        (kind, "not one line"),
        (base64, "not one line"),
        ("ssh-ed25519 !!!!", "not one line"),
        ("ssh-ed25519 AAAA", "not one line"),
        ("ssh-ed25519 aGVsbG8gd29ybGQ=", "not one line"),
        ("hello world", "not one line"),
        (&ED25519[..ED25519.len() - 4], "not one line"),
        (&RSA_4096[..RSA_4096.len() / 2], "not one line"),
        // A byte more than the key has.
        (&format!("{ED25519}AAAA"), "not one line"),
        // The type in the text and the one in the key.
        (&format!("{kind} {other_blob}"), "not one line"),
        (&format!("ecdsa-sha2-nistp256 {base64}"), "not one line"),
        (&P384.replacen("nistp384", "nistp256", 1), "not one line"),
        (&format!("ssh-dss {base64}"), "type ssh-dss"),
        (&format!("ssh-ed25519 {}", DSA.split_once(' ').unwrap().1), "not one line"),
        (&format!("ssh-ed25519 {}", SK_ED25519.split_once(' ').unwrap().1), "not one line"),
    ] {
        let error = add(&kit, ada, text).await.unwrap_err();
        assert!(matches!(&error, IdentityError::Field(it) if it.path == "key"), "{text:?}: {error:?}");
        assert_eq!(error.code(), &Code::BAD_REQUEST);
        let message = error.details().unwrap()["fields"][0]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(told) && message.starts_with("is "), "{text:?}: {message}");
    }
    assert_eq!((keys(&kit, ada).await, kit.audited().await), (vec![], vec![]));
}

#[test]
fn white_space_and_the_comment_are_no_part_of_a_key() {
    let expected = ParsedKey::read(ED25519).unwrap();
    assert_eq!(expected.line, ED25519);
    let (kind, base64) = ED25519.split_once(' ').unwrap();
    for text in [
        format!("{ED25519} ada@laptop"),
        format!("{ED25519} a comment of several words, with ümläuts and a \"quote\""),
        format!("  {ED25519}\r\n"),
        // As sshd and ssh-keygen read it.
        format!("{kind}\t{base64}\tada@laptop"),
        format!("{kind}   {base64}  ada@laptop"),
    ] {
        assert_eq!(ParsedKey::read(&text), Ok(expected.clone()), "{text:?}");
    }
    assert_eq!(ParsedKey::read(&format!("{kind}\n{base64}")), Err(InvalidKey::Unreadable));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_one_users_however_it_is_written() {
    let kit = Kit::start().await;
    let (ada, eve) = two_users(&kit).await;
    let key = add(&kit, ada, ED25519).await.unwrap();
    kit.audited().await;
    for user in [ada, eve] {
        for text in [ED25519.to_owned(), format!("{ED25519} eve@desktop"), format!("\n {ED25519}  \r\n")] {
            let refused = add(&kit, user, &text).await.unwrap_err();
            assert!(matches!(&refused, IdentityError::KeyExists(known) if *known == key.fingerprint), "{refused:?}");
            assert_eq!(refused.code(), &IdentityError::SSH_KEY_EXISTS);
            // Whose it is, is not told.
            assert!(!refused.to_string().contains(&ada.to_string()), "{refused}");
        }
    }
    assert_eq!((keys(&kit, ada).await, keys(&kit, eve).await, kit.audited().await), (vec![key], vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_who_add_one_key_at_once_one_has_it() {
    let kit = Kit::start().await;
    let mut users = Vec::new();
    for n in 0..20 {
        users.push(kit.login(&format!("user-{n}")).await.unwrap().user_id);
    }
    kit.audited().await;
    for (_, fingerprint, line) in TAKEN {
        // The same user too.
        let twice = users.iter().map(|user| add(&kit, *user, line)).chain([add(&kit, users[0], line)]);
        let (added, refused): (Vec<_>, Vec<_>) = join_all(twice).await.into_iter().partition(Result::is_ok);
        assert_eq!(added.len(), 1);
        assert!(refused.iter().all(|outcome| matches!(outcome, Err(IdentityError::KeyExists(_)))), "{refused:?}");
        let told = kit.audited().await;
        let [row] = told.as_slice() else { panic!("one row is expected: {told:?}") };
        assert_eq!(row.data["fingerprint"], json!(fingerprint));
    }
    assert_eq!(kit.database.number("SELECT count(*) FROM identity.ssh_keys").await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_deleted_by_its_user_and_may_be_added_again() {
    let kit = Kit::start().await;
    let (ada, eve) = two_users(&kit).await;
    let (key, other) = (add(&kit, ada, ED25519).await.unwrap(), add(&kit, ada, P256).await.unwrap());
    kit.audited().await;
    let delete = async |user, key| kit.identity.key_delete(&anyone(), user, key).await;
    for (user, key) in [(eve, key.id), (ada, kit.store.world().id()), (kit.store.world().id(), key.id)] {
        let refused = delete(user, key).await;
        assert!(matches!(refused, Err(IdentityError::KeyNotFound)), "{refused:?}");
    }
    assert_eq!((keys(&kit, ada).await.len(), kit.audited().await), (2, vec![]));

    delete(ada, key.id).await.unwrap();
    let told = kit.audited().await;
    let [row] = told.as_slice() else { panic!("one row is expected: {told:?}") };
    assert_eq!((row.event.as_str(), &row.target), ("ssh_key.delete", &key.id.to_string()));
    assert_eq!(row.data, json!({ "fingerprint": key.fingerprint }));
    assert!(matches!(delete(ada, key.id).await, Err(IdentityError::KeyNotFound)));
    assert_eq!((keys(&kit, ada).await, kit.audited().await), (vec![other], vec![]));

    let hers = add(&kit, eve, ED25519).await.unwrap();
    assert_ne!(hers.id, key.id);
    assert_eq!(keys(&kit, eve).await, [hers]);
}

/// What `ssh-keygen -l` prints of a line; none without an `ssh-keygen`.
fn printed(line: &str) -> Option<String> {
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-l", "-E", "sha256", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut keygen = keygen.spawn().ok()?;
    keygen.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    let output = keygen.wait_with_output().unwrap();
    assert!(output.status.success(), "{line}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').nth(1).map(str::to_owned)
}

#[test]
fn the_ssh_keygen_of_this_machine_prints_the_same_fingerprints() {
    if printed(ED25519).is_none() {
        eprintln!("there is no ssh-keygen here: nothing was compared");
        return;
    }
    for (_, fingerprint, line) in TAKEN {
        assert_eq!(printed(line).as_deref(), Some(fingerprint), "{line}");
    }
    let folder = std::env::temp_dir().join(format!("svc-ssh-keys-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (at, (kind, options)) in [
        (KeyType::Ed25519, &["-t", "ed25519"][..]),
        (KeyType::EcdsaP256, &["-t", "ecdsa", "-b", "256"]),
        (KeyType::EcdsaP384, &["-t", "ecdsa", "-b", "384"]),
        (KeyType::EcdsaP521, &["-t", "ecdsa", "-b", "521"]),
        (KeyType::Rsa, &["-t", "rsa", "-b", "2048"]),
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.join(at.to_string());
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-N", "", "-C", "made just now", "-f"]).arg(&file).args(options).stdin(Stdio::null());
        assert!(keygen.status().unwrap().success(), "{options:?}");
        let line = std::fs::read_to_string(file.with_extension("pub")).unwrap();
        let key = ParsedKey::read(&line).unwrap();
        assert_eq!((key.kind, Some(key.fingerprint)), (kind, printed(line.trim_end())), "{line}");
        let private = std::fs::read_to_string(&file).unwrap();
        assert_eq!(ParsedKey::read(&private), Err(InvalidKey::Private));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
