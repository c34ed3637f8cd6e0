DROP TABLE dns.changes;
DROP TABLE dns.rrsets;
DROP TABLE dns.zones;
DROP SCHEMA dns;
