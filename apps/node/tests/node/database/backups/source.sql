-- A database with every kind of object that a tenant can create. Its owner runs this script.

-- Many frameworks reset a database in this way.
DROP SCHEMA public CASCADE;
CREATE SCHEMA public;
GRANT USAGE ON SCHEMA public TO PUBLIC;
CREATE EXTENSION pg_trgm;
COMMENT ON EXTENSION pg_trgm IS 'text; DROP TABLE people; -- search';
CREATE SCHEMA "odd
-- ""schema""; \connect postgres";
CREATE TYPE mood AS ENUM ('sad', 'it''s "ok"');
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TYPE pair AS (a integer, b text);
-- ICU is not used, because some builds of Postgres lack it.
CREATE COLLATION german (provider = libc, locale = 'C');
CREATE TABLE people (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    mood mood DEFAULT 'sad',
    age positive,
    pair pair,
    tags text[],
    content bytea,
    upper_name text GENERATED ALWAYS AS (upper(name)) STORED
);
INSERT INTO people (name, age, pair, tags, content)
    SELECT 'person ' || i, i, ROW(i, E'tab\t newline\n'::text)::pair, ARRAY['a', NULL, '{}'], decode(repeat(lpad(to_hex(i), 2, '0'), 100), 'hex')
    FROM generate_series(1, 255) AS i;
CREATE INDEX people_trigrams ON people USING gin (name public.gin_trgm_ops);
CREATE TABLE "odd
-- ""schema""; \connect postgres"."odd
\! touch /var/tmp/svc-node-injected
-- ""table""" ("odd ""column""
--" text COLLATE public.german DEFAULT E'\'; DROP TABLE people; --');
INSERT INTO "odd
-- ""schema""; \connect postgres"."odd
\! touch /var/tmp/svc-node-injected
-- ""table""" DEFAULT VALUES;
INSERT INTO "odd
-- ""schema""; \connect postgres"."odd
\! touch /var/tmp/svc-node-injected
-- ""table""" VALUES (E'\\.'), (E'\\N'), (NULL), (E'line\n\\.\nline'), ('');
COMMENT ON TABLE people IS E'it''s\n-- Name: x; Type: ACL\n\\connect postgres\n\\! touch /var/tmp/svc-node-injected';
CREATE TABLE orders (id bigserial, person integer REFERENCES people, at timestamptz) PARTITION BY RANGE (at);
CREATE TABLE orders_old PARTITION OF orders FOR VALUES FROM (MINVALUE) TO ('2026-01-01');
CREATE TABLE orders_new PARTITION OF orders DEFAULT;
INSERT INTO orders (person, at) SELECT i, '2025-12-01'::timestamptz + i * interval '1 day' FROM generate_series(1, 60) AS i;
SELECT nextval('orders_id_seq') FROM generate_series(1, 5);
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN NEW.name := NEW.name || '!'; RETURN NEW; END $f$;
CREATE TRIGGER touch BEFORE UPDATE ON people FOR EACH ROW EXECUTE FUNCTION touch();
CREATE VIEW adults AS SELECT * FROM public.people WHERE age >= 18;
CREATE RULE ignore_delete AS ON DELETE TO adults DO INSTEAD NOTHING;
CREATE MATERIALIZED VIEW ages AS SELECT age, count(*) FROM public.people GROUP BY age;
CREATE STATISTICS people_statistics ON name, age FROM people;
CREATE PUBLICATION changes FOR TABLE people;
-- As in many applications with several tenants, the policies also apply to the owner.
CREATE TABLE secrets (tenant text, secret text);
INSERT INTO secrets VALUES ('a', 'x'), ('b', 'y');
ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON secrets USING (tenant = current_setting('app.tenant'));
COMMENT ON POLICY own ON secrets IS 'the policy';
CREATE MATERIALIZED VIEW visible AS SELECT * FROM public.secrets WITH NO DATA;
SELECT lo_from_bytea(424242, decode(repeat('00ff', 5000), 'hex'));
COMMENT ON LARGE OBJECT 424242 IS 'a large object';
GRANT SELECT ON LARGE OBJECT 424242 TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC;
CREATE TABLE granted (id integer);
REVOKE ALL ON FUNCTION touch() FROM PUBLIC;
