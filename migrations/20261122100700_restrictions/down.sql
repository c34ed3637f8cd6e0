DROP VIEW identity.restrictions;
