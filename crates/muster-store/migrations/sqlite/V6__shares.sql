-- Several tasks may hold parts of one device. What is held of it is counted in thousandths, of compute and of memory;
-- all of a device is a thousand of both, so that nothing fits beside it.
ALTER TABLE gpus ADD COLUMN used_memory_milli INTEGER NOT NULL DEFAULT 0
    CONSTRAINT gpu_memory_shares CHECK (used_memory_milli BETWEEN 0 AND 1000);
UPDATE gpus SET used_memory_milli = used_milli;

-- Two tasks of one attempt may hold parts of one device. The slot is what is held: nothing for all of the device, `mps`
-- or `time-slice` for a part, `mig:<profile>@<start>` for an instance.
CREATE TABLE shared_leases (
    number        INTEGER NOT NULL,
    idx           INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    rank          INTEGER NOT NULL,
    node          TEXT    NOT NULL,
    gpu           INTEGER NOT NULL,
    job           TEXT    NOT NULL,
    seq           INTEGER NOT NULL,
    tenant        TEXT    NOT NULL,
    slot          TEXT    NOT NULL,
    compute_milli INTEGER NOT NULL CHECK (compute_milli BETWEEN 1 AND 1000),
    memory_milli  INTEGER NOT NULL CHECK (memory_milli BETWEEN 1 AND 1000),
    -- What the task may use of the memory; NULL for all of it.
    memory_mib    INTEGER,
    from_ms       INTEGER NOT NULL,
    to_ms         INTEGER,
    PRIMARY KEY (number, idx, attempt, rank, node, gpu),
    CONSTRAINT whole_leases CHECK (slot <> '' OR (compute_milli = 1000 AND memory_milli = 1000))
) STRICT, WITHOUT ROWID;
INSERT INTO shared_leases (number, idx, attempt, rank, node, gpu, job, seq, tenant, slot, compute_milli, memory_milli,
    from_ms, to_ms)
SELECT number, idx, attempt, rank, node, gpu, job, seq, tenant, '', 1000, 1000, from_ms, to_ms FROM leases;
DROP TABLE leases;
ALTER TABLE shared_leases RENAME TO leases;
-- A device has at most one live holder of all of it, and each of its instances one. Parts are bounded by the counters.
CREATE UNIQUE INDEX leases_live ON leases (node, gpu, slot)
    WHERE to_ms IS NULL AND slot NOT IN ('mps', 'time-slice');
CREATE INDEX leases_by_node ON leases (node, seq);

-- Quotas are counted in thousandths of GPUs. A limit stays a number of GPUs, at most so many that its thousandths are
-- a number that the table can hold.
ALTER TABLE tenants RENAME COLUMN gpus_used TO gpu_milli_used;
ALTER TABLE tenants RENAME COLUMN gpus_ceiling TO gpu_milli_ceiling;
UPDATE tenants SET
    gpu_milli_used = gpu_milli_used * 1000,
    max_gpus = CASE WHEN max_gpus > 9223372036854775 THEN 9223372036854775 ELSE max_gpus END,
    gpu_milli_ceiling =
        CASE WHEN gpu_milli_ceiling > 9223372036854775 THEN 9223372036854775 ELSE gpu_milli_ceiling END * 1000;

-- What a job takes of its tenant's quota; `gpus` is the number of devices.
ALTER TABLE jobs ADD COLUMN gpu_milli INTEGER NOT NULL DEFAULT 0;
DROP TRIGGER jobs_stay_ended;
UPDATE jobs SET gpu_milli = gpus * 1000;
CREATE TRIGGER jobs_stay_ended BEFORE UPDATE ON jobs WHEN OLD.ended_at IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'an ended job was changed');
END;

-- What a device is partitioned into, as JSON; an empty list if it is whole.
ALTER TABLE gpus ADD COLUMN mig TEXT NOT NULL DEFAULT '[]';
