DROP TABLE store.idempotency;
DROP TABLE store.rates;
DROP TABLE store.outbox;
DROP TABLE store.audit;
DROP FUNCTION store.refuse_change();
DROP SCHEMA store;
