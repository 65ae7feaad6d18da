-- Backups are restored into an empty deployment and keep their numbers, so nothing has to be remembered about imports.
DROP TABLE imports;
DROP TABLE identity;
