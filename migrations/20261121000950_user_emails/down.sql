DROP INDEX CONCURRENTLY identity.users_email_idx;
