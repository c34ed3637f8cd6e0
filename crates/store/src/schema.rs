//! The Postgres schema `store`, written by `cargo xtask codegen` from `migrations/`: change it there.

diesel::table! {
    store.audit (id) {
        id -> Uuid,
        event -> Text,
        org_id -> Nullable<Uuid>,
        actor_id -> Nullable<Uuid>,
        credential -> Text,
        target -> Text,
        data -> Jsonb,
        request_id -> Text,
        created_at -> Timestamptz,
    }
}
