DROP VIEW identity.token_restrictions;
