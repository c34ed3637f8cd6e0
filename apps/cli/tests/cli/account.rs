//! `svc ssh-keys`, `svc sessions` and the audit log of the account.

use crate::support::{Machine, Platform};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILrC93FEIzsjyWuBW+GrPjINWRUtyXJMWak3pXjBZRct";

#[tokio::test(flavor = "multi_thread")]
async fn ssh_keys_are_added_listed_and_removed() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    ada.write("key.pub", format!("{KEY} ada@laptop\n"));
    let added = ada.svc(&["ssh-keys", "add", "key.pub"]).succeeds();
    added.stderr_contains("added the key ada@laptop (SHA256:");
    let id = added.out.trim();
    let listed = ada.svc(&["ssh-keys", "list"]).succeeds().out;
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], [id, "ada@laptop", "ed25519"]);
    ada.svc(&["ssh-keys", "add", "key.pub", "--title", "again"]).fails(1).stderr_contains("code ssh_key_exists");

    ada.write("without-comment.pub", KEY);
    ada.svc(&["ssh-keys", "add", "without-comment.pub"]).fails(2).stderr_contains("use --title");
    ada.write("key", "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n");
    let private = ada.svc(&["ssh-keys", "add", "key"]).fails(2);
    private.stderr_contains("key is a private key: use the file whose name ends with .pub");
    assert!(!private.err.contains("secret"), "{private:?}");
    ada.svc(&["ssh-keys", "add", "missing.pub"]).fails(1).stderr_contains("missing.pub: No such file");

    // A token may read the keys, but only a login session may change them.
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "account:read"]).succeeds().out;
    let mut ci = Machine::new(&platform.api);
    ci.environment.insert("SVC_CLI_TOKEN", token.trim().to_owned());
    ci.svc(&["ssh-keys", "list"]).succeeds();
    ci.svc(&["ssh-keys", "remove", id]).fails(3).stderr_contains("this: unset SVC_CLI_TOKEN");
    ada.svc(&["ssh-keys", "remove", id]).succeeds().stderr_contains(&format!("removed {id}"));
    ada.svc(&["ssh-keys", "remove", id]).fails(5);

    let audit = ada.svc(&["audit", "--account"]).succeeds().out;
    for event in ["session.start", "ssh_key.add", "ssh_key.delete"] {
        assert!(audit.contains(event), "{event}: {audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_of_another_machine_is_ended() {
    let platform = Platform::start().await;
    let (ada, lost) = (platform.ada(), platform.ada());
    let listed = ada.svc(&["sessions", "list"]).succeeds().out;
    assert_eq!(listed.lines().filter(|line| line.contains(" current ")).count(), 1, "{listed}");
    let sessions = ada.json(&["sessions", "list"]);
    let other = sessions["items"].as_array().unwrap().iter().find(|session| session["current"] == false);
    let id = other.unwrap()["id"].as_str().unwrap();
    ada.svc(&["sessions", "end", id]).succeeds().stderr_contains(&format!("ended {id}"));
    lost.svc(&["whoami"]).fails(3);
    ada.svc(&["whoami"]).succeeds();
    // No hint fits.
    let ended = ada.svc(&["sessions", "end", id]).fails(5);
    assert!(!ended.err.contains("next: "), "{ended:?}");
}
