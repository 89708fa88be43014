-- The state of a node has two axes: service, as operators set it, and sight, whether the leader hears its agent. The
-- columns state, set_by, why and since keep the one word for both. An earlier release replaced one word by the next.
ALTER TABLE nodes ADD COLUMN service TEXT NOT NULL DEFAULT 'Ready';
ALTER TABLE nodes ADD COLUMN service_by TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN service_why TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN service_since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN sight TEXT NOT NULL DEFAULT 'Seen';
ALTER TABLE nodes ADD COLUMN sight_by TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN sight_why TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN sight_since INTEGER NOT NULL DEFAULT 0;
UPDATE nodes SET
    service = CASE WHEN state IN ('Draining', 'Hold') THEN state ELSE 'Ready' END,
    service_by = set_by, service_why = why, service_since = since,
    sight = CASE WHEN state IN ('Suspect', 'Unreachable', 'Fenced') THEN state ELSE 'Seen' END,
    sight_by = set_by, sight_why = why, sight_since = since;
