//! The stored password is sealed, and opens only in its own row.

use databases::DatabaseError;
use serde_json::Value;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn database_contains_no_password() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let connect = kit.enable(at).await;
    let password = connect.password.reveal();
    for table in ["databases.databases", "databases.sequences", "store.audit"] {
        let rows = kit.db_rows(&format!("SELECT * FROM {table}")).await;
        assert!(!rows.is_empty());
        let text = Value::from(rows).to_string();
        // Postgres prints bytes in hexadecimal.
        assert!(!text.contains(password) && !text.contains(&kernel::hex(password.as_bytes())), "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn password_does_not_open_in_another_row() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.db_project("shop").await, kit.db_project("blog").await);
    let (shop_connect, blog_connect) = (kit.enable(shop).await, kit.enable(blog).await);
    assert_ne!(shop_connect.password, blog_connect.password);
    let swap = "UPDATE databases.databases d SET sealed = o.sealed FROM databases.databases o WHERE o.id <> d.id";
    kit.db_execute(swap).await;
    for at in [shop, blog] {
        let error = kit.databases.connect(at.project).await.unwrap_err();
        assert!(matches!(error, DatabaseError::Store(store::Error::Inconsistent(_))), "{error:?}");
    }
    // The endpoint does not contain the password, so it is still available.
    kit.databases.endpoint(shop.project).await.unwrap();
    kit.db_execute(swap).await;
    assert_eq!(kit.databases.connect(shop.project).await.unwrap(), shop_connect);
    let flip = "UPDATE databases.databases SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1)";
    kit.db_execute(flip).await;
    assert!(kit.databases.connect(shop.project).await.is_err());
}
