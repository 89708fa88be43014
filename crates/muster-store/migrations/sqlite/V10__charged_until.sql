-- Usage is charged until the processes of an attempt were gone; `ended_at` is when the server knew, and the leases were
-- released. Absent for attempts that ended under an older release: for those both are `ended_at`.
ALTER TABLE attempts ADD COLUMN charged_until INTEGER;
