//! The Postgres schema `resources`, written by `cargo xtask codegen` from `migrations/`: change it there.

diesel::table! {
    resources.grants (project_id, resource) {
        project_id -> Uuid,
        resource -> Text,
        granted_at -> Timestamptz,
    }
}
