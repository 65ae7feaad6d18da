-- The final report that ended a job. Its artifacts lie in a folder of this name; other folders are of reports that lost.
ALTER TABLE attempts ADD COLUMN report_id TEXT;
CREATE INDEX attempts_of_reports ON attempts (ended_ms) WHERE collected_ms IS NULL AND report_id IS NOT NULL;

-- Tasks as lists show them name the archives that a report lacks.
UPDATE tasks SET face = replace(face, ',"cache_hit":', ',"missing_archives":[],"cache_hit":')
WHERE face NOT LIKE '%"missing_archives":%';
