-- A tenant's jobs are found by tenant and state, one walk for each state: one index less to write for each job.
DROP INDEX jobs_by_tenant;
-- New jobs are counted by the statement that brings them in, once for an array of a thousand.
DROP TRIGGER jobs_counted_on_insert;
