-- Sets the passwords of the roles to those in the two addresses under /run/secrets, so that each password is stored in
-- only one file. The passwords may contain only letters and digits.
\set owner_password `sed -E 's,^postgres://[^:]+:([^@]+)@.*$,\1,' /run/secrets/database_owner_url`
\set password `sed -E 's,^postgres://[^:]+:([^@]+)@.*$,\1,' /run/secrets/database_url`
ALTER ROLE svc_owner PASSWORD :'owner_password';
ALTER ROLE svc PASSWORD :'password';
