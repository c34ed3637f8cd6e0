//! The Postgres schema `convergence`, written by `cargo xtask codegen` from `migrations/`: change it there.

diesel::table! {
    convergence.nodes (id) {
        id -> Uuid,
        name -> Text,
        token_hash -> Binary,
        revision -> BigInt,
        created_at -> Timestamptz,
        seen_at -> Nullable<Timestamptz>,
        batch -> BigInt,
        placements -> BigInt,
    }
}

diesel::table! {
    convergence.placements (project_id) {
        project_id -> Uuid,
        node_id -> Nullable<Uuid>,
        state -> Text,
        epoch -> BigInt,
        revision -> BigInt,
        desired -> Nullable<Jsonb>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::joinable!(placements -> nodes (node_id));
diesel::allow_tables_to_appear_in_same_query!(nodes, placements);
