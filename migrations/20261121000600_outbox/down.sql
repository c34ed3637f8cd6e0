DROP TABLE store.outbox;
