DROP TABLE domains.charges;
DROP TABLE domains.history;
DROP TABLE domains.contacts;
DROP TABLE domains.domains;
DROP SCHEMA domains;
