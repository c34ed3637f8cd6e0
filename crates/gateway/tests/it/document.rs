//! What the OpenAPI document has to tell of every route, whoever adds one.

use std::collections::BTreeMap;

use gateway::SignIns;
use gateway::v1::routes;
use serde_json::Value;

/// Every operation by its id: its path and what is said of it.
fn operations(document: &Value) -> BTreeMap<&str, (&str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, methods)| methods.as_object().unwrap().values().map(move |it| (path, it)));
    operations
        .map(|(path, operation)| (operation["operationId"].as_str().unwrap(), (path.as_str(), operation)))
        .collect()
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

#[test]
fn every_parameter_and_every_area_is_told_of() {
    let document = gateway::document(&routes(SignIns { dev: true, code_host: true }));
    for (id, (_, operation)) in operations(&document) {
        for parameter in operation["parameters"].as_array().unwrap() {
            assert!(is_text(&parameter["description"]), "{id}: {} has no description", parameter["name"]);
        }
    }
    for tag in document["tags"].as_array().unwrap() {
        assert!(is_text(&tag["description"]), "{} has no description", tag["name"]);
    }
}

#[test]
fn links_lead_to_operations_that_have_such_a_parameter() {
    let document = gateway::document(&routes(SignIns { dev: true, code_host: true }));
    let operations = operations(&document);
    let mut seen = 0;
    for (id, (path, operation)) in &operations {
        let answers = operation["responses"].as_object().unwrap().values();
        for (next, link) in answers.filter_map(|answer| answer["links"].as_object()).flatten() {
            let (_, target) = operations.get(next.as_str()).unwrap_or_else(|| panic!("{id} leads to no {next}"));
            let wanted = target["parameters"].as_array().unwrap().iter().filter(|it| it["in"] == "path");
            let given = link["parameters"].as_object().unwrap();
            assert_eq!(given.len(), wanted.count(), "{id} to {next}");
            let from_body = given.values().filter(|it| it.as_str().unwrap().starts_with("$response.body#/")).count();
            assert_eq!(from_body, 1, "{id} to {next}: the answer gives one of its parameters");
            for source in given.values().filter_map(|it| it.as_str().unwrap().strip_prefix("$request.path.")) {
                assert!(path.contains(&format!("{{{source}}}")), "{id} to {next}: there is no {source} here");
            }
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} links");
}
