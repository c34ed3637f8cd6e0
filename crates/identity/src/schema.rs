//! The Postgres schema `identity`, written by `cargo xtask codegen` from `migrations/`: change it there.

diesel::table! {
    identity.sessions (id) {
        id -> Uuid,
        user_id -> Uuid,
        token_hash -> Binary,
        user_agent -> Nullable<Text>,
        created_at -> Timestamptz,
        expires_at -> Timestamptz,
        last_used_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    identity.users (id) {
        id -> Uuid,
        provider -> Text,
        subject -> Text,
        name -> Nullable<Text>,
        email -> Nullable<Text>,
        avatar_url -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

diesel::joinable!(sessions -> users (user_id));
diesel::allow_tables_to_appear_in_same_query!(sessions, users);
