-- What an attempt takes from its tenant's quota: more than its job asked for where the gang is elastic or an instance of a
-- GPU is larger. Attempts from before this version were counted as their jobs asked.
ALTER TABLE attempts ADD COLUMN gpu_milli INTEGER;
ALTER TABLE attempts ADD COLUMN gpu_memory_mib INTEGER;
UPDATE attempts SET gpu_milli = (SELECT gpu_milli FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx),
    gpu_memory_mib = (SELECT gpu_memory_mib FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx),
    cpus = (SELECT cpus FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx),
    memory_mib = (SELECT memory_mib FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx);

-- Usage counted until the server heard of the end.
UPDATE attempts SET charged_until = ended_at WHERE ended_at IS NOT NULL AND charged_until IS NULL;

-- Keys that were used before they had a table of their own: a retry after the upgrade makes no second job.
INSERT INTO submission_keys (tenant, key, number, body_hash, at_ms)
SELECT json_extract(payload, '$.spec.tenant'), json_extract(payload, '$.key.key'), job_number,
    json_extract(payload, '$.key.body_hash'), json_extract(payload, '$.at')
FROM journal
WHERE kind = 'JobSubmitted' AND json_extract(payload, '$.key.key') IS NOT NULL
    AND json_extract(payload, '$.at') >= COALESCE((SELECT max(json_extract(payload, '$.before')) FROM journal WHERE kind = 'Forgotten'), 0)
ORDER BY seq
ON CONFLICT (tenant, key) DO UPDATE SET
    number = excluded.number, body_hash = excluded.body_hash, at_ms = excluded.at_ms;
