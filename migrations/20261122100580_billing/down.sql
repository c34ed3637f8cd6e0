DROP TABLE billing.ledger;
DROP TABLE billing.accounts;
DROP TABLE billing.subscriptions;
DROP TABLE billing.customers;
DROP TABLE billing.unassigned_events;
DROP TABLE billing.webhooks;
DROP SCHEMA billing;
