//! The Postgres schema `dns`, written by `cargo xtask codegen` from `migrations/`: change it there.

diesel::table! {
    dns.changes (zone_id, number) {
        zone_id -> Uuid,
        number -> BigInt,
        from_serial -> BigInt,
        to_serial -> BigInt,
        name -> Text,
        kind -> Text,
        old_ttl -> Nullable<Integer>,
        old_rdata -> Nullable<Binary>,
        new_ttl -> Nullable<Integer>,
        new_rdata -> Nullable<Binary>,
    }
}

diesel::table! {
    dns.rrsets (zone_id, name, kind) {
        zone_id -> Uuid,
        name -> Text,
        kind -> Text,
        ttl -> Integer,
        rdata -> Binary,
        managed_by -> Nullable<Text>,
    }
}

diesel::table! {
    dns.zones (id) {
        id -> Uuid,
        org_id -> Nullable<Uuid>,
        name -> Text,
        path -> Text,
        serial -> BigInt,
        rrset_count -> Integer,
        last_change -> BigInt,
        dnssec_state -> Text,
        ds -> Jsonb,
        signer -> Nullable<Jsonb>,
        look_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
    }
}

diesel::joinable!(changes -> zones (zone_id));
diesel::joinable!(rrsets -> zones (zone_id));
diesel::allow_tables_to_appear_in_same_query!(changes, rrsets, zones);
