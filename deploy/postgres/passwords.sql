-- Gives the roles the passwords that the two addresses under /run/secrets hold, so that each is written down once. A
-- password there is plain letters and digits.
\set owner_password `sed -E 's,^postgres://[^:]+:([^@]+)@.*$,\1,' /run/secrets/database_owner_url`
\set password `sed -E 's,^postgres://[^:]+:([^@]+)@.*$,\1,' /run/secrets/database_url`
ALTER ROLE svc_owner PASSWORD :'owner_password';
ALTER ROLE svc PASSWORD :'password';
