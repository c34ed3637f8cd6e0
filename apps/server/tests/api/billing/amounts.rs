//! Amounts and tokens are integers: in the source, in the database and in the API.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::App;

/// The sources that count money or tokens.
const SOURCES: [&str; 7] = [
    "crates/billing/src",
    "crates/providers/src/payments.rs",
    "crates/protocol/src/ai.rs",
    "crates/gateway/src/v1/ai",
    "crates/gateway/src/v1/billing",
    "crates/gateway/src/internal/ai.rs",
    "apps/cli/src/money.rs",
];

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
        found.extend(files(&entry.unwrap().path()));
    }
    found
}

#[test]
fn sources_have_no_floats() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in SOURCES.iter().flat_map(|source| files(&root.join(source))) {
        let text = fs::read_to_string(&file).unwrap();
        for word in text.split(|character: char| !character.is_alphanumeric() && character != '_') {
            let is_float = ["f32", "f64", "Float", "Double", "Numeric"].contains(&word);
            assert!(!is_float, "{} contains {word}", file.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_have_no_floats() {
    let app = App::start().await;
    let columns = "SELECT table_name, column_name, data_type FROM information_schema.columns \
        WHERE table_schema = 'billing' AND data_type IN ('real', 'double precision', 'numeric', 'money')";
    assert_eq!(app.db_rows(columns).await, Vec::<Value>::new());

    let document: Value = app.anonymous().get("/v1/openapi.json").await.expect(200).clone();
    let mut integers = 0;
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (property, shape) in schema["properties"].as_object().into_iter().flatten() {
            let property = property.to_lowercase();
            if ["cents", "tokens", "amount", "price"].iter().any(|word| property.contains(word))
                && shape["type"] != "array"
            {
                let types = shape["type"].to_string();
                assert!(types.contains("integer") || !types.contains("number"), "{name}.{property}: {shape}");
                integers += usize::from(types.contains("integer"));
            }
        }
    }
    assert!(integers > 15, "only {integers} amounts were found");
}
