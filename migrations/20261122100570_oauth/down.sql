DROP TABLE oauth.device_codes;
DROP TABLE oauth.refresh_tokens;
DROP TABLE oauth.codes;
DROP TABLE oauth.grants;
DROP TABLE oauth.signing_keys;
DROP TABLE oauth.clients;
DROP SCHEMA oauth;
