-- Several tasks may hold parts of one device. What is held of it is counted in thousandths, of compute and of memory;
-- all of a device is a thousand of both, so that nothing fits beside it.
ALTER TABLE gpus ADD COLUMN used_memory_milli BIGINT NOT NULL DEFAULT 0
    CONSTRAINT gpu_memory_shares CHECK (used_memory_milli BETWEEN 0 AND 1000);
UPDATE gpus SET used_memory_milli = used_milli;

-- Two tasks of one attempt may hold parts of one device. The slot is what is held: nothing for all of the device, `mps`
-- or `time-slice` for a part, `mig:<profile>@<start>` for an instance. `memory_mib` is what the task may use of the
-- memory; NULL for all of it.
DROP INDEX leases_live;
ALTER TABLE leases
    ADD COLUMN slot         TEXT   NOT NULL DEFAULT '',
    ADD COLUMN memory_milli BIGINT NOT NULL DEFAULT 1000 CHECK (memory_milli BETWEEN 1 AND 1000),
    ADD COLUMN memory_mib   BIGINT,
    ADD CONSTRAINT whole_leases CHECK (slot <> '' OR (compute_milli = 1000 AND memory_milli = 1000)),
    DROP CONSTRAINT leases_pkey,
    ADD PRIMARY KEY (number, idx, attempt, rank, node, gpu);
ALTER TABLE leases ALTER COLUMN slot DROP DEFAULT, ALTER COLUMN memory_milli DROP DEFAULT;
-- A device has at most one live holder of all of it, and each of its instances one. Parts are bounded by the counters.
CREATE UNIQUE INDEX leases_live ON leases (node, gpu, slot)
    WHERE to_ms IS NULL AND slot NOT IN ('mps', 'time-slice');

-- Quotas are counted in thousandths of GPUs. A limit stays a number of GPUs, at most so many that its thousandths are
-- a number that the table can hold.
ALTER TABLE tenants RENAME COLUMN gpus_used TO gpu_milli_used;
ALTER TABLE tenants RENAME COLUMN gpus_ceiling TO gpu_milli_ceiling;
UPDATE tenants SET
    gpu_milli_used = gpu_milli_used * 1000,
    max_gpus = CASE WHEN max_gpus > 9223372036854775 THEN 9223372036854775 ELSE max_gpus END,
    gpu_milli_ceiling =
        CASE WHEN gpu_milli_ceiling > 9223372036854775 THEN 9223372036854775 ELSE gpu_milli_ceiling END * 1000;

-- What a job takes of its tenant's quota; `gpus` is the number of devices. Said as a change of type, because an ended
-- job cannot be updated.
ALTER TABLE jobs ADD COLUMN gpu_milli BIGINT;
ALTER TABLE jobs ALTER COLUMN gpu_milli TYPE BIGINT USING gpus * 1000, ALTER COLUMN gpu_milli SET NOT NULL;

-- What a device is partitioned into, as JSON; an empty list if it is whole.
ALTER TABLE gpus ADD COLUMN mig TEXT NOT NULL DEFAULT '[]';
