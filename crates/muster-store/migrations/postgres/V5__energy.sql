-- Energy of each attempt in millijoules, at the power limits of its GPUs.
ALTER TABLE usage ADD COLUMN energy_mj BIGINT NOT NULL DEFAULT 0;
