//! Completeness of the OpenAPI document.

use std::collections::BTreeMap;

use gateway::SignInMethods;
use gateway::v1::routes;
use identity::IdentityError;
use serde_json::Value;

/// Returns the path and description of every operation, by operation id.
fn operations(document: &Value) -> BTreeMap<&str, (&str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, methods)| methods.as_object().unwrap().values().map(move |it| (path, it)));
    operations
        .map(|(path, operation)| (operation["operationId"].as_str().unwrap(), (path.as_str(), operation)))
        .collect()
}

/// Returns the codes that the schema of a response below `/oauth` allows.
fn oauth_codes(response: &Value) -> Vec<&str> {
    let [component, codes] = response["content"]["application/json"]["schema"]["allOf"].as_array().unwrap().as_slice()
    else {
        panic!("{response}");
    };
    assert_eq!(component["$ref"], "#/components/schemas/OAuthError");
    codes["properties"]["error"]["enum"].as_array().unwrap().iter().map(|code| code.as_str().unwrap()).collect()
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

#[test]
fn every_parameter_and_tag_has_a_description() {
    let document = gateway::document(&routes(SignInMethods { dev: true, code_host: true }));
    for (id, (_, operation)) in operations(&document) {
        for parameter in operation["parameters"].as_array().unwrap() {
            assert!(is_text(&parameter["description"]), "{id}: {} has no description", parameter["name"]);
        }
    }
    for tag in document["tags"].as_array().unwrap() {
        assert!(is_text(&tag["description"]), "{} has no description", tag["name"]);
    }
}

/// The error of a text that violates a pattern is "must be", and then the rule of its schema.
#[test]
fn rules_of_patterns_complete_an_error() {
    let document = gateway::document(&routes(SignInMethods { dev: true, code_host: true }));
    let mut schemas = vec![&document["components"]["schemas"]];
    for (_, operation) in operations(&document).into_values() {
        // A cursor has its own error.
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let queries = parameters.filter(|it| it["in"] == "query" && it["name"] != "cursor");
        schemas.extend(queries.map(|it| &it["schema"]));
    }
    let mut seen = 0;
    while let Some(schema) = schemas.pop() {
        schemas.extend(schema.as_object().into_iter().flat_map(serde_json::Map::values));
        schemas.extend(schema.as_array().into_iter().flatten());
        if schema["pattern"].is_string() {
            let rule = schema["x-rule"].as_str().or_else(|| schema["description"].as_str());
            let rule = rule.unwrap_or_else(|| panic!("no rule: {schema}"));
            assert!(!rule.starts_with(char::is_uppercase) && !rule.ends_with('.'), "{rule}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} patterns");
}

#[test]
fn links_name_operations_and_their_path_parameters() {
    let document = gateway::document(&routes(SignInMethods { dev: true, code_host: true }));
    let operations = operations(&document);
    let mut seen = 0;
    for (id, (path, operation)) in &operations {
        let responses = operation["responses"].as_object().unwrap().values();
        for (next, link) in responses.filter_map(|response| response["links"].as_object()).flatten() {
            let target = operations.get(next.as_str());
            let (_, target) = target.unwrap_or_else(|| panic!("{id} links to the unknown operation {next}"));
            let expected = target["parameters"].as_array().unwrap().iter().filter(|it| it["in"] == "path");
            let given = link["parameters"].as_object().unwrap();
            assert_eq!(given.len(), expected.count(), "{id} to {next}");
            let from_body = given.values().filter(|it| it.as_str().unwrap().starts_with("$response.body#/")).count();
            assert_eq!(from_body, 1, "{id} to {next}: exactly one parameter comes from the response");
            for source in given.values().filter_map(|it| it.as_str().unwrap().strip_prefix("$request.path.")) {
                assert!(path.contains(&format!("{{{source}}}")), "{id} to {next}: {id} has no path parameter {source}");
            }
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} links");
}

#[test]
fn errors_below_oauth_are_described_with_the_codes_of_their_bodies() {
    let document = gateway::document(&routes(SignInMethods { dev: true, code_host: true }));
    let operations = operations(&document);
    for id in ["oauth.token", "oauth.revoke", "oauth.device"] {
        let (_, operation) = operations[id];
        let responses = &operation["responses"];
        for (status, code) in [
            ("408", "invalid_request"),
            ("413", "invalid_request"),
            ("415", "invalid_request"),
            ("429", "temporarily_unavailable"),
            ("500", "server_error"),
            ("503", "temporarily_unavailable"),
        ] {
            let description = responses[status]["description"].as_str().unwrap();
            assert!(description.starts_with(&format!("`{code}`: ")), "{id} {status}: {description}");
            assert!(!description.contains('\n'), "{id} {status}: {description}");
            assert_eq!(oauth_codes(&responses[status]), [code], "{id} {status}");
        }
        let malformed = responses["400"]["description"].as_str().unwrap();
        assert_eq!(malformed.matches("`invalid_request`: ").count(), 1, "{malformed}");
        assert_eq!(oauth_codes(&responses["400"])[..2], ["invalid_request", "invalid_client"], "{id}");
        for absent in ["bad_request", "details"] {
            assert!(!responses.to_string().contains(absent), "{id}: {absent}");
        }
    }
}

#[test]
fn errors_of_hooks_are_described_without_codes() {
    let document = gateway::document(&routes(SignInMethods { dev: true, code_host: true }));
    let operations = operations(&document);
    for id in ["billing.receive_webhook", "email.receive_notification"] {
        let (_, operation) = operations[id];
        for (status, response) in operation["responses"].as_object().unwrap() {
            let description = response["description"].as_str().unwrap();
            assert!(!description.contains('`'), "{id} {status}: {description}");
        }
    }
}

#[test]
fn sign_in_callback_describes_the_codes_of_its_redirect() {
    let document = gateway::document(&routes(SignInMethods { dev: true, code_host: true }));
    let (_, callback) = operations(&document)["codehost.callback"];
    let description = callback["description"].as_str().unwrap();
    for code in [&IdentityError::ACCESS_DENIED, &IdentityError::CODEHOST_UNAVAILABLE] {
        assert!(description.contains(&format!("`{}`", code.name)), "{description}");
    }
}

#[test]
fn operations_that_wait_for_a_node_state_their_timeout() {
    let document = gateway::document(&routes(SignInMethods { dev: true, code_host: true }));
    let operations = operations(&document);
    let stated =
        operations.iter().filter_map(|(id, (_, operation))| Some((*id, operation["x-timeout-seconds"].as_u64()?)));
    assert_eq!(stated.collect::<Vec<_>>(), [("database.export", 900), ("database.token_revoke", 900)]);
}
