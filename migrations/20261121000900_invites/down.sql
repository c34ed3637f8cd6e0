DROP VIEW orgs.people;
CREATE VIEW orgs.people AS
    SELECT id, provider, subject, name, avatar_url FROM identity.users;
DROP TABLE orgs.notifications;
DROP TABLE orgs.invites;
