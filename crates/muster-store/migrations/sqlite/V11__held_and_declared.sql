-- What an attempt held until it ended. Attempts that ended before this version have what their charge tells; main memory
-- is charged by the GiB, so that of a very short one stays unknown.
ALTER TABLE attempts ADD COLUMN cpus INTEGER;
ALTER TABLE attempts ADD COLUMN memory_mib INTEGER;
ALTER TABLE attempts ADD COLUMN planned_ms INTEGER;
ALTER TABLE attempts ADD COLUMN cost_per_hour_micro INTEGER;
UPDATE attempts SET cpus = cpu_ms / (ended_at - placed_at) WHERE ended_at > placed_at;
UPDATE attempts SET memory_mib = (memory_gib_ms * 1024 + (ended_at - placed_at) / 2) / (ended_at - placed_at)
    WHERE ended_at - placed_at > 2048;

-- A declared node has no agent yet. Labels and taints of operators, as JSON; NULL leaves them to the agent.
ALTER TABLE nodes ADD COLUMN declared INTEGER NOT NULL DEFAULT FALSE;
ALTER TABLE nodes ADD COLUMN labels TEXT;
ALTER TABLE nodes ADD COLUMN taints TEXT;
