//! The Postgres schema `orgs`, written by `cargo xtask codegen` from `migrations/`: change it there.

diesel::table! {
    orgs.audit (id) {
        id -> Uuid,
        event -> Text,
        org_id -> Nullable<Uuid>,
        actor_id -> Nullable<Uuid>,
        actor_subject -> Nullable<Text>,
        credential -> Text,
        target -> Text,
        data -> Jsonb,
        request_id -> Text,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    orgs.invites (id) {
        id -> Uuid,
        org_id -> Uuid,
        email -> Text,
        role -> Text,
        token_hash -> Binary,
        invited_by -> Uuid,
        created_at -> Timestamptz,
        expires_at -> Timestamptz,
        sent_at -> Nullable<Timestamptz>,
        ended_at -> Nullable<Timestamptz>,
        accepted_by -> Nullable<Uuid>,
    }
}

diesel::table! {
    orgs.members (org_id, user_id) {
        org_id -> Uuid,
        user_id -> Uuid,
        role -> Text,
        joined_at -> Timestamptz,
    }
}

diesel::table! {
    orgs.notifications (id) {
        id -> Uuid,
        org_id -> Uuid,
        kind -> Text,
        project -> Nullable<Text>,
        title -> Text,
        message -> Text,
        created_at -> Timestamptz,
        sent_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    orgs.orgs (id) {
        id -> Uuid,
        slug -> Text,
        name -> Text,
        plan -> Text,
        personal -> Bool,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    orgs.people (id) {
        id -> Uuid,
        provider -> Text,
        subject -> Text,
        name -> Nullable<Text>,
        avatar_url -> Nullable<Text>,
        email -> Nullable<Text>,
    }
}

diesel::joinable!(invites -> orgs (org_id));
diesel::joinable!(members -> orgs (org_id));
diesel::joinable!(notifications -> orgs (org_id));
diesel::allow_tables_to_appear_in_same_query!(audit, invites, members, notifications, orgs, people);
