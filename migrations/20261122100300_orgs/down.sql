DROP VIEW orgs.audit;
DROP VIEW orgs.people;
DROP TABLE orgs.notifications;
DROP TABLE orgs.invites;
DROP TABLE orgs.members;
DROP TABLE orgs.orgs;
DROP SCHEMA orgs;
