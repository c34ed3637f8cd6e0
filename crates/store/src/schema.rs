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

diesel::table! {
    store.idempotency (id) {
        id -> Uuid,
        caller -> Text,
        route -> Text,
        key -> Text,
        body -> Nullable<Binary>,
        attempt -> Integer,
        lease_until -> Timestamptz,
        committed -> Bool,
        answer -> Nullable<Binary>,
        key_id -> Nullable<Text>,
        expires_at -> Timestamptz,
    }
}

diesel::table! {
    store.outbox (id) {
        id -> Uuid,
        topic -> Text,
        key -> Text,
        payload -> Binary,
        key_id -> Text,
        attempts -> Integer,
        due_at -> Timestamptz,
        give_up_at -> Timestamptz,
        last_error -> Nullable<Text>,
        dead_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    store.rates (key) {
        key -> Text,
        full_at -> BigInt,
        granted -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(audit, idempotency, outbox, rates);
