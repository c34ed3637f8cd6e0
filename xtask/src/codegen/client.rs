//! Generates the Rust client from the OpenAPI document.
//!
//! The generator rejects every construct of the document that it does not support: a construct that needs a special
//! case here would also be difficult for other generators.

mod area;
mod comment;
mod name;
mod operation;
mod schema;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use super::file::{File, rustfmt};
use area::Area;
use schema::reachable;

/// The folder of the generated files. It holds nothing else.
pub const FOLDER: &str = "crates/client/src/generated";
/// The module of the types that several areas use.
const SHARED_MODULE: &str = "shared";

/// Generates one file per area, a file of shared types, and the parent module. `document` is the text of
/// `docs/openapi.json`.
pub fn files(document: &str) -> Result<Vec<File>> {
    let document: Value = serde_json::from_str(document)?;
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object).context("no schemas")?;
    let areas = area::all(&document, schemas)?;
    let shared = shared(&areas, schemas);
    let sent_types: BTreeSet<String> = areas.iter().flat_map(|area| &area.request_types).cloned().collect();
    let mut received_types: BTreeSet<String> = areas.iter().flat_map(|area| &area.response_types).cloned().collect();
    received_types.extend(errors(schemas));

    let types = |names: &BTreeSet<String>| {
        let mut text = String::new();
        for name in names {
            let schema = schemas.get(name).with_context(|| format!("no schema {name}"))?;
            let direction = (sent_types.contains(name), received_types.contains(name));
            schema::write(&mut text, name, schema, direction).with_context(|| name.clone())?;
        }
        anyhow::Ok(text)
    };
    let mut files = vec![file(SHARED_MODULE, "Types that several areas use.", &types(&shared)?, &BTreeSet::new())?];
    for area in &areas {
        let own_types = area.types().filter(|name| !shared.contains(*name)).cloned().collect();
        let text = types(&own_types)? + &area.parameters()? + &area.methods()?;
        files.push(file(&area.name, &area.description, &text, &shared)?);
    }
    files.push(module_file(&files)?);
    Ok(files)
}

/// Returns the types that several areas use, and the error types.
fn shared(areas: &[Area], schemas: &Map<String, Value>) -> BTreeSet<String> {
    let mut users: BTreeMap<&String, usize> = BTreeMap::new();
    areas.iter().flat_map(Area::types).for_each(|name| *users.entry(name).or_default() += 1);
    let mut shared = errors(schemas);
    shared.extend(users.into_iter().filter(|(_, areas)| *areas > 1).map(|(name, _)| name.clone()));
    shared
}

/// Returns the types of an error response, which every operation may return.
fn errors(schemas: &Map<String, Value>) -> BTreeSet<String> {
    reachable(schemas, BTreeSet::from(["Error".to_owned()]))
}

/// Builds a file with the imports that its text needs.
fn file(module: &str, description: &str, text: &str, shared: &BTreeSet<String>) -> Result<File> {
    let used = identifiers(text);
    let import = |from: &str, names: &[&str]| {
        let names: Vec<&str> = names.iter().copied().filter(|name| used.contains(name)).collect();
        if names.is_empty() { String::new() } else { format!("use {from}::{{{}}};\n", names.join(", ")) }
    };
    let shared: Vec<&str> = shared.iter().map(String::as_str).collect();
    let text = [
        format!("//! {description}\n//!\n//! Written by `cargo xtask codegen` from `docs/openapi.json`.\n\n"),
        import("reqwest", &["Method"]),
        import("serde", &["Deserialize", "Serialize"]),
        "\n".to_owned(),
        import("super::shared", &shared),
        import("crate", &["Call", "Client", "Page", "Paging", "Secret", "Upload", "open_enum"]),
        text.to_owned(),
    ];
    Ok((format!("{FOLDER}/{module}.rs"), rustfmt(&text.concat())?))
}

/// Returns the identifiers in generated code, without the words in comments and strings.
fn identifiers(text: &str) -> BTreeSet<&str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("///"));
    let code = code.flat_map(|line| line.split('"').step_by(2));
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

/// Builds the parent module, which exports the types of all files under one path.
fn module_file(files: &[File]) -> Result<File> {
    let (mut modules, mut exports) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in files {
        let module =
            path.rsplit('/').next().and_then(|file| file.strip_suffix(".rs")).context("a file without a name")?;
        ensure!(modules.insert(format!("mod {module};\n")), "two areas have the name {module}");
        if ["\npub struct ", "\npub type ", "\nopen_enum! {"].iter().any(|declaration| text.contains(declaration)) {
            exports.insert(format!("pub use super::{module}::*;\n"));
        }
    }
    let text = [
        "//! The operations and their types, one file per area. Operations for browsers, which return no JSON, are\n\
         //! omitted.\n//!\n//! Written by `cargo xtask codegen` from `docs/openapi.json`.\n\n"
            .to_owned(),
        modules.into_iter().collect(),
        "\n/// The types of requests and responses. Responses may contain fields and enum values that their type\n\
         /// does not list.\npub mod types {"
            .to_owned(),
        exports.into_iter().collect(),
        "}\n".to_owned(),
    ];
    Ok((format!("{FOLDER}/mod.rs"), rustfmt(&text.concat())?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        let object = |properties: Value| json!({ "type": "object", "properties": properties });
        let operation = |area: &str, response: &str| {
            json!({ "get": {
                "operationId": format!("{area}.get"),
                "tags": [area],
                "summary": "Return it",
                "parameters": [],
                "responses": { "200": { "content": { "application/json": { "schema": reference(response) } } } },
            } })
        };
        json!({
            "tags": [{ "name": "dns", "description": "Zones." }, { "name": "me", "description": "The account." }],
            "paths": { "/me": operation("me", "User"), "/zones": operation("dns", "Zone") },
            "components": { "schemas": {
                "Error": object(json!({ "code": { "type": "string" } })),
                "Time": { "type": "string" },
                "User": object(json!({ "id": reference("UserId"), "createdAt": reference("Time") })),
                "UserId": { "type": "string" },
                "Zone": object(json!({ "createdAt": reference("Time") })),
            } },
        })
    }

    fn generated(document: &Value) -> BTreeMap<String, String> {
        let short = |path: String| path.trim_start_matches(FOLDER).trim_start_matches('/').to_owned();
        files(&document.to_string()).unwrap().into_iter().map(|(path, text)| (short(path), text)).collect()
    }

    #[test]
    fn each_area_file_contains_its_own_types_and_imports_shared_ones() {
        let files = generated(&document());
        assert_eq!(files.keys().collect::<Vec<_>>(), ["dns.rs", "me.rs", "mod.rs", "shared.rs"]);
        for (file, declared, imported) in [
            ("me.rs", vec!["pub struct User {", "pub type UserId", "fn me_get("], vec!["use super::shared::Time;"]),
            ("dns.rs", vec!["pub struct Zone {", "fn dns_get("], vec!["use super::shared::Time;"]),
            ("shared.rs", vec!["pub struct Error {", "pub type Time"], vec!["use serde::Deserialize;"]),
            ("mod.rs", vec!["mod dns;", "pub use super::me::*;"], vec![]),
        ] {
            for expected in declared.iter().chain(&imported) {
                assert!(files[file].contains(expected), "{file} without {expected}:\n{}", files[file]);
            }
        }
        assert!(!files["dns.rs"].contains("UserId") && !files["shared.rs"].contains("UserId"));
        assert!(!files["me.rs"].contains("Upload"), "an import that nothing uses");
    }

    #[test]
    fn operation_with_a_timeout_passes_it_to_the_call() {
        let mut document = document();
        document["paths"]["/zones"]["get"]["x-timeout-seconds"] = json!(900);
        let files = generated(&document);
        assert!(files["dns.rs"].contains(".timeout(std::time::Duration::from_secs(900))"), "{}", files["dns.rs"]);
        assert!(!files["me.rs"].contains(".timeout("));
    }

    #[test]
    fn identifiers_in_comments_and_strings_are_ignored() {
        let text = "/// A Secret.\npub fn get(&self) -> Call<Zone> { self.header(\"X-Git-Commit\", None) }";
        let found = identifiers(text);
        assert!(["Call", "Zone", "header"].iter().all(|name| found.contains(name)), "{found:?}");
        assert!(["Secret", "Git", "Commit"].iter().all(|name| !found.contains(name)), "{found:?}");
    }

    #[test]
    fn unknown_tags_and_duplicate_file_names_are_rejected() {
        let mut unknown = document();
        unknown["tags"] = json!([]);
        assert!(files(&unknown.to_string()).is_err());
        let shared = document().to_string().replace("\"me\"", "\"shared\"");
        assert!(files(&shared).is_err());
    }
}
