//! The rules for settings, one test each.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, process};

use settings::{ByteSize, Claim, Error, Flag, Interval, Secret, Setting, Settings, markdown};

settings::table! {
    /// The listen address.
    LISTEN: SocketAddr = Setting::with_default("SVC_LISTEN", "127.0.0.1:1");
    /// The name,
    /// `a|b`.
    NAME: String = Setting::required("SVC_NAME");
    /// The count.
    COUNT: Option<u8> = Setting::optional("SVC_COUNT");
    /// The flag.
    FLAG: Flag = Setting::with_default("SVC_FLAG", "off");
    /// The password.
    PASSWORD: Option<Secret> = Setting::optional("SVC_PASSWORD");
}
const CLAIM: Claim = Claim { prefixes: &["SVC_"], except: &["SVC_OTHER_"] };
const UNDECLARED: Setting<String> = Setting::required("SVC_UNDECLARED");

fn read(given: &[(&str, &str)]) -> Result<Settings, Error> {
    let given = [("SVC_NAME", "n")].iter().chain(given).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::read(TABLE, &CLAIM, given.collect::<Vec<_>>())
}

fn error_of(given: &[(&str, &str)]) -> String {
    read(given).unwrap_err().to_string()
}

/// A temporary file, which is removed on drop.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = std::env::temp_dir().join(format!("settings-{}-{name}", process::id()));
        fs::write(&path, content).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn values_are_parsed_and_defaults_apply() {
    let settings = read(&[("SVC_COUNT", "3"), ("SVC_FLAG", "1"), ("HOME", "/"), ("SVC_OTHER_THING", "x")]).unwrap();
    assert_eq!(settings.get(&LISTEN).unwrap().port(), 1);
    assert_eq!(settings.get(&NAME).unwrap(), "n");
    assert_eq!(settings.opt(&COUNT).unwrap(), Some(3));
    assert_eq!(settings.get(&FLAG).unwrap(), Flag(true));
    assert_eq!(settings.opt(&PASSWORD).unwrap(), None);
}

#[test]
fn byte_sizes_parse_with_and_without_a_unit() {
    for (text, bytes) in
        [("0", 0), ("500", 500), ("3KiB", 3 << 10), ("20MiB", 20 << 20), ("10GiB", 10 << 30), ("1TiB", 1 << 40)]
    {
        assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
    }
    for text in ["", "GiB", "1.5GiB", "10 GiB", "10GB", "-1", "10gib", "99999999TiB", "99999999999999999999"] {
        assert!(text.parse::<ByteSize>().is_err(), "{text}");
    }
}

#[test]
fn intervals_have_a_unit() {
    for (text, seconds) in [("60s", 60), ("5m", 300), ("1h", 3600)] {
        assert_eq!(text.parse(), Ok(Interval(Duration::from_secs(seconds))), "{text}");
    }
    for text in ["", "s", "60", "0s", "-1s", "1.5m", "1 h", "1d", "99999999999h"] {
        assert!(text.parse::<Interval>().is_err(), "{text}");
    }
}

#[test]
fn missing_unknown_and_empty_settings_are_rejected() {
    assert_eq!(Settings::read(TABLE, &CLAIM, []).unwrap_err().to_string(), "SVC_NAME is missing");
    assert_eq!(error_of(&[("SVC_LISTNE", "x")]), "SVC_LISTNE is unknown: this process has no such setting");
    assert_eq!(error_of(&[("SVC_LISTEN_FILE", "x")]), "SVC_LISTEN_FILE is unknown: this process has no such setting");
    assert_eq!(error_of(&[("SVC_A\nB", "x")]), "SVC_A B is unknown: this process has no such setting");
    assert_eq!(error_of(&[("SVC_NAME", "")]), "SVC_NAME is empty");
    assert_eq!(error_of(&[("SVC_PASSWORD", "")]), "SVC_PASSWORD is empty");
}

#[test]
fn malformed_value_errors_name_the_setting_and_hide_the_value() {
    let settings = read(&[("SVC_LISTEN", "hush"), ("SVC_FLAG", "perhaps"), ("SVC_COUNT", "256")]).unwrap();
    let line = |error: Error| error.to_string();
    assert_eq!(line(settings.get(&LISTEN).unwrap_err()), "SVC_LISTEN is malformed: invalid socket address syntax");
    assert_eq!(line(settings.get(&FLAG).unwrap_err()), "SVC_FLAG is malformed: expected on, true, 1, off, false or 0");
    assert_eq!(
        line(settings.opt(&COUNT).unwrap_err()),
        "SVC_COUNT is malformed: number too large to fit in target type"
    );
    assert_eq!(line(NAME.malformed("two\nlines")), "SVC_NAME is malformed: two lines");
}

#[test]
fn setting_outside_the_table_is_rejected() {
    let error = read(&[]).unwrap().get(&UNDECLARED).unwrap_err();
    assert_eq!(error.to_string(), "SVC_UNDECLARED is not in this process's table");
}

#[test]
fn secret_file_loses_one_trailing_newline() {
    for (content, secret) in [("s", "s"), ("s\n", "s"), ("s\r\n", "s"), ("s\n\n", "s\n"), (" s ", " s ")] {
        let file = File::new("secret", content);
        let settings = read(&[("SVC_PASSWORD_FILE", file.path())]).unwrap();
        assert_eq!(settings.opt(&PASSWORD).unwrap().unwrap().reveal(), secret);
    }
}

#[test]
fn unusable_secret_file_is_rejected() {
    let file = File::new("empty", "\n");
    assert_eq!(error_of(&[("SVC_PASSWORD_FILE", file.path())]), "SVC_PASSWORD is empty");
    assert_eq!(
        error_of(&[("SVC_PASSWORD_FILE", file.path()), ("SVC_PASSWORD", "s")]),
        "SVC_PASSWORD and SVC_PASSWORD_FILE are both given"
    );
    let pasted = error_of(&[("SVC_PASSWORD_FILE", "hush")]);
    assert!(pasted.starts_with("SVC_PASSWORD_FILE cannot be read: ") && !pasted.contains("hush"), "{pasted}");
    let binary = File::new("binary", b"hush\xff");
    let binary = error_of(&[("SVC_PASSWORD_FILE", binary.path())]);
    assert!(binary.starts_with("SVC_PASSWORD_FILE cannot be read: ") && !binary.contains("hush"), "{binary}");
}

#[test]
fn environment_overrides_the_file() {
    let file = File::new(
        "layers.toml",
        r#"
            SVC_LISTEN = "127.0.0.1:2"
            SVC_COUNT = 7
            SVC_FLAG = true
            SVC_PASSWORD_FILE = "/nonexistent"
            SVC_OTHER_THING = "of another process"
        "#,
    );
    let settings = read(&[("SVC_CONFIG", file.path()), ("SVC_LISTEN", "127.0.0.1:3"), ("SVC_PASSWORD", "s")]).unwrap();
    assert_eq!(settings.get(&LISTEN).unwrap().port(), 3);
    assert_eq!(settings.opt(&COUNT).unwrap(), Some(7));
    assert_eq!(settings.get(&FLAG).unwrap(), Flag(true));
    assert_eq!(settings.opt(&PASSWORD).unwrap().unwrap().reveal(), "s");
}

#[test]
fn unknown_and_malformed_keys_in_the_file_are_rejected() {
    let file_error = |content: &str| {
        let file = File::new("faults.toml", content);
        error_of(&[("SVC_CONFIG", file.path())])
    };
    assert_eq!(file_error("SVC_LISTNE = 'x'"), "SVC_LISTNE is unknown: this process has no such setting");
    assert_eq!(file_error("SCV_OTHER_X = 'x'"), "SCV_OTHER_X is unknown: this process has no such setting");
    assert_eq!(file_error("SVC_CONFIG = 'x'"), "SVC_CONFIG is unknown: this process has no such setting");
    assert_eq!(file_error("SVC_COUNT = [1]"), "SVC_COUNT is malformed: expected a string, an integer or a boolean");
    assert_eq!(file_error("SVC_COUNT = 1\nSVC_PASSWORD = hush"), "SVC_CONFIG is malformed: line 2 is not TOML");
    assert!(error_of(&[("SVC_CONFIG", "/nonexistent")]).starts_with("SVC_CONFIG cannot be read: "));
}

#[test]
fn debug_hides_secrets() {
    let settings = read(&[("SVC_PASSWORD", "hush")]).unwrap();
    let shown = format!("{settings:?} {:?}", settings.opt(&PASSWORD).unwrap());
    assert!(shown.contains("SVC_PASSWORD") && !shown.contains("hush"), "{shown}");
}

#[test]
fn reference_lists_every_setting() {
    let expected = r"## The process

| setting | default | meaning |
|---|---|---|
| `SVC_LISTEN` | `127.0.0.1:1` | The listen address. |
| `SVC_NAME` | required | The name, `a\|b`. |
| `SVC_COUNT` | — | The count. |
| `SVC_FLAG` | `off` | The flag. |
| `SVC_PASSWORD` or `SVC_PASSWORD_FILE` | — | The password. |
";
    assert_eq!(markdown("The process", TABLE), expected);
}
