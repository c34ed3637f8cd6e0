//! Stored values are sealed, and open only in their own row.

use kernel::audit::Actor;
use kernel::seal::Keys;
use kernel::{ClockRng, Limits, Secret};
use resources::{PartValues, SEALED_COLUMNS, Target};
use serde_json::Value;
use store::{Config, Store};

use crate::kit::{Kit, values};

#[tokio::test(flavor = "multi_thread")]
async fn database_contains_no_value() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.set(at, "API_KEY", "canary-in-the-database").await.unwrap();
    kit.db_database(at).await;
    kit.resources.auth_grant(&kit.actor, at).await.unwrap();
    kit.set_provider(at, "codehost", "id", "canary-in-the-database").await.unwrap();
    for table in ["resources.secrets", "resources.secret_sets", "resources.auth_providers", "store.audit"] {
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
    let row = |at: Target, name: &str| format!("project_id = '{}' AND name = '{name}'", at.project.as_uuid());
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
    let values = PartValues::new(keyless, Limits::default());
    let mut loaded = values.secrets(&mut *kit.connection().await, &[at.project]).await.unwrap();
    let error = loaded.remove(&at.project).unwrap().unwrap_err();
    assert!(matches!(error, store::Error::Inconsistent(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_secret_opens_only_under_its_reserved_name_and_revision() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.signing_in("shop").await, kit.signing_in("blog").await);
    for (at, provider) in [(shop, "codehost"), (shop, "messenger"), (blog, "codehost")] {
        kit.set_provider(at, provider, "id", &format!("leaked {provider}")).await.unwrap();
    }
    let row = |at: Target, provider: &str| {
        format!("project_id = '{}' AND secret_name = 'auth/{provider}'", at.project.as_uuid())
    };
    let copy = |table: &str, from: &str| {
        let sealed = format!("SELECT sealed FROM {table} WHERE {from}");
        format!("UPDATE resources.auth_providers SET sealed = ({sealed}) WHERE {}", row(shop, "codehost"))
    };
    let older = format!("UPDATE resources.auth_providers SET revision = 7 WHERE {}", row(shop, "codehost"));
    kit.db_execute("CREATE TABLE backup AS SELECT * FROM resources.auth_providers").await;
    let restore = "UPDATE resources.auth_providers p SET sealed = b.sealed, revision = b.revision FROM backup b \
                   WHERE (b.project_id, b.secret_name) = (p.project_id, p.secret_name)";
    let copies = [row(shop, "messenger"), row(blog, "codehost")].map(|from| copy("resources.auth_providers", &from));
    for tampering in copies.into_iter().chain([older]) {
        kit.db_execute(&tampering).await;
        let mut loaded = kit.load_auth(&[shop.project, blog.project]).await;
        let error = loaded.remove(&shop.project).unwrap().unwrap_err();
        let cause = kernel::error_chain(&error).to_string();
        assert!(cause.contains("the secret auth/codehost cannot be opened") && !cause.contains("leaked"), "{cause}");
        // The other project is not affected.
        assert_eq!(loaded.remove(&blog.project).unwrap().unwrap().clients.len(), 1);
        kit.db_execute(restore).await;
        assert_eq!(kit.auth_part(shop).await.unwrap().clients.len(), 2);
    }
    // The stored form of a replaced secret does not open in the current row.
    kit.set_provider(shop, "codehost", "id", "new").await.unwrap();
    kit.db_execute(&copy("backup", &row(shop, "codehost"))).await;
    kit.load_auth(&[shop.project]).await.remove(&shop.project).unwrap().unwrap_err();
    // Setting the provider again makes it readable.
    kit.set_provider(shop, "codehost", "id", "new").await.unwrap();
    assert_eq!(kit.auth_part(shop).await.unwrap().clients.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_reseals_client_secrets() {
    let kit = Kit::start().await;
    let at = kit.signing_in("shop").await;
    kit.set_provider(at, "codehost", "id", "secret").await.unwrap();
    let new = "new:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let store = |keys: &str| {
        let keys = Keys::parse(keys).unwrap();
        let config = Config { keys, ..Config::new(Secret::new(kit.database.url()), "test") };
        Store::new(&config, ClockRng::system()).unwrap()
    };
    let both = store(&format!("{new},test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="));
    let mut resealed = 0;
    for column in SEALED_COLUMNS {
        let mut rotation = both.rotate_sealed(*column).unwrap();
        while let Some(batch) = rotation.next_batch(&Actor::operator("test")).await.unwrap() {
            assert!(batch.failed.is_empty());
            resealed += batch.resealed;
        }
    }
    assert_eq!(resealed, 1);
    let values = PartValues::new(store(new), Limits::default());
    let mut loaded = values.auth(&mut *kit.connection().await, &[at.project]).await.unwrap();
    let granted = loaded.remove(&at.project).unwrap().unwrap();
    assert_eq!(granted.clients[0].client_secret.reveal(), "secret");
}
