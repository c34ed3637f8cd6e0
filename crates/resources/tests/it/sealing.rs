//! Stored values are sealed, and open only in their own row.

use kernel::{ClockRng, Secret};
use resources::PartValues;
use serde_json::Value;
use store::{Config, Store};

use crate::kit::{Kit, values};

#[tokio::test(flavor = "multi_thread")]
async fn database_contains_no_value() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.set(at, "API_KEY", "canary-in-the-database").await.unwrap();
    for table in ["resources.secrets", "resources.secret_sets", "store.audit"] {
        let rows = kit.db_rows(&format!("SELECT * FROM {table}")).await;
        assert!(!rows.is_empty());
        let text = Value::from(rows).to_string();
        // Postgres prints bytes in hexadecimal.
        assert!(!text.contains("canary") && !text.contains(&kernel::hex(b"canary")), "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn value_does_not_open_in_another_row() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.db_project("shop").await, kit.db_project("blog").await);
    for (at, name) in [(shop, "A"), (shop, "B"), (blog, "A")] {
        kit.set(at, name, &format!("{name} of {}", at.project)).await.unwrap();
    }
    let copy = |from: &str, to: &str| {
        format!("UPDATE resources.secrets SET sealed = (SELECT sealed FROM resources.secrets WHERE {from}) WHERE {to}")
    };
    let row =
        |at: resources::Target, name: &str| format!("project_id = '{}' AND name = '{name}'", at.project.as_uuid());
    let backup = "CREATE TABLE backup AS SELECT * FROM resources.secrets";
    let restore = "UPDATE resources.secrets s SET sealed = b.sealed, revision = b.revision FROM backup b \
                   WHERE (b.project_id, b.name) = (s.project_id, s.name)";
    kit.db_execute(backup).await;
    let older = format!("UPDATE resources.secrets SET revision = 7 WHERE {}", row(shop, "A"));
    let flipped = format!(
        "UPDATE resources.secrets SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) WHERE {}",
        row(shop, "A")
    );
    for tampering in [copy(&row(shop, "B"), &row(shop, "A")), copy(&row(blog, "A"), &row(shop, "A")), older, flipped] {
        kit.db_execute(&tampering).await;
        let mut loaded = kit.load(&[shop.project, blog.project]).await;
        let error = loaded.remove(&shop.project).unwrap().unwrap_err();
        assert!(matches!(error, store::Error::Inconsistent(_)), "{tampering}: {error:?}");
        let cause = kernel::error_chain(&error).to_string();
        assert!(cause.contains("the secret A cannot be opened") && !cause.contains(" of prj_"), "{cause}");
        // The other project is not affected.
        assert_eq!(loaded.remove(&blog.project).unwrap().unwrap().values.len(), 1);
        kit.db_execute(restore).await;
        kit.environment(shop).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_value_does_not_open_in_a_later_row() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.set(at, "API_KEY", "leaked").await.unwrap();
    kit.db_execute("CREATE TABLE backup AS SELECT * FROM resources.secrets").await;
    kit.delete(at, "API_KEY").await.unwrap();
    // The new value has the version of the deleted one.
    assert_eq!(kit.set(at, "API_KEY", "new").await.unwrap().version, 1);
    assert_eq!(kit.environment(at).await.1, values(&[("API_KEY", "new")]));
    kit.db_execute("UPDATE resources.secrets s SET sealed = b.sealed FROM backup b").await;
    let error = kit.load(&[at.project]).await.remove(&at.project).unwrap().unwrap_err();
    assert!(matches!(error, store::Error::Inconsistent(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_do_not_open_without_their_key() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.set(at, "API_KEY", "value").await.unwrap();
    assert_eq!(kit.environment(at).await.1, values(&[("API_KEY", "value")]));
    let config = Config::new(Secret::new(kit.database.url()), "test");
    let keyless = Store::new(&config, ClockRng::system()).unwrap();
    let values = PartValues::new(keyless, kernel::Limits::default());
    let mut loaded = values.secrets(&mut *kit.connection().await, &[at.project]).await.unwrap();
    let error = loaded.remove(&at.project).unwrap().unwrap_err();
    assert!(matches!(error, store::Error::Inconsistent(_)), "{error:?}");
}
