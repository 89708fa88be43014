-- What an attempt takes from its tenant's quota: more than its job asked for where the gang is elastic or an instance of a
-- GPU is larger. Attempts that are live were counted as their jobs asked, and give back as much.
ALTER TABLE attempts ADD COLUMN gpu_milli INTEGER;
ALTER TABLE attempts ADD COLUMN gpu_memory_mib INTEGER;
UPDATE attempts SET
    gpu_milli = (SELECT gpu_milli FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx),
    gpu_memory_mib = (SELECT gpu_memory_mib FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx),
    cpus = (SELECT cpus FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx),
    memory_mib = (SELECT memory_mib FROM jobs WHERE jobs.number = attempts.number AND jobs.idx = attempts.idx)
    WHERE ended_at IS NULL;
