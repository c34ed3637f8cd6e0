DROP VIEW orgs.audit_events;
DROP VIEW orgs.user_profiles;
DROP TABLE orgs.notifications;
DROP TABLE orgs.invite_mails;
DROP TABLE orgs.invites;
DROP TABLE orgs.members;
DROP TABLE orgs.orgs;
DROP SCHEMA orgs;
