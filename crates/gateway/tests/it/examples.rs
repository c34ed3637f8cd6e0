//! The examples in the OpenAPI document.

use std::collections::{BTreeMap, BTreeSet};

use gateway::SignInMethods;
use gateway::v1::routes;
use kernel::{Token, TokenKind};
use serde_json::{Map, Value};

const EXAMPLE: &str = "EXAMPLE";

fn document() -> Value {
    gateway::document(&routes(SignInMethods { dev: true, code_host: true }))
}

fn components(document: &Value) -> &Map<String, Value> {
    document["components"]["schemas"].as_object().unwrap()
}

/// Returns the JSON bodies of all requests and successful responses, by operation.
fn bodies(document: &Value) -> Vec<(String, &Value)> {
    let mut bodies = Vec::new();
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    for operation in operations {
        let id = operation["operationId"].as_str().unwrap();
        let parts = operation["responses"].as_object().unwrap().iter().filter(|(status, _)| status.starts_with('2'));
        let parts = parts.map(|(status, response)| (status.as_str(), response));
        for (part, described) in parts.chain([("request", &operation["requestBody"])]) {
            if let Some(body) = described.pointer("/content/application~1json") {
                bodies.push((format!("{id}, {part}"), body));
            }
        }
    }
    bodies
}

/// Collects the string fields of an example, with their keys.
fn visit<'a>(key: &'a str, value: &'a Value, found: &mut Vec<(&'a str, &'a str)>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| visit(key, value, found)),
        Value::Array(items) => items.iter().for_each(|item| visit(key, item, found)),
        Value::String(text) => found.push((key, text)),
        _ => {}
    }
}

#[test]
fn every_json_body_has_an_example_that_matches_its_schema() {
    let document = document();
    let components = components(&document);
    let bodies = bodies(&document);
    assert!(bodies.len() > 60, "{} bodies", bodies.len());
    for (name, body) in bodies {
        let Some(example) = body.get("example") else {
            panic!("{name}: {:?}", gateway::compose_example(&body["schema"], components));
        };
        assert_eq!(gateway::validate(&body["schema"], components, example), [], "{name}: {example}");
    }
    for (name, schema) in components {
        let first = schema["examples"].as_array().and_then(|all| all.first());
        for example in schema.get("example").into_iter().chain(first) {
            assert_eq!(gateway::validate(schema, components, example), [], "{name}: {example}");
        }
    }
}

#[test]
fn error_with_described_details_has_an_example_that_matches_its_schema() {
    let document = document();
    let components = components(&document);
    let responses = &document["paths"]["/v1/orgs/{orgSlug}/projects/{projectName}/hostnames"]["post"]["responses"];
    let media = &responses["409"]["content"]["application/json"];
    let example = &media["examples"]["hostname_taken"]["value"];
    assert_eq!(gateway::validate(&media["schema"], components, example), []);
    assert_eq!(example["details"]["verify"]["name"], "_svc-verify.www.example.org");
    // A record without a value does not match.
    let mut incomplete = example.clone();
    incomplete["details"]["verify"].as_object_mut().unwrap().remove("value");
    let faults = gateway::validate(&media["schema"], components, &incomplete);
    assert_eq!(faults.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(), ["details.verify.value"]);
}

#[test]
fn examples_agree_with_each_other() {
    let document = document();
    let mut fields = Vec::new();
    bodies(&document).iter().for_each(|(_, body)| visit("", &body["example"], &mut fields));
    let (mut by_key, mut ids): (BTreeMap<_, BTreeSet<_>>, BTreeMap<_, BTreeSet<_>>) = Default::default();
    for (key, value) in fields {
        by_key.entry(key).or_default().insert(value);
        // Examples use one id per type.
        if let Some((prefix, rest)) =
            value.split_once('_').filter(|(prefix, rest)| prefix.len() == 3 && rest.len() == 26)
        {
            ids.entry(prefix).or_default().insert(rest);
        }
    }
    for (key, expected) in [
        ("org", "acme"),
        ("slug", "acme"),
        ("orgSlug", "acme"),
        ("orgName", "Acme"),
        ("projects", "site"),
        ("email", "ada@example.org"),
        ("hostname", "site-acme.apps.svc.example"),
        ("createdAt", "2026-11-21T08:00:00.000Z"),
    ] {
        assert_eq!(by_key[key], BTreeSet::from([expected]), "{key}");
    }
    // The subject of a mail is a text, and the subject of a user identifies the user.
    assert_eq!(by_key["subject"], BTreeSet::from(["Welcome", "ada"]));
    for prefix in ["usr", "org", "prj", "dep", "zon"] {
        assert_eq!(ids[prefix].len(), 1, "{prefix}: {:?}", ids[prefix]);
    }
}

#[test]
fn examples_contain_no_secret() {
    let document = document();
    let components = components(&document);
    let is_secret = |schema: &Value| {
        let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
        name.map_or(schema, |name| &components[name])["format"] == "password"
    };
    let mut secrets = 0;
    for (name, schema) in components {
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(value) = schema["example"][field].as_str().filter(|_| is_secret(property)) {
                assert!(value.contains(EXAMPLE), "{name}.{field} looks like a real secret: {value}");
                secrets += 1;
            }
        }
    }
    assert!(secrets > 3, "{secrets} secrets");

    let mut fields = Vec::new();
    bodies(&document).iter().for_each(|(_, body)| visit("", &body["example"], &mut fields));
    let mut tokens = BTreeSet::new();
    for (key, value) in fields.into_iter().filter(|(key, value)| *key != "prefix" && value.contains("svc_")) {
        let token = &value[value.find("svc_").unwrap()..];
        let kinds = [
            TokenKind::Session,
            TokenKind::Access,
            TokenKind::Invite,
            TokenKind::Bypass,
            TokenKind::AuthorizationCode,
            TokenKind::RefreshToken,
            TokenKind::DeviceCode,
        ];
        let kind = kinds.into_iter().find(|kind| token.starts_with(kind.prefix()));
        let kind = kind.unwrap_or_else(|| panic!("{key}: {value} is a token of an unknown kind"));
        assert!(Token::parse(kind, token).is_some(), "{key}: {value} does not have the shape of a token");
        assert!(token.contains(EXAMPLE), "{key}: {value} looks like a real token");
        tokens.insert(kind.prefix());
    }
    let expected = ["svc_byp_", "svc_inv_", "svc_oac_", "svc_odc_", "svc_ort_", "svc_pat_", "svc_ses_"];
    assert_eq!(tokens, BTreeSet::from(expected));
}
