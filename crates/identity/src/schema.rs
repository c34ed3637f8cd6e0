//! The Postgres schema `identity`, written by `cargo xtask codegen` from `migrations/`: change it there.

diesel::table! {
    identity.access_tokens (id) {
        id -> Uuid,
        user_id -> Uuid,
        name -> Text,
        token_hash -> Binary,
        prefix -> Text,
        scopes -> Array<Text>,
        only_org -> Nullable<Uuid>,
        only_projects -> Nullable<Array<Uuid>>,
        only_zones -> Nullable<Array<Uuid>>,
        created_at -> Timestamptz,
        expires_at -> Nullable<Timestamptz>,
        last_used_at -> Nullable<Timestamptz>,
        revoked_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    identity.logins (state_hash) {
        state_hash -> Binary,
        browser_hash -> Binary,
        redirect -> Text,
        expires_at -> Timestamptz,
    }
}

diesel::table! {
    identity.restrictions (token_id) {
        token_id -> Nullable<Uuid>,
        org -> Nullable<Text>,
        projects -> Nullable<Array<Text>>,
        zones -> Nullable<Array<Text>>,
    }
}

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
    identity.ssh_keys (id) {
        id -> Uuid,
        user_id -> Uuid,
        title -> Text,
        kind -> Text,
        fingerprint -> Text,
        public_key -> Text,
        created_at -> Timestamptz,
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

diesel::joinable!(access_tokens -> users (user_id));
diesel::joinable!(sessions -> users (user_id));
diesel::joinable!(ssh_keys -> users (user_id));
diesel::allow_tables_to_appear_in_same_query!(access_tokens, logins, restrictions, sessions, ssh_keys, users);
