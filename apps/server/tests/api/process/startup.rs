//! Malformed settings.

use std::process::Stdio;

use sandbox::Certificate;
use testkit::{TestDatabase, reserved_port};

use super::{command, settings};

#[tokio::test(flavor = "multi_thread")]
async fn invalid_setting_aborts_startup_with_one_line() {
    let database = TestDatabase::create().await;
    let folder = std::env::temp_dir();
    for (name, value) in [
        ("SVC_DATABASE_URL", None),
        ("SVC_DATABASE_URL", Some("mysql://user:hunter2@host/db")),
        ("SVC_DATABASE_URL", Some("postgres://user:hunter2@host/db?sslmode=prefer")),
        ("SVC_LISTEN", Some("invalid")),
        ("SVC_UNKNOWN", Some("1")),
        ("SVC_SEALING_KEYS", Some("hunter2")),
        ("SVC_SEALING_KEYS", Some("")),
        ("SVC_DASHBOARD_URL", Some("*")),
        ("SVC_PUBLIC_URL", Some("https://api.example")),
        ("SVC_PUBLIC_URL", Some("http://127.0.0.1:80800")),
        ("SVC_PLATFORM_DOMAIN", Some("https://apps.example")),
        ("SVC_FALLBACK_ORIGIN", Some("not a name")),
        ("SVC_GIT_SSH_HOST", Some("a b/c")),
        ("SVC_GIT_SSH_HOST", Some("git.example:80800")),
        ("SVC_LIMITS", Some("/nowhere.toml")),
        ("SVC_MAX_CONCURRENT_REQUESTS", Some("0")),
        ("SVC_DATABASE_CONNECTIONS", Some("0")),
        ("SVC_DATABASE_URL", Some("host=h user=a password=hunter2 sslmode=require")),
        ("SVC_BUNDLE_STORE", Some("ftp://host")),
        ("SVC_BUNDLE_STORE", Some("s3:///prefix")),
        ("SVC_BUNDLE_STORE", Some("s3://key:hunter2@bundles")),
        ("SVC_BUNDLE_STORE", Some("s3://bundles/../others")),
        // The credentials are missing.
        ("SVC_BUNDLE_STORE", Some("s3://bundles/prefix")),
        ("SVC_DNS_LISTEN", Some("invalid")),
        // The TSIG key is missing.
        ("SVC_DNS_LISTEN", Some("127.0.0.1:0")),
        ("SVC_DNS_SECONDARIES", Some("192.0.2.1")),
        ("SVC_DNS_TSIG", Some("xfr:hmac-md5:aHVudGVyMg==")),
        ("SVC_CODEHOST_AUTHORIZE_URL", Some("http://code.example")),
        ("SVC_CODEHOST_TOKEN_URL", Some("http://code.example")),
        ("SVC_CODEHOST_USER_URL", Some("http://10.0.0.1")),
        ("SVC_CODEHOST_REDIRECTS", Some("nonsense")),
        // One of the two settings is missing.
        ("SVC_CODEHOST_CLIENT_ID", Some("svc")),
        ("SVC_CODEHOST_CLIENT_SECRET", Some("hunter2")),
        ("SVC_OAUTH_ISSUER", Some("nonsense")),
        ("SVC_OAUTH_ISSUER", Some("https://api.example/path")),
        ("SVC_OAUTH_ISSUER", Some("https://api.example?x=1")),
        ("SVC_OAUTH_ISSUER", Some("https://api.example#x")),
        ("SVC_OAUTH_ISSUER", Some("https://user:hunter2@api.example")),
        ("SVC_OAUTH_ISSUER", Some("http://api.example")),
        // The issuer is missing.
        ("SVC_OAUTH_AUDIENCE", Some("https://api.example")),
        // The issuer is set, but the audience is not a resource indicator.
        ("SVC_OAUTH_AUDIENCE", Some("nonsense")),
        ("SVC_OAUTH_AUDIENCE", Some("https://audience.example#x")),
        ("SVC_OAUTH_AUDIENCE", Some("https://audience.example/a b")),
        ("SVC_OAUTH_DEVICE_FLOW", Some("on")),
        ("SVC_OAUTH_DEVICE_FLOW", Some("maybe")),
        ("SVC_OAUTH_REFRESH_GRACE", Some("61s")),
        ("SVC_OAUTH_REFRESH_GRACE", Some("-1s")),
        ("SVC_OAUTH_REFRESH_GRACE", Some("1h")),
        // The device flow is off.
        ("SVC_OAUTH_CLI_CLIENT_ID", Some("app_01h455vb4pex5vsknk084sn02q")),
        ("SVC_OAUTH_CLI_CLIENT_ID", Some("hunter2")),
        // The nameservers are missing.
        ("SVC_PLATFORM_ORG", Some("org_01h455vb4pex5vsknk084sn02q")),
        // The key is not base64url.
        ("SVC_ACME_EAB", Some("ca.example:kid:hunter2!")),
        ("SVC_ACME_CA", Some("/dev/null")),
        // One of the two settings is missing.
        ("SVC_LENDING_URL", Some("https://lending.example")),
        ("SVC_LENDING_SECRET", Some("hunter2")),
        // Both settings are set, but the secret is malformed.
        ("SVC_LENDING_SECRET", Some("whsec_hunter2")),
    ] {
        let mut settings = settings(&database, &folder, reserved_port(), reserved_port());
        settings.retain(|(known, _)| *known != name);
        settings.extend(value.map(|value| (name, value.to_owned())));
        if value == Some("whsec_hunter2") {
            settings.push(("SVC_LENDING_URL", "https://lending.example".to_owned()));
        }
        if name == "SVC_PLATFORM_ORG" {
            settings.push(("SVC_ACME_DIRECTORIES", "https://ca.example/directory".to_owned()));
        }
        if name == "SVC_OAUTH_AUDIENCE" && value != Some("https://api.example") {
            settings.push(("SVC_OAUTH_ISSUER", "https://issuer.example".to_owned()));
        }
        let output = command(&settings).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {line}");
        let named = match (name, value) {
            ("SVC_PUBLIC_URL", Some("https://api.example")) => "SVC_ENABLE_DEV_AUTH",
            ("SVC_CODEHOST_CLIENT_ID", _) => "SVC_CODEHOST_CLIENT_SECRET",
            ("SVC_CODEHOST_CLIENT_SECRET", _) => "SVC_CODEHOST_CLIENT_ID",
            (_, Some("s3://bundles/prefix")) => "AWS_ACCESS_KEY_ID",
            (_, Some("127.0.0.1:0")) => "SVC_DNS_TSIG",
            ("SVC_OAUTH_AUDIENCE", Some("https://api.example")) | (_, Some("on")) => "SVC_OAUTH_ISSUER",
            ("SVC_PLATFORM_ORG", _) => "SVC_NAMESERVERS",
            ("SVC_LENDING_URL", _) => "SVC_LENDING_SECRET",
            ("SVC_LENDING_SECRET", Some("hunter2")) => "SVC_LENDING_URL",
            _ => name,
        };
        assert!(line.contains(named) && line.trim().lines().count() == 1, "{name}: {line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_listener_that_cannot_be_served_aborts_startup() {
    let database = TestDatabase::create().await;
    let folders = tempfile::tempdir().unwrap();
    let certificates = |name: &str, files: &[(&str, &str)]| {
        let folder = folders.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        for (file, text) in files {
            std::fs::write(folder.join(file), text).unwrap();
        }
        folder.display().to_string()
    };
    let [own, other] = [(); 2].map(|()| Certificate::generate_for(&["api.example"]));
    let stranger = Certificate::generate_for(&["other.example"]);
    let valid = certificates("valid", &[("api.example.crt", own.chain()), ("api.example.key", own.key())]);
    let empty = certificates("empty", &[]);
    let missing = certificates("missing", &[("api.example.crt", own.chain())]);
    let mismatched = certificates("key", &[("api.example.crt", own.chain()), ("api.example.key", other.key())]);
    let mistaken = certificates("name", &[("api.example.crt", stranger.chain()), ("api.example.key", stranger.key())]);
    let nowhere = folders.path().join("nowhere").display().to_string();
    let (public, port) = (reserved_port(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [free, used] = [0, port.local_addr().unwrap().port()].map(|port| format!("127.0.0.1:{port}"));
    let no_certificate = "has no usable certificate for api.example";
    let url = "https://api.example";
    for (url, listen, folder, error, logged) in [
        (url, None, Some(&valid), "SVC_TLS_LISTEN is malformed: required with SVC_TLS_CERTIFICATES", ""),
        (url, Some(&free), None, "requires SVC_ACME_DIRECTORIES or SVC_TLS_CERTIFICATES", ""),
        ("http://api.example", Some(&free), Some(&valid), "requires an https SVC_PUBLIC_URL with a hostname", ""),
        ("https://192.0.2.1", Some(&free), Some(&valid), "requires an https SVC_PUBLIC_URL with a hostname", ""),
        (url, Some(&used), Some(&valid), "SVC_TLS_LISTEN 127.0.0.1:", ""),
        (url, Some(&free), Some(&nowhere), "SVC_TLS_CERTIFICATES: cannot read the folder", ""),
        (
            url,
            Some(&free),
            Some(&format!("{valid}/api.example.crt")),
            "SVC_TLS_CERTIFICATES: cannot read the folder",
            "",
        ),
        (url, Some(&free), Some(&empty), no_certificate, ""),
        (url, Some(&free), Some(&missing), no_certificate, "the .key file is missing"),
        (url, Some(&free), Some(&mismatched), no_certificate, "the private key cannot be used"),
        (url, Some(&free), Some(&mistaken), no_certificate, "the certificate is not valid for api.example"),
    ] {
        let mut settings = settings(&database, folders.path(), public, reserved_port());
        settings.retain(|(name, _)| !["SVC_PUBLIC_URL", "SVC_ENABLE_DEV_AUTH"].contains(name));
        settings.push(("SVC_PUBLIC_URL", url.to_owned()));
        settings.extend(listen.map(|listen| ("SVC_TLS_LISTEN", listen.clone())));
        settings.extend(folder.map(|folder| ("SVC_TLS_CERTIFICATES", folder.clone())));
        let output = command(&settings).stdout(Stdio::piped()).output().unwrap();
        let [line, log] = [output.stderr, output.stdout].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.contains("SVC_TLS_") && line.contains(error) && line.trim().lines().count() == 1, "{line}");
        assert!(log.contains(logged) && !log.contains("PRIVATE KEY"), "{log}");
    }
}
