DROP VIEW projects.hostname_tls;
DROP VIEW certificates.hostnames;
DROP TABLE certificates.orders;
DROP TABLE certificates.certificates;
DROP TABLE certificates.names;
DROP TABLE certificates.pauses;
DROP TABLE certificates.accounts;
DROP SCHEMA certificates;
