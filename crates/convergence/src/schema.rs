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
    convergence.parts (project_id, part) {
        project_id -> Uuid,
        part -> Text,
        node_id -> Nullable<Uuid>,
        revision -> BigInt,
        desired -> Nullable<Jsonb>,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    convergence.placements (project_id) {
        project_id -> Uuid,
        node_id -> Nullable<Uuid>,
        state -> Text,
        epoch -> BigInt,
        created_at -> Timestamptz,
    }
}

diesel::joinable!(parts -> placements (project_id));
diesel::joinable!(placements -> nodes (node_id));
diesel::allow_tables_to_appear_in_same_query!(nodes, parts, placements);
