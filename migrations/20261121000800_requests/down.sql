DROP TABLE store.idempotency;
DROP TABLE store.rates;
