DROP TABLE store.saga_steps;
DROP TABLE store.sagas;
DROP TABLE store.idempotency;
DROP TABLE store.rate_limits;
DROP TABLE store.outbox;
DROP TABLE store.audit;
DROP FUNCTION store.reject_change();
DROP SCHEMA store;
