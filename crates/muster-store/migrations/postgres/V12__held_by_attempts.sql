-- What an attempt takes from its tenant's quota: more than its job asked for where the gang is elastic or an instance of a
-- GPU is larger. Attempts from before this version were counted as their jobs asked.
ALTER TABLE attempts ADD COLUMN gpu_milli BIGINT;
ALTER TABLE attempts ADD COLUMN gpu_memory_mib BIGINT;
UPDATE attempts SET gpu_milli = (SELECT gpu_milli FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx),
    gpu_memory_mib = (SELECT gpu_memory_mib FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx),
    cpus = (SELECT cpus FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx),
    memory_mib = (SELECT memory_mib FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx);

-- Usage counted until the server heard of the end.
UPDATE attempts SET charged_until = ended_at WHERE ended_at IS NOT NULL AND charged_until IS NULL;

-- Keys that were used before they had a table of their own: a retry after the upgrade makes no second job.
INSERT INTO submission_keys (tenant, key, number, body_hash, at_ms)
SELECT DISTINCT ON (1, 2) payload::json #>> '{spec,tenant}', payload::json #>> '{key,key}', job_number,
    payload::json #>> '{key,body_hash}', CAST(payload::json #>> '{at}' AS BIGINT)
FROM journal
WHERE kind = 'JobSubmitted' AND payload::json #>> '{key,key}' IS NOT NULL
    AND CAST(payload::json #>> '{at}' AS BIGINT) >= COALESCE(
        (SELECT max(CAST(payload::json #>> '{before}' AS BIGINT)) FROM journal WHERE kind = 'Forgotten'), 0)
ORDER BY 1, 2, seq DESC
ON CONFLICT (tenant, key) DO NOTHING;
