DROP TABLE store.audit;
DROP FUNCTION store.refuse_change();
DROP SCHEMA store;
