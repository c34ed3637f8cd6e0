//! Validation of the development login.

use identity::DevLogin;
use serde_json::{Value, json};
use validator::Validate as _;

fn accepts(body: Value) -> bool {
    serde_json::from_value::<DevLogin>(body).is_ok_and(|login| login.validate().is_ok())
}

#[test]
fn subject_is_validated() {
    for subject in ["a", "-", "0", "ada-lovelace", &"x".repeat(64)] {
        assert!(accepts(json!({ "subject": subject })), "{subject:?}");
    }
    for subject in ["", "Ada", "a b", "a_b", "ada\n", "zoë", "a@b", &"x".repeat(65)] {
        assert!(!accepts(json!({ "subject": subject })), "{subject:?}");
    }
}

#[test]
fn other_fields_are_optional_and_unknown_fields_are_rejected() {
    let whole = json!({ "subject": "ada", "email": "ada@example.org", "name": "Ada" });
    assert!(accepts(whole));
    assert!(accepts(json!({ "subject": "ada", "email": null, "name": null })));
    for refused in [
        json!({}),
        json!({ "email": "ada@example.org" }),
        json!({ "subject": null }),
        json!({ "subject": "ada", "email": "ada" }),
        json!({ "subject": "ada", "email": "" }),
        json!({ "subject": "ada", "name": 1 }),
        json!({ "subject": "ada", "provider": "codehost" }),
    ] {
        assert!(!accepts(refused.clone()), "{refused}");
    }
}
