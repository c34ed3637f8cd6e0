DROP TABLE dns.deleted_zones;
DROP TABLE dns.zone_counts;
DROP TABLE dns.changes;
DROP TABLE dns.rrsets;
DROP TABLE dns.zones;
DROP FUNCTION dns.count_deleted_zones();
DROP FUNCTION dns.count_inserted_zones();
DROP SCHEMA dns;
