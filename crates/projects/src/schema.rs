//! The Postgres schema `projects`, written by `cargo xtask codegen` from `migrations/`: change it there.

diesel::table! {
    projects.counts (org_id) {
        org_id -> Uuid,
        projects -> BigInt,
    }
}

diesel::table! {
    projects.deployments (id) {
        id -> Uuid,
        project_id -> Uuid,
        version -> Integer,
        digest -> Binary,
        size_bytes -> BigInt,
        manifest -> Jsonb,
        has_worker -> Bool,
        asset_count -> Integer,
        git_commit -> Nullable<Text>,
        git_message -> Nullable<Text>,
        git_branch -> Nullable<Text>,
        git_dirty -> Nullable<Bool>,
        created_by -> Uuid,
        created_by_subject -> Text,
        created_at -> Timestamptz,
        status -> Text,
        status_message -> Nullable<Text>,
    }
}

diesel::table! {
    projects.former_hostnames (name) {
        name -> Text,
        org_id -> Uuid,
        active_at -> Timestamptz,
    }
}

diesel::table! {
    projects.hostnames (name) {
        name -> Text,
        project_id -> Uuid,
        kind -> Text,
        state -> Text,
        verification_token -> Nullable<Text>,
        last_error -> Nullable<Text>,
        created_at -> Timestamptz,
        verified_at -> Nullable<Timestamptz>,
        proof -> Nullable<Text>,
        checks -> Nullable<Jsonb>,
        check_at -> Nullable<Timestamptz>,
        lost_at -> Nullable<Timestamptz>,
        lapses_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    projects.placements (project_id) {
        project_id -> Uuid,
        state -> Text,
        epoch -> BigInt,
    }
}

diesel::table! {
    projects.projects (id) {
        id -> Uuid,
        org_id -> Uuid,
        name -> Text,
        access_mode -> Text,
        last_version -> Integer,
        live_version -> Nullable<Integer>,
        created_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
        access_password -> Nullable<Text>,
        access_changed_at -> Nullable<Timestamptz>,
        access_version -> Integer,
        bypass_hash -> Nullable<Binary>,
        bypass_created_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    projects.used_codes (id) {
        id -> Uuid,
        expires_at -> Timestamptz,
    }
}

diesel::joinable!(deployments -> projects (project_id));
diesel::joinable!(hostnames -> projects (project_id));
diesel::allow_tables_to_appear_in_same_query!(
    counts,
    deployments,
    former_hostnames,
    hostnames,
    placements,
    projects,
    used_codes
);
