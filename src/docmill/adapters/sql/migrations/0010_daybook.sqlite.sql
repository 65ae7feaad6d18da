-- Progress of jobs as it came, until it is posted to the tasks and their logs. Rows are only added at the end, so that a
-- commit of many reports writes a page or two.

CREATE TABLE daybook (
    task_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    version INTEGER NOT NULL,
    progress INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    data TEXT NOT NULL,
    at_ms INTEGER NOT NULL
);
